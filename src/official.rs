//! The interpreter's own `PyUnstable_InterpreterFrame_GetLocal` (CPython 3.16
//! and later), found by name and only used once [`crate::canary`] has proved its
//! signature.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::exported::CodeOfFrame;
use crate::object::Object;
use crate::read::{CO_OPTIMIZED, Fault, Functions, Interpreter, Packed};
use crate::runtime::{PendingException, Running, Symbols, attribute};

/// The symbol's name, also for messages.
pub const SYMBOL: &CStr = c"PyUnstable_InterpreterFrame_GetLocal";

type GetLocal = unsafe extern "C" fn(usize, isize, *mut *mut PyObject) -> c_int;
type GetLocalPlusNames = unsafe extern "C" fn(*mut PyObject) -> *mut PyObject;

/// The official functions that this interpreter exports.
#[derive(Clone, Copy)]
pub struct Official {
    /// `int (*)(frame, index, PyObject **result)`, if it is what 3.16 has.
    pub get_local: GetLocal,
    code: Code,
    names: Option<GetLocalPlusNames>,
    /// It answers what the official functions do not.
    layout: Option<&'static Functions>,
}

/// How a frame's code object is found, to tell shim frames apart: the official
/// function reads their slots as if there were any.
#[derive(Clone, Copy)]
enum Code {
    Layout(&'static Functions),
    /// `PyUnstable_InterpreterFrame_GetCode`, since 3.12.
    Official(CodeOfFrame),
}

static ADOPTED: OnceLock<Official> = OnceLock::new();

/// The reading functions of the official provider.
pub static FUNCTIONS: Functions = Functions {
    code,
    lasti,
    count,
    names,
    kind,
    get,
    get_local: |frame, index| {
        let mut value = null_mut();
        // SAFETY: passed on to the caller; `value` can be written to.
        let found = unsafe { get(frame, index, 0, &raw mut value) };
        Packed::new(found.map(|_| NonNull::new(value)))
    },
    get_all,
    drop_all: |values, count| {
        for index in 0..count {
            // SAFETY: the caller promises that many elements.
            let value = unsafe { values.wrapping_add(index).read() };
            // SAFETY: NULL, or a reference that the caller gives away.
            unsafe { ffi::Py_DecRef(value) };
        }
    },
    position,
    namespace,
    parameters: |frame| {
        let layout = adopted()?.layout.ok_or(Fault::Unanswerable)?;
        // SAFETY: passed on to the caller.
        unsafe { (layout.parameters)(frame) }
    },
    // Not by the official function, which looks into an argument that is a cell.
    argument: |frame, index| match ADOPTED.get().and_then(|official| official.layout) {
        // SAFETY: passed on to the caller.
        Some(layout) => unsafe { (layout.argument)(frame, index) },
        None => Packed::new(Err(Fault::Unanswerable)),
    },
    direct: None,
    questions: None,
};

impl Official {
    /// Looks the functions up. `Ok(None)` if this interpreter lacks the symbol,
    /// an error if it has it but nothing that tells shim frames apart. `layout` is
    /// the proved layout of this interpreter, if there is one.
    pub fn find(
        symbols: &Symbols,
        get_code: Option<CodeOfFrame>,
        layout: Option<&'static Functions>,
    ) -> Result<Option<Self>, &'static str> {
        let Some(address) = symbols.find(SYMBOL) else {
            return Ok(None);
        };
        Symbols::pin(address);
        // SAFETY: an address of a function is one whatever its signature. What
        // it does with these arguments is tried on a canary frame first.
        let get_local = unsafe { std::mem::transmute::<*mut c_void, GetLocal>(address.as_ptr()) };
        let code = match (layout, get_code) {
            (Some(layout), _) => Code::Layout(layout),
            (None, Some(get_code)) => Code::Official(get_code),
            (None, None) => {
                return Err("there is neither PyUnstable_InterpreterFrame_GetCode nor a layout");
            }
        };
        let names = symbols.find(c"PyUnstable_Code_GetLocalPlusNames");
        Ok(Some(Self {
            get_local,
            code,
            // SAFETY: that name came with the official function, with this
            // signature; the canary compares its answer.
            names: names.map(|address| unsafe {
                std::mem::transmute::<*mut c_void, GetLocalPlusNames>(address.as_ptr())
            }),
            layout,
        }))
    }

    /// Makes this what [`FUNCTIONS`] use, for good.
    pub fn adopt(self) {
        // Only one thread chooses, and only once.
        let _ = ADOPTED.set(self);
    }

    /// The frame's code object, borrowed from the frame.
    ///
    /// # Safety
    /// As [`crate::read::code`].
    pub unsafe fn code(&self, frame: usize) -> Result<NonNull<PyObject>, Fault> {
        let get_code = match self.code {
            // SAFETY: passed on to the caller.
            Code::Layout(functions) => return unsafe { (functions.code)(frame) },
            Code::Official(get_code) => get_code,
        };
        // SAFETY: the frame is alive, by the caller's promise.
        let executable = unsafe { get_code(frame) };
        // SAFETY: GetCode gives a reference away.
        let executable = unsafe { Object::from_owned_ptr(executable) }.ok_or(Fault::NotCode)?;
        // SAFETY: `executable` is a live object.
        let ty = unsafe { ffi::PyObject_Type(executable.as_ptr()) };
        // SAFETY: PyObject_Type gives a reference away.
        let ty = unsafe { Object::from_owned_ptr(ty) }.ok_or(Fault::NotCode)?;
        if ty.as_ptr() as usize != Running::code_type() {
            // Shim frames have None.
            return Err(Fault::Shim);
        }
        // The frame still has its own reference.
        NonNull::new(executable.as_ptr()).ok_or(Fault::NotCode)
    }

    /// The names of the slots of `code`, a tuple.
    ///
    /// # Safety
    /// `code` is a live code object, and the thread is attached.
    pub unsafe fn names_of(&self, code: NonNull<PyObject>) -> Option<Object> {
        let _pending = PendingException::take();
        let names = match self.names {
            Some(get_names) => {
                // SAFETY: `code` is a code object, by the caller's promise.
                let names = unsafe { get_names(code.as_ptr()) };
                // SAFETY: GetLocalPlusNames gives a reference away.
                unsafe { Object::from_owned_ptr(names) }
            }
            None => {
                // SAFETY: `code` is alive, by the caller's promise.
                let code = unsafe { Object::from_borrowed_ptr(code.as_ptr()) }?;
                names_from_attributes(&code)
            }
        };
        if names.is_none() {
            // SAFETY: the thread is attached. The caller reports the failure.
            unsafe { ffi::PyErr_Clear() };
        }
        names
    }
}

/// CPython orders the slots like this: local variables, then cell variables
/// that are not among them, then free variables (`compute_localsplus_info`,
/// `Python/assemble.c`).
fn names_from_attributes(code: &Object) -> Option<Object> {
    let sequence = |name| {
        let tuple = attribute(code, name)?;
        // SAFETY: `tuple` is alive.
        let list = unsafe { ffi::PySequence_List(tuple.as_ptr()) };
        // SAFETY: PySequence_List gives a reference away.
        unsafe { Object::from_owned_ptr(list) }
    };
    let names = sequence(c"co_varnames")?;
    let cells = sequence(c"co_cellvars")?;
    // SAFETY: `cells` is a list.
    let cell_count = unsafe { ffi::PyList_Size(cells.as_ptr()) };
    for index in 0..cell_count {
        // SAFETY: `index` is below the list's size; the answer is borrowed.
        let name = unsafe { ffi::PyList_GetItem(cells.as_ptr(), index) };
        // SAFETY: both are alive; comparing strings runs no Python code.
        if unsafe { ffi::PySequence_Contains(names.as_ptr(), name) } == 0 {
            // SAFETY: `names` is a list; it takes its own reference.
            unsafe { ffi::PyList_Append(names.as_ptr(), name) };
        }
    }
    let free = sequence(c"co_freevars")?;
    // SAFETY: both are lists; the answer is a new reference or NULL.
    let all = unsafe { ffi::PySequence_Concat(names.as_ptr(), free.as_ptr()) };
    // SAFETY: PySequence_Concat gives a reference away.
    let all = unsafe { Object::from_owned_ptr(all) }?;
    // SAFETY: `all` is a list; the answer is a new reference or NULL.
    let tuple = unsafe { ffi::PyList_AsTuple(all.as_ptr()) };
    // SAFETY: PyList_AsTuple gives a reference away.
    unsafe { Object::from_owned_ptr(tuple) }
}

fn adopted() -> Result<&'static Official, Fault> {
    ADOPTED.get().ok_or(Fault::Unanswerable)
}

/// # Safety
/// As [`crate::read::code`].
unsafe fn code(frame: usize) -> Result<NonNull<PyObject>, Fault> {
    // SAFETY: passed on to the caller.
    unsafe { adopted()?.code(frame) }
}

/// # Safety
/// As [`crate::read::code`].
unsafe fn lasti(frame: usize) -> Result<isize, Fault> {
    let layout = adopted()?.layout.ok_or(Fault::Unanswerable)?;
    // SAFETY: passed on to the caller.
    unsafe { (layout.lasti)(frame) }
}

/// # Safety
/// As [`crate::read::code`].
unsafe fn count(frame: usize) -> Result<usize, Fault> {
    if let Some(layout) = adopted()?.layout {
        // SAFETY: passed on to the caller.
        return unsafe { (layout.count)(frame) };
    }
    // SAFETY: passed on to the caller.
    let names = unsafe { names(frame) }?;
    // SAFETY: `names` gives a reference away.
    let names = unsafe { Object::from_owned_ptr(names.as_ptr()) }.ok_or(Fault::Unanswerable)?;
    // SAFETY: it is a tuple.
    let size = unsafe { ffi::PyTuple_Size(names.as_ptr()) };
    usize::try_from(size).map_err(|_| Fault::Unanswerable)
}

/// # Safety
/// As [`crate::read::code`].
unsafe fn names(frame: usize) -> Result<NonNull<PyObject>, Fault> {
    let official = adopted()?;
    // SAFETY: passed on to the caller.
    let code = unsafe { official.code(frame) }?;
    // SAFETY: the frame keeps its code object alive.
    let names = unsafe { official.names_of(code) }.ok_or(Fault::Unanswerable)?;
    NonNull::new(names.into_ptr()).ok_or(Fault::Unanswerable)
}

/// # Safety
/// As [`crate::read::code`].
unsafe fn position(frame: usize, name: usize, start: usize) -> Result<Option<usize>, Fault> {
    if let Some(layout) = adopted()?.layout {
        // SAFETY: passed on to the caller.
        return unsafe { (layout.position)(frame, name, start) };
    }
    // SAFETY: passed on to the caller.
    let names = unsafe { names(frame) }?;
    // SAFETY: `names` gives a reference away.
    let names = unsafe { Object::from_owned_ptr(names.as_ptr()) }.ok_or(Fault::Unanswerable)?;
    // SAFETY: it is a tuple.
    let count = usize::try_from(unsafe { ffi::PyTuple_Size(names.as_ptr()) }).unwrap_or_default();
    Ok((start..count).find(|&index| {
        // SAFETY: `index` is below the size; the answer is borrowed.
        let item = unsafe { ffi::PyTuple_GetItem(names.as_ptr(), index as isize) };
        item as usize == name
    }))
}

/// # Safety
/// As [`crate::read::code`].
unsafe fn namespace(frame: usize) -> Result<Option<NonNull<PyObject>>, Fault> {
    let official = adopted()?;
    if let Some(layout) = official.layout {
        // SAFETY: passed on to the caller.
        return unsafe { (layout.namespace)(frame) };
    }
    // SAFETY: passed on to the caller.
    let code = unsafe { official.code(frame) }?;
    // SAFETY: the frame keeps its code object alive while we take a reference.
    let code = unsafe { Object::from_borrowed_ptr(code.as_ptr()) };
    let _pending = PendingException::take();
    let flags = code.and_then(|code| attribute(&code, c"co_flags"));
    let flags = flags.ok_or(Fault::Unanswerable)?;
    // SAFETY: `flags` is an `int`.
    let flags = unsafe { ffi::PyLong_AsLong(flags.as_ptr()) };
    match flags & i64::from(CO_OPTIMIZED) as std::ffi::c_long {
        // Nothing tells where the namespace is.
        0 => Err(Fault::Unanswerable),
        _ => Ok(None),
    }
}

/// # Safety
/// As [`crate::read::code`].
unsafe fn kind(frame: usize, index: isize) -> Result<u8, Fault> {
    let layout = adopted()?.layout.ok_or(Fault::Unanswerable)?;
    // SAFETY: passed on to the caller.
    unsafe { (layout.kind)(frame, index) }
}

/// # Safety
/// As [`crate::read::get`].
unsafe fn get(
    frame: usize,
    index: isize,
    flags: u32,
    result: *mut *mut PyObject,
) -> Result<bool, Fault> {
    let official = adopted()?;
    if flags != 0 {
        let layout = official.layout.ok_or(Fault::Unanswerable)?;
        // SAFETY: passed on to the caller.
        return unsafe { (layout.get)(frame, index, flags, result) };
    }
    // Also tells shim frames apart. The index is checked here, so that the
    // official function has no reason to set an exception over a pending one.
    // SAFETY: passed on to the caller.
    if index as usize >= unsafe { count(frame) }? {
        return Err(Fault::Index);
    }
    // SAFETY: the signature is proved, the frame alive, the index in range.
    match unsafe { (official.get_local)(frame, index, result) } {
        1 => Ok(true),
        0 => Ok(false),
        _ => {
            // SAFETY: the thread is attached; the caller reports the failure.
            unsafe { ffi::PyErr_Clear() };
            Err(Fault::Index)
        }
    }
}

/// # Safety
/// As [`crate::read::get_all`].
unsafe fn get_all(
    frame: usize,
    result: *mut *mut PyObject,
    capacity: usize,
) -> Result<usize, Fault> {
    let official = adopted()?;
    // SAFETY: passed on to the caller.
    let count = unsafe { count(frame) }?;
    if capacity < count {
        return Err(Fault::Capacity);
    }
    for index in 0..count {
        let slot = result.wrapping_add(index);
        // SAFETY: the signature is proved, the frame alive, the index in range,
        // and `slot` within the caller's capacity.
        let answer = unsafe { (official.get_local)(frame, index as isize, slot) };
        if answer < 0 {
            // SAFETY: the thread is attached; the caller reports the failure.
            unsafe { ffi::PyErr_Clear() };
            for taken in 0..index {
                // SAFETY: this element was written by an earlier round.
                let value = unsafe { result.wrapping_add(taken).replace(null_mut()) };
                // SAFETY: NULL, or a reference that the caller shall not get.
                unsafe { ffi::Py_DecRef(value) };
            }
            return Err(Fault::Index);
        }
    }
    Ok(count)
}

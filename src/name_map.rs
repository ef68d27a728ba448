//! The map from names to slots of a code object, made once and kept with it.
//!
//! CPython lets extensions keep something in a code object: PEP 523's "co_extra".
//! Its functions are looked up by name: under these, 3.12 is the first to have them.
//! (3.11 has them under others, but there the code objects of frozen modules are one
//! for all interpreters, and would hand a map of one interpreter to another.)

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::error::Error;
use crate::frame::Frame;
use crate::names::{names, new_str, no_memory_or};
use crate::object::Object;
use crate::reader::{Question, Reader};
use crate::runtime::{PendingException, Symbols};

type Release = unsafe extern "C" fn(*mut PyObject);
type Request = unsafe extern "C" fn(Release) -> isize;
type GetExtra = unsafe extern "C" fn(*mut PyObject, isize, *mut *mut c_void) -> c_int;
type SetExtra = unsafe extern "C" fn(*mut PyObject, isize, *mut c_void) -> c_int;

/// The functions that keep something in a code object.
#[derive(Clone, Copy)]
struct CodeExtra {
    request: Request,
    get: GetExtra,
    set: SetExtra,
}

impl CodeExtra {
    /// `None` if there are none (3.11), or in a free-threaded build, where they do not
    /// keep two threads apart.
    fn find() -> Option<Self> {
        static FOUND: OnceLock<Option<CodeExtra>> = OnceLock::new();
        *FOUND.get_or_init(|| {
            let symbols = Symbols::open();
            if symbols.is_free_threaded() {
                return None;
            }
            let request = symbols.find(c"PyUnstable_Eval_RequestCodeExtraIndex")?;
            let get = symbols.find(c"PyUnstable_Code_GetExtra")?;
            let set = symbols.find(c"PyUnstable_Code_SetExtra")?;
            Some(Self {
                // SAFETY: the functions of these names have these signatures since 3.12
                // (a `freefunc` takes a `void *`, which is passed like any pointer).
                request: unsafe { std::mem::transmute::<*mut c_void, Request>(request.as_ptr()) },
                // SAFETY: as above.
                get: unsafe { std::mem::transmute::<*mut c_void, GetExtra>(get.as_ptr()) },
                // SAFETY: as above.
                set: unsafe { std::mem::transmute::<*mut c_void, SetExtra>(set.as_ptr()) },
            })
        })
    }

    /// The place for our maps in this interpreter's code objects. The interpreter's
    /// own dict remembers it: there is one set of places per interpreter.
    fn place(&self) -> Option<isize> {
        // SAFETY: the thread is attached.
        let interpreter = unsafe { ffi::PyInterpreterState_Get() };
        // SAFETY: `interpreter` is this thread's; the answer is borrowed, or NULL.
        let dict = unsafe { ffi::PyInterpreterState_GetDict(interpreter) };
        if dict.is_null() {
            return None;
        }
        let key = new_str("localsplus.name_map").ok()?;
        // SAFETY: a dict and a `str`; the answer is borrowed, or NULL.
        let place = unsafe { ffi::PyDict_GetItemWithError(dict, key.as_ptr()) };
        if !place.is_null() {
            // SAFETY: only the integer below is ever put there.
            return Some(unsafe { ffi::PyLong_AsSsize_t(place) });
        }
        // The interpreter calls it when the code object goes, also with NULL.
        // SAFETY: the thread is attached, and Py_DecRef stays.
        let place = unsafe { (self.request)(ffi::Py_DecRef) };
        if place < 0 {
            // Others have taken all 255.
            return None;
        }
        // SAFETY: the thread is attached.
        let number = unsafe { ffi::PyLong_FromSsize_t(place) };
        // SAFETY: PyLong_FromSsize_t gives a reference away, or answers NULL.
        let number = unsafe { Object::from_owned_ptr(number) }?;
        // Should this fail, the next call requests another place.
        // SAFETY: a dict, a `str` and an `int`, all alive.
        unsafe { ffi::PyDict_SetItem(dict, key.as_ptr(), number.as_ptr()) };
        Some(place)
    }

    /// The map that `code` has.
    fn map(&self, code: &Object, place: isize) -> Option<Object> {
        let mut kept = null_mut();
        // SAFETY: a code object, and a place that was requested for this interpreter.
        unsafe { (self.get)(code.as_ptr(), place, &raw mut kept) };
        // SAFETY: only maps are kept in that place; the code object keeps it alive
        // while we take a reference.
        unsafe { Object::from_borrowed_ptr(kept.cast()) }
    }

    /// Gives `map` to `code`, which has none.
    fn keep(&self, code: &Object, place: isize, map: &Object) {
        let map = map.clone().into_ptr();
        // SAFETY: as in `map`; on success the reference is the code object's.
        if unsafe { (self.set)(code.as_ptr(), place, map.cast()) } != 0 {
            // SAFETY: it has not become the code object's.
            drop(unsafe { Object::from_owned_ptr(map) });
        }
    }
}

/// The map for the frame's code.
///
/// # Safety
/// As [`crate::read::code`].
pub unsafe fn name_map(reader: &'static Reader, frame: usize) -> Result<Object, Error> {
    // SAFETY: passed on to the caller.
    let code = unsafe { (reader.functions.code)(frame) };
    // SAFETY: passed on to the caller.
    let code = code.map_err(|fault| unsafe { reader.error(fault, frame, Question::Code) })?;
    // SAFETY: the frame keeps its code object alive while we take a reference.
    let code = unsafe { Object::from_borrowed_ptr(code.as_ptr()) }.ok_or(Error::NotPythonCode)?;
    // SAFETY: passed on to the caller.
    let names = unsafe { names(reader, frame) }?;
    let _pending = PendingException::take();
    let extra = CodeExtra::find().and_then(|extra| Some((extra, extra.place()?)));
    let kept = || extra.and_then(|(extra, place)| extra.map(&code, place));
    if let Some(map) = kept() {
        return Ok(map);
    }
    let map = new_map(&names)?;
    // To make it may have run the garbage collector, and that anything.
    if let Some(kept) = kept() {
        return Ok(kept);
    }
    if let Some((extra, place)) = extra {
        extra.keep(&code, place, &map);
    }
    Ok(map)
}

/// The first index of each name, in a mapping that nobody can write to.
fn new_map(names: &Object) -> Result<Object, Error> {
    // SAFETY: the thread is attached.
    let map = unsafe { ffi::PyDict_New() };
    // SAFETY: PyDict_New gives a reference away, or answers NULL.
    let map = unsafe { Object::from_owned_ptr(map) };
    let map = map.ok_or_else(|| no_memory_or(Error::NoMemory))?;
    // SAFETY: `names` is a tuple.
    let count = unsafe { ffi::PyTuple_Size(names.as_ptr()) };
    // The first of two comes last.
    for index in (0..count).rev() {
        // SAFETY: `index` is below the size; the answer is borrowed.
        let name = unsafe { ffi::PyTuple_GetItem(names.as_ptr(), index) };
        // SAFETY: the thread is attached.
        let index = unsafe { ffi::PyLong_FromSsize_t(index) };
        // SAFETY: PyLong_FromSsize_t gives a reference away, or answers NULL.
        let index = unsafe { Object::from_owned_ptr(index) };
        let index = index.ok_or_else(|| no_memory_or(Error::NoMemory))?;
        // SAFETY: a dict, a `str` and an `int`, all alive.
        if unsafe { ffi::PyDict_SetItem(map.as_ptr(), name, index.as_ptr()) } < 0 {
            return Err(no_memory_or(Error::NoMemory));
        }
    }
    // SAFETY: `map` is a dict.
    let proxy = unsafe { ffi::PyDictProxy_New(map.as_ptr()) };
    // SAFETY: PyDictProxy_New gives a reference away, or answers NULL.
    let proxy = unsafe { Object::from_owned_ptr(proxy) };
    proxy.ok_or_else(|| no_memory_or(Error::NoMemory))
}

impl Frame<'_> {
    /// A read-only mapping from the name of each slot to its index, made once per code
    /// object and kept with it: the next frame of the same code answers the same
    /// mapping. (On 3.11 and in free-threaded builds it is made anew each time.) Of two slots of
    /// one name it has the first; [`indexes`](Self::indexes) tells both.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, b): pass\nf(1, 2)", |frame| {
    /// // def f(a, b)
    /// let map = frame.name_map()?;
    /// // SAFETY: this thread holds the GIL, and `map` is a mapping.
    /// let index = unsafe { pyo3_ffi::PyMapping_GetItemString(map.as_ptr(), c"b".as_ptr()) };
    /// // SAFETY: PyMapping_GetItemString gives a reference away.
    /// let index = unsafe { localsplus::Object::from_owned_ptr(index) }.expect("no exception");
    /// // SAFETY: this thread holds the GIL, and `index` is alive.
    /// assert_eq!(unsafe { pyo3_ffi::PyLong_AsLong(index.as_ptr()) }, 1);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn name_map(&self) -> Result<Object, Error> {
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        unsafe { name_map(self.reader, self.address()) }
    }
}

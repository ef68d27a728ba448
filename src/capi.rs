//! The C API of `localsplus.h`, where it is documented. Errors become Python
//! exceptions here, and panics stop here.

mod arguments;
mod evaluate;
mod hook;
mod names;
mod question;
mod report;

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3_ffi as ffi;
use pyo3_ffi::{Py_ssize_t, PyObject};

use crate::error::Error;
use crate::layout::Layout;
use crate::read::{self, Functions, Interpreter, flags};
use crate::reader::{Question, Reader, c_string, reader};
use crate::runtime::Interruption;

/// `LOCALSPLUS_ABI_VERSION`.
pub const ABI_VERSION: c_int = 1;

/// A frame address that is not NULL, and who reads it.
struct Frame {
    address: usize,
    reader: &'static Reader,
}

impl Frame {
    #[inline(always)]
    fn new(pointer: *mut u8) -> Result<Self, Error> {
        if pointer.is_null() {
            return Err(Error::Null { argument: "frame" });
        }
        Ok(Self {
            address: pointer as usize,
            reader: reader()?,
        })
    }
}

/// Answers what `ask` does, or sets the exception for its error and answers
/// `failed`.
#[inline(always)]
pub(crate) fn answer<T>(failed: T, ask: impl FnOnce() -> Result<T, Error>) -> T {
    // Nothing that a panic could leave half done is reachable from here.
    match catch_unwind(AssertUnwindSafe(ask)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            raise(&error);
            failed
        }
        Err(_) => {
            raise_panic();
            failed
        }
    }
}

#[cold]
pub fn raise(error: &Error) {
    if matches!(error, Error::Interrupted { .. }) && Interruption::raise() {
        return;
    }
    let exception = match error {
        // SAFETY: the interpreter's static exceptions, each set before any code
        // of ours can run.
        Error::IndexOutOfRange { .. } => unsafe { ffi::PyExc_IndexError },
        Error::Null { .. }
        | Error::Capacity { .. }
        | Error::UnknownFlags { .. }
        | Error::ShimFrame
        | Error::Started
        | Error::NotAnArgument { .. }
        | Error::NoSuchFreeVariable { .. }
        | Error::OtherScope
        | Error::NotADict
        | Error::Released { .. }
        // SAFETY: as above.
        | Error::NotPythonCode => unsafe { ffi::PyExc_ValueError },
        // SAFETY: as above.
        Error::NoSuchName { .. } => unsafe { ffi::PyExc_KeyError },
        // SAFETY: as above.
        Error::NotAStr { .. } | Error::WrongType { .. } | Error::NotARunnable => unsafe {
            ffi::PyExc_TypeError
        },
        // SAFETY: as above.
        Error::RanAnyway => unsafe { ffi::PyExc_SystemError },
        // SAFETY: as above.
        Error::NoMemory => unsafe { ffi::PyExc_MemoryError },
        // SAFETY: as above.
        _ => unsafe { ffi::PyExc_RuntimeError },
    };
    let message = c_string(error.to_string());
    // SAFETY: the thread is attached; the text is copied.
    unsafe { ffi::PyErr_SetString(exception, message.as_ptr()) };
}

#[cold]
fn raise_panic() {
    raise_system_error(c"localsplus: internal error, please report it");
}

/// Sets `SystemError`. The calling thread is attached.
#[cold]
pub fn raise_system_error(message: &CStr) {
    // SAFETY: a static that the interpreter has set long ago.
    let exception = unsafe { ffi::PyExc_SystemError };
    // SAFETY: the thread is attached; the text is copied.
    unsafe { ffi::PyErr_SetString(exception, message.as_ptr()) };
}

/// # Safety
/// None: this touches no interpreter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_abi_version() -> c_int {
    ABI_VERSION
}

/// # Safety
/// The calling thread is attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_init() -> c_int {
    answer(-1, || reader().map(|_| 0))
}

/// # Safety
/// The calling thread is attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_provider() -> *const c_char {
    // A refusal is no exception here.
    let name = || match reader() {
        Ok(reader) => reader.name().as_ptr(),
        Err(_) => {
            Interruption::postpone();
            null()
        }
    };
    catch_unwind(name).unwrap_or(null())
}

type GetLocal = unsafe extern "C" fn(*mut u8, Py_ssize_t, *mut *mut PyObject) -> c_int;
type GetLocals = unsafe extern "C" fn(*mut u8, *mut *mut PyObject, Py_ssize_t) -> Py_ssize_t;

/// The two functions that run on every call of every function, compiled for one
/// layout.
#[derive(Debug, Clone, Copy)]
pub struct Direct {
    get_local: GetLocal,
    get_locals: GetLocals,
}

impl Direct {
    /// For layout `L`.
    pub const fn of<L: Layout, I: Interpreter>() -> Self {
        Self {
            get_local: get_local::<L, I>,
            get_locals: get_locals::<L, I>,
        }
    }
}

/// Where the two exported functions jump to: first to those that choose the
/// provider, then directly to the layout's, so that "chosen yet?" is asked no
/// more.
static GET_LOCAL: AtomicPtr<()> = AtomicPtr::new(get_local_of_provider as *mut ());
static GET_LOCALS: AtomicPtr<()> = AtomicPtr::new(get_locals_of_provider as *mut ());

/// Makes the exported functions jump to those of a provider that has some.
pub fn adopt(functions: &Functions) {
    if let Some(direct) = functions.direct {
        GET_LOCAL.store(direct.get_local as *mut (), Ordering::Release);
        GET_LOCALS.store(direct.get_locals as *mut (), Ordering::Release);
    }
}

/// # Safety
/// As `localsplus.h` says: `frame` is NULL or a frame that may be read, `result`
/// NULL or writable, and the calling thread attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_get_local(
    frame: *mut u8,
    index: Py_ssize_t,
    result: *mut *mut PyObject,
) -> c_int {
    let get_local = GET_LOCAL.load(Ordering::Acquire);
    // SAFETY: only functions of this type are stored there.
    let get_local = unsafe { std::mem::transmute::<*mut (), GetLocal>(get_local) };
    // SAFETY: passed on to the caller.
    unsafe { get_local(frame, index, result) }
}

/// # Safety
/// As [`localsplus_get_local`], with room for `capacity` elements in `result`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_get_locals(
    frame: *mut u8,
    result: *mut *mut PyObject,
    capacity: Py_ssize_t,
) -> Py_ssize_t {
    let get_locals = GET_LOCALS.load(Ordering::Acquire);
    // SAFETY: only functions of this type are stored there.
    let get_locals = unsafe { std::mem::transmute::<*mut (), GetLocals>(get_locals) };
    // SAFETY: passed on to the caller.
    unsafe { get_locals(frame, result, capacity) }
}

/// # Safety
/// As [`localsplus_get_local`]; `L` and `I` are those of the running interpreter.
unsafe extern "C" fn get_local<L: Layout, I: Interpreter>(
    frame: *mut u8,
    index: Py_ssize_t,
    result: *mut *mut PyObject,
) -> c_int {
    if !frame.is_null() && !result.is_null() {
        // SAFETY: frame, result and thread are as the caller promises.
        if let Ok(found) = unsafe { read::get::<L, I>(frame as usize, index, 0, result) } {
            return found.into();
        }
    }
    // Once more, for the error.
    // SAFETY: passed on to the caller.
    unsafe { get_local_of_provider(frame, index, result) }
}

/// # Safety
/// As [`localsplus_get_locals`]; `L` and `I` are those of the running interpreter.
unsafe extern "C" fn get_locals<L: Layout, I: Interpreter>(
    frame: *mut u8,
    result: *mut *mut PyObject,
    capacity: Py_ssize_t,
) -> Py_ssize_t {
    if !frame.is_null() && !result.is_null() && capacity >= 0 {
        // SAFETY: frame, result and thread are as the caller promises.
        let count = unsafe { read::get_all::<L, I>(frame as usize, result, capacity as usize) };
        if let Ok(count) = count {
            return count as Py_ssize_t;
        }
    }
    // Once more, for the error.
    // SAFETY: passed on to the caller.
    unsafe { get_locals_of_provider(frame, result, capacity) }
}

/// # Safety
/// As [`localsplus_get_local`].
#[cold]
unsafe extern "C" fn get_local_of_provider(
    frame: *mut u8,
    index: Py_ssize_t,
    result: *mut *mut PyObject,
) -> c_int {
    // SAFETY: passed on to the caller.
    unsafe { localsplus_get_slot(frame, index, 0, result) }
}

/// # Safety
/// As [`localsplus_get_local`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_get_slot(
    frame: *mut u8,
    index: Py_ssize_t,
    flags: c_uint,
    result: *mut *mut PyObject,
) -> c_int {
    answer(-1, || {
        if result.is_null() {
            return Err(Error::Null { argument: "result" });
        }
        // SAFETY: not NULL, and writable by the caller's promise.
        unsafe { result.write(null_mut()) };
        if flags & !flags::ALL != 0 {
            return Err(Error::UnknownFlags { flags });
        }
        let Frame { address, reader } = Frame::new(frame)?;
        // SAFETY: frame, result and thread are as the caller promises.
        match unsafe { (reader.functions.get)(address, index, flags, result) } {
            Ok(value) => Ok(value.into()),
            // SAFETY: as above.
            Err(fault) => Err(unsafe { reader.error(fault, address, Question::Slot(index)) }),
        }
    })
}

/// # Safety
/// As [`localsplus_get_locals`].
#[cold]
unsafe extern "C" fn get_locals_of_provider(
    frame: *mut u8,
    result: *mut *mut PyObject,
    capacity: Py_ssize_t,
) -> Py_ssize_t {
    answer(-1, || {
        if result.is_null() {
            return Err(Error::Null { argument: "result" });
        }
        let Frame { address, reader } = Frame::new(frame)?;
        // A negative capacity has room for nothing, not even for no slots.
        let room = usize::try_from(capacity).map_err(|_| Error::Capacity {
            capacity,
            // SAFETY: frame and thread are as the caller promises.
            count: unsafe { (reader.functions.count)(address) }.unwrap_or_default(),
        })?;
        // SAFETY: as above; `result` has that much room.
        match unsafe { (reader.functions.get_all)(address, result, room) } {
            Ok(count) => Ok(count as Py_ssize_t),
            Err(fault) => {
                let question = Question::Slots { capacity };
                // SAFETY: as above.
                Err(unsafe { reader.error(fault, address, question) })
            }
        }
    })
}

/// # Safety
/// As [`localsplus_get_local`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_count(frame: *mut u8) -> Py_ssize_t {
    answer(-1, || {
        let Frame { address, reader } = Frame::new(frame)?;
        // SAFETY: frame and thread are as the caller promises.
        match unsafe { (reader.functions.count)(address) } {
            Ok(count) => Ok(count as Py_ssize_t),
            // SAFETY: as above.
            Err(fault) => Err(unsafe { reader.error(fault, address, Question::Count) }),
        }
    })
}

/// # Safety
/// As [`localsplus_get_local`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_names(frame: *mut u8) -> *mut PyObject {
    answer(null_mut(), || {
        let Frame { address, reader } = Frame::new(frame)?;
        // SAFETY: frame and thread are as the caller promises.
        match unsafe { (reader.functions.names)(address) } {
            Ok(names) => Ok(names.as_ptr()),
            // SAFETY: as above.
            Err(fault) => Err(unsafe { reader.error(fault, address, Question::Names) }),
        }
    })
}

/// # Safety
/// As [`localsplus_get_local`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_kind(frame: *mut u8, index: Py_ssize_t) -> c_int {
    answer(-1, || {
        let Frame { address, reader } = Frame::new(frame)?;
        // SAFETY: frame and thread are as the caller promises.
        match unsafe { (reader.functions.kind)(address, index) } {
            Ok(kind) => Ok(kind.into()),
            // SAFETY: as above.
            Err(fault) => Err(unsafe { reader.error(fault, address, Question::Kind(index)) }),
        }
    })
}

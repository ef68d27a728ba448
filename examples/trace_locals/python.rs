//! The little that this program needs of Python's C API. Apart from `initialize`,
//! all of it wants the calling thread attached to the interpreter.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use localsplus::Object;
use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

/// `PyThreadState`, of which only the address matters here.
pub type ThreadState = c_void;
/// `struct _PyInterpreterFrame`, likewise.
pub type InterpreterFrame = c_void;

/// `_PyFrameEvalFunction` of PEP 523.
pub type EvalFrame =
    unsafe extern "C" fn(*mut ThreadState, *mut InterpreterFrame, c_int) -> *mut PyObject;

/// Room for a `PyConfig` of any version: they have some 450 bytes. Only Python
/// looks into it.
#[repr(C, align(16))]
struct Config(MaybeUninit<[u8; 8192]>);

/// `PyStatus` of PEP 587.
#[derive(Clone, Copy)]
#[repr(C)]
struct Status {
    kind: c_int,
    function: *const c_char,
    message: *const c_char,
    exit_code: c_int,
}

// pyo3-ffi has these only if it is configured for one version of Python, and not
// all of them even then.
unsafe extern "C" {
    fn PyConfig_InitPythonConfig(config: *mut Config);
    fn PyConfig_SetBytesArgv(
        config: *mut Config,
        count: isize,
        arguments: *const *mut c_char,
    ) -> Status;
    fn PyConfig_Clear(config: *mut Config);
    fn Py_InitializeFromConfig(config: *const Config) -> Status;
    fn PyStatus_Exception(status: Status) -> c_int;
    fn Py_ExitStatusException(status: Status) -> !;
    fn Py_RunMain() -> c_int;
    fn _PyInterpreterState_SetEvalFrameFunc(
        interpreter: *mut ffi::PyInterpreterState,
        function: EvalFrame,
    );
    pub fn _PyEval_EvalFrameDefault(
        thread: *mut ThreadState,
        frame: *mut InterpreterFrame,
        throwflag: c_int,
    ) -> *mut PyObject;
}

/// Initialises Python as its command does, which had these `arguments`, the
/// command itself first. Afterwards, the calling thread is attached.
///
/// Where the command would fail or be done with that, this does not return.
pub fn initialize(arguments: &[CString]) {
    let mut config = Config(MaybeUninit::zeroed());
    let config = &raw mut config;
    // SAFETY: there is room for all that this writes.
    unsafe { PyConfig_InitPythonConfig(config) };
    let pointers: Vec<_> = arguments.iter().map(|a| a.as_ptr().cast_mut()).collect();
    // SAFETY: so many C strings, which outlive the call; Python copies them.
    let status =
        unsafe { PyConfig_SetBytesArgv(config, pointers.len() as isize, pointers.as_ptr()) };
    exit_on_failure(status);
    // SAFETY: an initialised configuration.
    exit_on_failure(unsafe { Py_InitializeFromConfig(config) });
    // SAFETY: as above; it is not used any more.
    unsafe { PyConfig_Clear(config) };
}

fn exit_on_failure(status: Status) {
    // SAFETY: a status of Python's.
    if unsafe { PyStatus_Exception(status) } != 0 {
        // SAFETY: the same, and it is a failure.
        unsafe { Py_ExitStatusException(status) };
    }
}

/// Does what Python was initialised for, finalises it, and answers the exit code.
pub fn run_main() -> c_int {
    // SAFETY: Python has been initialised, by this thread.
    unsafe { Py_RunMain() }
}

/// Has the interpreter call `function` instead of evaluating frames itself.
pub fn set_eval_frame(function: EvalFrame) {
    // SAFETY: the thread is attached.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the calling thread's interpreter, and an eval-frame function.
    unsafe { _PyInterpreterState_SetEvalFrameFunc(interpreter, function) };
}

/// The version and the build of the interpreter, in Python's words.
pub fn version() -> String {
    // SAFETY: may be called at any time.
    let version = unsafe { ffi::Py_GetVersion() };
    // SAFETY: that is a static C string.
    unsafe { CStr::from_ptr(version) }
        .to_string_lossy()
        .into_owned()
}

/// Takes over a new reference. NULL means that an exception is set: it is dropped.
///
/// # Safety
/// `pointer` is the answer of a function that gives a new reference away.
pub unsafe fn owned(pointer: *mut PyObject) -> Option<Object> {
    // SAFETY: the caller promises NULL or a reference that is given away.
    let object = unsafe { Object::from_owned_ptr(pointer) };
    if object.is_none() {
        // SAFETY: may be called by any attached thread.
        unsafe { ffi::PyErr_Clear() };
    }
    object
}

pub fn attribute(object: &Object, name: &CStr) -> Option<Object> {
    // SAFETY: an object and a C string, both alive.
    let value = unsafe { ffi::PyObject_GetAttrString(object.as_ptr(), name.as_ptr()) };
    // SAFETY: PyObject_GetAttrString gives a new reference away.
    unsafe { owned(value) }
}

/// The text of a `str`, unless UTF-8 cannot express it.
pub fn text(object: &Object) -> Option<String> {
    let mut length = 0;
    // SAFETY: a live object (anything but a `str` is an error), and a number that
    // can be written to.
    let utf8 = unsafe { ffi::PyUnicode_AsUTF8AndSize(object.as_ptr(), &raw mut length) };
    if utf8.is_null() {
        // SAFETY: may be called by any attached thread.
        unsafe { ffi::PyErr_Clear() };
        return None;
    }
    // SAFETY: so many bytes are there, as long as the `str` lives.
    let bytes = unsafe { std::slice::from_raw_parts(utf8.cast(), length.unsigned_abs()) };
    str::from_utf8(bytes).ok().map(str::to_owned)
}

/// Puts the pending exception aside until it is dropped. An eval-frame function
/// is called with one when it is thrown into a generator.
pub struct PendingException([*mut PyObject; 3]);

#[allow(
    deprecated,
    reason = "its replacement, PyErr_GetRaisedException, is missing from 3.11"
)]
impl PendingException {
    pub fn put_aside() -> Self {
        let [mut class, mut value, mut traceback] = [null_mut(); 3];
        // SAFETY: three pointers that can be written to.
        unsafe { ffi::PyErr_Fetch(&raw mut class, &raw mut value, &raw mut traceback) };
        Self([class, value, traceback])
    }
}

#[allow(deprecated, reason = "as above")]
impl Drop for PendingException {
    fn drop(&mut self) {
        let [class, value, traceback] = self.0;
        // SAFETY: the three references that PyErr_Fetch gave us, or NULLs.
        unsafe { ffi::PyErr_Restore(class, value, traceback) };
    }
}

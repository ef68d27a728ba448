// An embedded interpreter that shows frames to a test before they start.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use localsplus::Object;
use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

type EvalFrame = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int) -> *mut PyObject;

// Not in every configuration of pyo3-ffi.
unsafe extern "C" {
    fn _PyInterpreterState_SetEvalFrameFunc(interpreter: *mut c_void, eval_frame: EvalFrame);
    fn _PyEval_EvalFrameDefault(
        thread: *mut c_void,
        frame: *mut c_void,
        throwflag: c_int,
    ) -> *mut PyObject;
    fn Py_CompileString(
        source: *const c_char,
        filename: *const c_char,
        start: c_int,
    ) -> *mut PyObject;
}

type Look = Box<dyn FnMut(*mut c_void)>;

thread_local! {
    static LOOK: RefCell<Option<Look>> = const { RefCell::new(None) };
}

unsafe extern "C" fn hook(thread: *mut c_void, frame: *mut c_void, flag: c_int) -> *mut PyObject {
    if let Some(mut look) = LOOK.take() {
        look(frame);
        LOOK.set(Some(look));
    }
    // SAFETY: the arguments are passed on as they came.
    unsafe { _PyEval_EvalFrameDefault(thread, frame, flag) }
}

/// Starts the interpreter, once in a process. The calling thread stays attached.
pub fn start() {
    // SAFETY: by that, nothing else in this process has started one.
    unsafe { ffi::Py_InitializeEx(0) };
}

/// Runs `source` as a module: its globals.
pub fn execute(source: &str) -> Object {
    let source = CString::new(source).expect("no NUL");
    let filename = c"test".as_ptr();
    // SAFETY: both are C strings; the interpreter is initialised.
    let code = unsafe { Py_CompileString(source.as_ptr(), filename, ffi::Py_file_input) };
    // SAFETY: Py_CompileString gives a reference away.
    let code = unsafe { Object::from_owned_ptr(code) }.expect("valid Python");
    // SAFETY: the thread is attached.
    let globals = unsafe { ffi::PyDict_New() };
    // SAFETY: PyDict_New gives a reference away.
    let globals = unsafe { Object::from_owned_ptr(globals) }.expect("memory");
    // SAFETY: a code object and a dict.
    let result = unsafe { ffi::PyEval_EvalCode(code.as_ptr(), globals.as_ptr(), globals.as_ptr()) };
    if result.is_null() {
        // SAFETY: an exception is set.
        unsafe { ffi::PyErr_Print() };
    }
    // SAFETY: PyEval_EvalCode gives a reference away.
    unsafe { Object::from_owned_ptr(result) }.expect("no exception");
    globals
}

/// Runs `source` as a module, showing every frame to `look` before this thread
/// runs it.
#[allow(dead_code, reason = "a test of hooks has its own")]
pub fn run(source: &str, look: impl FnMut(*mut c_void) + 'static) {
    LOOK.set(Some(Box::new(look)));
    // SAFETY: the thread is attached.
    let interpreter: *mut c_void = unsafe { ffi::PyInterpreterState_Get() }.cast();
    // SAFETY: `hook` is an eval-frame function.
    unsafe { _PyInterpreterState_SetEvalFrameFunc(interpreter, hook) };
    execute(source);
    // SAFETY: this is what was in place before.
    unsafe { _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault) };
    LOOK.set(None);
}

pub fn text(object: &Object) -> String {
    // SAFETY: the object is alive.
    let text = unsafe { ffi::PyObject_Str(object.as_ptr()) };
    // SAFETY: PyObject_Str gives a reference away.
    let text = unsafe { Object::from_owned_ptr(text) }.expect("a str");
    let mut length = 0;
    // SAFETY: it is a str.
    let utf8 = unsafe { ffi::PyUnicode_AsUTF8AndSize(text.as_ptr(), &raw mut length) };
    // SAFETY: the str keeps its C string.
    unsafe { CStr::from_ptr(utf8) }
        .to_string_lossy()
        .into_owned()
}

pub fn attribute(object: &Object, name: &CStr) -> Object {
    // SAFETY: the object is alive.
    let value = unsafe { ffi::PyObject_GetAttrString(object.as_ptr(), name.as_ptr()) };
    // SAFETY: PyObject_GetAttrString gives a reference away.
    unsafe { Object::from_owned_ptr(value) }.expect("the attribute")
}

//! The Rust API on live frames of an embedded interpreter.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_int, c_void};

use localsplus::{Error, Flags, Frame, Object};
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
    fn Py_CompileString(source: *const i8, filename: *const i8, start: c_int) -> *mut PyObject;
}

type Look = Box<dyn FnMut(Frame<'_>)>;

thread_local! {
    static LOOK: RefCell<Option<Look>> = const { RefCell::new(None) };
}

unsafe extern "C" fn hook(thread: *mut c_void, frame: *mut c_void, flag: c_int) -> *mut PyObject {
    if let Some(mut look) = LOOK.take() {
        // SAFETY: the interpreter is about to run this frame in this thread.
        look(unsafe { Frame::from_ptr(frame) }.expect("a Python frame"));
        LOOK.set(Some(look));
    }
    // SAFETY: the arguments are passed on as they came.
    unsafe { _PyEval_EvalFrameDefault(thread, frame, flag) }
}

/// Runs `source` as a module, showing every frame of `function` to `look` before
/// it starts.
fn run(source: &str, function: &'static str, mut look: impl FnMut(Frame<'_>) + 'static) {
    let seen = std::rc::Rc::new(Cell::new(false));
    let sink = seen.clone();
    let look = move |frame: Frame<'_>| {
        if name(frame) == function {
            sink.set(true);
            look(frame);
        }
    };
    let source = CString::new(source).expect("no NUL");
    // SAFETY: both are C strings; the interpreter is initialised.
    let code = unsafe {
        Py_CompileString(
            source.as_ptr().cast(),
            c"test".as_ptr().cast(),
            ffi::Py_file_input,
        )
    };
    // SAFETY: Py_CompileString gives a reference away.
    let code = unsafe { Object::from_owned_ptr(code) }.expect("valid Python");
    // SAFETY: the thread is attached.
    let globals = unsafe { ffi::PyDict_New() };
    // SAFETY: PyDict_New gives a reference away.
    let globals = unsafe { Object::from_owned_ptr(globals) }.expect("memory");
    LOOK.set(Some(Box::new(look)));
    // SAFETY: the thread is attached.
    let interpreter: *mut c_void = unsafe { ffi::PyInterpreterState_Get() }.cast();
    // SAFETY: `hook` is an eval-frame function.
    unsafe { _PyInterpreterState_SetEvalFrameFunc(interpreter, hook) };
    // SAFETY: a code object and a dict.
    let result = unsafe { ffi::PyEval_EvalCode(code.as_ptr(), globals.as_ptr(), globals.as_ptr()) };
    // SAFETY: this is what was in place before.
    unsafe { _PyInterpreterState_SetEvalFrameFunc(interpreter, _PyEval_EvalFrameDefault) };
    LOOK.set(None);
    if result.is_null() {
        // SAFETY: an exception is set.
        unsafe { ffi::PyErr_Print() };
    }
    // SAFETY: PyEval_EvalCode gives a reference away.
    unsafe { Object::from_owned_ptr(result) }.expect("no exception");
    assert!(seen.get(), "no frame of {function}");
}

fn text(object: &Object) -> String {
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

fn attribute(object: &Object, name: &CStr) -> Object {
    // SAFETY: the object is alive.
    let value = unsafe { ffi::PyObject_GetAttrString(object.as_ptr(), name.as_ptr()) };
    // SAFETY: PyObject_GetAttrString gives a reference away.
    unsafe { Object::from_owned_ptr(value) }.expect("the attribute")
}

fn reference_count(object: &Object) -> String {
    // SAFETY: the answer is borrowed from `sys`.
    let getrefcount = unsafe { ffi::PySys_GetObject(c"getrefcount".as_ptr()) };
    // SAFETY: the format takes one object.
    let count = unsafe { ffi::PyObject_CallFunction(getrefcount, c"O".as_ptr(), object.as_ptr()) };
    // SAFETY: the call gives a reference away.
    text(&unsafe { Object::from_owned_ptr(count) }.expect("a count"))
}

/// "index name KIND value", for every slot.
fn show(frame: Frame<'_>) -> Vec<String> {
    let slots = frame.slots().map(|slot| {
        let value = slot.value().expect("an answer");
        let value = value.as_ref().map_or("-".to_owned(), text);
        let (name, kind) = (slot.name().expect("a name"), slot.kind().expect("a kind"));
        format!("{} {name} {kind} {value}", slot.index())
    });
    slots.collect()
}

fn name(frame: Frame<'_>) -> String {
    text(&attribute(&frame.code().expect("code"), c"co_name"))
}

/// One interpreter for all of this file: it cannot be started twice.
#[test]
fn rust_api() {
    // SAFETY: nothing else in this process has started an interpreter.
    unsafe { ffi::Py_InitializeEx(0) };
    // SAFETY: the thread is attached from here on.
    unsafe { localsplus::init() }.expect("a supported interpreter");
    // SAFETY: as above.
    let provider = unsafe { localsplus::provider() }.expect("a supported interpreter");
    println!("provider: {}", provider.to_string_lossy());
    slots_at_entry();
    flags();
    errors();
    references();
    error_indicator();
}

fn slots_at_entry() {
    let seen = std::rc::Rc::new(RefCell::new(Vec::new()));
    let sink = seen.clone();
    let source = "
def outer():
    free = 'f'
    def inner(a, /, b, *args, k=1, **kwargs):
        local = lambda: b
        return free, local
    return inner
outer()(10, 20, 30, k=40, z=50)
";
    run(source, "inner", move |frame| {
        sink.borrow_mut().extend(show(frame));
        let mut all = [const { None }; 8];
        let count = frame.get_locals(&mut all).expect("enough room");
        assert_eq!(count, frame.count().expect("a count"));
        for (index, value) in all[..count].iter().enumerate() {
            let single = frame.get_local(index).expect("in range");
            let pointer = |o: &Option<Object>| o.as_ref().map(Object::as_ptr);
            assert_eq!(pointer(value), pointer(&single), "slot {index}");
        }
    });
    let expected = [
        "0 a ARG|LOCAL 10",
        "1 b ARG|LOCAL|CELL 20",
        "2 k ARG|LOCAL 40",
        "3 args ARG|LOCAL (30,)",
        "4 kwargs ARG|LOCAL {'z': 50}",
        "5 local LOCAL -",
        "6 free FREE f",
    ];
    assert_eq!(*seen.borrow(), expected);
}

fn flags() {
    let source = "
def outer():
    x = 1
    def inner(y):
        return x
    return inner
outer()(2)
";
    run(source, "inner", |frame| {
        let cell = frame.get_slot(1, Flags::RAW_CELL | Flags::HIDDEN);
        let cell = cell.expect("in range").expect("a cell");
        assert_eq!(text(&attribute(&cell, c"cell_contents")), "1");
        let contents = frame.get_local(1).expect("in range").expect("a value");
        assert_eq!(text(&contents), "1");
    });
}

fn errors() {
    // SAFETY: NULL is allowed.
    let null = unsafe { Frame::from_ptr::<c_void>(std::ptr::null_mut()) };
    assert_eq!(null.map(drop), Err(Error::Null { argument: "frame" }));
    run("def f(a, b): pass\nf(1, 2)\n", "f", |frame| {
        let out_of_range = |index| Err(Error::IndexOutOfRange { index, count: 2 });
        assert_eq!(frame.get_local(2).map(drop), out_of_range(2));
        assert_eq!(frame.kind(7).map(drop), out_of_range(7));
        assert_eq!(
            frame.get_local(usize::MAX).map(drop),
            out_of_range(isize::MAX)
        );
        let mut short = [frame.get_local(0).expect("in range")];
        let kept = short[0].as_ref().map(Object::as_ptr);
        let error = Error::Capacity {
            capacity: 1,
            count: 2,
        };
        assert_eq!(frame.get_locals(&mut short), Err(error));
        assert_eq!(short[0].as_ref().map(Object::as_ptr), kept);
        assert_eq!(
            frame
                .get_local(2)
                .map(drop)
                .expect_err("out of range")
                .to_string(),
            "slot index 2 is out of range [0, 2)"
        );
    });
}

fn references() {
    run("def f(a): pass\nf(object())\n", "f", |frame| {
        let value = frame.get_local(0).expect("in range").expect("a value");
        let before = reference_count(&value);
        for _ in 0..1000 {
            let again = frame.get_local(0).expect("in range").expect("a value");
            assert_eq!(again.as_ptr(), value.as_ptr());
            let clone = again.clone();
            drop(again);
            // SAFETY: the reference goes from one owner to the next.
            drop(unsafe { Object::from_owned_ptr(clone.into_ptr()) });
            let mut all = [None];
            frame.get_locals(&mut all).expect("enough room");
            // What was there is dropped, not leaked.
            frame.get_locals(&mut all).expect("enough room");
            frame.slots().for_each(|slot| drop(slot.name()));
        }
        assert_eq!(reference_count(&value), before);
    });
}

/// The Rust API leaves an exception as it is, also when it fails.
fn error_indicator() {
    run("def f(a): pass\nf(1)\n", "f", |frame| {
        // SAFETY: a static that the interpreter has set.
        let exception = unsafe { ffi::PyExc_KeyError };
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_SetNone(exception) };
        assert!(frame.get_local(0).expect("in range").is_some());
        assert!(frame.get_local(9).is_err());
        assert!(frame.kind(9).is_err());
        assert!(frame.slots().all(|slot| slot.name().is_ok()));
        // SAFETY: the thread is attached.
        assert_eq!(unsafe { ffi::PyErr_Occurred() }, exception);
        // SAFETY: as above.
        unsafe { ffi::PyErr_Clear() };
    });
}

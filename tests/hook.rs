//! Closures as eval-frame functions, in an embedded interpreter.

mod embedding;

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use embedding::text;
use localsplus::Object;
use localsplus::hook::{Call, Hook, Returned};
use pyo3_ffi as ffi;

/// The value of `answer` after running `SOURCE`.
fn run() -> String {
    let globals = embedding::execute(SOURCE);
    // SAFETY: a dict and a C string; the answer is borrowed.
    let answer = unsafe { ffi::PyDict_GetItemString(globals.as_ptr(), c"answer".as_ptr()) };
    // SAFETY: the dict keeps it alive while we take a reference.
    text(&unsafe { Object::from_borrowed_ptr(answer) }.expect("an answer"))
}

fn is_called(call: &Call<'_>, name: &str) -> bool {
    let code = call.frame().and_then(|frame| frame.code()).expect("code");
    text(&embedding::attribute(&code, c"co_name")) == name
}

const SOURCE: &str = "
def fn(a, b=2):
    return 'ran', a, b
def generator():
    yield 1
    yield 2
try:
    answer = fn(1), list(generator())
except BaseException as error:
    answer = type(error).__name__, str(error)
";

/// Runs the source with the hook installed, and its `answer`.
fn hooked<F>(closure: F) -> String
where
    F: for<'a> Fn(Call<'a>) -> Returned<'a> + Send + Sync + 'static,
{
    let hook = Hook::new(closure);
    // SAFETY: the thread is attached.
    assert_eq!(unsafe { hook.install() }, Ok(true));
    // SAFETY: as above.
    assert_eq!(unsafe { hook.clone().install() }, Ok(false));
    let answer = run();
    // SAFETY: as above.
    assert_eq!(unsafe { hook.remove() }, Ok(true));
    // SAFETY: as above.
    assert_eq!(unsafe { hook.remove() }, Ok(false));
    answer
}

const PLAIN: &str = "(('ran', 1, 2), [1, 2])";

/// One interpreter for all of this file: it cannot be started twice.
#[test]
fn hooks() {
    embedding::start();
    // SAFETY: the thread is attached from here on.
    unsafe { localsplus::init() }.expect("a supported interpreter");
    proceeds();
    answers();
    evaluates_in_place();
    fails();
    panics();
    hands_back_what_has_started();
    lets_go_of_closures();
}

fn proceeds() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let answer = hooked(move |call| {
        let counts = is_called(&call, "fn");
        let returned = call.proceed();
        if counts {
            counter.fetch_add(1, Ordering::Relaxed);
            assert_eq!(text(returned.value().expect("a value")), "('ran', 1, 2)");
        }
        returned
    });
    assert_eq!(answer, PLAIN);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

fn string(text: &CStr) -> Object {
    // SAFETY: a C string.
    let text = unsafe { ffi::PyUnicode_FromString(text.as_ptr()) };
    // SAFETY: PyUnicode_FromString gives a reference away.
    unsafe { Object::from_owned_ptr(text) }.expect("memory")
}

fn answers() {
    let answer = hooked(|call| match call.unstarted() {
        Ok(call) if is_called(&call, "fn") => call.answer(string(c"instead")),
        Ok(call) => call.proceed(),
        Err(call) => call.proceed(),
    });
    assert_eq!(answer, "('instead', [1, 2])");
}

fn evaluates_in_place() {
    let answer = hooked(|call| match call.unstarted() {
        Ok(call) if is_called(&call, "fn") => {
            let range = &raw mut ffi::PyRange_Type;
            // SAFETY: a static type of the interpreter's.
            let range = unsafe { Object::from_borrowed_ptr(range.cast()) };
            call.evaluate_in_place(&range.expect("a type"))
        }
        Ok(call) => call.proceed(),
        Err(call) => call.proceed(),
    });
    assert_eq!(answer, "(range(1, 2), [1, 2])");
    let answer = hooked(|call| match call.unstarted() {
        Ok(call) if is_called(&call, "fn") => call.evaluate_in_place(&string(c"no code")),
        Ok(call) => call.proceed(),
        Err(call) => call.proceed(),
    });
    assert!(answer.starts_with("('TypeError', "), "{answer}");
}

fn fails() {
    let answer = hooked(|call| {
        if !is_called(&call, "fn") {
            return call.proceed();
        }
        // SAFETY: a static that the interpreter has set long ago.
        let exception = unsafe { ffi::PyExc_KeyError };
        // SAFETY: an exception type and a C string.
        unsafe { ffi::PyErr_SetString(exception, c"failed".as_ptr()) };
        call.fail()
    });
    assert_eq!(answer, "('KeyError', \"'failed'\")");
    let answer = hooked(|call| match is_called(&call, "generator") {
        true => call.fail(),
        false => call.proceed(),
    });
    assert!(answer.contains("without setting an exception"), "{answer}");
}

fn panics() {
    std::panic::set_hook(Box::new(|_| {}));
    let before = hooked(|call| {
        assert!(!is_called(&call, "fn"), "before");
        call.proceed()
    });
    let after = hooked(|call| {
        let panics = is_called(&call, "generator");
        let returned = call.proceed();
        assert!(!panics, "after");
        returned
    });
    drop(std::panic::take_hook());
    for answer in [before, after] {
        assert_eq!(answer, "('SystemError', 'localsplus: a hook panicked')");
    }
    assert_eq!(run(), PLAIN);
}

fn hands_back_what_has_started() {
    thread_local!(static STARTED: Cell<usize> = const { Cell::new(0) });
    let answer = hooked(|call| {
        let is_generator = is_called(&call, "generator");
        match call.unstarted() {
            Ok(call) => call.proceed(),
            Err(call) => {
                assert!(is_generator);
                STARTED.set(STARTED.get() + 1);
                call.proceed()
            }
        }
    });
    assert_eq!((answer.as_str(), STARTED.get()), (PLAIN, 3));
}

fn lets_go_of_closures() {
    let held = Arc::new(());
    let weak = Arc::downgrade(&held);
    let hook = Hook::new(move |call: Call<'_>| {
        let _ = &held;
        call.proceed()
    });
    // SAFETY: the thread is attached.
    assert_eq!(unsafe { hook.install() }, Ok(true));
    // SAFETY: as above.
    assert_eq!(unsafe { hook.remove() }, Ok(true));
    drop(hook);
    assert!(weak.upgrade().is_some(), "another thread might be inside");
    // SAFETY: nothing of the interpreter is used any more.
    assert_eq!(unsafe { ffi::Py_FinalizeEx() }, 0);
    assert!(weak.upgrade().is_none(), "the interpreter has ended");
}

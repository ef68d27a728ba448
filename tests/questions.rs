//! What the Rust API says of frames besides their slots, in an embedded
//! interpreter.

mod embedding;

use std::cell::Cell;
use std::ffi::c_void;
use std::rc::Rc;

use embedding::{attribute, text};
use localsplus::{Error, Frame, Object, Parameter, State};
use pyo3_ffi as ffi;

/// How often `look` saw a frame of `function`, while `source` ran.
fn run(source: &str, function: &'static str, mut look: impl FnMut(Frame<'_>) + 'static) -> usize {
    let seen = Rc::new(Cell::new(0));
    let count = seen.clone();
    embedding::run(source, move |frame: *mut c_void| {
        // SAFETY: this thread is about to run that frame.
        let frame = unsafe { Frame::from_ptr(frame) }.expect("a Python frame");
        if name(frame) == function {
            count.set(count.get() + 1);
            look(frame);
        }
    });
    seen.get()
}

fn name(frame: Frame<'_>) -> String {
    text(&attribute(&frame.code().expect("code"), c"co_name"))
}

/// One interpreter for all of this file: it cannot be started twice.
#[test]
fn questions() {
    embedding::start();
    before_a_function_starts();
    generators();
    callers();
    wrong_types();
}

fn before_a_function_starts() {
    let source = "
def outer():
    free = 1
    def inner(a, /, b, *args, k, **kwargs):
        return free
    return inner
outer()(1, 2, k=3)
";
    let seen = run(source, "inner", |frame| {
        let function = frame.function().expect("an answer").expect("a function");
        assert_eq!(
            text(&attribute(&function, c"__qualname__")),
            "outer.<locals>.inner"
        );
        let same =
            |answer: Object, name| assert_eq!(answer.as_ptr(), attribute(&function, name).as_ptr());
        same(frame.globals().expect("globals"), c"__globals__");
        same(frame.builtins().expect("builtins"), c"__builtins__");
        same(
            frame.closure().expect("an answer").expect("a closure"),
            c"__closure__",
        );
        assert!(frame.namespace().expect("an answer").is_none());
        assert!(frame.frame_object().expect("an answer").is_none());
        assert_eq!(frame.state(), Ok(State::Unstarted));
        assert_eq!(frame.is_generator(), Ok(false));
        assert_eq!(frame.parameter_count(), Ok(5));
        let parameters: Vec<_> = (0..6).map(|index| frame.parameter(index)).collect();
        let expected = [
            Some(Parameter::PositionalOnly),
            Some(Parameter::Positional),
            Some(Parameter::KeywordOnly),
            Some(Parameter::VarPositional),
            Some(Parameter::VarKeyword),
            None,
        ];
        assert_eq!(parameters, expected.map(Ok));
        let count = frame.count().expect("a count");
        let index = count as isize;
        assert_eq!(
            frame.parameter(count),
            Err(Error::IndexOutOfRange { index, count })
        );
        // The instructions in front belong to no line, from 3.13 on.
        let line = frame.line().expect("an answer");
        assert!(line.is_none_or(|line| line == 4), "{line:?}");
        assert!(frame.lasti().expect("an answer") <= 0);
        // SAFETY: nothing runs meanwhile.
        assert!(unsafe { frame.previous() }.expect("an answer").is_none());
    });
    assert_eq!(seen, 1);
    let seen = run("x = 1\n", "<module>", |frame| {
        let namespace = frame.namespace().expect("an answer").expect("a namespace");
        assert_eq!(
            namespace.as_ptr(),
            frame.globals().expect("globals").as_ptr()
        );
        // SAFETY: this thread runs no Python code here.
        assert!(unsafe { Frame::current() }.expect("an answer").is_none());
    });
    assert_eq!(seen, 1);
}

fn generators() {
    let states = Rc::new(Cell::new(Vec::new()));
    let sink = states.clone();
    let source = "
def g():
    yield 1
list(g())
";
    let seen = run(source, "g", move |frame| {
        let mut states = sink.take();
        states.push((frame.state(), frame.is_generator()));
        sink.set(states);
    });
    let resumed = (Ok(State::Executing), Ok(true));
    let called = (Ok(State::Unstarted), Ok(false));
    assert_eq!(states.take(), [called, resumed.clone(), resumed]);
    assert_eq!(seen, 3);
}

fn callers() {
    let source = "
def leaf(): pass
def branch(): sorted([1], key=lambda value: leaf())
branch()
";
    let seen = run(source, "leaf", |_| {
        // SAFETY: nothing runs meanwhile.
        let mut next = unsafe { Frame::current() }.expect("an answer");
        let mut names = Vec::new();
        while let Some(frame) = next {
            assert_eq!(frame.state(), Ok(State::Executing));
            names.push(name(frame));
            // SAFETY: as above.
            next = unsafe { frame.previous() }.expect("an answer");
        }
        assert_eq!(names, ["<lambda>", "branch", "<module>"]);
    });
    assert_eq!(seen, 1);
}

/// The error indicator stays as it is, here too.
fn wrong_types() {
    // SAFETY: the thread is attached.
    let number = unsafe { ffi::PyLong_FromLong(12345) };
    // SAFETY: PyLong_FromLong gives a reference away.
    let number = unsafe { Object::from_owned_ptr(number) }.expect("memory");
    // SAFETY: a static that the interpreter has set.
    let exception = unsafe { ffi::PyExc_KeyError };
    // SAFETY: the thread is attached.
    unsafe { ffi::PyErr_SetNone(exception) };
    // SAFETY: no frame is involved.
    let error = unsafe { Frame::of_frame_object(&number) }.expect_err("an int");
    let told = "argument 'frame_object' must be a frame object, not int";
    assert_eq!(error.to_string(), told);
    // SAFETY: as above.
    let error = unsafe { Frame::of_generator(&number) }.expect_err("an int");
    let told = "argument 'generator' must be a generator, coroutine or async generator, not int";
    assert_eq!(error.to_string(), told);
    // SAFETY: the thread is attached.
    assert_eq!(unsafe { ffi::PyErr_Occurred() }, exception);
    // SAFETY: as above.
    unsafe { ffi::PyErr_Clear() };
}

//! The Rust API on live frames of an embedded interpreter.

mod embedding;

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::mem::MaybeUninit;

use embedding::{attribute, text};
use localsplus::{Error, Flags, Frame, Object};
use pyo3_ffi as ffi;

/// Runs `source` as a module, showing every frame of `function` to `look` before
/// it starts.
fn run(source: &str, function: &'static str, mut look: impl FnMut(Frame<'_>) + 'static) {
    let seen = std::rc::Rc::new(Cell::new(false));
    let sink = seen.clone();
    embedding::run(source, move |frame| {
        // SAFETY: this thread is about to run that frame.
        let frame = unsafe { Frame::from_ptr(frame) }.expect("a Python frame");
        if name(frame) == function {
            sink.set(true);
            look(frame);
        }
    });
    assert!(seen.get(), "no frame of {function}");
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
    embedding::start();
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
    arguments();
    names();
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
        let mut buffer = [const { MaybeUninit::uninit() }; 8];
        let all = frame.get_locals(&mut buffer).expect("enough room");
        assert_eq!(all.len(), frame.count().expect("a count"));
        for (index, value) in all.iter().enumerate() {
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
        let mut short = [const { MaybeUninit::uninit() }];
        let error = Error::Capacity {
            capacity: 1,
            count: 2,
        };
        assert_eq!(frame.get_locals(&mut short).map(drop), Err(error));
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
            let mut buffer = [const { MaybeUninit::uninit() }];
            let mut all = frame.get_locals(&mut buffer).expect("enough room");
            assert!(all[0].take().is_some());
            drop(all);
            drop(frame.get_locals(&mut buffer));
            frame.slots().for_each(|slot| drop(slot.name()));
        }
        assert_eq!(reference_count(&value), before);
    });
}

fn names() {
    let source = "
def outer():
    free = 'f'
    def inner(a, é=2):
        later = free
    return inner
outer()(1)
";
    run(source, "inner", |frame| {
        assert_eq!(frame.index("é"), Ok(1));
        assert_eq!(frame.indexes("free"), Ok(vec![3]));
        assert_eq!(frame.indexes("nowhere"), Ok(vec![]));
        let get = |name| {
            let value = frame.get_by_name(name);
            value.map(|value| value.as_ref().map(text))
        };
        assert_eq!(get("a"), Ok(Some("1".to_owned())));
        assert_eq!(get("free"), Ok(Some("f".to_owned())));
        assert_eq!(get("later"), Ok(None));
        let name = "nowhere".into();
        assert_eq!(get("nowhere"), Err(Error::NoSuchName { name }));
        let name = "nowhere".into();
        assert_eq!(frame.index("nowhere"), Err(Error::NoSuchName { name }));
        let dict = frame.dict().expect("memory");
        assert_eq!(text(&dict), "{'a': 1, 'é': 2, 'free': 'f'}");
    });
    run("x = 1\ndef f(): pass\n", "<module>", |frame| {
        // Not yet.
        assert!(frame.get_by_name("x").is_err());
        assert!(frame.dict().is_ok());
    });
    run("class K:\n    y = 5\n    (lambda: 0)()\n", "K", |frame| {
        assert!(frame.index("y").is_err());
    });
}

fn dict_type() -> Object {
    // SAFETY: the thread is attached.
    let dict = unsafe { ffi::PyDict_New() };
    // SAFETY: PyDict_New gives a reference away.
    let dict = unsafe { Object::from_owned_ptr(dict) }.expect("memory");
    attribute(&dict, c"__class__")
}

fn arguments() {
    let seen = std::rc::Rc::new(RefCell::new(Vec::new()));
    let sink = seen.clone();
    let source = "
def f(a, /, b, *args, k=4, **kwargs):
    return lambda: b
f(1, 2, 3, z=5)
";
    run(source, "f", move |frame| {
        let arguments = frame.arguments().expect("an unstarted frame");
        let texts = |objects: &[Object]| objects.iter().map(text).collect::<Vec<_>>().join(" ");
        let names = arguments.keyword_names().expect("keyword arguments");
        sink.borrow_mut().extend([
            texts(arguments.positional()),
            text(&names),
            texts(arguments.keyword_values()),
        ]);
        let dict = dict_type();
        // Too many positional ones for `dict`: the call's own exception.
        assert!(arguments.call(&dict).is_none());
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_Clear() };
        drop(arguments);
        // SAFETY: an exception is a static that the interpreter has set.
        let exception = unsafe { ffi::PyExc_KeyError };
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_SetNone(exception) };
        drop(frame.arguments().expect("still unstarted"));
        // SAFETY: the thread is attached.
        assert_eq!(unsafe { ffi::PyErr_Occurred() }, exception);
        // SAFETY: as above.
        unsafe { ffi::PyErr_Clear() };
    });
    assert_eq!(*seen.borrow(), ["1 2 3", "('k', 'z')", "4 5"]);
    run(
        "def g(*, k):\n    yield\nnext(g(k=1))\n",
        "g",
        |frame| match frame.arguments() {
            Ok(arguments) => {
                assert!(arguments.positional().is_empty());
                let dict = arguments.call(&dict_type()).expect("a dict");
                assert_eq!(text(&dict), "{'k': 1}");
            }
            Err(error) => assert_eq!(error, Error::Started),
        },
    );
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
        assert!(frame.index("nowhere").is_err());
        assert!(frame.get_by_name("a").is_ok_and(|value| value.is_some()));
        assert!(frame.dict().is_ok());
        // SAFETY: the thread is attached.
        assert_eq!(unsafe { ffi::PyErr_Occurred() }, exception);
        // SAFETY: as above.
        unsafe { ffi::PyErr_Clear() };
    });
}

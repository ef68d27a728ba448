//! CPython 3.16 as far as it can be had without one: the interpreter at hand,
//! given out for a version whose layout is not known, with stand-ins for the
//! official functions.

#![allow(clippy::panic, reason = "a test")]

mod embedding;

use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

use embedding::{attribute, text};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use localsplus::Object;
use localsplus::internals::{Fault, Forced, Functions, Runtime, Symbols, TABLE, choose, flags};

/// Which stand-in to load. One process adopts one provider.
const STANDIN: &str = "LOCALSPLUS_TEST_STANDIN";

/// The stand-in library, compiled for the embedded interpreter.
fn standin(behaviour: &str) -> Library {
    let Some(python) = option_env!("LOCALSPLUS_PYTHON") else {
        panic!("pyo3's build configuration named no interpreter to take the headers from");
    };
    let script = "import sysconfig; print(sysconfig.get_path('include'))";
    let output = Command::new(python).args(["-c", script]).output();
    let include = String::from_utf8(output.expect("python runs").stdout).expect("a path");
    let include = include.trim();
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{behaviour}.so"));
    let shims = Path::new(env!("CARGO_MANIFEST_DIR")).join("shims");
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    compiler.args([
        "-O2",
        "-fPIC",
        "-shared",
        "-Wl,--unresolved-symbols=ignore-all",
    ]);
    compiler
        .arg(format!("-I{include}"))
        .arg(format!("-I{include}/internal"));
    compiler.arg(format!("-DSTANDIN=STANDIN_{behaviour}"));
    compiler
        .arg(shims.join("official_standin.c"))
        .arg(shims.join("oracle.c"));
    compiler.arg("-o").arg(&library);
    let compiled = compiler.output().expect("a C compiler");
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{compiler:?}\n{errors}");
    // SAFETY: the library has no initialisers.
    unsafe { Library::open(Some(&library), RTLD_NOW | RTLD_GLOBAL) }.expect("the library loads")
}

/// What the functions answer about a frame, as text.
fn answers(functions: &Functions, frame: usize) -> Vec<String> {
    // SAFETY: this thread is about to run that frame, here and below.
    let names = unsafe { (functions.names)(frame) }.expect("names");
    // SAFETY: a new reference.
    let names = unsafe { Object::from_owned_ptr(names.as_ptr()) }.expect("not NULL");
    // SAFETY: as above.
    let count = unsafe { (functions.count)(frame) }.expect("a count");
    let mut all = vec![null_mut(); count];
    // SAFETY: as above, and the buffer is as long as said.
    let filled = unsafe { (functions.get_all)(frame, all.as_mut_ptr(), count) };
    assert_eq!(filled, Ok(count));
    // SAFETY: as above.
    let short = unsafe { (functions.get_all)(frame, all.as_mut_ptr(), count - 1) };
    assert_eq!(short, Err(Fault::Capacity));
    let mut answers = vec![text(&names)];
    for (index, one_of_all) in all.into_iter().enumerate() {
        let index = index as isize;
        let mut value = null_mut();
        // SAFETY: as above; `value` can be written to.
        let found = unsafe { (functions.get)(frame, index, 0, &raw mut value) };
        assert_eq!((found, value), (Ok(!value.is_null()), one_of_all));
        // SAFETY: both are new references, or NULL.
        let [value, _] = [value, one_of_all].map(|o| unsafe { Object::from_owned_ptr(o) });
        answers.push(value.as_ref().map_or("-".to_owned(), text));
        // SAFETY: as above.
        let kind = unsafe { (functions.kind)(frame, index) };
        assert_eq!(kind, Err(Fault::Unanswerable));
        let mut value = null_mut();
        // SAFETY: as above.
        let raw = unsafe { (functions.get)(frame, index, flags::RAW_CELL, &raw mut value) };
        assert_eq!(raw, Err(Fault::Unanswerable));
    }
    for index in [-1, count as isize] {
        let mut value = null_mut();
        // SAFETY: as above.
        let answer = unsafe { (functions.get)(frame, index, 0, &raw mut value) };
        assert_eq!(answer, Err(Fault::Index));
    }
    for index in 0..count {
        // SAFETY: `index` is below the size; the answer is borrowed.
        let name = unsafe { pyo3_ffi::PyTuple_GetItem(names.as_ptr(), index as isize) } as usize;
        // SAFETY: as above.
        let position = unsafe { (functions.position)(frame, name, 0) };
        assert_eq!(position, Ok(Some(index)));
        // SAFETY: as above.
        let next = unsafe { (functions.position)(frame, name, index + 1) };
        assert_eq!(next, Ok(None));
    }
    // SAFETY: as above. A function has no namespace, wherever that would be.
    assert_eq!(unsafe { (functions.namespace)(frame) }, Ok(None));
    // SAFETY: as above.
    let parameters = unsafe { (functions.parameters)(frame) };
    assert_eq!(parameters.map(drop), Err(Fault::Unanswerable));
    // SAFETY: the thread is attached.
    assert!(unsafe { pyo3_ffi::PyErr_Occurred() }.is_null());
    answers
}

#[test]
fn official_without_layout() {
    embedding::start();
    let newest = TABLE.iter().map(|entry| entry.row.minor).max();
    let minor = newest.expect("rows") + 1;
    let future = |symbols: &Symbols| Runtime {
        version: 0x0300_00F0 | u32::from(minor) << 16,
        ..Runtime::inspect(symbols).expect("an interpreter")
    };

    // Nothing is exported yet.
    let symbols = Symbols::open();
    let missing = choose(&future(&symbols), &symbols, Some(Forced::Official));
    let missing = missing.expect_err("no such function").to_string();
    assert!(
        missing.contains("does not export PyUnstable_InterpreterFrame_GetLocal"),
        "{missing}"
    );

    let behaviour = std::env::var(STANDIN);
    let _standin = standin(behaviour.as_deref().unwrap_or("WITH_NAMES"));
    let reader = choose(&future(&symbols), &symbols, None).expect("the official functions");
    assert_eq!(reader.name(), c"official");
    // Nothing else about frames can be told, and that is an error of its own.
    assert!(reader.questions.is_none());
    let told = reader.unanswerable("the state").to_string();
    assert!(told.contains("cannot answer the state"), "{told}");
    let forced = choose(&future(&symbols), &symbols, Some(Forced::Layout));
    let forced = forced.expect_err("no layout").to_string();
    assert!(forced.contains(&format!("CPython 3.{minor}.0")), "{forced}");

    let seen = Rc::new(RefCell::new(Vec::new()));
    let sink = seen.clone();
    let source = "
def outer():
    free = 'f'
    def inner(a, b, *args):
        late = lambda: (b, late)
        return free, late
    return inner
outer()(1, 2, 3)
";
    embedding::run(source, move |frame| {
        let frame = frame as usize;
        // SAFETY: this thread is about to run that frame.
        let code = unsafe { (reader.functions.code)(frame) }.map(NonNull::as_ptr);
        // SAFETY: the frame keeps its code object alive.
        let code = unsafe { Object::from_borrowed_ptr(code.expect("code")) }.expect("code");
        let name = text(&attribute(&code, c"co_name"));
        if name == "<module>" {
            // SAFETY: as above.
            let namespace = unsafe { (reader.functions.namespace)(frame) };
            assert_eq!(namespace, Err(Fault::Unanswerable));
        }
        if name == "inner" {
            sink.borrow_mut().extend(answers(reader.functions, frame));
        }
    });
    let expected = [
        "('a', 'b', 'args', 'late', 'free')",
        "1",
        "2",
        "(3,)",
        "-",
        "f",
    ];
    assert_eq!(*seen.borrow(), expected);
}

/// The same where PyUnstable_Code_GetLocalPlusNames is not exported.
#[test]
fn names_from_the_code_object() {
    if std::env::var_os(STANDIN).is_some() {
        return; // This is the process started below.
    }
    let mut same = Command::new(std::env::current_exe().expect("a path"));
    same.args(["--exact", "official_without_layout"]);
    let output = same
        .env(STANDIN, "THREE_ARGUMENTS")
        .output()
        .expect("this test runs");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.contains("1 passed"), "{output}");
}

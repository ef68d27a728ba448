// For the examples in the documentation, which include this file. They are
// linked with libpython by a name that build.rs makes.

#[link(name = "localsplus_doc_test_python")]
unsafe extern "C" {}

mod embedding {
    include!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/embedding/mod.rs"
    ));
}

/// Runs `source` as a module and shows the frames of its function `f` to `look`
/// before they start.
#[allow(dead_code, reason = "some examples show no frame")]
fn each_frame_of_f(
    source: &str,
    look: impl Fn(localsplus::Frame<'_>) -> Result<(), localsplus::Error> + 'static,
) -> Result<(), localsplus::Error> {
    let seen = std::rc::Rc::new(std::cell::Cell::new(0));
    let sink = seen.clone();
    embedding::start();
    embedding::run(source, move |frame| {
        // SAFETY: this thread is about to run that frame.
        let frame = unsafe { localsplus::Frame::from_ptr(frame) }.expect("a Python frame");
        let code = frame.code().expect("a code object");
        if embedding::text(&embedding::attribute(&code, c"co_name")) == "f" {
            look(frame).expect("an answer");
            sink.set(sink.get() + 1);
        }
    });
    assert!(seen.get() > 0, "no frame of f");
    Ok(())
}

/// Runs `source` as a module, under a hook that hands the calls of its function `f` to
/// `closure`. The text of the module's `answer`.
#[allow(dead_code, reason = "most examples need no hook")]
fn calls_of_f<F>(source: &str, closure: F) -> String
where
    F: for<'a> Fn(localsplus::hook::Call<'a>) -> localsplus::hook::Returned<'a>
        + Send
        + Sync
        + 'static,
{
    embedding::start();
    let hook = localsplus::hook::Hook::new(move |call: localsplus::hook::Call<'_>| {
        let code = call.frame().and_then(|frame| frame.code());
        let name = code.map(|code| embedding::attribute(&code, c"co_name"));
        if name.is_ok_and(|name| embedding::text(&name) == "f") {
            return closure(call);
        }
        call.proceed()
    });
    // SAFETY: this thread holds the GIL.
    unsafe { hook.install() }.expect("a hook");
    let globals = embedding::execute(source);
    // SAFETY: as above.
    unsafe { hook.remove() }.expect("no hook");
    // SAFETY: a dict and a C string; the answer is borrowed.
    let answer = unsafe {
        pyo3_ffi::PyDict_GetItemString(globals.as_ptr(), c"answer".as_ptr())
    };
    // SAFETY: the dict keeps it alive while we take a reference.
    let answer = unsafe { localsplus::Object::from_borrowed_ptr(answer) };
    embedding::text(&answer.expect("an answer"))
}

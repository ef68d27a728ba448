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

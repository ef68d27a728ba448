//! Reads frames of a small program and compares them with what it says they hold:
//! a last look at an interpreter whose provider has been chosen and proved, by the
//! functions that users call.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::canary::call;
use crate::error::{Error, Mismatch};
use crate::frame::Frame;
use crate::object::Object;
use crate::runtime::{PendingException, Symbols, attribute, text};

const SOURCE: &str = include_str!("self_test.py");
const FILENAME: &str = "<localsplus self-test>";

/// How many different tests `SOURCE` makes: as many must have been seen.
const TESTS: usize = 16;

type EvalFrame = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, c_int) -> *mut PyObject;
type SetEvalFrame = unsafe extern "C" fn(*mut c_void, EvalFrame);

/// What came out of one test.
pub struct Outcome {
    /// What was looked at.
    pub test: String,
    /// The first difference.
    pub failure: Option<Mismatch>,
}

thread_local! {
    static WATCH: RefCell<Watch> = RefCell::default();
}

/// `_PyEval_EvalFrameDefault`.
static DEFAULT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// What this thread has seen of the program.
#[derive(Default)]
struct Watch {
    /// The program's frames that are running, outermost first.
    running: Vec<usize>,
    /// The one that was left last.
    left: usize,
    /// What the next one shall hold: the test, and a dict.
    next: Option<(String, Object)>,
    outcomes: Vec<Outcome>,
}

/// Runs the program. The calling thread is attached, no exception is set, and none
/// is set afterwards. An error is the reason why there was nothing to compare.
pub fn run(symbols: &Symbols) -> Result<Vec<Outcome>, String> {
    let find = |name: &CStr| {
        let missing = || format!("{} is not exported", name.to_string_lossy());
        symbols.find(name).ok_or_else(missing)
    };
    let default = find(c"_PyEval_EvalFrameDefault")?;
    DEFAULT.store(default.as_ptr(), Ordering::Release);
    let set = find(c"_PyInterpreterState_SetEvalFrameFunc")?;
    // SAFETY: this name has had this signature since 3.11.
    let set = unsafe { std::mem::transmute::<*mut c_void, SetEvalFrame>(set.as_ptr()) };
    // SAFETY: as above.
    let default = unsafe { std::mem::transmute::<*mut c_void, EvalFrame>(default.as_ptr()) };

    let program = program().ok_or_else(exception)?;
    // SAFETY: the thread is attached.
    let interpreter: *mut c_void = unsafe { ffi::PyInterpreterState_Get() }.cast();
    WATCH.take();
    // SAFETY: the thread is attached to that interpreter, and `hook` is an
    // eval-frame function.
    unsafe { set(interpreter, hook) };
    // SAFETY: `program` is alive, and called without arguments.
    let gained = unsafe { ffi::PyObject_CallObject(program.as_ptr(), null_mut()) };
    // SAFETY: as above.
    unsafe { set(interpreter, default) };
    // SAFETY: PyObject_CallObject gives a reference away.
    let gained = unsafe { Object::from_owned_ptr(gained) }.ok_or_else(exception)?;
    // SAFETY: `gained` is alive; anything but an `int` is an error.
    let gained = unsafe { ffi::PyLong_AsSsize_t(gained.as_ptr()) };

    let mut outcomes = WATCH.take().outcomes;
    let seen = outcomes.len();
    let mut compare = |test: &str, expected: isize, found: isize| {
        let failure = (expected != found).then(|| Mismatch {
            field: test.to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
        });
        outcomes.push(Outcome {
            test: test.to_owned(),
            failure,
        });
    };
    compare("references gained by reading", 0, gained);
    compare("tests seen", TESTS as isize, seen as isize);
    Ok(outcomes)
}

/// The function `run` of the program; `None` if an exception is set.
fn program() -> Option<Object> {
    // SAFETY: the name is a C string.
    let builtins = unsafe { ffi::PyImport_ImportModule(c"builtins".as_ptr()) };
    // SAFETY: PyImport_ImportModule gives a reference away.
    let builtins = unsafe { Object::from_owned_ptr(builtins) }?;
    let [source, filename, mode] = [string(SOURCE)?, string(FILENAME)?, string("exec")?];
    let code = call(
        &attribute(&builtins, c"compile")?,
        &[&source, &filename, &mode],
    )?;
    // SAFETY: the thread is attached.
    let globals = unsafe { ffi::PyDict_New() };
    // SAFETY: PyDict_New gives a reference away.
    let globals = unsafe { Object::from_owned_ptr(globals) }?;
    call(&attribute(&builtins, c"exec")?, &[&code, &globals])?;
    item(&globals, c"run")
}

/// `dict[name]`, or `None`.
fn item(dict: &Object, name: &CStr) -> Option<Object> {
    // SAFETY: `dict` is alive; the answer is borrowed or NULL, without exception.
    let value = unsafe { ffi::PyDict_GetItemString(dict.as_ptr(), name.as_ptr()) };
    // SAFETY: the dict keeps it alive while we take a reference.
    unsafe { Object::from_borrowed_ptr(value) }
}

/// A `str`.
pub fn string(text: &str) -> Option<Object> {
    let text = crate::reader::c_string(text.to_owned());
    // SAFETY: a C string.
    let string = unsafe { ffi::PyUnicode_FromString(text.as_ptr()) };
    // SAFETY: PyUnicode_FromString gives a reference away.
    unsafe { Object::from_owned_ptr(string) }
}

/// The exception that is set, cleared, as a reason.
fn exception() -> String {
    // SAFETY: the thread is attached; the answer is borrowed or NULL.
    let ty = unsafe { ffi::PyErr_Occurred() };
    // SAFETY: the exception keeps its type alive while we take a reference.
    let ty = unsafe { Object::from_borrowed_ptr(ty) };
    // SAFETY: the thread is attached; the exception is not of interest.
    unsafe { ffi::PyErr_Clear() };
    let name = ty.and_then(|ty| text(&attribute(&ty, c"__name__")?));
    let name = name.as_deref().unwrap_or("an exception");
    format!("the self-test's program ended with {name}")
}

unsafe extern "C-unwind" fn hook(
    thread: *mut c_void,
    frame: *mut c_void,
    throwflag: c_int,
) -> *mut PyObject {
    // SAFETY: the interpreter has handed us this frame to evaluate, and the
    // exception that it may have set is put back.
    let watched = unsafe { enter(frame) };
    let default = DEFAULT.load(Ordering::Acquire);
    // SAFETY: `run` has stored that function there.
    let default = unsafe { std::mem::transmute::<*mut c_void, EvalFrame>(default) };
    // SAFETY: the arguments are passed on as they came.
    let result = unsafe { default(thread, frame, throwflag) };
    if watched {
        WATCH.with_borrow_mut(|watch| watch.left = watch.running.pop().unwrap_or_default());
    }
    result
}

/// Makes the comparisons that are due; whether `frame` is one of the program's.
///
/// # Safety
/// As [`Frame::from_ptr`].
unsafe fn enter(frame: *mut c_void) -> bool {
    let _pending = PendingException::take();
    // SAFETY: passed on to the caller.
    let Ok(view) = (unsafe { Frame::from_ptr(frame) }) else {
        return false;
    };
    let code = view.code().ok();
    let named = |name| text(&attribute(code.as_ref()?, name)?);
    if named(c"co_filename").as_deref() != Some(FILENAME) {
        return false;
    }
    let name = named(c"co_name").unwrap_or_default();
    WATCH.with(|watch| {
        // A finaliser may run in the middle of a comparison.
        let Ok(mut watch) = watch.try_borrow_mut() else {
            return false;
        };
        let (looked_at, is_entry) = match name.as_str() {
            "holding" => (watch.running.last().copied().unwrap_or_default(), false),
            "left" => (watch.left, false),
            "entering" => (0, true),
            _ => {
                if let Some((test, values)) = watch.next.take() {
                    watch.compare(test, &view, &values);
                }
                watch.running.push(frame as usize);
                return true;
            }
        };
        let argument = |index| view.get_local(index).ok().flatten();
        if let (Some(test), Some(values)) = (argument(0), argument(1)) {
            let test = text(&test).unwrap_or_default();
            if is_entry {
                watch.next = Some((test, values));
            } else {
                // SAFETY: a frame of this thread that is running, or a generator's
                // that the program holds.
                match unsafe { Frame::from_ptr(looked_at as *mut c_void) } {
                    Ok(looked_at) => watch.compare(test, &looked_at, &values),
                    Err(error) => watch.record(test, Err(mismatch("the frame", &error))),
                }
            }
        }
        false
    })
}

impl Watch {
    fn compare(&mut self, test: String, frame: &Frame<'_>, values: &Object) {
        self.record(test, compare(frame, values));
    }

    fn record(&mut self, test: String, result: Result<(), Mismatch>) {
        let known = self.outcomes.iter_mut().find(|known| known.test == test);
        match known {
            Some(known) => known.failure = known.failure.take().or(result.err()),
            None => self.outcomes.push(Outcome {
                test,
                failure: result.err(),
            }),
        }
    }
}

fn mismatch(field: &str, error: &Error) -> Mismatch {
    Mismatch {
        field: field.to_owned(),
        expected: "an answer".to_owned(),
        found: error.to_string(),
    }
}

/// Every slot against the dict of values by name.
fn compare(frame: &Frame<'_>, values: &Object) -> Result<(), Mismatch> {
    // SAFETY: `values` is alive; anything but a dict is an error.
    let mut missing = unsafe { ffi::PyDict_Size(values.as_ptr()) };
    let mut buffer = [const { MaybeUninit::uninit() }; 16];
    // Both ways of asking, since they are different code.
    let together = frame
        .get_locals(&mut buffer)
        .map_err(|error| mismatch("all slots", &error))?;
    for slot in frame.slots() {
        let name = slot
            .name()
            .map_err(|error| mismatch("a slot's name", &error))?;
        let failed = |error| mismatch(&name, &error);
        let alone = slot.value().map_err(failed)?;
        let expected = item(values, &CString::new(name.as_str()).unwrap_or_default());
        missing -= isize::from(expected.is_some());
        for found in [
            alone.as_ref(),
            together.get(slot.index()).and_then(|value| value.as_ref()),
        ] {
            if found.map(Object::as_ptr) != expected.as_ref().map(Object::as_ptr) {
                return Err(Mismatch {
                    field: name,
                    expected: describe(expected.as_ref()),
                    found: describe(found),
                });
            }
        }
    }
    if missing == 0 {
        return Ok(());
    }
    Err(Mismatch {
        field: "slots with a value".to_owned(),
        expected: format!("{missing} more"),
        found: "no slot of that name".to_owned(),
    })
}

/// A value by its address: if it is the wrong one, it may be anything.
fn describe(value: Option<&Object>) -> String {
    value.map_or_else(
        || "no value".to_owned(),
        |value| format!("{:p}", value.as_ptr()),
    )
}

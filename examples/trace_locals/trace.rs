//! The eval-frame hook: what a frame evaluator (PEP 523) does with `localsplus`.
//!
//! The interpreter calls the hook instead of evaluating a frame itself. The hook
//! looks at the frame, which has not started then, and has the interpreter
//! evaluate it as always.

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Write as _, stderr};
use std::path::Path;
use std::sync::OnceLock;

use glob::Pattern;
use localsplus::{Error, Frame, Object};
use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::python::{
    _PyEval_EvalFrameDefault, InterpreterFrame, PendingException, ThreadState, attribute,
    set_eval_frame, text, version,
};
use crate::value::one_line;

/// What to show, and where.
pub struct Tracer {
    /// The functions to show, by qualified name. Default: all.
    pub only: Option<Pattern>,
    /// Default: standard error.
    pub output: Option<File>,
}

static TRACER: OnceLock<Tracer> = OnceLock::new();

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The main thread at first: Python is making ready to run the program.
    Preparing,
    /// The threads that the program starts are in this stage all the time.
    Running,
    /// The main thread in the end: exit handlers, the printing of a traceback.
    Finished,
}

thread_local! {
    static STAGE: Cell<Stage> = const { Cell::new(Stage::Running) };
}

/// Has `tracer` watch the program that Python runs next. To be called once, in the
/// main thread, when Python is initialised.
pub fn install(tracer: Tracer) -> Result<(), Error> {
    // SAFETY: Python is initialised, and the main thread attached.
    let provider = unsafe { localsplus::provider() }?.to_string_lossy();
    tracer.write(&format!(
        "trace_locals: provider \"{provider}\", Python {}\n",
        version()
    ));
    TRACER.get_or_init(|| tracer);
    STAGE.set(Stage::Preparing);
    set_eval_frame(on_frame);
    Ok(())
}

/// The eval-frame function, of all threads.
unsafe extern "C" fn on_frame(
    thread: *mut ThreadState,
    frame: *mut InterpreterFrame,
    throwflag: c_int,
) -> *mut PyObject {
    // SAFETY: the interpreter wants `frame` to be evaluated by this thread.
    let is_program = unsafe { look_at(frame, throwflag != 0) };
    // SAFETY: the arguments are passed on as they came.
    let result = unsafe { _PyEval_EvalFrameDefault(thread, frame, throwflag) };
    if is_program {
        STAGE.set(Stage::Finished);
    }
    result
}

/// Shows the frame if it is to be shown, and answers whether it is the program's
/// outermost one.
///
/// This may be entered again while it runs: Python may collect garbage here, and
/// finalisers of the program be called. They are shown like everything else.
///
/// # Safety
/// The calling thread is attached and about to evaluate `frame`.
// Python may recurse deeply: what is needed here shall not stay on the stack.
#[inline(never)]
unsafe fn look_at(frame: *mut InterpreterFrame, is_thrown_into: bool) -> bool {
    let Some(tracer) = TRACER.get() else {
        return false;
    };
    if STAGE.get() == Stage::Finished {
        return false;
    }
    let _pending = PendingException::put_aside();
    // SAFETY: the caller promises a frame that lives longer than this call.
    let seen = unsafe { Frame::from_ptr(frame) }.and_then(|frame| {
        let how = match is_thrown_into {
            true => Entry::Thrown,
            // Nobody can tell in a version that is read without a layout.
            false if frame.is_generator().unwrap_or(false) => Entry::Resumed,
            false => Entry::Called,
        };
        tracer.see(frame, how)
    });
    seen.unwrap_or_else(|error| {
        tracer.write(&format!("a frame could not be read: {error}\n"));
        false
    })
}

/// How a frame is entered.
#[derive(Clone, Copy)]
enum Entry {
    Called,
    /// A generator's or coroutine's frame, which goes on.
    Resumed,
    /// The same, with an exception thrown into it.
    Thrown,
}

impl Tracer {
    fn see(&self, frame: Frame<'_>, entry: Entry) -> Result<bool, Error> {
        let function = Function::new(&frame.code()?);
        let is_program = STAGE.get() == Stage::Preparing;
        if is_program {
            if !function.is_program() {
                return Ok(false);
            }
            STAGE.set(Stage::Running);
        }
        let only = self.only.as_ref();
        if only.is_none_or(|only| only.matches(&function.qualified_name)) {
            self.write(&describe(&function, frame, entry)?);
        }
        Ok(is_program)
    }

    /// In one piece, since threads and child processes write to the same file.
    fn write(&self, text: &str) {
        // The program goes on even if nobody can read its trace.
        let _ = match &self.output {
            Some(file) => (&*file).write_all(text.as_bytes()),
            None => stderr().write_all(text.as_bytes()),
        };
    }
}

/// What a code object says of itself.
struct Function {
    qualified_name: String,
    file: String,
    line: c_long,
}

impl Function {
    fn new(code: &Object) -> Self {
        let text = |name| attribute(code, name).and_then(|value| text(&value));
        let path = text(c"co_filename").unwrap_or_default();
        let file = Path::new(&path).file_name().unwrap_or_default();
        Self {
            qualified_name: text(c"co_qualname").unwrap_or_default(),
            file: file.to_string_lossy().into_owned(),
            line: attribute(code, c"co_firstlineno").map_or(0, |line| {
                // SAFETY: a live `int`.
                unsafe { ffi::PyLong_AsLong(line.as_ptr()) }
            }),
        }
    }

    /// Whether this is what Python runs as the program: a module, or the function
    /// that finds one in an archive. What Python needs beforehand, to read the
    /// file, are other functions, and modules that those import.
    fn is_program(&self) -> bool {
        let name = self.qualified_name.as_str();
        // SAFETY: the thread is attached. The answer is the caller of the frame
        // that is about to be evaluated.
        matches!(name, "<module>" | "_run_module_as_main")
            && unsafe { ffi::PyEval_GetFrame() }.is_null()
    }
}

/// The function, and a line for each slot.
fn describe(function: &Function, frame: Frame<'_>, entry: Entry) -> Result<String, Error> {
    let Function {
        qualified_name,
        file,
        line,
    } = function;
    let mark = match entry {
        Entry::Called => "",
        Entry::Resumed => " (resumed)",
        Entry::Thrown => " (resumed by an exception)",
    };
    let mut slots = Vec::with_capacity(frame.count()?);
    for slot in frame.slots() {
        // Nobody knows the kinds in a version that is read without a layout.
        let kind = slot.kind().map_or("?".to_owned(), |kind| kind.to_string());
        let value = slot.value()?;
        let value = value.map_or("no value".to_owned(), |value| one_line(&value));
        slots.push((slot.index(), slot.name()?, kind, value));
    }
    let name_width = slots.iter().map(|(_, name, ..)| name.chars().count()).max();
    let kind_width = slots.iter().map(|(_, _, kind, _)| kind.len()).max();
    let (name_width, kind_width) = (name_width.unwrap_or(0), kind_width.unwrap_or(0));
    let mut text = format!("{qualified_name} {file}:{line}{mark}\n");
    for (index, name, kind, value) in slots {
        // Writing to a `String` cannot fail.
        let _ = writeln!(
            text,
            "  {index:>2} {name:name_width$} {kind:kind_width$} {value}"
        );
    }
    Ok(text)
}

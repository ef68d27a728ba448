//! The provider: chosen once for the process, at the first call.

use std::ffi::{CStr, CString};
use std::process::id;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::canary::{self, Failure, Subject};
use crate::capi;
use crate::error::{Error, Mismatch};
use crate::exported::Exported;
use crate::layout::cross_check::cross_check;
use crate::layout::{Build, Entry, Row, TABLE};
use crate::official::{self, Official};
use crate::question::Questions;
use crate::read::{Fault, Functions};
use crate::runtime::{self, PendingException, Running, Runtime, Symbols, detached};

/// What answers in this process.
#[derive(Debug)]
pub struct Reader {
    name: CString,
    /// How slots are read.
    pub functions: &'static Functions,
    /// How everything else about a frame is answered, where its layout is known.
    pub questions: Option<&'static Questions>,
    /// What the interpreter exports about frames.
    pub exported: Exported,
}

impl Reader {
    /// "official", "layout 3.14", ...
    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// The error for `fault`, which `frame` gave when asked `question`.
    ///
    /// # Safety
    /// As [`crate::read::code`].
    #[cold]
    pub unsafe fn error(&self, fault: Fault, frame: usize, question: Question) -> Error {
        // SAFETY: passed on to the caller.
        let count = || unsafe { (self.functions.count)(frame) }.unwrap_or_default();
        match (fault, question) {
            (Fault::Shim, _) => Error::ShimFrame,
            (Fault::NotCode, _) => Error::NotPythonCode,
            (Fault::Index, Question::Kind(index) | Question::Slot(index)) => {
                Error::IndexOutOfRange {
                    index,
                    count: count(),
                }
            }
            (Fault::Capacity, Question::Slots { capacity }) => Error::Capacity {
                capacity,
                count: count(),
            },
            (_, question) => self.unanswerable(question.name()),
        }
    }

    /// The error for a question that this provider cannot answer.
    #[cold]
    pub fn unanswerable(&self, question: &'static str) -> Error {
        Error::Unanswerable {
            question,
            provider: self.name.to_string_lossy().into(),
        }
    }
}

/// `text` for C, which takes a NUL for the end.
pub fn c_string(text: String) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// What was asked, for the error that answers it.
#[derive(Debug, Clone, Copy)]
pub enum Question {
    /// The code object.
    Code,
    /// The offset of the instruction.
    Lasti,
    /// The number of slots.
    Count,
    /// The slots' names.
    Names,
    /// The kind of a slot.
    Kind(isize),
    /// The value of a slot.
    Slot(isize),
    /// Something else about the frame.
    Field(&'static str),
    /// The values of all slots.
    Slots {
        /// The room for them.
        capacity: isize,
    },
    /// The slots of a name.
    Name,
    /// The namespace of a module or class body.
    Namespace,
    /// The arguments that the frame was called with.
    Arguments,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Self::Code => "the code object",
            Self::Lasti => "the offset of the instruction",
            Self::Count => "the number of slots",
            Self::Names => "the names of slots",
            Self::Kind(_) => "the kind of a slot",
            Self::Slot(_) => "a slot with these flags",
            Self::Field(name) => name,
            Self::Slots { .. } => "the values of slots",
            Self::Name => "the slots of a name",
            Self::Namespace => "the namespace",
            Self::Arguments => "the arguments of a call",
        }
    }
}

/// The chosen reader; NULL before, and if this interpreter is refused. A
/// separate variable, so that the hot path is one load.
static READER: AtomicPtr<Reader> = AtomicPtr::new(null_mut());

enum State {
    Unchosen,
    Choosing {
        thread: ThreadId,
        /// A child process does not have that thread.
        process: u32,
    },
    Chosen(Result<&'static Reader, Error>),
}

/// Only held for a moment, and never while Python runs.
static STATE: Mutex<State> = Mutex::new(State::Unchosen);
static CHANGED: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reader of this process. The calling thread is attached.
#[inline(always)]
pub fn reader() -> Result<&'static Reader, Error> {
    let reader = READER.load(Ordering::Acquire);
    // SAFETY: NULL, or a leaked `Reader`.
    match unsafe { reader.as_ref() } {
        Some(reader) => Ok(reader),
        None => choose_once(),
    }
}

#[cold]
fn choose_once() -> Result<&'static Reader, Error> {
    let me = thread::current().id();
    loop {
        let mut guard = state();
        match &*guard {
            State::Chosen(chosen) => return chosen.clone(),
            State::Choosing { thread, process } if *process == id() => {
                let is_nested = *thread == me;
                drop(guard);
                if is_nested {
                    return Err(Error::Choosing);
                }
                wait();
            }
            State::Unchosen | State::Choosing { .. } => {
                *guard = State::Choosing {
                    thread: me,
                    process: id(),
                };
                drop(guard);
                // Also if choosing panics.
                let mut finish = Finish(State::Unchosen);
                let _pending = PendingException::take();
                let chosen = match choose_for_running() {
                    Err(error @ Error::Interrupted { .. }) => return Err(error),
                    chosen => chosen.map(|reader| &*Box::leak(Box::new(reader))),
                };
                if let Ok(reader) = chosen {
                    capi::adopt(reader.functions);
                    READER.store(std::ptr::from_ref(reader).cast_mut(), Ordering::Release);
                }
                finish.0 = State::Chosen(chosen.clone());
                return chosen;
            }
        }
    }
}

/// Leaves `State::Choosing` on drop.
struct Finish(State);

impl Drop for Finish {
    fn drop(&mut self) {
        *state() = std::mem::replace(&mut self.0, State::Unchosen);
        CHANGED.notify_all();
    }
}

/// Until another thread has chosen, without holding up the interpreter, which
/// that thread needs.
fn wait() {
    let choosing = |state: &mut State| matches!(state, State::Choosing { .. });
    detached(|| drop(CHANGED.wait_while(state(), choosing)));
}

fn choose_for_running() -> Result<Reader, Error> {
    let symbols = Symbols::open();
    let forced = Forced::from_environment()?;
    let runtime = Runtime::inspect(&symbols).map_err(|it| it.error("this interpreter"))?;
    choose(&runtime, &symbols, forced)
}

/// The value of `LOCALSPLUS_PROVIDER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forced {
    /// `official`.
    Official,
    /// `layout`.
    Layout,
}

const FORCED: &str = "LOCALSPLUS_PROVIDER";

impl Forced {
    /// An empty value is none.
    fn from_environment() -> Result<Option<Self>, Error> {
        let Some(value) = std::env::var_os(FORCED) else {
            return Ok(None);
        };
        match value.to_string_lossy().as_ref() {
            "" => Ok(None),
            "official" => Ok(Some(Self::Official)),
            "layout" => Ok(Some(Self::Layout)),
            other => Err(Error::Forced {
                value: other.into(),
                reason: "expected \"official\" or \"layout\", or no such variable".into(),
            }),
        }
    }
}

/// Chooses for the interpreter that `runtime` describes and that is running. The
/// calling thread is attached; no exception is set.
pub fn choose(
    runtime: &Runtime,
    symbols: &Symbols,
    forced: Option<Forced>,
) -> Result<Reader, Error> {
    let unsupported = |reason: String| Error::Unsupported {
        interpreter: runtime.to_string().into(),
        reason: reason.into(),
    };
    if runtime.implementation != "cpython" || runtime.minor().is_none_or(|minor| minor < 11) {
        return Err(unsupported(format!("it needs {}", supported())));
    }
    let attached = Running::attach(symbols).map_err(runtime::missing);
    let exported = attached.and_then(|()| Exported::find(symbols));
    let exported = exported.map_err(|obscure| obscure.error(runtime))?;
    // Proved even where the official function is used: it answers the questions
    // that the official API does not.
    let layout = match layout(runtime, &exported, symbols) {
        Err(Unusable::Interrupted(error)) => return Err(error),
        layout => layout.map_err(Unusable::reason),
    };
    let official = match forced {
        Some(Forced::Layout) => Err(None),
        _ => match official(
            layout.as_ref().ok().map(|layout| layout.functions),
            &exported,
            symbols,
        ) {
            Err(Unusable::Interrupted(error)) => return Err(error),
            Err(Unusable::Absent) => Err(None),
            official => official.map_err(|unusable| Some(unusable.reason())),
        },
    };
    let questions = layout
        .as_ref()
        .ok()
        .and_then(|layout| layout.functions.questions);
    match (official, layout, forced) {
        (Ok(official), ..) => {
            official.adopt();
            Ok(Reader {
                name: c"official".to_owned(),
                functions: &official::FUNCTIONS,
                questions,
                exported,
            })
        }
        (Err(reason), _, Some(Forced::Official)) => Err(Error::Forced {
            value: "official".into(),
            reason: reason
                .unwrap_or_else(|| {
                    let symbol = official::SYMBOL.to_string_lossy();
                    format!("{runtime} does not export {symbol}: unset {FORCED}")
                })
                .into(),
        }),
        (Err(rejected), Ok(layout), _) => {
            let mut name = format!("layout {}", layout.row);
            if let Some(reason) = rejected {
                name = format!("{name} ({reason})");
            }
            Ok(Reader {
                name: c_string(name),
                functions: layout.functions,
                questions,
                exported,
            })
        }
        (Err(rejected), Err(reason), _) => {
            let rejected = rejected.map(|reason| format!("; {reason}"));
            Err(unsupported(format!(
                "{reason}{}",
                rejected.unwrap_or_default()
            )))
        }
    }
}

/// Why a provider is not used.
enum Unusable {
    /// There is none.
    Absent,
    Mismatch {
        subject: String,
        mismatch: Mismatch,
    },
    Other(String),
    Interrupted(Error),
}

impl Unusable {
    fn from_failure(subject: impl Into<String>, failure: Failure) -> Self {
        let subject = subject.into();
        match failure {
            Failure::Mismatch(mismatch) => Self::Mismatch { subject, mismatch },
            Failure::Interrupted(error) => Self::Interrupted(error),
        }
    }

    fn reason(self) -> String {
        match self {
            Self::Absent => format!("it needs {}", supported()),
            Self::Mismatch { subject, mismatch } => format!("{subject} does not fit: {mismatch}"),
            Self::Other(reason) => reason,
            Self::Interrupted(error) => error.to_string(),
        }
    }
}

/// A layout that fits the running interpreter.
struct Proved {
    row: &'static Row,
    functions: &'static Functions,
}

/// The layout of exactly this version and build, not proved.
pub fn entry(runtime: &Runtime) -> Option<&'static Entry> {
    let build = match runtime {
        Runtime {
            free_threaded: true,
            ..
        } => Build::FreeThreaded,
        // From 3.13 on, such a build has the default layout.
        Runtime {
            trace_refs: true, ..
        } if runtime.minor() < Some(13) => Build::TraceRefs,
        _ => Build::Gil,
    };
    let fits = |row: &Row| Some(row.minor) == runtime.minor() && row.build == build;
    TABLE.iter().find(|entry| fits(&entry.row))
}

/// The layout of exactly this interpreter, proved.
fn layout(runtime: &Runtime, exported: &Exported, symbols: &Symbols) -> Result<Proved, Unusable> {
    let entry = entry(runtime).ok_or(Unusable::Absent)?;
    if runtime.stackref_debug {
        return Err(Unusable::Other(
            "a build with Py_STACKREF_DEBUG keeps handles instead of pointers in its slots: \
             use one without"
                .to_owned(),
        ));
    }
    if !runtime.is_candidate_or_final() {
        return Err(Unusable::Other(format!(
            "a pre-release may have another layout than its final release: it needs {}",
            supported()
        )));
    }
    proved(entry, runtime, exported, symbols)
}

/// That the row is this interpreter's.
fn proved(
    entry: &'static Entry,
    runtime: &Runtime,
    exported: &Exported,
    symbols: &Symbols,
) -> Result<Proved, Unusable> {
    let subject = format!("layout {}", entry.row);
    cross_check(&entry.row, runtime).map_err(|mismatch| Unusable::Mismatch {
        subject: subject.clone(),
        mismatch,
    })?;
    let functions = match runtime.debug {
        true => &entry.ref_debug_functions,
        false => &entry.functions,
    };
    match canary::prove(Subject::Layout(functions, exported), symbols) {
        Ok(()) => {
            if !runtime.debug {
                runtime::count_in_place(&entry.row);
            }
            Ok(Proved {
                row: &entry.row,
                functions,
            })
        }
        Err(failure) => Err(Unusable::from_failure(subject, failure)),
    }
}

/// Why a row does not pass as this interpreter's, if it does not.
pub fn refuse(entry: &'static Entry, runtime: &Runtime, symbols: &Symbols) -> Option<String> {
    let attached = Running::attach(symbols).map_err(runtime::missing);
    let exported = match attached.and_then(|()| Exported::find(symbols)) {
        Ok(exported) => exported,
        Err(obscure) => return Some(obscure.error(runtime).to_string()),
    };
    let proved = proved(entry, runtime, &exported, symbols);
    proved.err().map(Unusable::reason)
}

/// The official functions, proved.
fn official(
    layout: Option<&'static Functions>,
    exported: &Exported,
    symbols: &Symbols,
) -> Result<Official, Unusable> {
    let subject = official::SYMBOL.to_string_lossy();
    let official = Official::find(symbols, exported.code, layout)
        .map_err(|reason| Unusable::Other(format!("{subject} is not usable: {reason}")))?
        .ok_or(Unusable::Absent)?;
    match canary::prove(Subject::Official(&official), symbols) {
        Ok(()) => Ok(official),
        Err(failure) => Err(Unusable::from_failure(subject, failure)),
    }
}

/// "CPython 3.11 to 3.15 (final or release candidate) or ...".
fn supported() -> String {
    let minors = || TABLE.iter().map(|entry| entry.row.minor);
    format!(
        "CPython 3.{} to 3.{} (final or release candidate), or a later CPython that exports {}",
        minors().min().unwrap_or_default(),
        minors().max().unwrap_or_default(),
        official::SYMBOL.to_string_lossy(),
    )
}

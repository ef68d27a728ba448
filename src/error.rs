//! Everything that can go wrong.

use std::fmt;

/// Why a question was not answered.
///
/// The C API turns these into Python exceptions; the Rust API never touches
/// Python's error indicator.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # each_frame_of_f("def f(a): pass\nf(1)", |frame| {
/// use localsplus::Error;
///
/// // def f(a): pass
/// let error = frame.get_local(1).expect_err("there is one slot only");
/// assert_eq!(error, Error::IndexOutOfRange { index: 1, count: 1 });
/// assert_eq!(error.to_string(), "slot index 1 is out of range [0, 1)");
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A slot index outside `[0, count)`. (`IndexError` in C.)
    #[error("slot index {index} is out of range [0, {count})")]
    IndexOutOfRange {
        /// The index asked for.
        index: isize,
        /// The number of slots of the frame.
        count: usize,
    },
    /// A pointer that must not be NULL was. (`ValueError` in C.)
    #[error("argument '{argument}' must not be NULL")]
    Null {
        /// The argument's name in `localsplus.h`.
        argument: &'static str,
    },
    /// The buffer is shorter than the frame has slots. (`ValueError` in C.)
    #[error("argument 'capacity' is {capacity}, but the frame has {count} slots")]
    Capacity {
        /// The capacity given.
        capacity: isize,
        /// The capacity needed.
        count: usize,
    },
    /// Bits in `flags` that mean nothing. (`ValueError` in C.)
    #[error(
        "argument 'flags' is {flags:#x}, but only LOCALSPLUS_HIDDEN (1) and \
         LOCALSPLUS_RAW_CELL (2) are known"
    )]
    UnknownFlags {
        /// The flags given.
        flags: u32,
    },
    /// The frame is a shim of the interpreter's: it runs no Python code.
    /// (`ValueError` in C.)
    #[error(
        "argument 'frame' is a shim frame of the interpreter's, which runs no Python code: \
         go on to its 'previous' frame"
    )]
    ShimFrame,
    /// The frame's executable is not a code object. (`ValueError` in C.)
    #[error("argument 'frame' has an executable that is not a code object")]
    NotPythonCode,
    /// The frame's arguments were asked for, or it was to be consumed or replaced, but
    /// it has begun to run. (`ValueError` in C.)
    #[error(
        "argument 'frame' has already started: its arguments are to be had, and something else is \
         to be run in its place, before it runs, in an eval-frame function that is called for it"
    )]
    Started,
    /// A parameter's slot of a frame that has not started holds something that no
    /// call puts there. (`ValueError` in C.)
    #[error("slot {index} of argument 'frame' is a parameter, but does not hold {expected}")]
    NotAnArgument {
        /// The slot.
        index: usize,
        /// What a call puts there.
        expected: &'static str,
    },
    /// No slot of the frame has this name, nor is it in the namespace of the module or
    /// class body. (`KeyError` in C.)
    #[error("argument 'name' is {name:?}, but the code of the frame has no such name")]
    NoSuchName {
        /// The name asked for.
        name: Box<str>,
    },
    /// An argument that must be a `str` is something else. (`TypeError` in C.)
    #[error("argument '{argument}' must be a str")]
    NotAStr {
        /// The argument's name in `localsplus.h`.
        argument: &'static str,
    },
    /// The namespace of a class body, made by its metaclass, or of an `exec` is no
    /// dict: only Python code can read it. (`ValueError` in C.)
    #[error(
        "argument 'frame' has a namespace that is not a dict: to read it may run Python code, \
         which is left to you"
    )]
    NotADict,
    /// The interpreter has no memory left. (`MemoryError` in C.)
    #[error("out of memory")]
    NoMemory,
    /// The frame has let go of its function, to which its globals and builtins
    /// belong: a finished generator has. (`ValueError` in C.)
    #[error(
        "argument 'frame' has no function any more, hence no {question}: ask before the \
         generator has finished"
    )]
    Released {
        /// What was asked.
        question: &'static str,
    },
    /// An object that has no frame of the kind asked for. (`TypeError` in C.)
    #[error("argument '{argument}' must be {expected}, not {found}")]
    WrongType {
        /// The argument's name in `localsplus.h`.
        argument: &'static str,
        /// The types that it may be of.
        expected: &'static str,
        /// The name of its type.
        found: Box<str>,
    },
    /// What is to be run in place of a frame is neither a code object nor callable.
    /// (`TypeError` in C.)
    #[error("argument 'replacement' must be a code object or callable")]
    NotARunnable,
    /// The code to be run in place of a frame has a free variable that the frame's code
    /// has not. (`ValueError` in C.)
    #[error(
        "argument 'replacement' has a free variable {name:?}, but the code of the frame has none \
         of that name: its cell is not to be had"
    )]
    NoSuchFreeVariable {
        /// The variable.
        name: Box<str>,
    },
    /// A module or class body was to be run in place of a function, or the other way
    /// round. (`ValueError` in C.)
    #[error(
        "argument 'replacement' and the code of the frame must both have local variables in \
         slots (CO_OPTIMIZED), or both in a namespace"
    )]
    OtherScope,
    /// A frame that was to be consumed has run. (`SystemError` in C.)
    #[error("a frame that was to be disposed of has run: its code handles exceptions too early")]
    RanAnyway,
    /// As many hooks are installed as there is room for in a process.
    /// (`RuntimeError` in C.)
    #[error("{count} hooks are installed, and there is no room for more: remove some")]
    TooManyHooks {
        /// How many.
        count: usize,
    },
    /// This provider cannot answer this question, though it answers others.
    /// (`RuntimeError` in C.)
    #[error(
        "provider \"{provider}\" cannot answer {question} on this interpreter: no layout of it is \
         known, and the interpreter's own API does not tell"
    )]
    Unanswerable {
        /// What was asked.
        question: &'static str,
        /// [`provider()`](crate::provider())'s name.
        provider: Box<str>,
    },
    /// A call from code that runs *because* the provider is being chosen in the
    /// same thread (an audit hook that sees the canary, say). (`RuntimeError` in
    /// C.)
    #[error(
        "localsplus is choosing its provider in this thread right now: ask again when the first \
         call has returned"
    )]
    Choosing,
    /// Something got in the way of checking the interpreter, so that nothing was
    /// decided, or a key raised an exception that compares itself with a name: the next
    /// call tries again. (In C this is the exception that did, if
    /// it was one, or `RuntimeError`. In Rust an exception of its type is raised in
    /// this thread as soon as it runs Python again, so that Ctrl-C is not lost.)
    #[error("localsplus was interrupted ({reason}); the next call tries again")]
    Interrupted {
        /// The exception's type, or what was in the way.
        reason: Box<str>,
    },
    /// No provider for this interpreter, for good. (`RuntimeError` in C.)
    #[error("localsplus does not read frames of {interpreter}: {reason}")]
    Unsupported {
        /// The running interpreter.
        interpreter: Box<str>,
        /// What is missing, and what to do.
        reason: Box<str>,
    },
    /// `LOCALSPLUS_PROVIDER` is set to something that is not to be had.
    /// (`RuntimeError` in C.)
    #[error("LOCALSPLUS_PROVIDER={value}: {reason}")]
    Forced {
        /// The variable's value.
        value: Box<str>,
        /// What is missing, and what to do.
        reason: Box<str>,
    },
}

/// A check that found something else than it expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The field or the check.
    pub field: String,
    /// The value expected.
    pub expected: String,
    /// The value found.
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            expected,
            found,
        } = self;
        write!(f, "{field}: expected {expected}, found {found}")
    }
}

//! What a frame is, besides its slots: whose code it runs, where it is, what it
//! is linked to. Generic over the layout, as the reading of slots is.
//!
//! The order of every answer is that of `read.rs`: owner, executable, and only
//! then fields, of which the frame may have let go.

use std::ptr::NonNull;

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::evaluate::share_builtins;
use crate::layout::slot::Slot;
use crate::layout::{Build, Instruction, Layout, Row, StackTop};
use crate::read::{
    CO_OPTIMIZED, CO_VARARGS, CO_VARKEYWORDS, Fault, Interpreter, OWNED_BY_FRAME_OBJECT,
    OWNED_BY_GENERATOR, OWNED_BY_THREAD, PythonFrame, field, type_of,
};

/// How far a frame has come.
///
/// For the frame of a generator, coroutine or async generator this is what
/// `inspect.getgeneratorstate` and its siblings tell.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # each_frame_of_f("def f(): pass\nf()", |frame| {
/// use localsplus::State;
///
/// let can_be_replaced = matches!(frame.state()?, State::Unstarted);
/// assert!(can_be_replaced);
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// None of the function's own code has run. Either it is being called, as an
    /// eval-frame function sees it: the arguments are in the slots, and nothing else
    /// is. Or it is in a generator that nobody has asked for a value yet
    /// ([`Frame::is_generator`](crate::Frame::is_generator)).
    Unstarted,
    /// A thread is running it, or one of the functions that it called. An eval-frame
    /// function that is handed the frame of a generator to go on with sees this, also
    /// the first time.
    Executing,
    /// In a generator, at a `yield` or `await`. Before 3.14, already while trace and
    /// profile functions and sys.monitoring are told of that.
    Suspended,
    /// It has returned, or raised. If a frame object has survived it, the locals are
    /// still there; in a generator they are not.
    Finished,
    /// `frame.clear()` has emptied it. (Without slots and namespace there is
    /// nothing to empty: such a frame stays [`Finished`](Self::Finished).)
    Cleared,
}

/// How an argument gets into a parameter.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # each_frame_of_f("def f(a, **options): pass\nf(1)", |frame| {
/// use localsplus::Parameter;
///
/// // def f(a, **options)
/// assert_eq!(frame.parameter(1)?, Some(Parameter::VarKeyword));
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Parameter {
    /// By position only: in front of `/`.
    PositionalOnly,
    /// By position or by name.
    Positional,
    /// By name only: after `*`.
    KeywordOnly,
    /// `*args`, a tuple.
    VarPositional,
    /// `**kwargs`, a dict.
    VarKeyword,
}

type Borrowed = Result<Option<NonNull<PyObject>>, Fault>;

/// The answers for one layout, as a table. Objects and frames are borrowed: the
/// frame keeps them alive. All take a frame that is alive and that no other thread
/// is running, and want the calling thread attached.
#[derive(Debug, Clone, Copy)]
pub struct Questions {
    /// The function, unless the frame has let go of it.
    pub function: unsafe fn(frame: usize) -> Borrowed,
    /// The function's globals, likewise.
    pub globals: unsafe fn(frame: usize) -> Borrowed,
    /// The function's builtins, likewise.
    pub builtins: unsafe fn(frame: usize) -> Borrowed,
    /// The mapping that holds the names of a module, class body, or `exec`.
    pub namespace: unsafe fn(frame: usize) -> Borrowed,
    /// The function's closure.
    pub closure: unsafe fn(frame: usize) -> Borrowed,
    /// The frame object, if somebody has asked for one.
    pub frame_object: unsafe fn(frame: usize) -> Borrowed,
    /// How far it has come.
    pub state: unsafe fn(frame: usize) -> Result<State, Fault>,
    /// Whether it is in a generator, coroutine or async generator.
    pub is_generator: unsafe fn(frame: usize) -> Result<bool, Fault>,
    /// The frame below, as `f_back` has it. Also answers for a shim frame.
    pub previous: unsafe fn(frame: usize) -> Result<Option<NonNull<u8>>, Fault>,
    /// The number of parameters, which are the first slots.
    pub parameter_count: unsafe fn(frame: usize) -> Result<usize, Fault>,
    /// What parameter a slot is, if it is one.
    pub parameter: unsafe fn(frame: usize, index: isize) -> Result<Option<Parameter>, Fault>,
    /// The frame that a thread is running, or a shim frame, given its
    /// `PyThreadState`, which must be the calling thread's; 0 for none.
    pub innermost: unsafe fn(thread: usize) -> usize,
    /// The first frame, from this one (or none, 0) on downwards, that `f_back` would
    /// show.
    pub first_complete: unsafe fn(frame: usize) -> Option<NonNull<u8>>,
    /// The `f_back` field of a frame object, which must be one: another, or 0.
    pub back_of_object: unsafe fn(object: usize) -> usize,
    /// The frame of a frame object, which must be one.
    pub frame_of_object: unsafe fn(object: usize) -> Option<NonNull<u8>>,
    /// The frame of a generator, coroutine or async generator, which must be one.
    pub frame_of_generator: unsafe fn(object: usize) -> Option<NonNull<u8>>,
    /// How something else is run in place of a frame.
    pub evaluating: Evaluating,
}

/// What a layout says to running something else than a frame.
#[derive(Debug, Clone, Copy)]
pub struct Evaluating {
    /// Whether an eval-frame function is to clear its frame.
    pub hook_owns_frame: bool,
    /// Whether functions may outlive the last reference to them: free-threaded 3.13
    /// keeps those for ever that are made of code which is not nested in other code, once
    /// it has had a second thread, and later ones until the next garbage collection.
    pub keeps_functions: bool,
    /// The builtins of a function, which is alive.
    pub builtins_of_function: unsafe fn(function: usize) -> usize,
    /// `evaluate::share_builtins`.
    pub share_builtins: unsafe fn(from: usize, to: usize),
}

impl Questions {
    /// The table for layout `L`.
    pub const fn of<L: Layout, I: Interpreter>() -> Self {
        Self {
            // SAFETY: here and below, passed on to the caller.
            function: |frame| unsafe { ask::<L, I, _>(frame, |python| Ok(python.function())) },
            // SAFETY: as above.
            globals: |frame| unsafe {
                ask::<L, I, _>(frame, |python| Ok(python.of_function(L::ROW.frame.globals)))
            },
            // SAFETY: as above.
            builtins: |frame| unsafe {
                ask::<L, I, _>(
                    frame,
                    |python| Ok(python.of_function(L::ROW.frame.builtins)),
                )
            },
            // SAFETY: as above.
            namespace: |frame| unsafe { ask::<L, I, _>(frame, |python| Ok(python.namespace())) },
            // SAFETY: as above.
            closure: |frame| unsafe { ask::<L, I, _>(frame, |python| Ok(python.closure_tuple())) },
            // SAFETY: as above.
            frame_object: |frame| unsafe {
                ask::<L, I, _>(frame, |python| Ok(python.frame_object()))
            },
            // SAFETY: as above.
            state: |frame| unsafe { ask::<L, I, _>(frame, |python| Ok(python.state())) },
            // SAFETY: as above.
            is_generator: |frame| unsafe {
                ask::<L, I, _>(frame, |python| Ok(python.owner() == OWNED_BY_GENERATOR))
            },
            previous: previous::<L, I>,
            // SAFETY: as above.
            parameter_count: |frame| unsafe {
                ask::<L, I, _>(frame, |python| Ok(python.parameters().iter().sum()))
            },
            // SAFETY: as above.
            parameter: |frame, index| unsafe {
                ask::<L, I, _>(frame, |python| python.parameter(index))
            },
            innermost: innermost::<L>,
            first_complete: first_complete::<L, I>,
            // SAFETY: as above: a field of every frame object.
            back_of_object: |object| unsafe { field(object, L::ROW.frame_object.f_back) },
            frame_of_object: frame_of_object::<L>,
            frame_of_generator: |object| NonNull::new((object + L::ROW.generator.gi_iframe) as _),
            evaluating: Evaluating {
                hook_owns_frame: L::ROW.hook_owns_frame,
                keeps_functions: matches!(L::ROW.build, Build::FreeThreaded),
                // SAFETY: a field of every function.
                builtins_of_function: |function| unsafe {
                    field(function, L::ROW.function.func_builtins)
                },
                share_builtins: share_builtins::<L>,
            },
        }
    }
}

/// What `answer` makes of the frame.
///
/// # Safety
/// `frame` is a live frame of layout `L` in the interpreter that `I` stands for,
/// no other thread is running it, and the calling thread is attached.
unsafe fn ask<L: Layout, I: Interpreter, T>(
    frame: usize,
    answer: impl FnOnce(&PythonFrame<L, I>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    // SAFETY: passed on to the caller.
    answer(&unsafe { PythonFrame::new(frame) }?)
}

impl<L: Layout, I: Interpreter> PythonFrame<L, I> {
    /// Only a live generator's frame has this: it stands in the generator.
    fn generator_state(&self) -> i8 {
        let generator = &const { L::ROW.generator };
        let before_frame = generator.gi_iframe - generator.gi_frame_state;
        // SAFETY: the owner says that this frame is the generator's `gi_iframe`;
        // `gi_frame_state` stands before that in the same object.
        unsafe { field(self.frame - before_frame, 0) }
    }

    /// How far the frame's instruction pointer is into its code, in bytes.
    fn distance(&self) -> isize {
        let instruction = self.frame_word(L::ROW.frame.instruction);
        instruction.wrapping_sub(self.code_start()) as isize
    }

    /// Whether the first instruction that is the function's own was reached; the
    /// interpreter hides frames that are not "complete" from `f_back`.
    fn is_complete(&self) -> bool {
        // A frame object only takes over a frame that is, and the bytecode that it
        // points into may be gone with its thread.
        self.owner() != OWNED_BY_THREAD || self.distance() >= self.first_own_instruction()
    }

    fn first_own_instruction(&self) -> isize {
        // Code units are two bytes.
        2 * self.code_int(L::ROW.code.co_firsttraceable) as isize
    }

    /// The same for a frame that may not be linked to the one below it yet.
    fn has_started(&self) -> bool {
        let row: &Row = &const { L::ROW };
        if !self.is_complete() {
            return false;
        }
        if row.frame.instruction_kind == Instruction::Last
            || self.owner() != OWNED_BY_THREAD
            || self.distance() > 0
        {
            return true;
        }
        // At the very first instruction, which is its own: it may be running that
        // one (a trace function is called from there), or be about to.
        match row.frame.stack_top_kind {
            StackTop::Index => self.is_linked(),
            // Where the field is a pointer, the interpreter clears `previous` in a new
            // frame, and links every frame that it runs to another one.
            StackTop::Pointer => self.frame_word(row.frame.previous) != 0,
        }
    }

    /// Whether the calling thread is running this frame. The last resort: it takes
    /// the longer the more frames are linked above those of the thread's own stack.
    #[cold]
    fn is_linked(&self) -> bool {
        // SAFETY: the calling thread is attached.
        let thread = unsafe { ffi::PyThreadState_Get() } as usize;
        // SAFETY: its own thread state.
        let mut linked = unsafe { innermost::<L>(thread) };
        while linked != 0 && linked != self.frame {
            // SAFETY: what the thread runs is alive.
            if unsafe { Self::new(linked) }.is_ok_and(|below| below.is_directly_below(self)) {
                // What is linked of the thread's stack is so in the order of that stack:
                // this frame would have come before.
                return false;
            }
            // SAFETY: what the thread runs is alive, and all frames have this field.
            linked = unsafe { field(linked, L::ROW.frame.previous) };
        }
        linked != 0
    }

    /// Whether `other`, of the thread's own stack, was put there next after this one.
    fn is_directly_below(&self, other: &Self) -> bool {
        let stack_size = self.code_int(L::ROW.code.co_stacksize).max(0) as usize;
        let end = self.frame + L::ROW.frame.localsplus + 8 * (self.count() + stack_size);
        self.owner() == OWNED_BY_THREAD && end == other.frame
    }

    fn state(&self) -> State {
        let generator = &const { L::ROW.generator };
        match self.owner() {
            OWNED_BY_GENERATOR => match self.generator_state() {
                state if state >= generator.finished => State::Finished,
                state if state == generator.created => State::Unstarted,
                state if state == generator.executing => State::Executing,
                _ => State::Suspended,
            },
            OWNED_BY_FRAME_OBJECT => match self.is_cleared() {
                true => State::Cleared,
                false => State::Finished,
            },
            _ => match self.has_started() {
                true => State::Executing,
                false => State::Unstarted,
            },
        }
    }

    /// Whether the frame is linked to the one below it.
    fn runs(&self) -> bool {
        let row: &Row = &const { L::ROW };
        match self.state() {
            State::Executing => true,
            // Before 3.14, that is so already while tools are told of the yield.
            State::Suspended => {
                row.frame.stack_top_kind == StackTop::Index
                    && self.frame_word(row.frame.previous) != 0
                    && self.is_linked()
            }
            _ => false,
        }
    }

    /// For a frame that a frame object owns.
    fn is_cleared(&self) -> bool {
        match self.count() {
            0 => !self.is_optimized() && self.frame_word(L::ROW.frame.locals) == 0,
            _ => self.live() == 0,
        }
    }

    fn is_optimized(&self) -> bool {
        self.code_int(L::ROW.code.co_flags) & CO_OPTIMIZED != 0
    }

    /// Whether the frame has let go of its function, globals and namespace, to which
    /// its fields still point.
    fn is_released(&self) -> bool {
        self.owner() == OWNED_BY_GENERATOR
            && self.generator_state() >= const { L::ROW.generator.finished }
    }

    /// Since 3.12 the field may hold another object: None, in the frames that the
    /// interpreter itself pushes to run `__init__`.
    fn function(&self) -> Option<NonNull<PyObject>> {
        if self.is_released() {
            return None;
        }
        let function = L::Slot::decode(self.frame_word(L::ROW.frame.function))?;
        // SAFETY: the frame keeps its function, an object, alive.
        let ty = unsafe { type_of::<L>(function) };
        NonNull::new(function as *mut PyObject).filter(|_| ty == I::function_type())
    }

    /// A field that is borrowed from the function, and junk without one.
    fn of_function(&self, offset: usize) -> Option<NonNull<PyObject>> {
        self.function()?;
        NonNull::new(self.frame_word(offset) as *mut PyObject)
    }

    /// An optimised function has none. (What 3.11 and 3.12 keep in its field after
    /// somebody has asked for `f_locals` is a copy of the slots.)
    pub(crate) fn namespace(&self) -> Option<NonNull<PyObject>> {
        if self.is_released() || self.is_optimized() {
            return None;
        }
        NonNull::new(self.frame_word(L::ROW.frame.locals) as *mut PyObject)
    }

    fn closure_tuple(&self) -> Option<NonNull<PyObject>> {
        let function = self.function()?.as_ptr() as usize;
        // SAFETY: the frame keeps its function alive, and that its closure.
        let closure: usize = unsafe { field(function, L::ROW.function.func_closure) };
        NonNull::new(closure as *mut PyObject)
    }

    fn frame_object(&self) -> Option<NonNull<PyObject>> {
        let row: &Row = &const { L::ROW };
        let object = match self.owner() {
            // It holds the frame, which has no reference to it.
            OWNED_BY_FRAME_OBJECT => self.frame - row.frame_object.f_frame_data,
            _ if self.is_released() => 0,
            _ => self.frame_word(row.frame.frame_obj),
        };
        NonNull::new(object as *mut PyObject)
    }

    /// How many parameters there are: positional-only, positional, keyword-only,
    /// `*args`, `**kwargs`, in the order of their slots.
    fn parameters(&self) -> [usize; 5] {
        let code = &const { L::ROW.code };
        let number = |offset| self.code_int(offset).max(0) as usize;
        let positional = number(code.co_argcount);
        let positional_only = number(code.co_posonlyargcount).min(positional);
        let flags = self.code_int(code.co_flags);
        [
            positional_only,
            positional - positional_only,
            number(code.co_kwonlyargcount),
            usize::from(flags & CO_VARARGS != 0),
            usize::from(flags & CO_VARKEYWORDS != 0),
        ]
    }

    fn parameter(&self, index: isize) -> Result<Option<Parameter>, Fault> {
        const ORDER: [Parameter; 5] = [
            Parameter::PositionalOnly,
            Parameter::Positional,
            Parameter::KeywordOnly,
            Parameter::VarPositional,
            Parameter::VarKeyword,
        ];
        // A negative index is a huge one.
        let index = index as usize;
        if index >= self.count() {
            return Err(Fault::Index);
        }
        let mut end = 0;
        let found = self
            .parameters()
            .into_iter()
            .zip(ORDER)
            .find(|&(count, _)| {
                end += count;
                index < end
            });
        Ok(found.map(|(_, parameter)| parameter))
    }
}

/// The first frame from `frame` on, downwards, that the interpreter's own `f_back`
/// would show; 0 is the end.
///
/// # Safety
/// `frame` is 0 or a live frame of layout `L` that is linked to those below it, all
/// alive; the rest as for [`ask`].
unsafe fn first_complete<L: Layout, I: Interpreter>(mut frame: usize) -> Option<NonNull<u8>> {
    while frame != 0 {
        // SAFETY: passed on to the caller.
        match unsafe { PythonFrame::<L, I>::new(frame) } {
            Ok(python) if python.is_complete() => break,
            _ => {
                // SAFETY: a shim frame has this field, too.
                frame = unsafe { field(frame, L::ROW.frame.previous) };
            }
        }
    }
    NonNull::new(frame as *mut u8)
}

/// # Safety
/// As [`ask`]; the frames below are alive.
unsafe fn previous<L: Layout, I: Interpreter>(frame: usize) -> Result<Option<NonNull<u8>>, Fault> {
    let row: &Row = &const { L::ROW };
    // SAFETY: passed on to the caller.
    let below: usize = match unsafe { PythonFrame::<L, I>::new(frame) } {
        Ok(python) if python.owner() == OWNED_BY_FRAME_OBJECT => {
            let object = frame - row.frame_object.f_frame_data;
            // SAFETY: the frame stands in a frame object, which has this field.
            let back: usize = unsafe { field(object, row.frame_object.f_back) };
            if back == 0 {
                return Ok(None);
            }
            // SAFETY: that is a frame object, which this one keeps alive.
            unsafe { field(back, row.frame_object.f_frame) }
        }
        // A frame that does not run is not linked to any other, whatever its field
        // may hold.
        Ok(python) if !python.runs() => return Ok(None),
        // SAFETY: every frame has this field.
        Ok(_) | Err(Fault::Shim) => unsafe { field(frame, row.frame.previous) },
        Err(fault) => return Err(fault),
    };
    // SAFETY: the frames below are alive, by the caller's promise.
    Ok(unsafe { first_complete::<L, I>(below) })
}

/// # Safety
/// `thread` is the calling thread's `PyThreadState`, attached, of layout `L`.
unsafe fn innermost<L: Layout>(thread: usize) -> usize {
    let layout = &const { L::ROW.thread };
    let holder = match layout.cframe {
        // SAFETY: a field of that struct, which is never NULL.
        Some(cframe) => unsafe { field(thread, cframe) },
        None => thread,
    };
    // SAFETY: a field of either struct.
    unsafe { field(holder, layout.current_frame) }
}

/// # Safety
/// `object` is a live frame object of layout `L`.
unsafe fn frame_of_object<L: Layout>(object: usize) -> Option<NonNull<u8>> {
    // SAFETY: a field of every frame object.
    let frame: usize = unsafe { field(object, L::ROW.frame_object.f_frame) };
    NonNull::new(frame as *mut u8)
}

//! Not running a frame that an eval-frame function was given: disposing of it, and
//! running something else in its place.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::arguments::Arguments;
use crate::capi::raise;
use crate::error::Error;
use crate::frame::Frame;
use crate::hook::evaluation;
use crate::layout::Layout;
use crate::object::Object;
use crate::question::{Questions, State};
use crate::read::{CO_OPTIMIZED, Fault, Interpreter, field};
use crate::reader::{Question, Reader};
use crate::runtime::{PendingException, Running, attribute, may_end_thread, text};

/// `CO_GENERATOR`, `CO_COROUTINE` and `CO_ASYNC_GENERATOR`.
const MAKES_GENERATOR: i32 = 0x20 | 0x80 | 0x200;

/// Gives the function `to` the builtins of the function `from`.
///
/// # Safety
/// Both are functions, of layout `L`, and `to` is new and nobody else's.
pub unsafe fn share_builtins<L: Layout>(from: usize, to: usize) {
    let offset = const { L::ROW.function.func_builtins };
    // SAFETY: a field of every function.
    let wanted: *mut PyObject = unsafe { field(from, offset) };
    // SAFETY: as above.
    let found: *mut PyObject = unsafe { field(to, offset) };
    if wanted == found || wanted.is_null() {
        return;
    }
    // SAFETY: `from` keeps its builtins alive.
    unsafe { ffi::Py_IncRef(wanted) };
    let slot = to.wrapping_add(offset) as *mut *mut PyObject;
    // SAFETY: nobody else knows this function.
    unsafe { slot.write(wanted) };
    // SAFETY: the reference that the function had.
    unsafe { ffi::Py_DecRef(found) };
}

impl Frame<'_> {
    /// Whether nothing of the frame has run, as an eval-frame function sees the call of
    /// a function. A generator's frame, which its function has begun by making, has.
    ///
    /// # Errors
    /// [`Error::Unanswerable`] if the provider is "official" and this version's layout
    /// is not known.
    pub(crate) fn is_unstarted(&self) -> Result<bool, Error> {
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        match unsafe { check(self.reader, self.address()) } {
            Ok(_) => Ok(true),
            Err(Error::Started) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Disposes of the frame without running it, on every version; the eval-frame
    /// function then returns something of its own. What the frame holds is released
    /// (on 3.11 when that function returns); the arguments belong to the caller, too,
    /// who still has them. Python's error indicator stays as it is. Tools see nothing.
    ///
    /// ```no_run
    /// # use localsplus::{Error, Frame, Object};
    /// /// # Safety
    /// /// To be called by an eval-frame function that returns what this answers.
    /// unsafe fn answer(frame: Frame<'_>, value: Object) -> Result<*mut pyo3_ffi::PyObject, Error> {
    ///     // SAFETY: passed on to the caller.
    ///     unsafe { frame.consume() }?;
    ///     Ok(value.into_ptr())
    /// }
    /// ```
    ///
    /// # Safety
    /// The interpreter has passed the frame to an eval-frame function of the calling
    /// thread, which has not run it, returns soon, and uses no copy of this `Frame` any
    /// more.
    ///
    /// # Errors
    /// [`Error::Started`] if it has begun to run (a generator that is resumed, say):
    /// it is as it was.
    /// [`Error::RanAnyway`], from hand-made code only.
    pub unsafe fn consume(self) -> Result<(), Error> {
        // SAFETY: `from_ptr` was promised a live frame and an attached thread, and the
        // caller promises the rest.
        unsafe { consume(self.reader, self.address()) }
    }

    /// Runs something else in place of the frame, with the same arguments: what that
    /// returns, or `None` if it raised an exception, which is set. The frame is disposed
    /// of first, but once all that is needed has been taken out of it.
    ///
    /// `replacement` is a code object, which is run with the function's closure (by the
    /// names of free variables), globals and builtins; or a callable, which is called.
    /// In place of a module or class body, a code object runs in its namespace, with the
    /// builtins that the globals name by then. A code object needs the same kinds of
    /// parameters. Of a generator or coroutine function,
    /// the call that makes the generator is replaced.
    ///
    /// Tools (sys.settrace, sys.setprofile, sys.monitoring), tracebacks and
    /// `sys._getframe` see a call of the replacement from the caller, and nothing of the
    /// frame. An eval-frame function sees it as well: how to tell is its affair.
    ///
    /// ```no_run
    /// # use localsplus::{Error, Frame, Object};
    /// /// # Safety
    /// /// To be called by an eval-frame function that returns what this answers.
    /// unsafe fn run(frame: Frame<'_>, compiled: &Object) -> Result<*mut pyo3_ffi::PyObject, Error> {
    ///     // SAFETY: passed on to the caller.
    ///     let value = unsafe { frame.evaluate_in_place(compiled) }?;
    ///     Ok(value.map_or(std::ptr::null_mut(), Object::into_ptr))
    /// }
    /// ```
    ///
    /// # Safety
    /// As [`consume`](Self::consume), and no exception is set.
    ///
    /// # Errors
    /// [`Error::Started`] and others about the frame leave it as it was.
    /// [`Error::NotARunnable`], [`Error::NoSuchFreeVariable`], [`Error::OtherScope`],
    /// [`Error::NoMemory`] and [`Error::NotAnArgument`] have disposed of it.
    #[inline]
    pub unsafe fn evaluate_in_place(self, replacement: &Object) -> Result<Option<Object>, Error> {
        // SAFETY: as above.
        let run = unsafe { instead_of(self.reader, self.address(), replacement) }?;
        Ok(run.and_then(Run::run))
    }
}

// All of these are exported by every supported version; pyo3-ffi has not all of them
// in every configuration.
unsafe extern "C" {
    fn PyFunction_New(code: *mut PyObject, globals: *mut PyObject) -> *mut PyObject;
    fn PyFunction_GetGlobals(function: *mut PyObject) -> *mut PyObject;
    fn PyFunction_GetClosure(function: *mut PyObject) -> *mut PyObject;
    fn PyFunction_SetClosure(function: *mut PyObject, closure: *mut PyObject) -> c_int;
}

unsafe extern "C-unwind" {
    fn PyEval_EvalCodeEx(
        code: *mut PyObject,
        globals: *mut PyObject,
        locals: *mut PyObject,
        args: *const *mut PyObject,
        argcount: c_int,
        kws: *const *mut PyObject,
        kwcount: c_int,
        defs: *const *mut PyObject,
        defcount: c_int,
        kwdefs: *mut PyObject,
        closure: *mut PyObject,
    ) -> *mut PyObject;
}

/// Why there is nothing to call.
enum Failure {
    Error(Error),
    /// An exception is set.
    Raised,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Whether an eval-frame function may do something else with the frame than run it.
///
/// # Safety
/// As [`crate::read::code`].
unsafe fn check(reader: &'static Reader, frame: usize) -> Result<&'static Questions, Error> {
    let question = "its state";
    let questions = reader.questions(question)?;
    // SAFETY: passed on to the caller.
    let state = unsafe { (questions.state)(frame) };
    // SAFETY: as above.
    let is_generator = unsafe { (questions.is_generator)(frame) };
    match (state, is_generator) {
        (Ok(State::Unstarted), Ok(false)) => Ok(questions),
        (Ok(_), Ok(_)) => Err(Error::Started),
        (Err(fault), _) | (_, Err(fault)) => {
            // SAFETY: passed on to the caller.
            Err(unsafe { reader.error(fault, frame, Question::Field(question)) })
        }
    }
}

/// Disposes of an unstarted frame. An exception that is set stays so.
///
/// # Safety
/// As [`crate::read::code`]; the frame is what the interpreter has passed to the
/// eval-frame function that is running, and is not used again.
pub(crate) unsafe fn consume(reader: &'static Reader, frame: usize) -> Result<(), Error> {
    // SAFETY: passed on to the caller.
    let questions = unsafe { check(reader, frame) }?;
    // SAFETY: passed on to the caller.
    unsafe { consume_checked(questions, frame) }
}

/// # Safety
/// As [`consume`]; the frame has passed [`check`].
unsafe fn consume_checked(questions: &Questions, frame: usize) -> Result<(), Error> {
    let evaluation = evaluation()?;
    if !questions.evaluating.hook_owns_frame {
        // Whoever called the eval-frame function clears it.
        return Ok(());
    }
    let _pending = PendingException::take();
    // SAFETY: the thread is attached.
    let thread: *mut c_void = unsafe { ffi::PyThreadState_Get() }.cast();
    let result = {
        // Tools are not to see a function fail that nobody called.
        // SAFETY: this is the calling thread's state.
        let _untraced = unsafe { evaluation.untraced(thread) };
        // SAFETY: a static that the interpreter has set long ago.
        let exception = unsafe { ffi::PyExc_SystemError };
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_SetNone(exception) };
        // Resumed with an exception, the interpreter unwinds the frame before its first
        // instruction, and clears and pops it on the way out.
        // SAFETY: the frame is this thread's to run.
        let run = || unsafe { (evaluation.default)(thread, frame as *mut c_void, 1) };
        let result = may_end_thread(run);
        // SAFETY: an eval-frame function gives a reference away, or answers NULL.
        unsafe { Object::from_owned_ptr(result) }
    };
    // Whatever it is (at the recursion limit, RecursionError): the frame is gone.
    // SAFETY: the thread is attached.
    unsafe { ffi::PyErr_Clear() };
    match result {
        None => Ok(()),
        // The compiler makes no code that catches this exception.
        Some(_) => Err(Error::RanAnyway),
    }
}

/// What is to be [run](Run::run) in place of an unstarted frame, or `None` with an
/// exception set. An error about the frame itself leaves it as it is; after any other
/// outcome it is gone.
///
/// Apart from the running, and never inlined: a recursion of replaced functions shall
/// not take more of the C stack than it must.
///
/// # Safety
/// As [`consume`]; no exception is set.
#[inline(never)]
pub(crate) unsafe fn instead_of(
    reader: &'static Reader,
    frame: usize,
    replacement: &Object,
) -> Result<Option<Run>, Error> {
    // SAFETY: passed on to the caller.
    let questions = unsafe { check(reader, frame) }?;
    // Everything is taken before the frame lets go of it.
    // SAFETY: passed on to the caller.
    let prepared = unsafe { prepare(reader, questions, frame, replacement) };
    // SAFETY: passed on to the caller.
    unsafe { consume_checked(questions, frame) }?;
    match prepared {
        Ok(run) => Ok(Some(run)),
        Err(Failure::Error(error)) => Err(error),
        Err(Failure::Raised) => Ok(None),
    }
}

/// What is to be run, with all that it needs.
pub(crate) enum Run {
    Call {
        callable: Object,
        arguments: Arguments,
    },
    Code(Box<Code>),
}

impl Run {
    /// What it returns, or `None` with an exception set.
    #[inline]
    pub(crate) fn run(self) -> Option<Object> {
        match self {
            Self::Call {
                callable,
                arguments,
            } => arguments.call(&callable),
            Self::Code(code) => code.run(),
        }
    }
}

/// Code that is run without a function made by us: that of a module or class body; and
/// of a function where functions are kept. (Not everywhere: before 3.13, `locals()`
/// would take the globals for the function's locals.)
pub(crate) struct Code {
    code: Object,
    globals: Object,
    closure: Option<Object>,
    /// Of a module or class body.
    namespace: Option<Object>,
    arguments: Arguments,
    /// What a generator is called, if not what the code is: its `__name__` and
    /// `__qualname__`.
    names: Option<[Object; 2]>,
}

impl Code {
    #[inline(never)]
    fn run(&self) -> Option<Object> {
        let pointer = |object: &Option<Object>| object.as_ref().map_or(null_mut(), Object::as_ptr);
        let positional = self.arguments.positional().iter().map(Object::as_ptr);
        let positional: Vec<_> = positional.collect();
        let mut keywords = Vec::new();
        let names = self.arguments.keyword_names();
        for (index, value) in (0..).zip(self.arguments.keyword_values()) {
            // SAFETY: a tuple with a name for each value; the answer is borrowed.
            let name = unsafe { ffi::PyTuple_GetItem(pointer(&names), index) };
            keywords.extend([name, value.as_ptr()]);
        }
        let count = (positional.len() as c_int, keywords.len() as c_int / 2);
        let [code, globals] = [&self.code, &self.globals].map(Object::as_ptr);
        let [namespace, closure] = [pointer(&self.namespace), pointer(&self.closure)];
        let (no_defaults, none) = (null_mut(), 0);
        // SAFETY: a code object, a dict, a mapping or NULL, as many arguments as is said,
        // all alive, and a tuple with a cell for each of the code's free variables.
        let result = may_end_thread(|| unsafe {
            PyEval_EvalCodeEx(
                code,
                globals,
                namespace,
                positional.as_ptr(),
                count.0,
                keywords.as_ptr(),
                count.1,
                no_defaults,
                none,
                null_mut(),
                closure,
            )
        });
        // SAFETY: the call gives a reference away, or answers NULL.
        let Some(result) = (unsafe { Object::from_owned_ptr(result) }) else {
            // It forgets to say so where there is no room for the arguments.
            // SAFETY: the thread is attached.
            if unsafe { ffi::PyErr_Occurred() }.is_null() {
                raise(&Error::NoMemory);
            }
            return None;
        };
        if let Some(names) = &self.names {
            for (attribute, name) in [c"__name__", c"__qualname__"].iter().zip(names) {
                let (result, name) = (result.as_ptr(), name.as_ptr());
                // SAFETY: both are alive, and the attribute's name a C string.
                if unsafe { ffi::PyObject_SetAttrString(result, attribute.as_ptr(), name) } < 0 {
                    return None;
                }
            }
        }
        Some(result)
    }
}

/// Whether code that runs with `globals` gets the builtins that `function` has: they may
/// have been replaced since it was made.
fn finds_builtins(function: &Object, globals: &Object) -> Result<bool, Failure> {
    let name = c"__builtins__";
    let wanted = get(function, name)?;
    // SAFETY: a dict and a C string; the answer is borrowed or NULL, without an exception.
    let found = unsafe { ffi::PyDict_GetItemString(globals.as_ptr(), name.as_ptr()) };
    if found.is_null() || found == wanted.as_ptr() {
        return Ok(!found.is_null());
    }
    // SAFETY: a live object, kept by the dict; anything but a module is an error.
    let dict = unsafe { ffi::PyModule_GetDict(found) };
    if dict.is_null() {
        // SAFETY: the thread is attached; that it is no module is the answer.
        unsafe { ffi::PyErr_Clear() };
    }
    Ok(dict == wanted.as_ptr())
}

/// # Safety
/// As [`consume`]; the frame has passed [`check`].
unsafe fn prepare(
    reader: &'static Reader,
    questions: &Questions,
    frame: usize,
    replacement: &Object,
) -> Result<Run, Failure> {
    let failed = |fault| {
        // SAFETY: passed on to the caller.
        unsafe { reader.error(fault, frame, Question::Field("its function")) }
    };
    // SAFETY: `replacement` is alive.
    let ty = unsafe { ffi::PyObject_Type(replacement.as_ptr()) };
    // SAFETY: PyObject_Type gives a reference away.
    let ty = unsafe { Object::from_owned_ptr(ty) }.ok_or(Failure::Raised)?;
    if ty.as_ptr() as usize != Running::code_type() {
        // SAFETY: `replacement` is alive.
        if unsafe { ffi::PyCallable_Check(replacement.as_ptr()) } == 0 {
            return Err(Error::NotARunnable.into());
        }
        return Ok(Run::Call {
            callable: replacement.clone(),
            // SAFETY: passed on to the caller.
            arguments: unsafe { Arguments::of(reader, frame) }?,
        });
    }
    // SAFETY: passed on to the caller.
    let code = unsafe { (reader.functions.code)(frame) }.map_err(failed)?;
    // SAFETY: the frame keeps its code object alive while we take a reference.
    let code = unsafe { Object::from_borrowed_ptr(code.as_ptr()) }.ok_or(Failure::Raised)?;
    // SAFETY: passed on to the caller.
    let function = unsafe { (questions.function)(frame) }.map_err(failed)?;
    let function = function.ok_or_else(|| failed(Fault::NotCode))?;
    // SAFETY: the frame keeps its function alive while we take a reference.
    let function =
        unsafe { Object::from_borrowed_ptr(function.as_ptr()) }.ok_or(Failure::Raised)?;
    // SAFETY: a function; the answer is borrowed.
    let globals = unsafe { PyFunction_GetGlobals(function.as_ptr()) };
    // SAFETY: the function keeps them alive while we take a reference.
    let globals = unsafe { Object::from_borrowed_ptr(globals) }.ok_or(Failure::Raised)?;
    let closure = closure(&function, &code, replacement)?;
    let flags = flags(replacement)?;
    if (flags ^ self::flags(&code)?) & CO_OPTIMIZED != 0 {
        return Err(Error::OtherScope.into());
    }
    // SAFETY: passed on to the caller.
    let namespace = unsafe { (reader.functions.namespace)(frame) }.map_err(failed)?;
    // SAFETY: `namespace` gives a reference away.
    let namespace = namespace.and_then(|it| unsafe { Object::from_owned_ptr(it.as_ptr()) });
    // SAFETY: passed on to the caller.
    let arguments = unsafe { Arguments::of(reader, frame) }?;
    let is_function = namespace.is_none();
    if is_function
        && (!questions.evaluating.keeps_functions || !finds_builtins(&function, &globals)?)
    {
        return Ok(Run::Call {
            callable: function_like(questions, &function, replacement, flags, &globals, closure)?,
            arguments,
        });
    }
    Ok(Run::Code(Box::new(Code {
        code: replacement.clone(),
        globals,
        closure,
        namespace,
        arguments,
        names: match flags & MAKES_GENERATOR {
            0 => None,
            _ => other_names(&function, replacement)?,
        },
    })))
}

/// The names of a function, if they are not those that `PyEval_EvalCodeEx` gives to what
/// it makes: the code's `co_name`, for both.
fn other_names(function: &Object, code: &Object) -> Result<Option<[Object; 2]>, Failure> {
    let names = [get(function, c"__name__")?, get(function, c"__qualname__")?];
    let given = get(code, c"co_name")?;
    let same = names.iter().all(|name| is_same_text(name, &given));
    Ok((!same).then_some(names))
}

/// A function that runs `code`, and is otherwise like `function`, without defaults:
/// the arguments have them.
fn function_like(
    questions: &Questions,
    function: &Object,
    code: &Object,
    flags: i32,
    globals: &Object,
    closure: Option<Object>,
) -> Result<Object, Failure> {
    // SAFETY: a code object and a dict, both alive.
    let new = unsafe { PyFunction_New(code.as_ptr(), globals.as_ptr()) };
    // SAFETY: PyFunction_New gives a reference away, or answers NULL.
    let new = unsafe { Object::from_owned_ptr(new) }.ok_or(Failure::Raised)?;
    if let Some(closure) = closure {
        // SAFETY: a new function, and a tuple with a cell for each of its code's free
        // variables.
        if unsafe { PyFunction_SetClosure(new.as_ptr(), closure.as_ptr()) } < 0 {
            return Err(Failure::Raised);
        }
    }
    let [from, to] = [function, &new].map(|function| function.as_ptr() as usize);
    // SAFETY: two functions, and the second is nobody else's.
    unsafe { (questions.evaluating.share_builtins)(from, to) };
    if flags & MAKES_GENERATOR == 0 {
        return Ok(new);
    }
    // A generator has its names from the function.
    for name in [c"__name__", c"__qualname__"] {
        let value = get(function, name)?;
        let [new, value] = [&new, &value].map(Object::as_ptr);
        // SAFETY: both are alive, and the name a C string.
        if unsafe { ffi::PyObject_SetAttrString(new, name.as_ptr(), value) } < 0 {
            return Err(Failure::Raised);
        }
    }
    Ok(new)
}

/// The cells of `function`, which runs `old`, for the free variables of `new`; `None`
/// if that has none.
fn closure(function: &Object, old: &Object, new: &Object) -> Result<Option<Object>, Failure> {
    let [old, new] = [get(old, c"co_freevars")?, get(new, c"co_freevars")?];
    let count = size(&new)?;
    if count == 0 {
        return Ok(None);
    }
    // SAFETY: a function; the answer is borrowed, or NULL.
    let cells = unsafe { PyFunction_GetClosure(function.as_ptr()) };
    // SAFETY: the function keeps it alive while we take a reference.
    let cells = unsafe { Object::from_borrowed_ptr(cells) };
    let names = (0..size(&old)?).map(|index| item(&old, index));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let mut found = Vec::new();
    for index in 0..count {
        let name = item(&new, index)?;
        let position = names.iter().position(|other| is_same_text(other, &name));
        let cell = match (position, &cells) {
            (Some(position), Some(cells)) => item(cells, position as isize).ok(),
            _ => None,
        };
        let missing = || Error::NoSuchFreeVariable {
            name: text(&name).unwrap_or_default().into(),
        };
        found.push(cell.ok_or_else(missing)?);
    }
    // SAFETY: the thread is attached.
    let tuple = unsafe { ffi::PyTuple_New(count) };
    // SAFETY: PyTuple_New gives a reference away, or answers NULL.
    let tuple = unsafe { Object::from_owned_ptr(tuple) }.ok_or(Failure::Raised)?;
    for (index, cell) in (0..).zip(found) {
        // SAFETY: a new tuple of that length; it takes the reference over.
        unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), index, cell.into_ptr()) };
    }
    Ok(Some(tuple))
}

/// Two `str` of a code object: interned as a rule.
fn is_same_text(one: &Object, other: &Object) -> bool {
    one.as_ptr() == other.as_ptr() || {
        // SAFETY: two live `str`, as a code object's names are.
        unsafe { ffi::PyUnicode_Compare(one.as_ptr(), other.as_ptr()) == 0 }
    }
}

fn flags(code: &Object) -> Result<i32, Failure> {
    let flags = get(code, c"co_flags")?;
    // SAFETY: alive; anything but an `int` is an error.
    let flags = unsafe { ffi::PyLong_AsLong(flags.as_ptr()) };
    Ok(flags as i32)
}

/// An attribute, which is there unless memory is short.
fn get(object: &Object, name: &CStr) -> Result<Object, Failure> {
    attribute(object, name).ok_or(Failure::Error(Error::NoMemory))
}

fn size(tuple: &Object) -> Result<isize, Failure> {
    // SAFETY: `tuple` is alive; anything but a tuple is an error.
    match unsafe { ffi::PyTuple_Size(tuple.as_ptr()) } {
        -1 => Err(Failure::Raised),
        size => Ok(size),
    }
}

/// An item of a tuple; an error, without an exception, if it has no such.
fn item(tuple: &Object, index: isize) -> Result<Object, Failure> {
    // SAFETY: `tuple` is one; the answer is borrowed, or NULL.
    let item = unsafe { ffi::PyTuple_GetItem(tuple.as_ptr(), index) };
    if item.is_null() {
        // SAFETY: the thread is attached; the caller has its own error.
        unsafe { ffi::PyErr_Clear() };
    }
    // SAFETY: the tuple keeps it alive while we take a reference.
    unsafe { Object::from_borrowed_ptr(item) }.ok_or(Failure::Error(Error::NoMemory))
}

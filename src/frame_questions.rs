//! What one may ask a [`Frame`] besides its slots, and the ways to one.

use std::ffi::c_int;
use std::ptr::NonNull;

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::error::Error;
use crate::frame::{Frame, chosen, clamp};
use crate::object::Object;
use crate::question::{Parameter, Questions, State};
use crate::read::Fault;
use crate::reader::{Question, Reader};
use crate::runtime::{PendingException, attribute, text};

impl Reader {
    /// The layout's answers, to answer `question`.
    pub(crate) fn questions(&self, question: &'static str) -> Result<&'static Questions, Error> {
        self.questions.ok_or_else(|| self.unanswerable(question))
    }
}

impl<'a> Frame<'a> {
    /// What `ask` says, which is a field of the layout's answers.
    fn ask<T>(
        &self,
        question: &'static str,
        ask: impl FnOnce(&Questions) -> unsafe fn(usize) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        let ask = ask(self.reader.questions(question)?);
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        let answer = unsafe { ask(self.address()) };
        answer.map_err(|fault| self.error(fault, Question::Field(question)))
    }

    /// The same for an object, to which this takes a reference.
    fn ask_object(
        &self,
        question: &'static str,
        ask: impl FnOnce(&Questions) -> unsafe fn(usize) -> Result<Option<NonNull<PyObject>>, Fault>,
    ) -> Result<Option<Object>, Error> {
        let object = self.ask(question, ask)?;
        let pointer = object.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: NULL, or an object that the frame keeps alive meanwhile.
        Ok(unsafe { Object::from_borrowed_ptr(pointer) })
    }

    /// The function that the frame runs. `None` if it has let go of it, which a
    /// finished generator's frame has.
    ///
    /// The code of a module or class body, and that of `exec`, is a function as
    /// well, which the interpreter makes up for it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\nf()", |frame| {
    /// assert!(frame.function()?.is_some());
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// Here and below: [`Error::Unanswerable`] if the provider is "official" and
    /// this version's layout is not known; [`Error::NotPythonCode`] if the frame has
    /// lost its code since [`from_ptr`](Self::from_ptr).
    pub fn function(&self) -> Result<Option<Object>, Error> {
        self.ask_object("the function", |questions| questions.function)
    }

    /// The namespace of the module (`f_globals`), a dict, or on 3.15 perhaps a frozendict.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("x = 1\ndef f(): pass\nf()", |frame| {
    /// // In a module with x = 1.
    /// let globals = frame.globals()?;
    /// // SAFETY: this thread holds the GIL; a dict, and what it answers is borrowed.
    /// let x = unsafe { pyo3_ffi::PyDict_GetItemString(globals.as_ptr(), c"x".as_ptr()) };
    /// assert!(!x.is_null());
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Released`] if the frame has let go of its function, to which this
    /// belongs; those of [`function`](Self::function).
    pub fn globals(&self) -> Result<Object, Error> {
        self.ask_object("the globals", |questions| questions.globals)?
            .ok_or(Error::Released {
                question: "globals",
            })
    }

    /// Where names are looked up that are not in the globals (`f_builtins`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\nf()", |frame| {
    /// let builtins = frame.builtins()?;
    /// // SAFETY: this thread holds the GIL; a dict, and what it answers is borrowed.
    /// let len = unsafe { pyo3_ffi::PyDict_GetItemString(builtins.as_ptr(), c"len".as_ptr()) };
    /// assert!(!len.is_null());
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// As [`globals`](Self::globals).
    pub fn builtins(&self) -> Result<Object, Error> {
        self.ask_object("the builtins", |questions| questions.builtins)?
            .ok_or(Error::Released {
                question: "builtins",
            })
    }

    /// The mapping in which the code of a module, of a class body, or of `exec`
    /// keeps its names: the object itself, not a copy. `None` in a function, whose
    /// variables are in its slots, and in a frame that has been cleared.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("class f: pass", |frame| {
    /// // The body of a class.
    /// assert!(frame.namespace()?.is_some());
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// Those of [`function`](Self::function).
    pub fn namespace(&self) -> Result<Option<Object>, Error> {
        self.ask_object("the namespace", |questions| questions.namespace)
    }

    /// The function's `__closure__`, a tuple of cells: where the cells of the free
    /// variables are until the frame has started. `None` if the function has no free
    /// variables, or the frame has let go of it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def o(x):\n  def f(): return x\n  f()\no(1)", |frame| {
    /// // def o(x): ...; def f(): return x
    /// let closure = frame.closure()?.expect("x is a free variable");
    /// // SAFETY: this thread holds the GIL, and `closure` is a tuple.
    /// assert_eq!(unsafe { pyo3_ffi::PyTuple_Size(closure.as_ptr()) }, 1);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// Those of [`function`](Self::function).
    pub fn closure(&self) -> Result<Option<Object>, Error> {
        self.ask_object("the closure", |questions| questions.closure)
    }

    /// The frame object, if somebody has asked the interpreter for one: `None`
    /// otherwise, since this never creates one.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\nf()", |frame| {
    /// assert!(frame.frame_object()?.is_none(), "nobody can have asked yet");
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// Those of [`function`](Self::function).
    pub fn frame_object(&self) -> Result<Option<Object>, Error> {
        self.ask_object("the frame object", |questions| questions.frame_object)
    }

    /// How far the frame has come.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\nf()", |frame| {
    /// // As an eval-frame function sees a call.
    /// assert_eq!(frame.state()?, localsplus::State::Unstarted);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// Those of [`function`](Self::function).
    pub fn state(&self) -> Result<State, Error> {
        self.ask("the state", |questions| questions.state)
    }

    /// Whether the frame is in a generator, coroutine or async generator, that is,
    /// can be gone on with. It is not while it is being called to make one, nor when
    /// a frame object has survived the generator.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): yield\ng = f()", |frame| {
    /// // def f(): yield. This is the call that makes the generator.
    /// assert!(!frame.is_generator()?);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// Those of [`function`](Self::function).
    pub fn is_generator(&self) -> Result<bool, Error> {
        self.ask("whether this is a generator's frame", |questions| {
            questions.is_generator
        })
    }

    /// The offset of the frame's instruction in its bytecode, in bytes, as
    /// `PyUnstable_InterpreterFrame_GetLasti` of the running version counts it (and
    /// as it would on 3.11): of the instruction that ran last, or, from 3.13 on, in a
    /// frame that has not started, of the first one. Before 3.13 it is negative in
    /// such a frame.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\nf()", |frame| {
    /// // An unstarted frame: negative before 3.13.
    /// assert!(frame.lasti()? <= 0);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// Those of [`function`](Self::function).
    pub fn lasti(&self) -> Result<i32, Error> {
        if let Some(lasti) = self.reader.exported.lasti {
            self.check_code()?;
            // SAFETY: a live frame that runs a code object.
            return Ok(unsafe { lasti(self.address()) });
        }
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        match unsafe { (self.reader.functions.lasti)(self.address()) } {
            // CPython keeps it in an int as well.
            Ok(lasti) => Ok(lasti as i32),
            Err(fault) => Err(self.error(fault, Question::Lasti)),
        }
    }

    /// The line that the frame is at, as `f_lineno` tells while no trace function
    /// has moved it. `None` if the instruction belongs to no line: from 3.13 on,
    /// that is so before a function with free variables, or that captures its
    /// parameters, has started.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\nf()", |frame| {
    /// // In the first line of the file: def f(): pass
    /// assert_eq!(frame.line()?, Some(1));
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// As [`lasti`](Self::lasti).
    pub fn line(&self) -> Result<Option<i32>, Error> {
        let code = self.check_code()?;
        let line = match self.reader.exported.line {
            // SAFETY: a live frame that runs a code object.
            Some(line) => unsafe { line(self.address()) },
            None => {
                let lasti: c_int = self.lasti()?;
                // SAFETY: the frame's code object, which it keeps alive.
                unsafe { (self.reader.exported.line_of_code)(code.as_ptr(), lasti) }
            }
        };
        Ok((line != -1).then_some(line))
    }

    /// The code object, borrowed from the frame.
    pub(crate) fn check_code(&self) -> Result<NonNull<PyObject>, Error> {
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        let code = unsafe { (self.reader.functions.code)(self.address()) };
        code.map_err(|fault| self.error(fault, Question::Code))
    }

    /// The number of parameters, `*args` and `**kwargs` included. They are the first
    /// slots.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, /, b, *rest, key=1): pass\nf(1, 2)", |frame| {
    /// // def f(a, /, b, *rest, key=1)
    /// assert_eq!(frame.parameter_count()?, 4);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// Those of [`function`](Self::function).
    pub fn parameter_count(&self) -> Result<usize, Error> {
        self.ask("the number of parameters", |questions| {
            questions.parameter_count
        })
    }

    /// What parameter slot `index` is; `None` if it is none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, /, b, *rest, key=1): pass\nf(1, 2)", |frame| {
    /// use localsplus::Parameter;
    ///
    /// // def f(a, /, b, *rest, key=1)
    /// assert_eq!(frame.parameter(0)?, Some(Parameter::PositionalOnly));
    /// assert_eq!(frame.parameter(2)?, Some(Parameter::KeywordOnly), "key");
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`], and those of [`function`](Self::function).
    pub fn parameter(&self, index: usize) -> Result<Option<Parameter>, Error> {
        self.parameter_at(clamp(index))
    }

    pub(crate) fn parameter_at(&self, index: isize) -> Result<Option<Parameter>, Error> {
        let parameter = self.reader.questions("parameters")?.parameter;
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        let answer = unsafe { parameter(self.address(), index) };
        answer.map_err(|fault| self.error(fault, Question::Kind(index)))
    }

    /// The frame below, which called this one: the frame that `f_back` is about.
    /// Like `f_back`, this passes over the interpreter's own frames and those that
    /// have not reached their own code, and answers `None` for a generator that is
    /// not running. It is also `None` before a frame has started: the caller of a
    /// frame that an eval-frame function was handed is [`current`](Self::current).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\ndef g(): f()\ng()", |frame| {
    /// // g() calls f(), which has not started.
    /// // SAFETY: this thread is about to run the frame.
    /// assert!(unsafe { frame.previous() }?.is_none());
    /// // SAFETY: the caller does not return before this.
    /// let caller = unsafe { localsplus::Frame::current() }?.expect("g");
    /// // SAFETY: this thread is running it.
    /// assert!(unsafe { caller.previous() }?.is_some(), "the module");
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Safety
    /// The frame below is alive as long as `'a`. So it is while this thread runs
    /// this one. The frame of a generator goes on without its caller, and a frame
    /// object outlives it: of these, do not keep the answer while Python code runs.
    ///
    /// # Errors
    /// Those of [`function`](Self::function).
    pub unsafe fn previous(&self) -> Result<Option<Frame<'a>>, Error> {
        let below = self.ask("the frame below", |questions| questions.previous)?;
        Ok(below.map(|below| self.sibling(below)))
    }

    /// Another frame, of Python code, that the same promise is true of.
    fn sibling(&self, pointer: NonNull<u8>) -> Self {
        Self::new(pointer, self.reader)
    }

    /// The frame that the calling thread is running, without creating a frame object
    /// as `PyEval_GetFrame` does; `None` if it runs no Python code.
    ///
    /// In an eval-frame function that is the caller of the frame that the function
    /// was handed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\ndef g(a, b): f()\ng(1, 2)", |frame| {
    /// // g(1, 2) calls f().
    /// // SAFETY: the caller does not return before this.
    /// let caller = unsafe { localsplus::Frame::current() }?.expect("g");
    /// assert_eq!(caller.count()?, 2);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Safety
    /// The calling thread is attached, and stays so as long as the frame and
    /// everything taken from it are used or dropped. The frame does not return
    /// during `'a`: do not keep it beyond the function that was called from it.
    ///
    /// # Errors
    /// [`Error::Unanswerable`] if the provider is "official" and this version's
    /// layout is not known, and those of [`init`](crate::init()).
    pub unsafe fn current() -> Result<Option<Self>, Error> {
        let reader = chosen()?;
        let questions = reader.questions("which frame is running")?;
        // SAFETY: the calling thread is attached.
        let thread = unsafe { ffi::PyThreadState_Get() };
        // SAFETY: its own thread state, of a layout that fits.
        let innermost = unsafe { (questions.innermost)(thread as usize) };
        // SAFETY: what the calling thread runs stays as it is meanwhile.
        let frame = unsafe { (questions.first_complete)(innermost) };
        Ok(frame.map(|frame| Self::new(frame, reader)))
    }

    /// The frame of a frame object.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("import sys\ndef f(frame): pass\ndef g(a, b): f(sys._getframe())\ng(1, 2)", |frame| {
    /// // g(a, b) calls f(sys._getframe()).
    /// let object = frame.get_local(0)?.expect("a frame object");
    /// // SAFETY: this thread is running its frame.
    /// let caller = unsafe { localsplus::Frame::of_frame_object(&object) }?;
    /// assert_eq!(caller.count()?, 2);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Safety
    /// The calling thread is attached, as for [`from_ptr`](Self::from_ptr). No other
    /// thread is running the frame during `'a`, and the function does not return
    /// meanwhile, nor the generator end: then the frame moves into the frame object.
    ///
    /// # Errors
    /// [`Error::WrongType`] if `object` is no frame object, and those of
    /// [`current`](Self::current).
    pub unsafe fn of_frame_object(object: &'a Object) -> Result<Self, Error> {
        let reader = chosen()?;
        let frame_of = reader
            .questions("the frame of a frame object")?
            .frame_of_object;
        if !reader.exported.is_frame_object(object) {
            return Err(wrong_type("frame_object", "a frame object", object));
        }
        // SAFETY: a live frame object.
        let frame = unsafe { frame_of(object.as_ptr() as usize) };
        let frame = frame.ok_or(Error::NotPythonCode)?;
        // SAFETY: the frame object has a frame; the rest is the caller's promise.
        unsafe { Self::from_ptr(frame.as_ptr()) }
    }

    /// The frame of a generator, coroutine or async generator, without creating a
    /// frame object as `gi_frame` and its siblings do. It is also there when the
    /// generator has finished; it has no values then.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def g(a, b): yield\ndef f(generator): pass\nf(g(1, 2))", |frame| {
    /// use localsplus::{Frame, State};
    ///
    /// // f(g(1, 2)), of: def g(a, b): yield
    /// let object = frame.get_local(0)?.expect("a generator");
    /// // SAFETY: nobody is running the generator.
    /// let suspended = unsafe { Frame::of_generator(&object) }?;
    /// assert_eq!((suspended.count()?, suspended.state()?), (2, State::Unstarted));
    /// assert!(suspended.is_generator()?);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Safety
    /// The calling thread is attached, as for [`from_ptr`](Self::from_ptr), and no
    /// other thread is running the generator during `'a`.
    ///
    /// # Errors
    /// [`Error::WrongType`] if `object` is none of them, and those of
    /// [`current`](Self::current).
    pub unsafe fn of_generator(object: &'a Object) -> Result<Self, Error> {
        let reader = chosen()?;
        let frame_of = reader
            .questions("the frame of a generator")?
            .frame_of_generator;
        if !reader.exported.is_generator(object) {
            let expected = "a generator, coroutine or async generator";
            return Err(wrong_type("generator", expected, object));
        }
        // SAFETY: a live object of one of these types.
        let frame = unsafe { frame_of(object.as_ptr() as usize) };
        let frame = frame.ok_or(Error::NotPythonCode)?;
        // SAFETY: it stands in the generator; the rest is the caller's promise.
        unsafe { Self::from_ptr(frame.as_ptr()) }
    }
}

#[cold]
fn wrong_type(argument: &'static str, expected: &'static str, object: &Object) -> Error {
    let _pending = PendingException::take();
    // SAFETY: `object` is alive.
    let ty = unsafe { ffi::PyObject_Type(object.as_ptr()) };
    // SAFETY: PyObject_Type gives a reference away.
    let ty = unsafe { Object::from_owned_ptr(ty) };
    let name = ty.and_then(|ty| text(&attribute(&ty, c"__name__")?));
    Error::WrongType {
        argument,
        expected,
        found: name.unwrap_or_else(|| "unknown".to_owned()).into(),
    }
}

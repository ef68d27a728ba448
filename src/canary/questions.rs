//! What the layout says of canary frames besides their slots: each answer is
//! compared with an object that was made for this, or with another way to it.

use std::ptr::NonNull;

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use super::{Canary, Failure, Moment, call, interrupted, mismatch};
use crate::object::Object;
use crate::question::{Parameter, Questions, State};
use crate::read::Fault;
use crate::runtime::attribute;

type Borrowed = Result<Option<NonNull<PyObject>>, Fault>;

impl Canary<'_> {
    /// Compares at this moment, where `frame` is the frame it is about.
    pub(super) fn compare_questions(
        &self,
        questions: &Questions,
        moment: Moment,
        frame: usize,
    ) -> Result<(), Failure> {
        let asked = Asked {
            questions,
            moment,
            frame,
        };
        match moment {
            Moment::Module => {
                asked.objects(self, &["globals", "builtins", "namespace"])?;
                asked.state(State::Unstarted, false)
            }
            Moment::Entry => {
                self.below.set(asked.innermost());
                asked.objects(self, &["function", "globals", "builtins", "closure"])?;
                asked.builtins_of_function(self)?;
                asked.object("namespace", questions.namespace, 0)?;
                asked.object("frame object", questions.frame_object, 0)?;
                asked.frame("previous", asked.previous(frame)?, 0)?;
                asked.parameters()?;
                asked.state(State::Unstarted, false)
            }
            Moment::Started => {
                asked.frame("current frame", asked.innermost(), frame)?;
                // Only now is it known that this is a frame. It is still running.
                // SAFETY: as just said.
                let below = unsafe { (questions.first_complete)(self.below.get()) };
                asked.frame("previous", asked.previous(frame)?, below.map_or(0, of))?;
                asked.state(State::Executing, false)?;
                asked.object("frame object", questions.frame_object, 0)
            }
            Moment::Nested => {
                asked.frame("current frame", asked.innermost(), frame)?;
                asked.frame("previous", asked.previous(frame)?, self.canary_frame.get())?;
                // A frame object of a frame of ours: nobody else's gets one.
                let object: *mut PyObject = current_frame_object();
                // SAFETY: the frame keeps it alive while we take a reference.
                let object =
                    unsafe { Object::from_borrowed_ptr(object) }.ok_or_else(interrupted)?;
                asked.object("frame object", questions.frame_object, address(&object))?;
                // SAFETY: a frame object that is held.
                let found = unsafe { (questions.frame_of_object)(address(&object)) };
                asked.frame("frame of the frame object", found.map_or(0, of), frame)?;
                *self.frame_object.borrow_mut() = Some(object);
                Ok(())
            }
            Moment::Returned => {
                let object = self.frame_object.take().ok_or_else(interrupted)?;
                // SAFETY: a frame object that is held.
                let frame = unsafe { (questions.frame_of_object)(address(&object)) };
                let asked = Asked {
                    frame: frame.map_or(0, of),
                    ..asked
                };
                let offset = asked.frame.wrapping_sub(address(&object));
                // Junk in that field is not to be followed.
                if offset > MOST_OF_A_FRAME_OBJECT {
                    return mismatch(
                        "f_frame",
                        "a frame in the frame object",
                        format!("{offset:#x}"),
                    );
                }
                asked.state(State::Finished, false)?;
                asked.object("frame object", questions.frame_object, address(&object))?;
                asked.objects(self, &["globals", "builtins"])?;
                let back = attribute(&object, c"f_back").map_or(0, |back| address(&back));
                // SAFETY: a frame object that is held.
                let found = unsafe { (questions.back_of_object)(address(&object)) };
                asked.same("f_back", back, found)?;
                let below = asked.previous(asked.frame)?;
                asked.frame("previous", below, self.canary_frame.get())?;
                let clear = attribute(&object, c"clear").ok_or_else(interrupted)?;
                call(&clear, &[]).ok_or_else(interrupted)?;
                asked.state(State::Cleared, false)
            }
            Moment::Created => {
                asked.state(State::Unstarted, true)?;
                asked.objects(self, &["globals", "builtins"])
            }
            Moment::Resumed => {
                asked.frame(
                    "frame of the generator",
                    self.frame_of_generator(questions),
                    frame,
                )?;
                asked.state(State::Executing, true)
            }
            Moment::Suspended => {
                asked.frame("previous", asked.previous(frame)?, 0)?;
                asked.objects(self, &["globals", "builtins"])?;
                asked.state(State::Suspended, true)
            }
            Moment::Finished => {
                asked.state(State::Finished, true)?;
                asked.object("function", questions.function, 0)?;
                asked.object("globals", questions.globals, 0)
            }
        }
    }

    /// 0 if there is none.
    pub(super) fn frame_of_generator(&self, questions: &Questions) -> usize {
        let generator = self.generator.borrow();
        generator.as_ref().map_or(0, |generator| {
            // SAFETY: a generator that is held.
            unsafe { (questions.frame_of_generator)(address(generator)) }.map_or(0, of)
        })
    }
}

/// More than the fields of any frame object in front of its frame.
const MOST_OF_A_FRAME_OBJECT: usize = 256;

fn address(object: &Object) -> usize {
    object.as_ptr() as usize
}

fn of(frame: NonNull<u8>) -> usize {
    frame.as_ptr() as usize
}

fn current_frame_object() -> *mut PyObject {
    // SAFETY: the thread is attached; the answer is borrowed or NULL.
    unsafe { ffi::PyEval_GetFrame() }.cast()
}

/// A canary frame at some moment, and the answers of a layout about it.
struct Asked<'a> {
    questions: &'a Questions,
    moment: Moment,
    frame: usize,
}

impl Asked<'_> {
    fn field(&self, name: &str) -> String {
        format!("canary frame {}, {name}", self.moment.text())
    }

    fn same(&self, name: &str, expected: usize, found: usize) -> Result<(), Failure> {
        if found == expected {
            return Ok(());
        }
        mismatch(
            self.field(name),
            format!("{expected:#x}"),
            format!("{found:#x}"),
        )
    }

    fn object(
        &self,
        name: &str,
        ask: unsafe fn(usize) -> Borrowed,
        expected: usize,
    ) -> Result<(), Failure> {
        // SAFETY: the frame is alive, and this thread is running it, or holds what
        // keeps it.
        match unsafe { ask(self.frame) } {
            Ok(found) => self.same(name, expected, found.map_or(0, |o| o.as_ptr() as usize)),
            Err(fault) => mismatch(
                self.field(name),
                format!("{expected:#x}"),
                format!("{fault:?}"),
            ),
        }
    }

    /// Objects of which it is known what they are.
    fn objects(&self, canary: &Canary<'_>, names: &[&'static str]) -> Result<(), Failure> {
        for &name in names {
            let known = |object: &std::cell::RefCell<Option<Object>>| {
                object.borrow().as_ref().map_or(0, address)
            };
            let (ask, expected) = match name {
                "function" => (self.questions.function, known(&canary.function)),
                "globals" => (self.questions.globals, known(&canary.globals)),
                "builtins" => (self.questions.builtins, known(&canary.builtins)),
                "namespace" => (self.questions.namespace, known(&canary.namespace)),
                _ => {
                    let function = canary.function.borrow().clone();
                    let closure = function.and_then(|f| attribute(&f, c"__closure__"));
                    // The function keeps it alive.
                    let closure = closure.map_or(0, |closure| address(&closure));
                    (self.questions.closure, closure)
                }
            };
            self.object(name, ask, expected)?;
        }
        Ok(())
    }

    /// The field that a function made for a replacement gets.
    fn builtins_of_function(&self, canary: &Canary<'_>) -> Result<(), Failure> {
        let [function, builtins] = [&canary.function, &canary.builtins]
            .map(|object| object.borrow().as_ref().map_or(0, address));
        // SAFETY: that function is alive.
        let found = unsafe { (self.questions.evaluating.builtins_of_function)(function) };
        self.same("builtins of the function", builtins, found)
    }

    fn frame(&self, name: &str, found: usize, expected: usize) -> Result<(), Failure> {
        self.same(name, expected, found)
    }

    fn innermost(&self) -> usize {
        // SAFETY: the thread is attached.
        let thread = unsafe { ffi::PyThreadState_Get() } as usize;
        // SAFETY: its own thread state.
        unsafe { (self.questions.innermost)(thread) }
    }

    fn previous(&self, frame: usize) -> Result<usize, Failure> {
        // SAFETY: as in `object`; this thread runs the frames below.
        match unsafe { (self.questions.previous)(frame) } {
            Ok(previous) => Ok(previous.map_or(0, of)),
            Err(fault) => mismatch(self.field("previous"), "a frame", format!("{fault:?}")),
        }
    }

    fn state(&self, state: State, is_generator: bool) -> Result<(), Failure> {
        // SAFETY: as in `object`.
        let found = unsafe { (self.questions.state)(self.frame) };
        if found != Ok(state) {
            return mismatch(
                self.field("state"),
                format!("{state:?}"),
                format!("{found:?}"),
            );
        }
        // SAFETY: as in `object`.
        let found = unsafe { (self.questions.is_generator)(self.frame) };
        if found != Ok(is_generator) {
            let expected = format!("{is_generator}");
            return mismatch(
                self.field("is a generator's"),
                expected,
                format!("{found:?}"),
            );
        }
        Ok(())
    }

    fn parameters(&self) -> Result<(), Failure> {
        let expected = [
            Some(Parameter::Positional),
            Some(Parameter::Positional),
            None,
            None,
        ];
        for (index, expected) in expected.into_iter().enumerate() {
            // SAFETY: as in `object`.
            let found = unsafe { (self.questions.parameter)(self.frame, index as isize) };
            if found != Ok(expected) {
                let field = self.field(&format!("parameter {index}"));
                return mismatch(field, format!("{expected:?}"), format!("{found:?}"));
            }
        }
        Ok(())
    }
}

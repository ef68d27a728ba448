//! Frames of known content, and the checks made on them.
//!
//! The names, struct offsets and signatures that a provider rests on are facts
//! about some CPython; only a frame of *this* process shows that they hold here.
//! So a few lines of Python are run under an eval-frame function of our own, and
//! the provider is asked about their frames: before `canary` starts, while it
//! runs, and when a generator is suspended and finished; the layout also about what
//! frames are besides their slots.

mod questions;

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::hint::black_box;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::error::{Error, Mismatch};
use crate::evaluation::{EvalFrame, Evaluation, Installed, Untraced};
use crate::exported::Exported;
use crate::object::Object;
use crate::official::Official;
use crate::question::Questions;
use crate::read::{Fault, Functions, kind};
use crate::runtime::{
    Interruption, PendingException, Symbols, attribute, may_end_thread, sys_attribute, text,
};

const SOURCE: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("canary.py"), "\0").as_bytes()) {
        Ok(source) => source,
        Err(_) => c"",
    };

/// The names of the canary's slots, by index.
const NAMES: [&str; 4] = ["plain", "boxed", "late", "free"];

// Where these run Python code, the interpreter may end the thread. (What pyo3-ffi
// declares as functions that do not unwind goes through `black_box`.)
type CompileString =
    unsafe extern "C-unwind" fn(*const c_char, *const c_char, c_int) -> *mut PyObject;
type EvalCode =
    unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject, *mut PyObject) -> *mut PyObject;
type CallObject = unsafe extern "C-unwind" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
type Next = unsafe extern "C-unwind" fn(*mut PyObject) -> *mut PyObject;

/// A moment at which a canary frame is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The module's code has not started.
    Module,
    /// `canary` has not started.
    Entry,
    /// `canary` is calling `probe`.
    Started,
    /// `probe` is calling `nested`.
    Nested,
    /// `probe` has returned; its frame object is held.
    Returned,
    /// The generator has been made.
    Created,
    /// The generator is about to run.
    Resumed,
    /// The generator is suspended at its `yield`.
    Suspended,
    /// The generator has finished, and is held.
    Finished,
}

impl Moment {
    fn text(self) -> &'static str {
        match self {
            Self::Module => "of the module",
            Self::Entry => "before it starts",
            Self::Started => "while it runs",
            Self::Nested => "below another",
            Self::Returned => "that has returned",
            Self::Created => "of a new generator",
            Self::Resumed => "of a generator that goes on",
            Self::Suspended => "suspended",
            Self::Finished => "finished",
        }
    }
}

/// What is to be proved.
#[derive(Clone, Copy)]
pub enum Subject<'a> {
    /// The functions of a layout, and what the interpreter itself says of frames.
    Layout(&'static Functions, &'a Exported),
    /// The official functions.
    Official(&'a Official),
}

impl Subject<'_> {
    /// What a layout answers besides.
    fn questions(&self) -> Option<&'static Questions> {
        match self {
            Self::Layout(functions, _) => functions.questions,
            Self::Official(_) => None,
        }
    }

    fn code(&self, frame: usize) -> Option<NonNull<PyObject>> {
        match self {
            // SAFETY: `frame` is what the interpreter has handed to `hook`, and
            // the thread is attached.
            Self::Layout(functions, _) => unsafe { (functions.code)(frame) }.ok(),
            // SAFETY: as above.
            Self::Official(official) => unsafe { official.code(frame) }.ok(),
        }
    }
}

/// Why the canary came to no good.
pub enum Failure {
    /// The provider is wrong about this interpreter.
    Mismatch(Mismatch),
    /// Nothing was learnt: try again.
    Interrupted(Error),
}

/// Runs the canary and asks `subject` about its frames. The calling thread is
/// attached, no exception is set, and none is set afterwards.
pub fn prove(subject: Subject<'_>, symbols: &Symbols) -> Result<(), Failure> {
    let stage = Stage::find(symbols).map_err(|name| {
        Failure::Mismatch(Mismatch {
            field: "exported symbol".to_owned(),
            expected: name.to_string_lossy().into_owned(),
            found: "nothing".to_owned(),
        })
    })?;
    let canary = Canary::new(subject).ok_or_else(interrupted)?;
    let _turn = Turn::take().ok_or_else(interrupted)?;
    let in_place = stage.install(&canary);
    let ran = canary.run(&stage);
    let replaced = !in_place.is_still();
    drop(in_place);
    if ran.is_none() {
        return Err(interrupted());
    }
    if let Some(failure) = canary.failure.take() {
        return Err(failure);
    }
    if replaced {
        let reason = "another eval-frame function was installed meanwhile".into();
        return Err(Failure::Interrupted(Error::Interrupted { reason }));
    }
    canary.saw_everything()
}

/// The exception that is set, as a failure.
fn interrupted() -> Failure {
    let reason = Interruption::take().into();
    Failure::Interrupted(Error::Interrupted { reason })
}

/// Held while a canary runs. Several copies of this library may be in one process
/// (two wheels, each with its own); at the same time, each would take the other's
/// hook for the one to put back. What they share is the interpreter's own dict.
struct Turn {
    /// `None` if it could not be had within a second: going on without it is
    /// better than waiting for somebody who may be waiting for us.
    lock: Option<Object>,
}

impl Turn {
    /// `None` if an exception is set.
    fn take() -> Option<Self> {
        // SAFETY: the thread is attached.
        let interpreter = unsafe { ffi::PyInterpreterState_Get() };
        // SAFETY: this is the calling thread's interpreter; the answer is borrowed.
        let dict = unsafe { ffi::PyInterpreterState_GetDict(interpreter) };
        // SAFETY: the interpreter keeps its dict alive while we take a reference.
        let Some(dict) = (unsafe { Object::from_borrowed_ptr(dict) }) else {
            return Some(Self { lock: None });
        };
        // SAFETY: the name is a C string.
        let threads = unsafe { ffi::PyImport_ImportModule(c"_thread".as_ptr()) };
        // SAFETY: PyImport_ImportModule gives a reference away.
        let threads = unsafe { Object::from_owned_ptr(threads) }?;
        // Re-entrant: a hook that sees the canary may call another copy.
        let lock = call(&attribute(&threads, c"RLock")?, &[])?;
        // SAFETY: the text is a C string.
        let key = unsafe { ffi::PyUnicode_FromString(c"localsplus canary".as_ptr()) };
        // SAFETY: PyUnicode_FromString gives a reference away.
        let key = unsafe { Object::from_owned_ptr(key) }?;
        // One step, whichever thread comes first.
        let lock = call(&attribute(&dict, c"setdefault")?, &[&key, &lock])?;
        // SAFETY: the thread is attached.
        let one = unsafe { ffi::PyLong_FromLong(1) };
        // SAFETY: PyLong_FromLong gives a reference away.
        let one = unsafe { Object::from_owned_ptr(one) }?;
        // Blocking, for one second.
        let taken = call(&attribute(&lock, c"acquire")?, &[&one, &one])?;
        // SAFETY: `taken` is alive.
        let taken = unsafe { ffi::PyObject_IsTrue(taken.as_ptr()) } == 1;
        Some(Self {
            lock: taken.then_some(lock),
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(lock) = &self.lock else {
            return;
        };
        let _pending = PendingException::take();
        let released = attribute(lock, c"release").and_then(|release| call(&release, &[]));
        if released.is_none() {
            // SAFETY: the thread is attached; nobody else could do better.
            unsafe { ffi::PyErr_Clear() };
        }
    }
}

/// Runs the canary with our eval-frame function in place.
struct Stage {
    evaluation: Evaluation,
    compile: CompileString,
}

impl Stage {
    fn find(symbols: &Symbols) -> Result<Self, &'static CStr> {
        let name = c"Py_CompileString";
        let compile = symbols.find(name).ok_or(name)?;
        Ok(Self {
            evaluation: Evaluation::find(symbols)?,
            // SAFETY: the function of that name, in every supported version.
            compile: unsafe { std::mem::transmute::<*mut c_void, CompileString>(compile.as_ptr()) },
        })
    }

    /// Puts our eval-frame function in, until the answer is dropped.
    fn install<'a>(&'a self, canary: &'a Canary<'a>) -> InPlace<'a> {
        let evaluation = &self.evaluation;
        // SAFETY: the thread is attached.
        let thread: *mut c_void = unsafe { ffi::PyThreadState_Get() }.cast();
        let interpreter = evaluation.interpreter();
        // SAFETY: this is the calling thread's interpreter.
        let mut previous = unsafe { evaluation.installed(interpreter) };
        if previous.function as usize == hook as *const () as usize {
            // Ours is still there: put back by another library, or left behind by
            // the parent process, which was choosing.
            let before = PREVIOUS.load(Ordering::Acquire);
            // SAFETY: `hook` was installed after that had been stored.
            previous.function = unsafe { std::mem::transmute::<*mut c_void, EvalFrame>(before) };
        }
        PREVIOUS.store(previous.function as *mut c_void, Ordering::Release);
        // For as long as another library may call it.
        if let Some(ours) = NonNull::new(hook as *mut c_void) {
            Symbols::pin(ours);
        }
        CANARY.set(std::ptr::from_ref(canary).cast());
        DEFAULT.store(evaluation.default as *mut c_void, Ordering::Release);
        // Trace and profile functions are not to see the canary: they might fail
        // on it, and a debugger's user did not ask for it.
        // SAFETY: this is the calling thread's state.
        let untraced = unsafe { evaluation.untraced(thread) };
        // SAFETY: this is the calling thread's interpreter, and `hook` is pinned.
        unsafe { evaluation.install(interpreter, hook, previous) };
        InPlace {
            evaluation,
            interpreter,
            previous,
            _untraced: untraced,
        }
    }
}

struct InPlace<'a> {
    evaluation: &'a Evaluation,
    interpreter: *mut c_void,
    previous: Installed,
    _untraced: Untraced<'a>,
}

impl InPlace<'_> {
    fn is_still(&self) -> bool {
        // SAFETY: this is the calling thread's interpreter, as on installation.
        let current = unsafe { self.evaluation.installed(self.interpreter) };
        current.function as usize == hook as *const () as usize
    }
}

impl Drop for InPlace<'_> {
    fn drop(&mut self) {
        CANARY.set(null());
        // If another library has put in its own in between, that one may go on
        // calling ours, which passes everything on.
        if self.is_still() {
            let Installed { function, .. } = self.previous;
            // SAFETY: as above; this was in place before.
            unsafe {
                self.evaluation
                    .install(self.interpreter, function, self.previous)
            };
        }
    }
}

thread_local! {
    /// The canary that this thread is running.
    static CANARY: Cell<*const c_void> = const { Cell::new(null()) };
}

/// The eval-frame functions that `hook` passes frames on to. They outlive the
/// canary, since another library may have taken `hook` for the previous one.
static PREVIOUS: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static DEFAULT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

unsafe extern "C-unwind" fn hook(
    thread: *mut c_void,
    frame: *mut c_void,
    throwflag: c_int,
) -> *mut PyObject {
    let canary = CANARY.try_with(Cell::get).unwrap_or(null());
    // SAFETY: `install` has set this thread's canary, and keeps it alive until it
    // takes it away again.
    let canary = unsafe { canary.cast::<Canary<'_>>().as_ref() };
    let next = match canary {
        Some(canary) if canary.look_at(frame as usize) => &DEFAULT,
        _ => &PREVIOUS,
    };
    let next = next.load(Ordering::Acquire);
    // SAFETY: `install` stored an eval-frame function in both.
    let next = unsafe { std::mem::transmute::<*mut c_void, EvalFrame>(next) };
    if canary.is_none() {
        // SAFETY: the arguments are passed on as they came.
        return unsafe { next(thread, frame, throwflag) };
    }
    // SAFETY: as above.
    may_end_thread(|| unsafe { next(thread, frame, throwflag) })
}

struct Canary<'a> {
    subject: Subject<'a>,
    plain: Object,
    boxed: Object,
    free: Object,
    /// The code objects that are ours. Their frames are kept from hooks of others,
    /// which might turn to us.
    own: RefCell<Vec<Object>>,
    canary_code: Cell<usize>,
    probe_code: Cell<usize>,
    nested_code: Cell<usize>,
    returned_code: Cell<usize>,
    generator_code: Cell<usize>,
    module_code: Cell<usize>,
    canary_frame: Cell<usize>,
    probe_frame: Cell<usize>,
    generator_frame: Cell<usize>,
    /// The frame that was running when `canary` was called; 0 for none.
    below: Cell<usize>,
    /// The function `canary`.
    function: RefCell<Option<Object>>,
    globals: RefCell<Option<Object>>,
    /// Made for the canary: nobody else's.
    builtins: RefCell<Option<Object>>,
    /// In which the module's code runs a second time.
    namespace: RefCell<Option<Object>>,
    /// Of `probe`'s frame.
    frame_object: RefCell<Option<Object>>,
    generator: RefCell<Option<Object>>,
    seen: RefCell<Vec<Moment>>,
    failure: RefCell<Option<Failure>>,
}

impl<'a> Canary<'a> {
    fn new(subject: Subject<'a>) -> Option<Self> {
        let ty: *mut PyObject = (&raw mut ffi::PyBaseObject_Type).cast();
        let object = || {
            // SAFETY: the static type object of `object`, called without arguments.
            let object = unsafe { ffi::PyObject_CallObject(ty, null_mut()) };
            // SAFETY: PyObject_CallObject gives a reference away.
            unsafe { Object::from_owned_ptr(object) }
        };
        Some(Self {
            subject,
            plain: object()?,
            boxed: object()?,
            free: object()?,
            own: RefCell::default(),
            canary_code: Cell::default(),
            probe_code: Cell::default(),
            nested_code: Cell::default(),
            returned_code: Cell::default(),
            generator_code: Cell::default(),
            module_code: Cell::default(),
            canary_frame: Cell::default(),
            probe_frame: Cell::default(),
            generator_frame: Cell::default(),
            below: Cell::default(),
            function: RefCell::default(),
            globals: RefCell::default(),
            builtins: RefCell::default(),
            namespace: RefCell::default(),
            frame_object: RefCell::default(),
            generator: RefCell::default(),
            seen: RefCell::default(),
            failure: RefCell::default(),
        })
    }

    /// `None` if an exception is set.
    fn run(&self, stage: &Stage) -> Option<()> {
        let filename = c"<localsplus canary>".as_ptr();
        let start = ffi::Py_file_input;
        // SAFETY: both texts are C strings.
        let compile = || unsafe { (stage.compile)(SOURCE.as_ptr(), filename, start) };
        let module = may_end_thread(compile);
        // SAFETY: Py_CompileString gives a reference away.
        let module = unsafe { Object::from_owned_ptr(module) }?;
        self.own.borrow_mut().push(module.clone());
        let dict = || {
            // SAFETY: the thread is attached.
            let dict = unsafe { ffi::PyDict_New() };
            // SAFETY: PyDict_New gives a reference away.
            unsafe { Object::from_owned_ptr(dict) }
        };
        let [globals, builtins, namespace] = [dict()?, dict()?, dict()?];
        let name = c"__builtins__".as_ptr();
        // SAFETY: a dict, a C string and an object, all alive.
        if unsafe { ffi::PyDict_SetItemString(globals.as_ptr(), name, builtins.as_ptr()) } < 0 {
            return None;
        }
        *self.globals.borrow_mut() = Some(globals.clone());
        *self.builtins.borrow_mut() = Some(builtins);
        *self.namespace.borrow_mut() = Some(namespace.clone());
        let eval_code = black_box(ffi::PyEval_EvalCode as *const ());
        // SAFETY: that function, which may unwind.
        let eval_code = unsafe { std::mem::transmute::<*const (), EvalCode>(eval_code) };
        let evaluate = |locals: &Object| {
            let [code, globals, locals] = [&module, &globals, locals].map(Object::as_ptr);
            // SAFETY: a code object and two dicts, all alive.
            let none = may_end_thread(|| unsafe { eval_code(code, globals, locals) });
            // SAFETY: PyEval_EvalCode gives a reference away.
            unsafe { Object::from_owned_ptr(none) }
        };
        evaluate(&globals)?;
        // Once more, with a namespace that is something else than the globals.
        self.module_code.set(module.as_ptr() as usize);
        evaluate(&namespace)?;
        let global = |name: &CStr| {
            // SAFETY: a dict and a C string; the answer is borrowed or NULL.
            let value = unsafe { ffi::PyDict_GetItemString(globals.as_ptr(), name.as_ptr()) };
            // SAFETY: `globals` keeps it alive while we take a reference.
            unsafe { Object::from_borrowed_ptr(value) }
        };
        let own = |function: &Object| {
            let code = attribute(function, c"__code__")?;
            let address = code.as_ptr() as usize;
            self.own.borrow_mut().push(code);
            Some(address)
        };

        let enclosing = global(c"enclosing")?;
        own(&enclosing)?;
        let canary = call(&enclosing, &[&self.free])?;
        self.probe_code.set(own(&global(c"probe")?)?);
        self.nested_code.set(own(&global(c"nested")?)?);
        self.returned_code.set(own(&global(c"returned")?)?);
        self.canary_code.set(own(&canary)?);
        *self.function.borrow_mut() = Some(canary.clone());
        call(&canary, &[&self.plain, &self.boxed])?;

        let generator = global(c"generator")?;
        self.generator_code.set(own(&generator)?);
        let generator = call(&generator, &[&self.plain])?;
        *self.generator.borrow_mut() = Some(generator.clone());
        if let Some(questions) = self.subject.questions() {
            self.check(Moment::Created, self.frame_of_generator(questions));
        }
        let next = black_box(ffi::PyIter_Next as *const ());
        // SAFETY: that function, which may unwind.
        let next = unsafe { std::mem::transmute::<*const (), Next>(next) };
        // SAFETY: `generator` is an iterator.
        let step = || may_end_thread(|| unsafe { next(generator.as_ptr()) });
        let none = step();
        // SAFETY: PyIter_Next gives a reference away.
        unsafe { Object::from_owned_ptr(none) }?;
        // The last frame of that code was the one inside the generator.
        self.check(Moment::Suspended, self.generator_frame.get());
        let end = step();
        // SAFETY: the thread is attached; the answer is borrowed.
        if !end.is_null() || !unsafe { ffi::PyErr_Occurred() }.is_null() {
            return None;
        }
        self.check(Moment::Finished, self.generator_frame.get());
        Some(())
    }

    /// Whether `frame` is one of ours.
    fn look_at(&self, frame: usize) -> bool {
        let Some(code) = self.subject.code(frame) else {
            return false;
        };
        let code = code.as_ptr();
        if !self.own.borrow().iter().any(|own| own.as_ptr() == code) {
            return false;
        }
        let code = code as usize;
        if code == self.canary_code.get() {
            self.canary_frame.set(frame);
            self.check(Moment::Entry, frame);
        } else if code == self.probe_code.get() {
            self.check(Moment::Started, self.canary_frame.get());
            self.probe_frame.set(frame);
        } else if code == self.nested_code.get() {
            self.check(Moment::Nested, self.probe_frame.get());
        } else if code == self.returned_code.get() {
            // Where it is now, the frame object says.
            self.check(Moment::Returned, self.probe_frame.get());
        } else if code == self.generator_code.get() {
            self.generator_frame.set(frame);
            if self.generator.borrow().is_some() && !self.seen_already(Moment::Resumed) {
                self.check(Moment::Resumed, frame);
            }
        } else if code == self.module_code.get() {
            self.check(Moment::Module, frame);
        }
        true
    }

    fn check(&self, moment: Moment, frame: usize) {
        if frame == 0 || self.failure.borrow().is_some() {
            return;
        }
        self.seen.borrow_mut().push(moment);
        let compared = match (moment, self.subject.questions()) {
            (Moment::Entry | Moment::Started | Moment::Suspended | Moment::Finished, questions) => {
                let compared = self.compare(moment, frame);
                compared.and_then(|()| match questions {
                    Some(questions) => self.compare_questions(questions, moment, frame),
                    None => Ok(()),
                })
            }
            (_, Some(questions)) => self.compare_questions(questions, moment, frame),
            (_, None) => Ok(()),
        };
        if let Err(failure) = compared {
            *self.failure.borrow_mut() = Some(failure);
        }
    }

    fn seen_already(&self, moment: Moment) -> bool {
        self.seen.borrow().contains(&moment)
    }

    fn saw_everything(&self) -> Result<(), Failure> {
        use Moment::*;
        let mut expected = vec![
            Module, Entry, Started, Nested, Returned, Created, Resumed, Suspended, Finished,
        ];
        if self.subject.questions().is_none() {
            // There is no way to its frame before it runs.
            expected.retain(|&moment| moment != Created);
        }
        let seen = self.seen.borrow();
        if *seen == expected {
            return Ok(());
        }
        let text = |moments: &[Moment]| {
            let moments: Vec<_> = moments.iter().map(|moment| moment.text()).collect();
            format!("[{}]", moments.join(", "))
        };
        mismatch("canary frames seen", text(&expected), text(&seen))
    }

    fn compare(&self, moment: Moment, frame: usize) -> Result<(), Failure> {
        let [plain, boxed, free] = [&self.plain, &self.boxed, &self.free].map(Some);
        // `late` is a function by then, whose identity nobody knows.
        let known: &[(usize, Option<&Object>)] = match moment {
            // The slot without a value comes first: a function with another
            // signature shows itself there without handing out a reference.
            Moment::Entry => &[(2, None), (0, plain), (1, boxed), (3, free)],
            Moment::Started => &[(0, plain), (1, boxed), (3, free)],
            Moment::Suspended => &[(0, plain)],
            Moment::Finished => &[(0, None)],
            _ => &[],
        };
        let asked = Asked {
            subject: self.subject,
            moment,
            frame,
        };
        let is_canary = matches!(moment, Moment::Entry | Moment::Started);
        if is_canary {
            asked.shape()?;
            asked.exported()?;
        }
        for &(index, expected) in known {
            asked.value(index, expected)?;
        }
        let count = if is_canary { NAMES.len() } else { 1 };
        asked.no_value_at(count as isize)?;
        asked.no_value_at(-1)
    }
}

/// `function(*arguments)`; `None` if an exception is set.
pub fn call(function: &Object, arguments: &[&Object]) -> Option<Object> {
    // SAFETY: the thread is attached.
    let tuple = unsafe { ffi::PyTuple_New(arguments.len() as isize) };
    // SAFETY: PyTuple_New gives a reference away.
    let tuple = unsafe { Object::from_owned_ptr(tuple) }?;
    for (position, &argument) in arguments.iter().enumerate() {
        let argument = argument.clone().into_ptr();
        // SAFETY: a new tuple of that length; it takes the reference over.
        unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), position as isize, argument) };
    }
    let call_object = black_box(ffi::PyObject_CallObject as *const ());
    // SAFETY: that function, which may unwind.
    let call_object = unsafe { std::mem::transmute::<*const (), CallObject>(call_object) };
    // SAFETY: a callable and a tuple, both alive.
    let result = may_end_thread(|| unsafe { call_object(function.as_ptr(), tuple.as_ptr()) });
    // SAFETY: PyObject_CallObject gives a reference away.
    unsafe { Object::from_owned_ptr(result) }
}

/// Where the instruction of a frame is that has not started, before 3.13: one code
/// unit before the first.
const BEFORE_THE_FIRST: isize = -2;

/// The bytes of a code object's instructions. Needs a live code object, and an
/// attached thread.
fn length_of_bytecode(code: *mut PyObject) -> Option<isize> {
    // SAFETY: a live object.
    let code = unsafe { Object::from_borrowed_ptr(code) }?;
    let bytecode = attribute(&code, c"co_code")?;
    // SAFETY: `bytecode` is alive; -1 and an exception for what has no length.
    let length = unsafe { ffi::PyObject_Size(bytecode.as_ptr()) };
    (length >= 0).then_some(length)
}

fn mismatch<T>(
    field: impl Into<String>,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Result<T, Failure> {
    Err(Failure::Mismatch(Mismatch {
        field: field.into(),
        expected: expected.into(),
        found: found.into(),
    }))
}

/// A canary frame at some moment, and who is asked about it.
struct Asked<'a> {
    subject: Subject<'a>,
    moment: Moment,
    frame: usize,
}

impl Asked<'_> {
    fn field(&self, index: isize) -> String {
        let slot = match usize::try_from(index).ok().and_then(|i| NAMES.get(i)) {
            Some(name) => format!("slot {index} ({name})"),
            None => format!("slot {index}"),
        };
        format!("canary frame {}, {slot}", self.moment.text())
    }

    /// Names, and what the layout says besides.
    fn shape(&self) -> Result<(), Failure> {
        let names = match self.subject {
            Subject::Layout(functions, _) => {
                // SAFETY: the frame is alive, and this thread is running it.
                let count = unsafe { (functions.count)(self.frame) };
                if count != Ok(NAMES.len()) {
                    return mismatch("co_nlocalsplus", "4", format!("{count:?}"));
                }
                let plain = kind::ARG | kind::LOCAL;
                let kinds = [plain, plain | kind::CELL, kind::LOCAL, kind::FREE];
                for (index, expected) in kinds.into_iter().enumerate() {
                    // SAFETY: as above.
                    let kind = unsafe { (functions.kind)(self.frame, index as isize) };
                    if kind != Ok(expected) {
                        let field = format!("{}, kind", self.field(index as isize));
                        return mismatch(field, format!("{expected:#x}"), format!("{kind:x?}"));
                    }
                }
                // SAFETY: as above.
                let names = unsafe { (functions.names)(self.frame) };
                // SAFETY: `names` gives a reference away.
                names
                    .ok()
                    .and_then(|names| unsafe { Object::from_owned_ptr(names.as_ptr()) })
            }
            Subject::Official(official) => {
                // SAFETY: as above.
                let code = unsafe { official.code(self.frame) }.ok();
                // SAFETY: the frame keeps its code object alive.
                code.and_then(|code| unsafe { official.names_of(code) })
            }
        };
        let found = names.map(|names| tuple_of_text(&names));
        if found.as_deref() == Some(&NAMES.map(|name| Some(name.to_owned()))) {
            return Ok(());
        }
        mismatch("names", format!("{NAMES:?}"), format!("{found:?}"))
    }

    /// What the interpreter itself says of the frame is what the layout says.
    fn exported(&self) -> Result<(), Failure> {
        let Subject::Layout(functions, exported) = self.subject else {
            return Ok(());
        };
        // SAFETY: the frame is alive, and this thread is running it.
        let code = unsafe { (functions.code)(self.frame) };
        let code = code.map_or(null_mut(), NonNull::as_ptr);
        if let Some(get_code) = exported.code {
            // SAFETY: as above.
            let found = unsafe { get_code(self.frame) };
            if found != code {
                let field = "PyUnstable_InterpreterFrame_GetCode";
                return mismatch(field, format!("{code:?}"), format!("{found:?}"));
            }
            // SAFETY: GetCode gives a reference away.
            drop(unsafe { Object::from_owned_ptr(found) });
        }
        // SAFETY: as above.
        let lasti = unsafe { (functions.lasti)(self.frame) };
        let lasti = lasti.unwrap_or(isize::MIN);
        // PyCode_Addr2Line of a debug build ends the process for an offset beyond.
        let end = length_of_bytecode(code).ok_or_else(interrupted)?;
        if !(BEFORE_THE_FIRST..end).contains(&lasti) {
            let field = format!("canary frame {}, instruction", self.moment.text());
            let expected = format!("an offset from {BEFORE_THE_FIRST} to {end}");
            return mismatch(field, expected, lasti.to_string());
        }
        let lasti = lasti as c_int;
        // SAFETY: the frame's code object, which it keeps alive.
        let line = unsafe { (exported.line_of_code)(code, lasti) };
        let answers = [
            (
                "PyUnstable_InterpreterFrame_GetLasti",
                exported.lasti,
                lasti,
            ),
            ("PyUnstable_InterpreterFrame_GetLine", exported.line, line),
        ];
        for (field, ask, expected) in answers {
            // SAFETY: as above.
            let found = ask.map(|ask| unsafe { ask(self.frame) });
            if found.is_some_and(|found| found != expected) {
                return mismatch(field, expected.to_string(), format!("{found:?}"));
            }
        }
        Ok(())
    }

    /// Slot `index` has the value `expected`, as a new reference.
    fn value(&self, index: usize, expected: Option<&Object>) -> Result<(), Failure> {
        let field = self.field(index as isize);
        let before = expected.map(reference_count).transpose()?;
        let (answer, found) = self.ask(index as isize);
        let Some(expected) = expected else {
            if answer == Answer::NoValue && found.is_null() {
                return Ok(());
            }
            let expected = describe(Answer::NoValue, null_mut());
            return mismatch(field, expected, describe(answer, found));
        };
        if answer != Answer::Value || found != expected.as_ptr() {
            // Whatever this is, it is not known to be a reference that we own.
            let expected = describe(Answer::Value, expected.as_ptr());
            return mismatch(field, expected, describe(answer, found));
        }
        let gained = reference_count(expected)? - before.unwrap_or_default();
        if gained != 1 {
            let found = format!("{gained} references");
            return mismatch(field, "1 new reference", found);
        }
        // SAFETY: it is a new reference, as just counted.
        unsafe { ffi::Py_DecRef(found) };
        Ok(())
    }

    /// `index` is out of range.
    fn no_value_at(&self, index: isize) -> Result<(), Failure> {
        let (answer, found) = self.ask(index);
        if answer == Answer::IndexError && found.is_null() {
            return Ok(());
        }
        mismatch(
            self.field(index),
            describe(Answer::IndexError, null_mut()),
            describe(answer, found),
        )
    }

    fn ask(&self, index: isize) -> (Answer, *mut PyObject) {
        // Never an object: whoever leaves it as it is has not been told where
        // `result` is.
        let mut result = std::ptr::without_provenance_mut(SENTINEL);
        let answer = match self.subject {
            Subject::Layout(functions, _) => {
                result = null_mut();
                // SAFETY: the canary's frame is alive, and this thread is running
                // it or holds its generator.
                match unsafe { (functions.get)(self.frame, index, 0, &raw mut result) } {
                    Ok(true) => Answer::Value,
                    Ok(false) => Answer::NoValue,
                    Err(Fault::Index) => Answer::IndexError,
                    Err(_) => Answer::Other(-1),
                }
            }
            Subject::Official(official) => {
                // SAFETY: as above. An earlier draft of this function has two
                // parameters; it ignores the third, which is in a register.
                let answer = unsafe { (official.get_local)(self.frame, index, &raw mut result) };
                // SAFETY: a static that the interpreter has set long ago.
                let index_error = unsafe { ffi::PyExc_IndexError };
                // SAFETY: the thread is attached; the exception type is never freed.
                let index_error = unsafe { ffi::PyErr_ExceptionMatches(index_error) };
                // SAFETY: the thread is attached.
                unsafe { ffi::PyErr_Clear() };
                match answer {
                    1 => Answer::Value,
                    0 => Answer::NoValue,
                    -1 if index_error != 0 => Answer::IndexError,
                    other => Answer::Other(other),
                }
            }
        };
        (answer, result)
    }
}

const SENTINEL: usize = 0x5e47_1e1c;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Value,
    NoValue,
    IndexError,
    Other(c_int),
}

fn describe(answer: Answer, result: *mut PyObject) -> String {
    let answer = match answer {
        Answer::Value => "1".to_owned(),
        Answer::NoValue => "0".to_owned(),
        Answer::IndexError => "-1 with IndexError".to_owned(),
        Answer::Other(answer) => answer.to_string(),
    };
    let result = match result as usize {
        SENTINEL => "result not written".to_owned(),
        0 => "result NULL".to_owned(),
        address => format!("result {address:#x}"),
    };
    format!("{answer}, {result}")
}

/// `sys.getrefcount(object)`: right on every build.
fn reference_count(object: &Object) -> Result<isize, Failure> {
    let failed = |reason: &str| {
        Failure::Interrupted(Error::Interrupted {
            reason: reason.into(),
        })
    };
    let getrefcount = sys_attribute(c"getrefcount");
    let getrefcount = getrefcount.ok_or_else(|| failed("sys.getrefcount is missing"))?;
    // SAFETY: the thread is attached, and the function alive.
    let ty = unsafe { ffi::PyObject_Type(getrefcount.as_ptr()) };
    // SAFETY: PyObject_Type gives a reference away.
    let ty = unsafe { Object::from_owned_ptr(ty) };
    let builtin: *mut PyObject = (&raw mut ffi::PyCFunction_Type).cast();
    if ty.is_none_or(|ty| ty.as_ptr() != builtin) {
        return Err(failed("sys.getrefcount has been replaced"));
    }
    // Without a tuple, whose deallocation may be put off.
    let [function, argument] = [getrefcount.as_ptr(), object.as_ptr()];
    let end = null_mut::<PyObject>();
    // SAFETY: a callable and its argument, both alive, and NULL for the end.
    let count = unsafe { ffi::PyObject_CallFunctionObjArgs(function, argument, end) };
    // SAFETY: the call gives a reference away.
    let count = unsafe { Object::from_owned_ptr(count) }.ok_or_else(interrupted)?;
    // SAFETY: `count` is alive; anything but an `int` is an error.
    Ok(unsafe { ffi::PyLong_AsSsize_t(count.as_ptr()) })
}

/// The elements of a tuple of `str`.
fn tuple_of_text(tuple: &Object) -> Vec<Option<String>> {
    // SAFETY: `tuple` is alive; anything but a tuple is an error.
    let size = unsafe { ffi::PyTuple_Size(tuple.as_ptr()) };
    let element = |position| {
        // SAFETY: `position` is below the tuple's size; the answer is borrowed.
        let element = unsafe { ffi::PyTuple_GetItem(tuple.as_ptr(), position) };
        // SAFETY: `tuple` keeps it alive while we take a reference.
        text(&unsafe { Object::from_borrowed_ptr(element) }?)
    };
    (0..size).map(element).collect()
}

//! Eval-frame functions (PEP 523 hooks): one way to install and remove them, on
//! every supported version.
//!
//! CPython has one place per interpreter for an eval-frame function, and hands it
//! nothing but the frame. Here a hook gets data of its own and the function that it
//! displaced, so that hooks chain; and it can be removed whatever has been installed
//! since.
//!
//! ```no_run
//! use localsplus::hook::{Call, Hook};
//!
//! # fn example() -> Result<(), localsplus::Error> {
//! let hook = Hook::new(|call: Call<'_>| {
//!     if let Ok(frame) = call.frame() {
//!         println!("{frame:?}");
//!     }
//!     call.proceed()
//! });
//! // SAFETY: this thread is attached to an interpreter.
//! unsafe { hook.install() }?;
//! // ...
//! // SAFETY: as above.
//! unsafe { hook.remove() }?;
//! # Ok(())
//! # }
//! ```
//!
//! A hook belongs to the interpreter that it was installed in; a subinterpreter has
//! hooks of its own. All threads of the interpreter run through it: in free-threaded
//! builds, and under a GIL wherever the hook runs Python code, at the same time.
//!
//! # What a hook does not see
//!
//! CPython calls no eval-frame function for a Python function that one of its
//! specialised instructions calls in place: an `__init__` called through its class
//! on 3.13 (default build), an `__getitem__` on early 3.11 versions (3.11.2 has
//! that, 3.11.7 has not). Frames that already run when the hook is installed go on
//! without it, except that a generator's next resumption is a call of the hook.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::capi::{raise, raise_system_error};
use crate::error::Error;
use crate::evaluate::{self, Run};
use crate::evaluation::{EvalFrame, Evaluation, Installed};
use crate::frame::Frame;
use crate::object::Object;
use crate::reader::c_string;
use crate::runtime::{Interruption, Symbols, detached, may_end_thread};

/// `localsplus_hook_function`.
pub(crate) type Function =
    unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, c_int, *const Record) -> *mut PyObject;

/// Lets go of a hook's data.
type Release = unsafe fn(*mut c_void);

/// What an installed hook is made of. Alive until its interpreter ends, since
/// nobody knows whether another thread is still inside the function. `data` and
/// `next` never change; C knows them as `localsplus_hook`.
#[repr(C)]
pub(crate) struct Record {
    data: *mut c_void,
    next: EvalFrame,
    /// The [`Function`]; `pass_through` once the hook is removed.
    function: AtomicPtr<c_void>,
}

impl Record {
    fn set_function(&self, function: Function) {
        self.function
            .store(function as *mut c_void, Ordering::Release);
    }
}

/// The interpreter passes no data to its eval-frame function. So there are many,
/// which differ in the record that they find. (The interpreter's own dict, a
/// thread-local or a table keyed by interpreter would cost many times the three
/// instructions that this takes.)
const COUNT: usize = 64;

/// NULL until first used.
static RECORDS: [AtomicPtr<Record>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];

unsafe extern "C-unwind" fn enter<const SLOT: usize>(
    thread: *mut c_void,
    frame: *mut c_void,
    throwflag: c_int,
) -> *mut PyObject {
    let record = RECORDS[SLOT].load(Ordering::Acquire);
    // SAFETY: `install` has stored a record before it installed this function. It is
    // not freed before its interpreter ends, and another takes its place then.
    let function = unsafe { &(*record).function }.load(Ordering::Acquire);
    // SAFETY: `function` holds nothing else.
    let function = unsafe { std::mem::transmute::<*mut c_void, Function>(function) };
    // SAFETY: the arguments are passed on as they came, with the function's record.
    unsafe { function(thread, frame, throwflag, record) }
}

macro_rules! entries {
    ($($first:literal)*) => {
        [$(
            enter::<{ $first }>, enter::<{ $first + 1 }>, enter::<{ $first + 2 }>,
            enter::<{ $first + 3 }>, enter::<{ $first + 4 }>, enter::<{ $first + 5 }>,
            enter::<{ $first + 6 }>, enter::<{ $first + 7 }>,
        )*]
    };
}
static ENTRIES: [EvalFrame; COUNT] = entries!(0 8 16 24 32 40 48 56);

/// What a removed hook does.
unsafe extern "C-unwind" fn pass_through(
    thread: *mut c_void,
    frame: *mut c_void,
    throwflag: c_int,
    record: *const Record,
) -> *mut PyObject {
    // SAFETY: `enter` passes a live record.
    let next = unsafe { (*record).next };
    // SAFETY: the arguments are passed on as they came.
    unsafe { next(thread, frame, throwflag) }
}

static EVALUATION: OnceLock<Evaluation> = OnceLock::new();

/// The functions of PEP 523. The calling thread is attached.
pub(crate) fn evaluation() -> Result<&'static Evaluation, Error> {
    if let Some(evaluation) = EVALUATION.get() {
        return Ok(evaluation);
    }
    let evaluation = Evaluation::find(&Symbols::open()).map_err(|missing| Error::Unsupported {
        interpreter: "this interpreter".into(),
        reason: format!("{} is not exported", missing.to_string_lossy()).into(),
    })?;
    Ok(EVALUATION.get_or_init(|| evaluation))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    /// Passes on, for somebody who may have it for the next one.
    PassesOn,
    /// Nobody calls it, as far as we know.
    Removed,
}

/// A hook that is or was installed in an interpreter that has not ended.
struct Entry {
    /// 0 if the interpreter has ended.
    interpreter: usize,
    function: Function,
    record: NonNull<Record>,
    /// The index in `RECORDS`; `None` if it has gone to another hook.
    slot: Option<usize>,
    state: State,
    /// What was installed when this was.
    before: Installed,
    release: Option<Release>,
}

// SAFETY: `record` is only freed by who takes the entry out of the registry, what it
// points to is constant or atomic, and `data` in it is the user's.
unsafe impl Send for Entry {}

impl Entry {
    fn record(&self) -> &Record {
        // SAFETY: alive as long as the entry.
        unsafe { self.record.as_ref() }
    }

    fn is(&self, interpreter: *mut c_void, function: Function, data: *mut c_void) -> bool {
        self.interpreter == interpreter as usize
            && self.function as usize == function as usize
            && self.record().data == data
    }

    fn stop(&mut self) {
        self.record().set_function(pass_through);
        self.state = State::PassesOn;
    }
}

/// Only held for a moment, and never while the interpreter is called.
static REGISTRY: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

fn registry() -> MutexGuard<'static, Vec<Entry>> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held by the thread that is installing or removing a hook: the interpreter has no
/// "replace this one by that one".
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    loop {
        match TURN.try_lock() {
            Ok(turn) => return turn,
            Err(TryLockError::Poisoned(turn)) => return turn.into_inner(),
            // Never held while detached: a thread that waits for the GIL may wait
            // for ever, and a fork would leave it locked.
            Err(TryLockError::WouldBlock) => detached(|| drop(TURN.lock())),
        }
    }
}

/// What is installed below `top`, where hooks of ours are at the top that have
/// nothing to do any more.
fn below(registry: &mut [Entry], interpreter: *mut c_void, mut top: Installed) -> Installed {
    let is_done = |entry: &Entry, top: Installed| {
        let is_top = |slot: usize| ENTRIES[slot] as usize == top.function as usize;
        entry.interpreter == interpreter as usize
            && entry.state == State::PassesOn
            && entry.slot.is_some_and(is_top)
    };
    while let Some(entry) = registry.iter_mut().find(|entry| is_done(entry, top)) {
        entry.state = State::Removed;
        top = entry.before;
    }
    top
}

/// Installs what [`below`] has found, if that is not what is installed.
///
/// # Safety
/// `interpreter` is alive, and the calling thread attached.
unsafe fn put_back(
    evaluation: &Evaluation,
    interpreter: *mut c_void,
    current: Installed,
    before: Installed,
) {
    if before.function as usize != current.function as usize {
        // SAFETY: passed on to the caller; this was installed before.
        unsafe { evaluation.install(interpreter, before.function, before) };
    }
}

/// A hook that passes everything on, but is known to be called still: only hooks of
/// ours are above it. Installed again it takes its old place, or the chain would grow
/// as long as there is one above.
fn in_chain(
    registry: &mut [Entry],
    mut top: Installed,
    is_it: impl Fn(&Entry) -> bool,
) -> Option<&mut Entry> {
    loop {
        let is_top = |slot: usize| ENTRIES[slot] as usize == top.function as usize;
        let index = registry
            .iter()
            .position(|entry| entry.state != State::Removed && entry.slot.is_some_and(is_top))?;
        if is_it(&registry[index]) && registry[index].state == State::PassesOn {
            return registry.get_mut(index);
        }
        top = registry[index].before;
    }
}

/// Which entries are called if `top` is; `None` if something of somebody else's is among
/// them: nobody knows what that calls.
fn called(registry: &[Entry], mut top: Installed, evaluation: &Evaluation) -> Option<Vec<usize>> {
    let mut called = Vec::new();
    while top.function as usize != evaluation.default as usize {
        let is_top = |slot: usize| ENTRIES[slot] as usize == top.function as usize;
        let index = registry
            .iter()
            .position(|entry| entry.state != State::Removed && entry.slot.is_some_and(is_top))?;
        called.push(index);
        top = registry[index].before;
    }
    Some(called)
}

/// Marks hooks as removed that nobody calls any more, because somebody has put back
/// what was installed before them: those that have nothing to do, and `asked`, which is
/// to be installed. (The others may have been put away for a moment.)
fn settle(
    registry: &mut [Entry],
    interpreter: *mut c_void,
    top: Installed,
    evaluation: &Evaluation,
    asked: impl Fn(&Entry) -> bool,
) {
    let called = called(registry, top, evaluation);
    for (index, entry) in registry.iter_mut().enumerate() {
        // What it calls itself does not call it.
        let is_lost = entry.record().next as usize == top.function as usize
            || called.as_ref().is_some_and(|all| !all.contains(&index));
        let is_done = entry.state == State::PassesOn || asked(entry);
        if entry.interpreter == interpreter as usize && is_lost && is_done {
            entry.stop();
            entry.state = State::Removed;
        }
    }
}

/// So many removed hooks of an interpreter keep their slots, the last ones: they are
/// likely to be installed again, and somebody may still know their functions.
const KEPT: usize = 8;

/// Lets go of the slots of removed hooks that do not keep them.
fn trim(registry: &mut [Entry], interpreter: *mut c_void, evaluation: &Evaluation) {
    let removed = registry.iter_mut().filter(|entry| {
        entry.interpreter == interpreter as usize
            && entry.state == State::Removed
            && entry.slot.is_some()
    });
    for entry in removed.rev().skip(KEPT) {
        let_go(entry, evaluation);
    }
}

/// Lets go of a removed hook's slot, and answers it.
fn let_go(entry: &mut Entry, evaluation: &Evaluation) -> Option<usize> {
    let slot = entry.slot.take()?;
    RECORDS[slot].store(nobodys(evaluation), Ordering::Release);
    Some(slot)
}

/// A slot for a new hook, if need be that of the removed hook which has kept one longest.
fn free_slot(registry: &mut [Entry], evaluation: &Evaluation) -> Option<usize> {
    let is_free = |slot: &usize| registry.iter().all(|entry| entry.slot != Some(*slot));
    (0..COUNT).find(is_free).or_else(|| {
        let mut removed = registry.iter_mut();
        let removed = removed.find(|it| it.state == State::Removed && it.slot.is_some());
        removed.and_then(|entry| let_go(entry, evaluation))
    })
}

/// What [`install`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The interpreter has `data` until it ends.
    New,
    /// It has had it since an earlier installation.
    Again,
    /// It is installed.
    Already,
}

/// Installs a hook in the calling thread's interpreter. `release` is called with
/// `data` when that ends, if this hook is new to it.
///
/// # Safety
/// The calling thread is attached. `function` may be called with a record that holds
/// `data` until the interpreter ends, by several threads at once.
pub(crate) unsafe fn install(
    function: Function,
    data: *mut c_void,
    release: Option<Release>,
) -> Result<Outcome, Error> {
    let evaluation = evaluation()?;
    let interpreter = evaluation.interpreter();
    // To make it may run the garbage collector (3.11), and that anything, this function
    // too: not while we have the turn.
    // SAFETY: this is the calling thread's interpreter; the answer is borrowed, or NULL
    // without an exception.
    let dict = unsafe { ffi::PyInterpreterState_GetDict(interpreter.cast()) };
    // SAFETY: the interpreter keeps its dict alive while we take a reference.
    let dict = unsafe { Object::from_borrowed_ptr(dict) }.ok_or(Error::NoMemory)?;
    let _turn = turn();
    watch(interpreter, &dict)?;
    // SAFETY: this is the calling thread's interpreter.
    let current = unsafe { evaluation.installed(interpreter) };
    let (slot, before, outcome) = {
        let mut registry = registry();
        let is_it = |entry: &Entry| entry.is(interpreter, function, data);
        settle(&mut registry, interpreter, current, evaluation, is_it);
        if registry
            .iter()
            .any(|entry| is_it(entry) && entry.state == State::Active)
        {
            return Ok(Outcome::Already);
        }
        let before = below(&mut registry, interpreter, current);
        if let Some(entry) = in_chain(&mut registry, before, is_it) {
            entry.record().set_function(function);
            entry.state = State::Active;
            drop(registry);
            // SAFETY: this is the calling thread's interpreter.
            unsafe { put_back(evaluation, interpreter, current, before) };
            return Ok(Outcome::Again);
        }
        let again = registry.iter_mut().find_map(|entry| {
            let fits = entry.state == State::Removed
                && entry.record().next as usize == before.function as usize;
            let slot = entry.slot.filter(|_| fits && is_it(entry))?;
            Some((entry, slot))
        });
        if let Some((entry, slot)) = again {
            entry.record().set_function(function);
            entry.state = State::Active;
            entry.before = before;
            (slot, before, Outcome::Again)
        } else {
            let slot = free_slot(&mut registry, evaluation);
            let slot = slot.ok_or(Error::TooManyHooks { count: COUNT })?;
            let record = NonNull::from(Box::leak(Box::new(Record {
                data,
                next: before.function,
                function: AtomicPtr::new(function as *mut c_void),
            })));
            RECORDS[slot].store(record.as_ptr(), Ordering::Release);
            registry.push(Entry {
                interpreter: interpreter as usize,
                function,
                record,
                slot: Some(slot),
                state: State::Active,
                before,
                release,
            });
            (slot, before, Outcome::New)
        }
    };
    // Others may call them as long as the process lives.
    for code in [ENTRIES[slot] as *mut c_void, function as *mut c_void] {
        if let Some(code) = NonNull::new(code) {
            Symbols::pin(code);
        }
    }
    // SAFETY: this is the calling thread's interpreter; the function is pinned.
    unsafe { evaluation.install(interpreter, ENTRIES[slot], before) };
    Ok(outcome)
}

/// Removes a hook from the calling thread's interpreter; `false` if it is not
/// installed there.
///
/// # Safety
/// The calling thread is attached.
pub(crate) unsafe fn remove(function: Function, data: *mut c_void) -> Result<bool, Error> {
    let evaluation = evaluation()?;
    let interpreter = evaluation.interpreter();
    let _turn = turn();
    // SAFETY: this is the calling thread's interpreter.
    let current = unsafe { evaluation.installed(interpreter) };
    let before = {
        let mut registry = registry();
        let is_it = |entry: &&mut Entry| {
            entry.state == State::Active && entry.is(interpreter, function, data)
        };
        let Some(entry) = registry.iter_mut().find(is_it) else {
            return Ok(false);
        };
        entry.stop();
        settle(&mut registry, interpreter, current, evaluation, |_| false);
        let before = below(&mut registry, interpreter, current);
        trim(&mut registry, interpreter, evaluation);
        before
    };
    // SAFETY: as above.
    unsafe { put_back(evaluation, interpreter, current, before) };
    Ok(true)
}

const CAPSULE: *const c_char = c"localsplus hooks".as_ptr();

fn interrupted() -> Error {
    Error::Interrupted {
        reason: Interruption::take().into(),
    }
}

/// Has [`end`] called when the interpreter, whose dict this is, ends. The calling thread
/// has the turn.
fn watch(interpreter: *mut c_void, dict: &Object) -> Result<(), Error> {
    // Every copy of this library in the process has hooks of its own.
    let key = c_string(format!("localsplus hooks {:p}", &raw const RECORDS));
    // SAFETY: the text is a C string.
    let key = unsafe { ffi::PyUnicode_FromString(key.as_ptr()) };
    // SAFETY: PyUnicode_FromString gives a reference away.
    let key = unsafe { Object::from_owned_ptr(key) }.ok_or_else(interrupted)?;
    // SAFETY: a dict and a `str`, both alive.
    match unsafe { ffi::PyDict_Contains(dict.as_ptr(), key.as_ptr()) } {
        0 => {}
        1 => return Ok(()),
        _ => return Err(interrupted()),
    }
    // SAFETY: the pointer is not NULL, and the name a static.
    let capsule = unsafe { ffi::PyCapsule_New(interpreter, CAPSULE, Some(end)) };
    // SAFETY: PyCapsule_New gives a reference away.
    let capsule = unsafe { Object::from_owned_ptr(capsule) }.ok_or_else(interrupted)?;
    // SAFETY: a dict, a `str` and an object, all alive.
    match unsafe { ffi::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), capsule.as_ptr()) } {
        0 => Ok(()),
        _ => Err(interrupted()),
    }
}

/// The interpreter ends, and lets go of its dict: no other thread is inside a hook,
/// but some more Python code may run (finalisers), without our hooks.
unsafe extern "C" fn end(capsule: *mut PyObject) {
    // SAFETY: the interpreter passes the capsule that `watch` has made.
    let interpreter = unsafe { ffi::PyCapsule_GetPointer(capsule, CAPSULE) };
    // A panic may not cross into C; whatever it was, the hooks only leak.
    let _ = catch_unwind(|| end_hooks(interpreter));
}

fn end_hooks(interpreter: *mut c_void) {
    let Ok(evaluation) = evaluation() else {
        return;
    };
    // SAFETY: the interpreter is ending, and not gone yet.
    let current = unsafe { evaluation.installed(interpreter) };
    let before = {
        let mut registry = registry();
        for entry in registry.iter_mut() {
            if entry.interpreter == interpreter as usize && entry.state == State::Active {
                entry.stop();
            }
        }
        settle(&mut registry, interpreter, current, evaluation, |_| false);
        below(&mut registry, interpreter, current)
    };
    // SAFETY: as above.
    unsafe { put_back(evaluation, interpreter, current, before) };
    let mut gone = Vec::new();
    {
        let mut registry = registry();
        for mut entry in std::mem::take(&mut *registry) {
            if entry.interpreter != interpreter as usize {
                registry.push(entry);
            } else if entry.state == State::PassesOn {
                // Somebody may call it to the very end. It keeps its slot.
                entry.interpreter = 0;
                gone.push((entry.release.take(), entry.record().data, None));
                registry.push(entry);
            } else {
                if let Some(slot) = entry.slot {
                    RECORDS[slot].store(nobodys(evaluation), Ordering::Release);
                }
                gone.push((entry.release, entry.record().data, Some(entry.record)));
            }
        }
    }
    for (release, data, record) in gone {
        if let Some(release) = release {
            // SAFETY: nobody will call the function again that is given `data`.
            unsafe { release(data) };
        }
        if let Some(record) = record {
            // SAFETY: it came from a box, and nobody finds it any more.
            drop(unsafe { Box::from_raw(record.as_ptr()) });
        }
    }
}

/// What a slot without a hook does, if somebody should have kept its function.
fn nobodys(evaluation: &Evaluation) -> *mut Record {
    struct Nobodys(Record);
    // SAFETY: its fields are constant or atomic, and `data` is NULL.
    unsafe impl Sync for Nobodys {}
    // SAFETY: as above.
    unsafe impl Send for Nobodys {}
    static NOBODYS: OnceLock<Nobodys> = OnceLock::new();
    let Nobodys(record) = NOBODYS.get_or_init(|| {
        Nobodys(Record {
            data: null_mut(),
            next: evaluation.default,
            function: AtomicPtr::new(pass_through as *mut c_void),
        })
    });
    std::ptr::from_ref(record).cast_mut()
}

/// A Rust closure as an eval-frame function. It is called for every frame that the
/// interpreter is about to run, and for every resumption of a generator.
///
/// `Hook` is a handle: cloning it makes another to the same closure, and dropping it
/// removes nothing. The closure lives as long as a handle does, and at least until
/// every interpreter ends that it was ever installed in, since nobody knows whether
/// another thread is still inside it. To switch a hook on and off, keep the handle.
///
/// The closure runs Python code only through its [`Call`], unless it wants to be
/// called for that code as well. A panic in it becomes a `SystemError`, raised in the
/// frame if that has not been run by then.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// use localsplus::hook::{Call, Hook};
///
/// # fn main() -> Result<(), localsplus::Error> {
/// # embedding::start();
/// let hook = Hook::new(|call: Call<'_>| call.proceed());
/// // SAFETY: this thread holds the GIL.
/// assert!(unsafe { hook.install() }?);
/// // Once is enough.
/// // SAFETY: as above.
/// assert!(!unsafe { hook.install() }?);
/// // ...
/// // SAFETY: as above.
/// assert!(unsafe { hook.remove() }?);
/// # Ok(()) }
/// ```
pub struct Hook<F>(Arc<F>);

impl<F> Clone for Hook<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F> Hook<F>
where
    F: for<'a> Fn(Call<'a>) -> Returned<'a> + Send + Sync + 'static,
{
    /// Makes a hook, which is installed nowhere.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// use localsplus::hook::{Call, Hook};
    ///
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # embedding::start();
    /// let hook = Hook::new(|call: Call<'_>| call.proceed());
    /// // SAFETY: this thread holds the GIL.
    /// assert!(unsafe { hook.install() }?);
    /// // Once is enough.
    /// // SAFETY: as above.
    /// assert!(!unsafe { hook.install() }?);
    /// // ...
    /// // SAFETY: as above.
    /// assert!(unsafe { hook.remove() }?);
    /// # Ok(()) }
    /// ```
    pub fn new(closure: F) -> Self {
        Self(Arc::new(closure))
    }

    fn data(&self) -> *mut c_void {
        Arc::as_ptr(&self.0).cast_mut().cast()
    }

    /// Installs the hook in the calling thread's interpreter, on top of what is
    /// installed there; `false` if it is installed already.
    ///
    /// On 3.15, whether the interpreter may specialize calls under an eval-frame
    /// function stays as it was under the one before.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// use localsplus::hook::{Call, Hook};
    ///
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # embedding::start();
    /// let hook = Hook::new(|call: Call<'_>| call.proceed());
    /// // SAFETY: this thread holds the GIL.
    /// assert!(unsafe { hook.install() }?);
    /// // Once is enough.
    /// // SAFETY: as above.
    /// assert!(!unsafe { hook.install() }?);
    /// // ...
    /// // SAFETY: as above.
    /// assert!(unsafe { hook.remove() }?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Safety
    /// The calling thread is attached to an interpreter.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if this is no CPython of 3.11 or later,
    /// [`Error::TooManyHooks`], and for want of memory [`Error::NoMemory`] or
    /// [`Error::Interrupted`], by Python's own `MemoryError`.
    pub unsafe fn install(&self) -> Result<bool, Error> {
        let handle = Arc::into_raw(self.0.clone());
        // SAFETY: the thread is attached; `run` may be called as long as the handle
        // is kept, which `release` is given.
        let outcome = unsafe { install(run::<F>, handle.cast_mut().cast(), Some(release::<F>)) };
        if !matches!(outcome, Ok(Outcome::New)) {
            // SAFETY: the interpreter did not take it.
            drop(unsafe { Arc::from_raw(handle) });
        }
        outcome
            .map(|outcome| outcome != Outcome::Already)
            .inspect_err(|_| Interruption::postpone())
    }

    /// Removes the hook from the calling thread's interpreter; `false` if it is not
    /// installed there.
    ///
    /// What was installed before it is put back. If something has been installed
    /// since, that stays, and what it takes for the function before it passes
    /// everything on. A thread that is inside the closure finishes.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// use localsplus::hook::{Call, Hook};
    ///
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # embedding::start();
    /// let hook = Hook::new(|call: Call<'_>| call.proceed());
    /// // SAFETY: this thread holds the GIL.
    /// assert!(unsafe { hook.install() }?);
    /// // Once is enough.
    /// // SAFETY: as above.
    /// assert!(!unsafe { hook.install() }?);
    /// // ...
    /// // SAFETY: as above.
    /// assert!(unsafe { hook.remove() }?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Safety
    /// The calling thread is attached to an interpreter.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub unsafe fn remove(&self) -> Result<bool, Error> {
        // SAFETY: passed on to the caller.
        unsafe { remove(run::<F>, self.data()) }
    }
}

/// # Safety
/// `data` is a handle that [`Hook::install`] gave away.
unsafe fn release<F>(data: *mut c_void) {
    // SAFETY: passed on to the caller.
    drop(unsafe { Arc::from_raw(data.cast_const().cast::<F>()) });
}

unsafe extern "C-unwind" fn run<F>(
    thread: *mut c_void,
    frame: *mut c_void,
    throwflag: c_int,
    record: *const Record,
) -> *mut PyObject
where
    F: for<'a> Fn(Call<'a>) -> Returned<'a>,
{
    // SAFETY: `enter` passes a live record.
    let record = unsafe { &*record };
    // SAFETY: `Hook::install` made the record, with a closure of this type.
    let closure = unsafe { &*record.data.cast_const().cast::<F>() };
    let done = Cell::new(false);
    let call = Call {
        thread,
        frame,
        throwflag,
        next: record.next,
        done: &done,
        exactly: PhantomData,
    };
    match catch_unwind(AssertUnwindSafe(|| closure(call))) {
        Ok(Returned(result, _)) => result.map_or(null_mut(), Object::into_ptr),
        Err(_) => {
            raise_system_error(c"localsplus: a hook panicked");
            if done.get() {
                return null_mut();
            }
            // As if raised by the frame: that disposes of it on every version.
            // SAFETY: nobody has run the frame.
            unsafe { (record.next)(thread, frame, 1) }
        }
    }
}

/// Of this `'a` and no other, so that a closure cannot return the outcome of another
/// call.
type Exactly<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// A call of a hook: a frame that is to be run or resumed.
///
/// A closure does exactly one thing with it, which answers what to return.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() {
/// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
/// if let Ok(frame) = call.frame() {
///     println!("{frame:?} is called");
/// }
/// call.proceed()
/// # });
/// # assert_eq!(answer, "1");
/// # }
/// ```
pub struct Call<'a> {
    thread: *mut c_void,
    frame: *mut c_void,
    throwflag: c_int,
    next: EvalFrame,
    /// Whether the frame has been run or disposed of.
    done: &'a Cell<bool>,
    exactly: Exactly<'a>,
}

/// What a hook returns for a [`Call`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() {
/// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
/// let returned = call.proceed();
/// println!("it returned {:?}", returned.value());
/// returned
/// # });
/// # assert_eq!(answer, "1");
/// # }
/// ```
#[must_use = "a hook must return it"]
pub struct Returned<'a>(Option<Object>, Exactly<'a>);

impl Returned<'_> {
    /// The frame's return value (or what a generator yields), or `None` if it raised
    /// an exception, which is set in this thread.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
    /// let returned = call.proceed();
    /// assert!(returned.value().is_some());
    /// returned
    /// # });
    /// # assert_eq!(answer, "1");
    /// # }
    /// ```
    pub fn value(&self) -> Option<&Object> {
        self.0.as_ref()
    }
}

impl<'a> Call<'a> {
    /// The frame.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
    /// // Of f(1), where f has a parameter.
    /// let value = call.frame().and_then(|frame| frame.get_local(0));
    /// assert!(value.is_ok_and(|value| value.is_some()));
    /// call.proceed()
    /// # });
    /// # assert_eq!(answer, "1");
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Frame::from_ptr`].
    pub fn frame(&self) -> Result<Frame<'_>, Error> {
        // SAFETY: this thread is attached, and has been told to run that frame,
        // which nobody has done as long as `self` is there.
        unsafe { Frame::from_ptr(self.frame) }
    }

    /// The address of the frame, for other bindings.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
    /// let frame: *mut pyo3_ffi::PyObject = call.frame_ptr();
    /// assert!(!frame.is_null());
    /// call.proceed()
    /// # });
    /// # assert_eq!(answer, "1");
    /// # }
    /// ```
    pub fn frame_ptr<T>(&self) -> *mut T {
        self.frame.cast()
    }

    /// The thread's state, for other bindings.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
    /// let thread: *mut pyo3_ffi::PyThreadState = call.thread_ptr();
    /// // SAFETY: this thread is attached.
    /// assert_eq!(thread, unsafe { pyo3_ffi::PyThreadState_Get() });
    /// call.proceed()
    /// # });
    /// # assert_eq!(answer, "1");
    /// # }
    /// ```
    pub fn thread_ptr<T>(&self) -> *mut T {
        self.thread.cast()
    }

    /// Whether an exception is set that is to be raised in the frame: a generator's
    /// `throw` or `close`. Let such a call proceed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
    /// if call.throws() {
    ///     return call.proceed();
    /// }
    /// // ...
    /// call.proceed()
    /// # });
    /// # assert_eq!(answer, "1");
    /// # }
    /// ```
    pub fn throws(&self) -> bool {
        self.throwflag != 0
    }

    /// Has the frame run by whoever would run it if this hook were not there.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
    /// call.proceed()
    /// # });
    /// # assert_eq!(answer, "1");
    /// # }
    /// ```
    pub fn proceed(self) -> Returned<'a> {
        let throwflag = self.throwflag;
        self.run(throwflag)
    }

    /// Raises the exception that is set (by PyErr_SetString, say) as if the frame's
    /// first instruction had, or the one that a generator is to be resumed at. If
    /// none is set, that is a `SystemError`.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\ntry:\n    answer = f(1)\nexcept ValueError as error:\n    answer = error", |call| {
    /// // SAFETY: this thread is attached, and the exception a static one.
    /// unsafe { pyo3_ffi::PyErr_SetString(pyo3_ffi::PyExc_ValueError, c"not now".as_ptr()) };
    /// call.fail()
    /// # });
    /// # assert_eq!(answer, "not now");
    /// # }
    /// ```
    pub fn fail(self) -> Returned<'a> {
        // SAFETY: the thread is attached; the answer is borrowed.
        if unsafe { ffi::PyErr_Occurred() }.is_null() {
            raise_system_error(c"localsplus: a hook failed without setting an exception");
        }
        self.run(1)
    }

    /// The same, if nothing of the frame has run: then something else may be done with
    /// it. Otherwise, for a generator that is resumed or a frame that cannot be read,
    /// the call is handed back.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
    /// match call.unstarted() {
    ///     Ok(call) => call.proceed(),  // or something else instead
    ///     Err(call) => call.proceed(), // a generator that goes on, say
    /// }
    /// # });
    /// # assert_eq!(answer, "1");
    /// # }
    /// ```
    ///
    /// # Errors
    /// The call.
    pub fn unstarted(self) -> Result<Unstarted<'a>, Self> {
        match !self.throws() && self.is_unstarted() {
            true => Ok(Unstarted(self)),
            false => Err(self),
        }
    }

    #[inline(never)]
    fn is_unstarted(&self) -> bool {
        let frame = self.frame();
        frame.and_then(|frame| frame.is_unstarted()) == Ok(true)
    }

    fn run(self, throwflag: c_int) -> Returned<'a> {
        self.done.set(true);
        // SAFETY: the interpreter has passed these to our hook, and nobody has run the
        // frame. `next` is an eval-frame function.
        let result = may_end_thread(|| unsafe { (self.next)(self.thread, self.frame, throwflag) });
        // SAFETY: an eval-frame function gives a reference away, or answers NULL.
        Returned(unsafe { Object::from_owned_ptr(result) }, self.exactly)
    }
}

/// A call of a hook whose frame has not started: a function that is being called, or
/// a module or class body.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() {
/// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
/// let call = match call.unstarted() {
///     Ok(call) => call,
///     Err(call) => return call.proceed(),
/// };
/// call.proceed()
/// # });
/// # assert_eq!(answer, "1");
/// # }
/// ```
#[derive(Debug)]
pub struct Unstarted<'a>(Call<'a>);

impl<'a> std::ops::Deref for Unstarted<'a> {
    type Target = Call<'a>;

    fn deref(&self) -> &Call<'a> {
        &self.0
    }
}

impl<'a> Unstarted<'a> {
    /// As [`Call::proceed`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
    /// # let call = match call.unstarted() {
    /// #     Ok(call) => call,
    /// #     Err(call) => return call.proceed(),
    /// # };
    /// call.proceed()
    /// # });
    /// # assert_eq!(answer, "1");
    /// # }
    /// ```
    pub fn proceed(self) -> Returned<'a> {
        self.0.proceed()
    }

    /// As [`Call::fail`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\ntry:\n    answer = f(1)\nexcept ValueError as error:\n    answer = error", |call| {
    /// # let call = match call.unstarted() {
    /// #     Ok(call) => call,
    /// #     Err(call) => return call.proceed(),
    /// # };
    /// // SAFETY: this thread is attached, and the exception a static one.
    /// unsafe { pyo3_ffi::PyErr_SetString(pyo3_ffi::PyExc_ValueError, c"not now".as_ptr()) };
    /// call.fail()
    /// # });
    /// # assert_eq!(answer, "not now");
    /// # }
    /// ```
    pub fn fail(self) -> Returned<'a> {
        self.0.fail()
    }

    /// Returns `value` from the call, and does not run the frame.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    raise ValueError\nanswer = f(1)", |call| {
    /// # let call = match call.unstarted() {
    /// #     Ok(call) => call,
    /// #     Err(call) => return call.proceed(),
    /// # };
    /// // Of f(1), which is to answer 1, whatever it would do.
    /// let Ok(Some(value)) = call.frame().and_then(|frame| frame.get_local(0)) else {
    ///     return call.proceed();
    /// };
    /// call.answer(value)
    /// # });
    /// # assert_eq!(answer, "1");
    /// # }
    /// ```
    pub fn answer(self, value: Object) -> Returned<'a> {
        // SAFETY: the interpreter has passed it to our hook, which returns now.
        let consumed = self.act(|frame| unsafe { frame.consume() });
        Returned(consumed.map(|()| value), self.0.exactly)
    }

    /// Runs a code object, or calls a callable, in place of the frame, as
    /// [`Frame::evaluate_in_place`] does; errors are raised.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() {
    /// # let answer = calls_of_f("def f(x):\n    return x\nanswer = f(1)", |call| {
    /// # let call = match call.unstarted() {
    /// #     Ok(call) => call,
    /// #     Err(call) => return call.proceed(),
    /// # };
    /// // Its own code once more: what a compiler would have made of it.
    /// let Ok(code) = call.frame().and_then(|frame| frame.code()) else {
    ///     return call.proceed();
    /// };
    /// # thread_local!(static ONCE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    /// # if ONCE.replace(true) { return call.proceed(); }
    /// call.evaluate_in_place(&code)
    /// # });
    /// # assert_eq!(answer, "1");
    /// # }
    /// ```
    pub fn evaluate_in_place(self, replacement: &Object) -> Returned<'a> {
        let run = self.instead_of(replacement);
        Returned(run.and_then(Run::run), self.0.exactly)
    }

    #[inline(never)]
    fn instead_of(&self, replacement: &Object) -> Option<Run> {
        // SAFETY: the interpreter has passed it to our hook, which returns after that.
        self.act(|frame| unsafe {
            evaluate::instead_of(frame.reader, frame.address(), replacement)
        })?
    }

    /// `None` with an exception set.
    fn act<T>(&self, act: impl FnOnce(Frame<'_>) -> Result<T, Error>) -> Option<T> {
        self.0.done.set(true);
        let done = self.0.frame().and_then(act);
        done.inspect_err(raise).ok()
    }
}

/// The address of the frame: no Python code runs.
impl std::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Call({:p})", self.frame)
    }
}

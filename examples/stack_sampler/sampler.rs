//! The eval-frame hook that samples, and the one that compares what a walk costs.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use localsplus::{Error, Frame};
use pyo3_ffi::PyObject;

use crate::python::{
    _PyEval_EvalFrameDefault, InterpreterFrame, PendingException, ThreadState, attribute,
    set_eval_frame, text,
};

static EVERY: OnceLock<Duration> = OnceLock::new();

/// How often each stack was seen: names of functions, innermost first.
static SAMPLES: Mutex<Option<HashMap<Vec<String>, usize>>> = Mutex::new(None);

thread_local! {
    static NEXT: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Code objects that have been met, by address, and what to call them.
    static NAMES: RefCell<HashMap<usize, String>> = RefCell::default();
}

/// Samples every thread from now on, at most once in this time.
pub fn install(every: Duration) -> Result<(), Error> {
    // SAFETY: Python is initialised, and the main thread attached.
    unsafe { localsplus::init() }?;
    EVERY.get_or_init(|| every);
    set_eval_frame(on_frame);
    Ok(())
}

/// The eval-frame function, of all threads.
unsafe extern "C" fn on_frame(
    thread: *mut ThreadState,
    frame: *mut InterpreterFrame,
    throwflag: c_int,
) -> *mut PyObject {
    let now = Instant::now();
    if NEXT.get().is_none_or(|next| now >= next) {
        let _pending = PendingException::put_aside();
        // SAFETY: the interpreter wants `frame` to be evaluated by this thread.
        let sampled = unsafe { sample(frame) };
        if let Err(error) = sampled {
            eprintln!("stack_sampler: a stack could not be read: {error}");
        }
        NEXT.set(EVERY.get().map(|&every| now + every));
    }
    // SAFETY: the arguments are passed on as they came.
    unsafe { _PyEval_EvalFrameDefault(thread, frame, throwflag) }
}

/// # Safety
/// The calling thread is attached and about to evaluate `frame`.
unsafe fn sample(frame: *mut InterpreterFrame) -> Result<(), Error> {
    let mut stack = Vec::with_capacity(32);
    // SAFETY: the caller promises a frame that lives longer than this call.
    stack.push(name(unsafe { Frame::from_ptr(frame) }?)?);
    // It is not linked to its caller yet.
    // SAFETY: no Python code runs before this function returns.
    let mut below = unsafe { Frame::current() }?;
    while let Some(frame) = below {
        stack.push(name(frame)?);
        // SAFETY: as above.
        below = unsafe { frame.previous() }?;
    }
    let mut samples = SAMPLES.lock().unwrap_or_else(PoisonError::into_inner);
    *samples.get_or_insert_default().entry(stack).or_default() += 1;
    Ok(())
}

/// "function (file)". Asks the code object the first time only.
fn name(frame: Frame<'_>) -> Result<String, Error> {
    let code = frame.code()?;
    NAMES.with_borrow_mut(|names| {
        let name = names.entry(code.as_ptr() as usize).or_insert_with(move || {
            let part = |name| attribute(&code, name).and_then(|value| text(&value));
            let function = part(c"co_qualname").unwrap_or_default();
            let path = part(c"co_filename").unwrap_or_default();
            let file = path.rsplit('/').next().unwrap_or_default();
            // These two separate stacks and frames in the output.
            let name = format!("{function} ({file})").replace([';', '\n'], "_");
            // Held for good, so that no other code object gets the address. (It is not
            // to be given back when the thread ends, which is no longer attached then.)
            let _ = code.into_ptr();
            name
        });
        Ok(name.clone())
    })
}

/// The stacks, the most frequent first.
pub fn collapsed() -> String {
    let samples = SAMPLES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let mut samples: Vec<_> = samples.unwrap_or_default().into_iter().collect();
    samples.sort_by(|(one, often), (other, seldom)| seldom.cmp(often).then(one.cmp(other)));
    let mut text = String::new();
    for (stack, count) in samples {
        let outermost_first: Vec<_> = stack.into_iter().rev().collect();
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{} {count}", outermost_first.join(";"));
    }
    text
}

/// What walking has cost so far, this way and by frame objects.
struct Cost {
    walks: u32,
    /// Of one walk.
    frames: u32,
    /// The fastest walks: whatever else the machine does makes others longer.
    ours: Duration,
    theirs: Duration,
    /// That we made.
    frame_objects: u32,
}

static COST: Mutex<Option<Cost>> = Mutex::new(None);

/// Compares from now on, instead of sampling: at the entry of a function of that
/// name, which `cost.py` has, this walks the stack, and then lets the function do it.
pub fn install_comparison() -> Result<(), Error> {
    // SAFETY: Python is initialised, and the main thread attached.
    unsafe { localsplus::init() }?;
    set_eval_frame(compare);
    Ok(())
}

unsafe extern "C" fn compare(
    thread: *mut ThreadState,
    frame: *mut InterpreterFrame,
    throwflag: c_int,
) -> *mut PyObject {
    // SAFETY: the interpreter wants `frame` to be evaluated by this thread.
    let is_there = unsafe { Frame::from_ptr(frame) }
        .and_then(name)
        .is_ok_and(|name| name == "walk_by_f_back (cost.py)");
    // SAFETY: no Python code runs in there.
    let ours = is_there.then(|| unsafe { walk() });
    let start = Instant::now();
    // SAFETY: the arguments are passed on as they came.
    let result = unsafe { _PyEval_EvalFrameDefault(thread, frame, throwflag) };
    let theirs = start.elapsed();
    if let Some(Ok((frames, ours, frame_objects))) = ours {
        let mut cost = COST.lock().unwrap_or_else(PoisonError::into_inner);
        let cost = cost.get_or_insert(Cost {
            walks: 0,
            frames,
            ours: Duration::MAX,
            theirs: Duration::MAX,
            frame_objects: 0,
        });
        cost.walks += 1;
        cost.ours = cost.ours.min(ours);
        cost.theirs = cost.theirs.min(theirs);
        cost.frame_objects += frame_objects;
    }
    result
}

/// How many frames the stack has, how long it took to ask each for its code object,
/// and how many frame objects that made.
///
/// # Safety
/// The calling thread is attached, and runs no Python code before this returns.
unsafe fn walk() -> Result<(u32, Duration, u32), Error> {
    // SAFETY: passed on to the caller.
    let before = unsafe { frame_objects() }?;
    let start = Instant::now();
    let mut frames = 0;
    // SAFETY: as above.
    let mut next = unsafe { Frame::current() }?;
    while let Some(frame) = next {
        black_box(frame.code()?);
        frames += 1;
        // SAFETY: as above.
        next = unsafe { frame.previous() }?;
    }
    let elapsed = start.elapsed();
    // SAFETY: as above.
    let after = unsafe { frame_objects() }?;
    Ok((frames, elapsed, after - before))
}

/// How many of the stack's frames have one.
///
/// # Safety
/// As [`walk`].
unsafe fn frame_objects() -> Result<u32, Error> {
    let mut count = 0;
    // SAFETY: passed on to the caller.
    let mut next = unsafe { Frame::current() }?;
    while let Some(frame) = next {
        count += u32::from(frame.frame_object()?.is_some());
        // SAFETY: as above.
        next = unsafe { frame.previous() }?;
    }
    Ok(count)
}

/// The comparison, in words.
pub fn cost() -> String {
    let cost = COST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Cost {
        walks,
        frames,
        ours,
        theirs,
        frame_objects,
    }) = cost
    else {
        return "nothing was compared".to_owned();
    };
    let each = |time: Duration| time.as_nanos() as f64 / f64::from(frames);
    format!(
        "the fastest of {walks} walks over {frames} frames: {:.1} ns a frame, {frame_objects} frame objects \
         in all; by sys._getframe() and f_back: {:.1} ns a frame, a frame object each: {:.1} times as long",
        each(ours),
        each(theirs),
        each(theirs) / each(ours),
    )
}

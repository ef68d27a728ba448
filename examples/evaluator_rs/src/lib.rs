//! The compiling half of `examples/evaluator`, in Rust: the code of every function
//! that is called is handed to a compiler of yours, once, and what that answers runs
//! in place of it. One binary serves every version of CPython:
//!
//! ```sh
//! PYO3_BUILD_EXTENSION_MODULE=1 cargo build --release --manifest-path examples/evaluator_rs/Cargo.toml
//! ```
//!
//! It is loaded by ctypes:
//!
//! ```python
//! evaluator = ctypes.PyDLL("libevaluator_rs.so")
//! for function in evaluator.evaluator_compile_with, evaluator.evaluator_enable, evaluator.evaluator_disable:
//!     function.restype = ctypes.py_object
//! evaluator.evaluator_compile_with(ctypes.py_object(lambda code: code.replace(...)))   # or None: as it is
//! evaluator.evaluator_enable()
//! ```

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::{LazyLock, PoisonError, RwLock};

use localsplus::Object;
use localsplus::hook::{Call, Hook, Returned};
use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

/// A reference that any thread may use: whoever does is attached to the interpreter.
struct Shared(Object);

// SAFETY: an object may be used by every thread that is attached.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// What the compiler has made of a code object.
struct Compilation {
    /// Keeps the address from being used again.
    _code: Shared,
    /// `None`: the code runs as it is.
    compiled: Option<Shared>,
}

#[derive(Default)]
struct Compiler {
    callable: Option<Shared>,
    /// By address. What was compiled has an entry of its own.
    compilations: HashMap<usize, Compilation>,
}

/// No Python code runs while this is held.
static COMPILER: LazyLock<RwLock<Compiler>> = LazyLock::new(RwLock::default);

thread_local! {
    /// Set while the compiler runs in this thread: what it calls runs as it is.
    static IS_COMPILING: Cell<bool> = const { Cell::new(false) };
}

/// An exception is set.
struct Raised;

type Evaluate = for<'a> fn(Call<'a>) -> Returned<'a>;

static HOOK: LazyLock<Hook<Evaluate>> = LazyLock::new(|| Hook::new(evaluate));

fn evaluate(call: Call<'_>) -> Returned<'_> {
    // A resumed generator goes on: its function has begun by making it.
    let call = match call.unstarted() {
        Ok(call) => call,
        Err(call) => return call.proceed(),
    };
    let Ok(code) = call.frame().and_then(|frame| frame.code()) else {
        return call.proceed();
    };
    match compiled(code) {
        Ok(Some(replacement)) => call.evaluate_in_place(&replacement),
        Ok(None) => call.proceed(),
        Err(Raised) => call.fail(),
    }
}

/// What is to run in place of the code of a function; `None` if that itself. Not
/// inlined: it shall be off the stack when the function runs.
#[inline(never)]
fn compiled(code: Object) -> Result<Option<Object>, Raised> {
    let address = code.as_ptr() as usize;
    let callable = {
        let compiler = COMPILER.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = compiler.compilations.get(&address) {
            return Ok(known.compiled.as_ref().map(|Shared(code)| code.clone()));
        }
        match &compiler.callable {
            Some(Shared(callable)) if !IS_COMPILING.get() => callable.clone(),
            _ => return Ok(None),
        }
    };
    let compiled = match is_function(&code)? {
        true => compile(&callable, &code)?,
        false => None,
    };
    let mut compiler = COMPILER.write().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have been faster.
    if let Some(known) = compiler.compilations.get(&address) {
        let known = known.compiled.as_ref().map(|Shared(code)| code.clone());
        drop(compiler);
        return Ok(known);
    }
    if let Some(compiled) = &compiled {
        let itself = Compilation {
            _code: Shared(compiled.clone()),
            compiled: None,
        };
        compiler
            .compilations
            .insert(compiled.as_ptr() as usize, itself);
    }
    let made = Compilation {
        _code: Shared(code),
        compiled: compiled.clone().map(Shared),
    };
    compiler.compilations.insert(address, made);
    Ok(compiled)
}

/// Without local variables in slots it is a module or class body.
fn is_function(code: &Object) -> Result<bool, Raised> {
    const CO_OPTIMIZED: std::ffi::c_long = 0x1;
    // SAFETY: a live object and a C string.
    let flags = unsafe { ffi::PyObject_GetAttrString(code.as_ptr(), c"co_flags".as_ptr()) };
    // SAFETY: PyObject_GetAttrString gives a reference away.
    let flags = unsafe { Object::from_owned_ptr(flags) }.ok_or(Raised)?;
    // SAFETY: `flags` is alive.
    let flags = unsafe { ffi::PyLong_AsLong(flags.as_ptr()) };
    Ok(flags & CO_OPTIMIZED != 0)
}

fn compile(callable: &Object, code: &Object) -> Result<Option<Object>, Raised> {
    IS_COMPILING.set(true);
    let end = null_mut::<PyObject>();
    // SAFETY: a callable and its argument, both alive, and NULL for the end.
    let answer =
        unsafe { ffi::PyObject_CallFunctionObjArgs(callable.as_ptr(), code.as_ptr(), end) };
    IS_COMPILING.set(false);
    // SAFETY: the call gives a reference away.
    let answer = unsafe { Object::from_owned_ptr(answer) }.ok_or(Raised)?;
    // SAFETY: a static of the interpreter's.
    if answer.as_ptr() == unsafe { ffi::Py_None() } {
        return Ok(None);
    }
    Ok(Some(answer))
}

fn none() -> *mut PyObject {
    // SAFETY: a static of the interpreter's.
    let none = unsafe { ffi::Py_None() };
    // SAFETY: a live object.
    let none = unsafe { Object::from_borrowed_ptr(none) };
    none.map_or(null_mut(), Object::into_ptr)
}

fn answer(outcome: Result<bool, localsplus::Error>) -> *mut PyObject {
    match outcome {
        Ok(true) => none(),
        Ok(false) => raise("not installed, or installed already"),
        Err(error) => raise(&error.to_string()),
    }
}

fn raise(message: &str) -> *mut PyObject {
    let message = std::ffi::CString::new(message).unwrap_or_default();
    // SAFETY: a static of the interpreter's.
    let exception = unsafe { ffi::PyExc_RuntimeError };
    // SAFETY: an exception type and a C string.
    unsafe { ffi::PyErr_SetString(exception, message.as_ptr()) };
    null_mut()
}

/// Runs what `callable(code)` answers in place of each function's code, unless it is
/// None. With None, every code runs as it is.
///
/// # Safety
/// `callable` is an object, and the calling thread is attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evaluator_compile_with(callable: *mut PyObject) -> *mut PyObject {
    // SAFETY: passed on to the caller.
    let callable = unsafe { Object::from_borrowed_ptr(callable) };
    // SAFETY: a static of the interpreter's.
    let callable = callable.filter(|it| it.as_ptr() != unsafe { ffi::Py_None() });
    let new = Compiler {
        callable: callable.map(Shared),
        compilations: HashMap::new(),
    };
    let mut compiler = COMPILER.write().unwrap_or_else(PoisonError::into_inner);
    let old = std::mem::replace(&mut *compiler, new);
    drop(compiler);
    // That may run Python code.
    drop(old);
    none()
}

/// Installs the evaluator in this interpreter.
///
/// # Safety
/// The calling thread is attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evaluator_enable() -> *mut PyObject {
    // SAFETY: passed on to the caller.
    let ready = unsafe { localsplus::init() };
    // SAFETY: as above.
    answer(ready.and_then(|()| unsafe { HOOK.install() }))
}

/// Removes the evaluator from this interpreter.
///
/// # Safety
/// The calling thread is attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn evaluator_disable() -> *mut PyObject {
    // SAFETY: passed on to the caller.
    answer(unsafe { HOOK.remove() })
}

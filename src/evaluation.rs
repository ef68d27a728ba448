//! The functions of PEP 523 and its surroundings. All supported versions export
//! them, but as private names: the library must load, and refuse, where one is
//! missing. So they are looked up.

use std::ffi::{CStr, c_int, c_void};

use pyo3_ffi::PyObject;

use crate::runtime::Symbols;

/// An eval-frame function. It may run Python code, and the interpreter may end the
/// thread there.
pub type EvalFrame = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, c_int) -> *mut PyObject;

type CurrentInterpreter = unsafe extern "C" fn() -> *mut c_void;
type GetEvalFrame = unsafe extern "C" fn(*mut c_void) -> EvalFrame;
type SetEvalFrame = unsafe extern "C" fn(*mut c_void, EvalFrame);
type Tracing = unsafe extern "C" fn(*mut c_void);
type IsSpecializationEnabled = unsafe extern "C" fn(*mut c_void) -> c_int;
type AllowSpecialization = unsafe extern "C" fn(*mut c_void, c_int);

/// The functions found.
pub struct Evaluation {
    interpreter: CurrentInterpreter,
    get: GetEvalFrame,
    set: SetEvalFrame,
    /// `_PyEval_EvalFrameDefault`.
    pub default: EvalFrame,
    enter_tracing: Tracing,
    leave_tracing: Tracing,
    /// Since 3.15: setting an eval-frame function forgets this property of the one
    /// before it.
    specialization: Option<(IsSpecializationEnabled, AllowSpecialization)>,
}

impl Evaluation {
    /// Finds them, or answers the name that is missing.
    pub fn find(symbols: &Symbols) -> Result<Self, &'static CStr> {
        macro_rules! function {
            ($name:literal, $signature:ty) => {{
                let address = symbols.find($name).ok_or($name)?;
                // SAFETY: this name has had the signature of the field that it is
                // stored in since 3.11 (specialization: since 3.15).
                unsafe { std::mem::transmute::<*mut c_void, $signature>(address.as_ptr()) }
            }};
        }
        let specialization = || {
            Ok::<_, &'static CStr>((
                function!(
                    c"_PyInterpreterState_IsSpecializationEnabled",
                    IsSpecializationEnabled
                ),
                function!(
                    c"_PyInterpreterState_SetEvalFrameAllowSpecialization",
                    AllowSpecialization
                ),
            ))
        };
        Ok(Self {
            interpreter: function!(c"PyInterpreterState_Get", CurrentInterpreter),
            get: function!(c"_PyInterpreterState_GetEvalFrameFunc", GetEvalFrame),
            set: function!(c"_PyInterpreterState_SetEvalFrameFunc", SetEvalFrame),
            default: function!(c"_PyEval_EvalFrameDefault", EvalFrame),
            enter_tracing: function!(c"PyThreadState_EnterTracing", Tracing),
            leave_tracing: function!(c"PyThreadState_LeaveTracing", Tracing),
            specialization: specialization().ok(),
        })
    }

    /// The calling thread's interpreter. It must be attached.
    pub fn interpreter(&self) -> *mut c_void {
        // SAFETY: the thread is attached.
        unsafe { (self.interpreter)() }
    }

    /// The eval-frame function that is installed in `interpreter`, and what goes
    /// with it.
    ///
    /// # Safety
    /// `interpreter` is alive, and the calling thread attached.
    pub unsafe fn installed(&self, interpreter: *mut c_void) -> Installed {
        Installed {
            // SAFETY: passed on to the caller.
            function: unsafe { (self.get)(interpreter) },
            specializes: self.specialization.map(|(is_enabled, _)| {
                // SAFETY: passed on to the caller.
                unsafe { is_enabled(interpreter) }
            }),
        }
    }

    /// Installs `function` in `interpreter`. The specializing that was allowed under
    /// an eval-frame function before it stays so.
    ///
    /// # Safety
    /// As [`installed`](Self::installed); `function` may be called as long as
    /// anybody may.
    pub unsafe fn install(&self, interpreter: *mut c_void, function: EvalFrame, like: Installed) {
        // SAFETY: passed on to the caller.
        unsafe { (self.set)(interpreter, function) };
        // The interpreter's own function needs no leave to specialize; under another
        // one that is wanted only if it was.
        let is_default = like.function as usize == self.default as usize;
        if let (Some((_, allow)), Some(specializes), false) =
            (self.specialization, like.specializes, is_default)
        {
            // SAFETY: passed on to the caller.
            unsafe { allow(interpreter, specializes) };
        }
    }

    /// Tools (trace and profile functions, sys.monitoring) are not to see what
    /// `thread`, the calling one, does until the answer is dropped.
    ///
    /// # Safety
    /// `thread` is the calling thread's state.
    pub unsafe fn untraced(&self, thread: *mut c_void) -> Untraced<'_> {
        // SAFETY: passed on to the caller.
        unsafe { (self.enter_tracing)(thread) };
        Untraced {
            evaluation: self,
            thread,
        }
    }
}

/// What [`Evaluation::installed`] answers.
#[derive(Clone, Copy)]
pub struct Installed {
    /// The function.
    pub function: EvalFrame,
    specializes: Option<c_int>,
}

/// What [`Evaluation::untraced`] answers.
pub struct Untraced<'a> {
    evaluation: &'a Evaluation,
    thread: *mut c_void,
}

impl Drop for Untraced<'_> {
    fn drop(&mut self) {
        // SAFETY: this is the calling thread's state, as `untraced` was promised.
        unsafe { (self.evaluation.leave_tracing)(self.thread) };
    }
}

//! `localsplus_hook_install` and `localsplus_hook_remove`.

use std::ffi::{c_int, c_void};

use super::answer;
use crate::error::Error;
use crate::hook::{self, Function, Outcome};

/// # Safety
/// As `localsplus.h` says: the calling thread is attached, `function` is NULL or a
/// hook, which may be called with `data` until the interpreter ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_hook_install(
    function: Option<Function>,
    data: *mut c_void,
) -> c_int {
    answer(-1, || {
        let function = given(function)?;
        // SAFETY: passed on to the caller.
        let outcome = unsafe { hook::install(function, data, None) }?;
        Ok((outcome != Outcome::Already).into())
    })
}

/// # Safety
/// The calling thread is attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_hook_remove(
    function: Option<Function>,
    data: *mut c_void,
) -> c_int {
    answer(-1, || {
        // SAFETY: passed on to the caller.
        unsafe { hook::remove(given(function)?, data) }.map(c_int::from)
    })
}

fn given(function: Option<Function>) -> Result<Function, Error> {
    function.ok_or(Error::Null {
        argument: "function",
    })
}

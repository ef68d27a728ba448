//! What the program `localsplus doctor` calls. Not in `localsplus.h`: it may change
//! in any release.

use std::ffi::c_int;

use pyo3_ffi::PyObject;

use super::answer;
use crate::error::Error;
use crate::object::Object;
use crate::report::report;

/// Calls `write(str)` for every line of the report on this interpreter, as soon as
/// it is known. Answers 0, or -1 with an exception set.
///
/// # Safety
/// `write` is NULL or a live object, and the calling thread attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_report(write: *mut PyObject) -> c_int {
    answer(-1, || {
        // SAFETY: NULL or alive, by the caller's promise.
        let write = unsafe { Object::from_borrowed_ptr(write) };
        let write = write.ok_or(Error::Null { argument: "write" })?;
        Ok(report(&write).map_or(-1, |()| 0))
    })
}

//! `localsplus_consume` and `localsplus_evaluate_in_place`.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use pyo3_ffi::PyObject;

use super::{Frame, answer, raise_panic};
use crate::error::Error;
use crate::evaluate::{self, Run};
use crate::object::Object;

/// # Safety
/// As `localsplus.h` says: `frame` is NULL or what the interpreter has passed to the
/// eval-frame function that is running, and the calling thread attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_consume(frame: *mut u8) -> c_int {
    answer(-1, || {
        let Frame { address, reader } = Frame::new(frame)?;
        // SAFETY: passed on to the caller.
        unsafe { evaluate::consume(reader, address) }.map(|()| 0)
    })
}

/// # Safety
/// As [`localsplus_consume`]; `replacement` is NULL or an object, and no exception is
/// set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_evaluate_in_place(
    frame: *mut u8,
    replacement: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: passed on to the caller.
    let run = unsafe { instead_of(frame, replacement) };
    let result = catch_unwind(AssertUnwindSafe(|| run.and_then(Run::run)));
    let result = result.unwrap_or_else(|_| {
        raise_panic();
        None
    });
    result.map_or(null_mut(), Object::into_ptr)
}

/// `None` with an exception set.
///
/// # Safety
/// As [`localsplus_evaluate_in_place`].
#[inline(never)]
unsafe fn instead_of(frame: *mut u8, replacement: *mut PyObject) -> Option<Run> {
    answer(None, || {
        let Frame { address, reader } = Frame::new(frame)?;
        // SAFETY: NULL, or a live object.
        let Some(replacement) = (unsafe { Object::from_borrowed_ptr(replacement) }) else {
            // As after every error that is not about the frame, that is gone.
            // SAFETY: passed on to the caller.
            unsafe { evaluate::consume(reader, address) }?;
            return Err(Error::Null {
                argument: "replacement",
            });
        };
        // SAFETY: passed on to the caller.
        unsafe { evaluate::instead_of(reader, address, &replacement) }
    })
}

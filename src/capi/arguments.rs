//! `localsplus_arguments`.

use std::ffi::c_int;

use super::{Frame, answer};
use crate::arguments::Arguments;
use crate::error::Error;

/// # Safety
/// `frame` as in [`super::localsplus_get_local`]; `arguments` is NULL or can be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_arguments_get(
    frame: *mut u8,
    arguments: *mut Arguments,
) -> c_int {
    answer(-1, || {
        if arguments.is_null() {
            return Err(Error::Null {
                argument: "arguments",
            });
        }
        // SAFETY: not NULL, and writable by the caller's promise. What it holds is
        // not ours to drop.
        unsafe { arguments.write(Arguments::CLEARED) };
        let Frame { address, reader } = Frame::new(frame)?;
        // SAFETY: frame and thread are as the caller promises.
        let found = unsafe { Arguments::of(reader, address) }?;
        // SAFETY: as above; what is overwritten owns nothing.
        unsafe { arguments.write(found) };
        Ok(0)
    })
}

/// # Safety
/// `arguments` is NULL or was filled by [`localsplus_arguments_get`], and the
/// calling thread is attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_arguments_clear(arguments: *mut Arguments) {
    if arguments.is_null() {
        return;
    }
    // Cleared before anything is released: that may run Python code.
    // SAFETY: not NULL, and filled, by the caller's promise.
    let owned = unsafe { arguments.replace(Arguments::CLEARED) };
    answer((), || {
        drop(owned);
        Ok(())
    })
}

//! The Rust API as the C benchmark's loops call it, so that both are timed in one
//! process.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;

use localsplus::Frame;

thread_local! {
    static FRAME: Cell<Option<Frame<'static>>> = const { Cell::new(None) };
}

/// Whose locals the others read: NULL on success.
///
/// # Safety
/// `frame` may be read as long as the others are called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rust_set_frame(frame: *mut c_void) {
    // SAFETY: passed on to the caller.
    let frame = unsafe { Frame::from_ptr(frame) };
    FRAME.set(Some(frame.expect("a frame that can be read")));
}

/// Takes and drops all locals, `times` times.
///
/// # Safety
/// [`rust_set_frame`] has been called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rust_all(times: u32) {
    let frame = FRAME.get().expect("rust_set_frame was called");
    let mut buffer = [const { MaybeUninit::uninit() }; 512];
    for _ in 0..times {
        let locals = frame.get_locals(&mut buffer).expect("room for all");
        std::hint::black_box(&locals[..]);
    }
}

/// Takes and drops one local, `times` times.
///
/// # Safety
/// [`rust_set_frame`] has been called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rust_one(slot: usize, times: u32) {
    let frame = FRAME.get().expect("rust_set_frame was called");
    for _ in 0..times {
        let value = frame.get_local(slot).expect("a slot of the frame");
        drop(std::hint::black_box(value));
    }
}

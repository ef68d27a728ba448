//! The questions of `localsplus.h` about a frame besides its slots, and the ways
//! to one.

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

use pyo3_ffi::{Py_ssize_t, PyObject};

use super::answer;
use crate::error::Error;
use crate::frame::Frame;
use crate::object::Object;
use crate::question::{Parameter, State};
use crate::reader::{Question, reader};

/// The frame at `pointer`.
///
/// # Safety
/// As `localsplus.h` says: `pointer` is NULL or a frame that may be read, and the
/// calling thread is attached.
unsafe fn frame<'a>(pointer: *mut u8) -> Result<Frame<'a>, Error> {
    let pointer = NonNull::new(pointer).ok_or(Error::Null { argument: "frame" })?;
    // Here an exception that interrupts the choice can be raised at once. Whether this
    // is a frame with Python code, each question finds out for itself.
    Ok(Frame::new(pointer, reader()?))
}

/// 1 and what `ask` finds, or 0 and NULL.
///
/// # Safety
/// `result` is NULL or can be written to.
unsafe fn optional<T>(
    result: *mut *mut T,
    ask: impl FnOnce() -> Result<Option<NonNull<T>>, Error>,
) -> c_int {
    answer(-1, || {
        if result.is_null() {
            return Err(Error::Null { argument: "result" });
        }
        // SAFETY: not NULL, and writable by the caller's promise.
        unsafe { result.write(null_mut()) };
        let Some(found) = ask()? else {
            return Ok(0);
        };
        // SAFETY: as above.
        unsafe { result.write(found.as_ptr()) };
        Ok(1)
    })
}

fn given_away(object: Option<Object>) -> Option<NonNull<PyObject>> {
    object.and_then(|object| NonNull::new(object.into_ptr()))
}

/// Functions "X or none": 1 and a new reference, 0 and NULL, or -1 and NULL.
macro_rules! optional_objects {
    ($($name:ident: $method:ident,)*) => {$(
        /// # Safety
        /// As [`frame`]; `result` is NULL or can be written to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(pointer: *mut u8, result: *mut *mut PyObject) -> c_int {
            let ask = || {
                // SAFETY: passed on to the caller.
                unsafe { frame(pointer) }?.$method().map(given_away)
            };
            // SAFETY: passed on to the caller.
            unsafe { optional(result, ask) }
        }
    )*};
}

optional_objects! {
    localsplus_function: function,
    localsplus_namespace: namespace,
    localsplus_closure: closure,
    localsplus_frame_object: frame_object,
}

/// # Safety
/// As [`frame`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_code(pointer: *mut u8) -> *mut PyObject {
    answer(null_mut(), || {
        // SAFETY: passed on to the caller.
        unsafe { frame(pointer) }?.code().map(Object::into_ptr)
    })
}

/// # Safety
/// As [`frame`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_globals(pointer: *mut u8) -> *mut PyObject {
    answer(null_mut(), || {
        // SAFETY: passed on to the caller.
        unsafe { frame(pointer) }?.globals().map(Object::into_ptr)
    })
}

/// # Safety
/// As [`frame`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_builtins(pointer: *mut u8) -> *mut PyObject {
    answer(null_mut(), || {
        // SAFETY: passed on to the caller.
        unsafe { frame(pointer) }?.builtins().map(Object::into_ptr)
    })
}

/// # Safety
/// As [`frame`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_lasti(pointer: *mut u8) -> c_int {
    answer(-1, || {
        // SAFETY: passed on to the caller.
        unsafe { frame(pointer) }?.lasti()
    })
}

/// # Safety
/// As [`frame`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_line(pointer: *mut u8) -> c_int {
    answer(-1, || {
        // SAFETY: passed on to the caller.
        let line = unsafe { frame(pointer) }?.line()?;
        Ok(line.unwrap_or(-1))
    })
}

/// # Safety
/// As [`frame`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_state(pointer: *mut u8) -> c_int {
    answer(-1, || {
        // SAFETY: passed on to the caller.
        Ok(match unsafe { frame(pointer) }?.state()? {
            State::Unstarted => 0,
            State::Executing => 1,
            State::Suspended => 2,
            State::Finished => 3,
            State::Cleared => 4,
        })
    })
}

/// # Safety
/// As [`frame`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_is_generator(pointer: *mut u8) -> c_int {
    answer(-1, || {
        // SAFETY: passed on to the caller.
        unsafe { frame(pointer) }?.is_generator().map(c_int::from)
    })
}

/// # Safety
/// As [`frame`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_parameter_count(pointer: *mut u8) -> Py_ssize_t {
    answer(-1, || {
        // SAFETY: passed on to the caller.
        let count = unsafe { frame(pointer) }?.parameter_count()?;
        Ok(count as Py_ssize_t)
    })
}

/// # Safety
/// As [`frame`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_parameter(pointer: *mut u8, index: Py_ssize_t) -> c_int {
    answer(-1, || {
        // SAFETY: passed on to the caller.
        let frame = unsafe { frame(pointer) }?;
        Ok(match frame.parameter_at(index)? {
            None => 0,
            Some(Parameter::PositionalOnly) => 1,
            Some(Parameter::Positional) => 2,
            Some(Parameter::KeywordOnly) => 3,
            Some(Parameter::VarPositional) => 4,
            Some(Parameter::VarKeyword) => 5,
        })
    })
}

/// # Safety
/// As [`frame`], or a shim frame; the frames below are alive; `result` is NULL or
/// can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_previous(pointer: *mut u8, result: *mut *mut u8) -> c_int {
    let ask = || {
        if pointer.is_null() {
            return Err(Error::Null { argument: "frame" });
        }
        const QUESTION: &str = "the frame below";
        let reader = reader()?;
        let previous = reader.questions(QUESTION)?.previous;
        // SAFETY: passed on to the caller.
        let below = unsafe { previous(pointer as usize) };
        below.map_err(|fault| {
            // SAFETY: passed on to the caller.
            unsafe { reader.error(fault, pointer as usize, Question::Field(QUESTION)) }
        })
    };
    // SAFETY: passed on to the caller.
    unsafe { optional(result, ask) }
}

/// # Safety
/// The calling thread is attached; `result` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_current_frame(result: *mut *mut u8) -> c_int {
    let ask = || {
        reader()?;
        // SAFETY: the thread is attached, by the caller's promise.
        let current = unsafe { Frame::current() }?;
        Ok(current.and_then(|frame| NonNull::new(frame.as_ptr())))
    };
    // SAFETY: passed on to the caller.
    unsafe { optional(result, ask) }
}

/// # Safety
/// `object` is NULL or a live object, whose frame may be read, and the calling
/// thread is attached.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_frame_of_object(object: *mut PyObject) -> *mut u8 {
    answer(null_mut(), || {
        reader()?;
        // SAFETY: passed on to the caller.
        let object = unsafe { Object::from_borrowed_ptr(object) }.ok_or(Error::Null {
            argument: "frame_object",
        })?;
        // SAFETY: passed on to the caller.
        Ok(unsafe { Frame::of_frame_object(&object) }?.as_ptr())
    })
}

/// # Safety
/// As [`localsplus_frame_of_object`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_frame_of_generator(object: *mut PyObject) -> *mut u8 {
    answer(null_mut(), || {
        reader()?;
        // SAFETY: passed on to the caller.
        let object = unsafe { Object::from_borrowed_ptr(object) }.ok_or(Error::Null {
            argument: "generator",
        })?;
        // SAFETY: passed on to the caller.
        Ok(unsafe { Frame::of_generator(&object) }?.as_ptr())
    })
}

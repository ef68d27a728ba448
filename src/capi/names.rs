//! Slots by name.

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

use pyo3_ffi::{Py_ssize_t, PyObject};

use super::{Frame, answer};
use crate::error::Error;
use crate::object::Object;
use crate::{name_map, names};

fn name_argument(name: *mut PyObject) -> Result<NonNull<PyObject>, Error> {
    NonNull::new(name).ok_or(Error::Null { argument: "name" })
}

/// # Safety
/// `frame` as in [`super::localsplus_get_local`]; `name` is NULL or a live object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_index(frame: *mut u8, name: *mut PyObject) -> Py_ssize_t {
    answer(-1, || {
        let Frame { address, reader } = Frame::new(frame)?;
        let name = name_argument(name)?;
        // SAFETY: frame, name and thread are as the caller promises.
        unsafe { names::index(reader, address, name) }.map(|index| index as Py_ssize_t)
    })
}

/// # Safety
/// As [`localsplus_index`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_indexes(frame: *mut u8, name: *mut PyObject) -> *mut PyObject {
    answer(null_mut(), || {
        let Frame { address, reader } = Frame::new(frame)?;
        let name = name_argument(name)?;
        // SAFETY: frame, name and thread are as the caller promises.
        let indexes = unsafe { names::indexes(reader, address, name) }?;
        names::int_tuple(&indexes).map(Object::into_ptr)
    })
}

/// # Safety
/// As [`localsplus_index`]; `result` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_get_by_name(
    frame: *mut u8,
    name: *mut PyObject,
    result: *mut *mut PyObject,
) -> c_int {
    answer(-1, || {
        if result.is_null() {
            return Err(Error::Null { argument: "result" });
        }
        // SAFETY: not NULL, and writable by the caller's promise.
        unsafe { result.write(null_mut()) };
        let Frame { address, reader } = Frame::new(frame)?;
        let name = name_argument(name)?;
        // SAFETY: frame, name and thread are as the caller promises.
        let Some(value) = unsafe { names::get(reader, address, name) }? else {
            return Ok(0);
        };
        // SAFETY: as above.
        unsafe { result.write(value.into_ptr()) };
        Ok(1)
    })
}

/// # Safety
/// `frame` as in [`super::localsplus_get_local`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_dict(frame: *mut u8) -> *mut PyObject {
    answer(null_mut(), || {
        let Frame { address, reader } = Frame::new(frame)?;
        // SAFETY: frame and thread are as the caller promises.
        unsafe { names::dict(reader, address) }.map(Object::into_ptr)
    })
}

/// # Safety
/// `frame` as in [`super::localsplus_get_local`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn localsplus_name_map(frame: *mut u8) -> *mut PyObject {
    answer(null_mut(), || {
        let Frame { address, reader } = Frame::new(frame)?;
        // SAFETY: frame and thread are as the caller promises.
        unsafe { name_map::name_map(reader, address) }.map(Object::into_ptr)
    })
}

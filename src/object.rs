//! An owned reference to a Python object.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use pyo3_ffi::{Py_IncRef, PyObject};

use crate::runtime::drop_reference;

/// A strong reference, given back to the interpreter on drop.
///
/// Dropping and cloning need an attached thread state (the GIL, or attached in a
/// free-threaded build), as in C; therefore it is neither `Send` nor `Sync`.
/// Dropping the last reference runs the object's finaliser, and so may run
/// Python code.
pub struct Object {
    pointer: NonNull<PyObject>,
    not_send: PhantomData<*mut ()>,
}

impl Object {
    /// Takes over a reference, or answers `None` for NULL.
    ///
    /// # Safety
    /// `pointer` is NULL or a strong reference that the caller gives away, and
    /// the calling thread is attached.
    pub unsafe fn from_owned_ptr(pointer: *mut PyObject) -> Option<Self> {
        NonNull::new(pointer).map(|pointer| Self {
            pointer,
            not_send: PhantomData,
        })
    }

    /// Takes a new reference, or answers `None` for NULL.
    ///
    /// # Safety
    /// `pointer` is NULL or a live object, and the calling thread is attached.
    pub unsafe fn from_borrowed_ptr(pointer: *mut PyObject) -> Option<Self> {
        // SAFETY: NULL is ignored; otherwise the caller promises a live object.
        unsafe { Py_IncRef(pointer) };
        // SAFETY: the reference just taken is given away.
        unsafe { Self::from_owned_ptr(pointer) }
    }

    /// The object, borrowed: valid as long as `self`.
    pub fn as_ptr(&self) -> *mut PyObject {
        self.pointer.as_ptr()
    }

    /// The same, for those who know that it is not NULL.
    pub(crate) fn as_non_null(&self) -> NonNull<PyObject> {
        self.pointer
    }

    /// Gives the reference to the caller, who must give it back.
    #[must_use = "the reference leaks unless it is given back"]
    pub fn into_ptr(self) -> *mut PyObject {
        std::mem::ManuallyDrop::new(self).as_ptr()
    }
}

impl Clone for Object {
    fn clone(&self) -> Self {
        // SAFETY: `self` keeps the object alive, and lives in one thread.
        unsafe { Py_IncRef(self.as_ptr()) };
        Self {
            pointer: self.pointer,
            not_send: PhantomData,
        }
    }
}

impl Drop for Object {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the reference is ours to give back.
        unsafe { drop_reference(self.pointer) };
    }
}

/// The address: no Python code runs.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({:p})", self.pointer)
    }
}

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
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # embedding::start();
/// use localsplus::Object;
///
/// // SAFETY: this thread holds the GIL, and PyList_New gives a reference away.
/// let list = unsafe { Object::from_owned_ptr(pyo3_ffi::PyList_New(0)) }.expect("memory");
/// let same = list.clone();
/// assert_eq!(same.as_ptr(), list.as_ptr());
/// // Both references are given back here.
/// # Ok(()) }
/// ```
pub struct Object {
    pointer: NonNull<PyObject>,
    not_send: PhantomData<*mut ()>,
}

impl Object {
    /// Takes over a reference, or answers `None` for NULL.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # embedding::start();
    /// use localsplus::Object;
    ///
    /// // SAFETY: this thread holds the GIL, and PyLong_FromLong gives a reference away.
    /// let number = unsafe { Object::from_owned_ptr(pyo3_ffi::PyLong_FromLong(1)) };
    /// assert!(number.is_some(), "NULL would be None, with an exception set");
    /// # Ok(()) }
    /// ```
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
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # embedding::start();
    /// use localsplus::Object;
    ///
    /// // SAFETY: this thread holds the GIL; what PyEval_GetBuiltins answers is borrowed.
    /// let builtins = unsafe { Object::from_borrowed_ptr(pyo3_ffi::PyEval_GetBuiltins()) };
    /// assert!(builtins.is_some());
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a): pass\nf('text')", |frame| {
    /// // A call f('text') of: def f(a): pass
    /// let a = frame.get_local(0)?.expect("a value");
    /// // SAFETY: this thread holds the GIL, and `a` keeps the object alive.
    /// assert_eq!(unsafe { pyo3_ffi::PyUnicode_GetLength(a.as_ptr()) }, 4);
    /// # Ok(()) }) }
    /// ```
    pub fn as_ptr(&self) -> *mut PyObject {
        self.pointer.as_ptr()
    }

    /// The same, for those who know that it is not NULL.
    pub(crate) fn as_non_null(&self) -> NonNull<PyObject> {
        self.pointer
    }

    /// Gives the reference to the caller, who must give it back.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a): pass\nf('text')", |frame| {
    /// let a = frame.get_local(0)?.expect("a value");
    /// let pointer: *mut pyo3_ffi::PyObject = a.into_ptr();
    /// // SAFETY: this thread holds the GIL, and the reference is ours to give back.
    /// unsafe { pyo3_ffi::Py_DecRef(pointer) };
    /// # Ok(()) }) }
    /// ```
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

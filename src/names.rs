//! Slots by name: what code that uses a name right now would find.
//!
//! Without the map from names to indexes (`name_map`): the names in a code object are
//! interned, so that finding one takes a comparison of addresses per slot. In a
//! function of usual size that costs no more than finding the map of its code object
//! and a name in there, and it allocates nothing.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::error::Error;
use crate::frame::Frame;
use crate::layout::Layout;
use crate::object::Object;
use crate::read::{Fault, Interpreter, PythonFrame, flags, kind};
use crate::reader::{Question, Reader};
use crate::runtime::{Interruption, PendingException, Symbols};

/// The first slot from `start` on whose name is this very object.
///
/// # Safety
/// As [`crate::read::code`].
pub unsafe fn position<L: Layout, I: Interpreter>(
    frame: usize,
    name: usize,
    start: usize,
) -> Result<Option<usize>, Fault> {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) }?;
    let (names, count) = python.names();
    let is_it = |index: usize| {
        let item = (names + index * size_of::<usize>()) as *const usize;
        // SAFETY: the tuple has `count` items.
        unsafe { item.read() == name }
    };
    Ok((start..count).find(|&index| is_it(index)))
}

/// A new reference to the mapping that has the names of a module or class body;
/// `None` for a function, whose names are all in slots.
///
/// # Safety
/// As [`crate::read::code`].
pub unsafe fn namespace<L: Layout, I: Interpreter>(
    frame: usize,
) -> Result<Option<NonNull<PyObject>>, Fault> {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) }?;
    let namespace = python.namespace();
    Ok(namespace.and_then(|namespace| python.new_reference(namespace.as_ptr() as usize)))
}

/// One question about a name, in one frame.
struct Asked {
    reader: &'static Reader,
    frame: usize,
    /// Borrowed.
    name: NonNull<PyObject>,
}

impl Asked {
    #[cold]
    fn failed(&self, fault: Fault) -> Error {
        // SAFETY: whoever made `self` promised a live frame and an attached thread.
        unsafe { self.reader.error(fault, self.frame, Question::Name) }
    }

    /// The first slot of that name from `start` on. `name` is as the code has it.
    fn position(&self, start: usize) -> Result<Option<usize>, Error> {
        let name = self.name.as_ptr() as usize;
        // SAFETY: as in `failed`.
        let position = unsafe { (self.reader.functions.position)(self.frame, name, start) };
        position.map_err(|fault| self.failed(fault))
    }

    /// The first slot of that name, if there is one; from then on, `self.name` is as
    /// the code has it.
    #[inline]
    fn first(&mut self) -> Result<Option<usize>, Error> {
        match self.position(0)? {
            Some(index) => Ok(Some(index)),
            None => self.first_by_text(),
        }
    }

    /// `first` for a name that is not interned, or is none.
    #[cold]
    fn first_by_text(&mut self) -> Result<Option<usize>, Error> {
        let _pending = PendingException::take();
        // SAFETY: `name` is alive; anything but a `str` is an error.
        if unsafe { ffi::PyUnicode_GetLength(self.name.as_ptr()) } < 0 {
            // SAFETY: the thread is attached.
            unsafe { ffi::PyErr_Clear() };
            return Err(Error::NotAStr { argument: "name" });
        }
        // SAFETY: as in `failed`.
        let names = unsafe { names(self.reader, self.frame) }?;
        // SAFETY: `names` is a tuple.
        let count = unsafe { ffi::PyTuple_Size(names.as_ptr()) };
        for index in 0..count {
            // SAFETY: `index` is below the size; the answer is borrowed.
            let name = unsafe { ffi::PyTuple_GetItem(names.as_ptr(), index) };
            // SAFETY: both are alive, and of type `str`: no Python code runs, and
            // nothing can fail.
            if unsafe { ffi::PyUnicode_Compare(name, self.name.as_ptr()) } == 0 {
                // The code object, which the frame keeps alive, keeps it alive.
                self.name = NonNull::new(name).unwrap_or(self.name);
                return Ok(usize::try_from(index).ok());
            }
        }
        Ok(None)
    }

    /// What slot `index` holds for the code, also if it is hidden from others.
    fn value(&self, index: usize) -> Result<Option<Object>, Error> {
        // SAFETY: as in `failed`.
        unsafe { value(self.reader, self.frame, index) }.map_err(|fault| self.failed(fault))
    }

    /// The slot of that name that is in use.
    fn index(&mut self) -> Result<usize, Error> {
        let first = self.first()?.ok_or_else(|| self.no_such_name())?;
        let Some(mut other) = self.position(first + 1)? else {
            return Ok(first);
        };
        if self.value(first)?.is_some() {
            return Ok(first);
        }
        loop {
            if self.value(other)?.is_some() {
                return Ok(other);
            }
            match self.position(other + 1)? {
                Some(next) => other = next,
                None => return Ok(first),
            }
        }
    }

    /// What the name stands for.
    fn get(&mut self) -> Result<Option<Object>, Error> {
        let first = self.first()?;
        let mut next = first;
        while let Some(index) = next {
            let value = self.value(index)?;
            if value.is_some() {
                return Ok(value);
            }
            next = self.position(index + 1)?;
        }
        // SAFETY: as in `failed`.
        let namespace = unsafe { Namespace::of(self.reader, self.frame) }?;
        let value = match namespace {
            Some(namespace) => namespace.get(self.name)?,
            None => None,
        };
        if value.is_none() && first.is_none() {
            return Err(self.no_such_name());
        }
        Ok(value)
    }

    #[cold]
    fn no_such_name(&self) -> Error {
        let _pending = PendingException::take();
        // SAFETY: a live `str`, and C strings. What UTF-8 has no place for is escaped.
        let bytes = unsafe {
            ffi::PyUnicode_AsEncodedString(
                self.name.as_ptr(),
                c"utf-8".as_ptr(),
                c"backslashreplace".as_ptr(),
            )
        };
        // SAFETY: PyUnicode_AsEncodedString gives a reference away, or answers NULL.
        let bytes = unsafe { Object::from_owned_ptr(bytes) };
        let name = bytes.map(|bytes| {
            // SAFETY: a live bytes object, which ends in a NUL.
            let bytes = unsafe { ffi::PyBytes_AsString(bytes.as_ptr()) };
            // SAFETY: as above; a NUL in the name is the end of what is shown.
            unsafe { CStr::from_ptr(bytes) }.to_string_lossy().into()
        });
        // SAFETY: the thread is attached; the exception is not of interest.
        unsafe { ffi::PyErr_Clear() };
        Error::NoSuchName {
            name: name.unwrap_or_default(),
        }
    }
}

/// The names of all slots, a tuple.
///
/// # Safety
/// As [`crate::read::code`].
pub unsafe fn names(reader: &'static Reader, frame: usize) -> Result<Object, Error> {
    // SAFETY: passed on to the caller.
    let names = unsafe { (reader.functions.names)(frame) };
    // SAFETY: `names` gives a reference away.
    let names = names.map(|names| unsafe { Object::from_owned_ptr(names.as_ptr()) });
    let names = names.and_then(|names| names.ok_or(Fault::Unanswerable));
    // SAFETY: passed on to the caller.
    names.map_err(|fault| unsafe { reader.error(fault, frame, Question::Names) })
}

/// What slot `index`, which exists, holds, also if it is hidden; but not if only
/// the official function answers, which hides it.
///
/// # Safety
/// As [`crate::read::code`].
unsafe fn value(
    reader: &'static Reader,
    frame: usize,
    index: usize,
) -> Result<Option<Object>, Fault> {
    let get = |flags| {
        let mut value = null_mut();
        // SAFETY: passed on to the caller; `value` can be written to.
        unsafe { (reader.functions.get)(frame, index as isize, flags, &raw mut value) }?;
        // SAFETY: `get` gives a reference away, or writes NULL.
        Ok(unsafe { Object::from_owned_ptr(value) })
    };
    match get(flags::HIDDEN) {
        Err(Fault::Unanswerable) => get(0),
        answer => answer,
    }
}

/// The namespace of a module or class body: a dict, or an instance of a class
/// derived from it, which is read as the dict that it is.
struct Namespace(Object);

impl Namespace {
    /// # Safety
    /// As [`crate::read::code`].
    unsafe fn of(reader: &'static Reader, frame: usize) -> Result<Option<Self>, Error> {
        // SAFETY: passed on to the caller.
        let namespace = unsafe { (reader.functions.namespace)(frame) };
        // SAFETY: passed on to the caller.
        let failed = |fault| unsafe { reader.error(fault, frame, Question::Namespace) };
        let Some(namespace) = namespace.map_err(failed)? else {
            return Ok(None);
        };
        // SAFETY: `namespace` gives a reference away.
        let namespace = unsafe { Object::from_owned_ptr(namespace.as_ptr()) };
        let _pending = PendingException::take();
        if let Some(namespace) = namespace {
            // SAFETY: `namespace` is alive; anything but a dict is an error.
            if unsafe { ffi::PyDict_Size(namespace.as_ptr()) } >= 0 {
                return Ok(Some(Self(namespace)));
            }
            // SAFETY: the thread is attached.
            unsafe { ffi::PyErr_Clear() };
        }
        Err(Error::NotADict)
    }

    /// The value of `name`, a `str`.
    fn get(&self, name: NonNull<PyObject>) -> Result<Option<Object>, Error> {
        let _pending = PendingException::take();
        // Of a class derived from `str`, the dict would ask for its hash.
        // SAFETY: `name` is a `str`.
        let name = unsafe { ffi::PyUnicode_FromObject(name.as_ptr()) };
        // SAFETY: PyUnicode_FromObject gives a reference away, or answers NULL.
        let name = unsafe { Object::from_owned_ptr(name) };
        let name = name.ok_or_else(|| no_memory_or(Error::NoMemory))?;
        let value = match get_item_ref() {
            Some(get_item_ref) => {
                let mut value = null_mut();
                // SAFETY: a dict and a `str`; `value` can be written to.
                unsafe { get_item_ref(self.0.as_ptr(), name.as_ptr(), &raw mut value) };
                // SAFETY: a reference that is given away, or NULL.
                unsafe { Object::from_owned_ptr(value) }
            }
            None => {
                // SAFETY: a dict and a `str`; the answer is borrowed, or NULL.
                let value = unsafe { ffi::PyDict_GetItemWithError(self.0.as_ptr(), name.as_ptr()) };
                // SAFETY: with a GIL, nobody removes it before we have our reference.
                unsafe { Object::from_borrowed_ptr(value) }
            }
        };
        // SAFETY: the thread is attached.
        if value.is_none() && !unsafe { ffi::PyErr_Occurred() }.is_null() {
            return Err(raised());
        }
        Ok(value)
    }
}

type GetItemRef = unsafe extern "C" fn(*mut PyObject, *mut PyObject, *mut *mut PyObject) -> c_int;

/// `PyDict_GetItemRef`, since 3.13: other threads may change the dict in a
/// free-threaded build.
fn get_item_ref() -> Option<GetItemRef> {
    static FOUND: OnceLock<Option<GetItemRef>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let address = Symbols::open().find(c"PyDict_GetItemRef")?;
        // SAFETY: that name has had this signature since 3.13, where it is new.
        Some(unsafe { std::mem::transmute::<*mut c_void, GetItemRef>(address.as_ptr()) })
    })
}

/// The slot of that name that is in use.
///
/// # Safety
/// As [`crate::read::code`]; `name` is alive.
pub unsafe fn index(
    reader: &'static Reader,
    frame: usize,
    name: NonNull<PyObject>,
) -> Result<usize, Error> {
    Asked {
        reader,
        frame,
        name,
    }
    .index()
}

/// All slots of that name, in ascending order.
///
/// # Safety
/// As [`index`].
pub unsafe fn indexes(
    reader: &'static Reader,
    frame: usize,
    name: NonNull<PyObject>,
) -> Result<Vec<usize>, Error> {
    let mut asked = Asked {
        reader,
        frame,
        name,
    };
    let mut indexes = Vec::new();
    let mut next = asked.first()?;
    while let Some(index) = next {
        indexes.push(index);
        next = asked.position(index + 1)?;
    }
    Ok(indexes)
}

/// What the name stands for.
///
/// # Safety
/// As [`index`].
pub unsafe fn get(
    reader: &'static Reader,
    frame: usize,
    name: NonNull<PyObject>,
) -> Result<Option<Object>, Error> {
    Asked {
        reader,
        frame,
        name,
    }
    .get()
}

/// A new dict of everything that has a name and a value.
///
/// # Safety
/// As [`crate::read::code`].
pub unsafe fn dict(reader: &'static Reader, frame: usize) -> Result<Object, Error> {
    // SAFETY: passed on to the caller.
    let namespace = unsafe { Namespace::of(reader, frame) }?;
    // SAFETY: passed on to the caller.
    let names = unsafe { names(reader, frame) }?;
    let _pending = PendingException::take();
    let dict = match &namespace {
        // SAFETY: the thread is attached.
        None => unsafe { ffi::PyDict_New() },
        // SAFETY: `namespace` is a dict.
        Some(Namespace(namespace)) => unsafe { ffi::PyDict_Copy(namespace.as_ptr()) },
    };
    // SAFETY: both give a reference away, or answer NULL.
    let Some(dict) = (unsafe { Object::from_owned_ptr(dict) }) else {
        return Err(raised());
    };
    // SAFETY: `names` is a tuple.
    let count = unsafe { ffi::PyTuple_Size(names.as_ptr()) };
    for index in 0..count {
        // SAFETY: `index` is below the size; the answer is borrowed.
        let name = unsafe { ffi::PyTuple_GetItem(names.as_ptr(), index) };
        if namespace.is_some() {
            // SAFETY: passed on to the caller.
            let kind = unsafe { (reader.functions.kind)(frame, index) };
            // SAFETY: passed on to the caller.
            let failed = |fault| unsafe { reader.error(fault, frame, Question::Kind(index)) };
            // The others are the interpreter's own business.
            if kind.map_err(failed)? & kind::HIDDEN == 0 {
                continue;
            }
        } else {
            // SAFETY: a dict and a `str`.
            match unsafe { ffi::PyDict_Contains(dict.as_ptr(), name) } {
                0 => {}
                1 => continue,
                _ => return Err(no_memory_or(Error::NoMemory)),
            }
        }
        // SAFETY: passed on to the caller.
        let value = unsafe { value(reader, frame, index as usize) };
        // SAFETY: passed on to the caller.
        let failed = |fault| unsafe { reader.error(fault, frame, Question::Slot(index)) };
        let Some(value) = value.map_err(failed)? else {
            continue;
        };
        // SAFETY: a dict, a `str` and an object, all alive.
        if unsafe { ffi::PyDict_SetItem(dict.as_ptr(), name, value.as_ptr()) } < 0 {
            return Err(raised());
        }
    }
    Ok(dict)
}

/// A new tuple of `int`.
pub fn int_tuple(numbers: &[usize]) -> Result<Object, Error> {
    let _pending = PendingException::take();
    // SAFETY: the thread is attached.
    let tuple = unsafe { ffi::PyTuple_New(numbers.len() as isize) };
    // SAFETY: PyTuple_New gives a reference away, or answers NULL.
    let tuple = unsafe { Object::from_owned_ptr(tuple) };
    let tuple = tuple.ok_or_else(|| no_memory_or(Error::NoMemory))?;
    for (position, &number) in numbers.iter().enumerate() {
        // SAFETY: the thread is attached.
        let number = unsafe { ffi::PyLong_FromSize_t(number) };
        if number.is_null() {
            return Err(no_memory_or(Error::NoMemory));
        }
        // SAFETY: the tuple is new and nobody else's, `position` below its size, and
        // the reference given away.
        unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), position as isize, number) };
    }
    Ok(tuple)
}

/// The error for the exception that is set, which is cleared.
#[cold]
pub fn no_memory_or(other: Error) -> Error {
    // SAFETY: a static that the interpreter has set long ago.
    let memory_error = unsafe { ffi::PyExc_MemoryError };
    // SAFETY: the thread is attached.
    let is_memory_error = unsafe { ffi::PyErr_ExceptionMatches(memory_error) } != 0;
    // SAFETY: as above.
    unsafe { ffi::PyErr_Clear() };
    if is_memory_error {
        return Error::NoMemory;
    }
    other
}

/// The error for the exception that is set while a namespace is read: what one of its
/// keys has raised is the caller's.
#[cold]
fn raised() -> Error {
    // SAFETY: a static that the interpreter has set long ago.
    let memory_error = unsafe { ffi::PyExc_MemoryError };
    // SAFETY: the thread is attached.
    if unsafe { ffi::PyErr_ExceptionMatches(memory_error) } != 0 {
        // SAFETY: as above.
        unsafe { ffi::PyErr_Clear() };
        return Error::NoMemory;
    }
    Error::Interrupted {
        reason: Interruption::take().into(),
    }
}

/// A new `str`.
pub fn new_str(text: &str) -> Result<Object, Error> {
    let _pending = PendingException::take();
    let size = isize::try_from(text.len()).map_err(|_| Error::NoMemory)?;
    // SAFETY: there are `size` bytes, which are UTF-8.
    let object = unsafe { ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), size) };
    // SAFETY: PyUnicode_FromStringAndSize gives a reference away, or answers NULL.
    unsafe { Object::from_owned_ptr(object) }.ok_or_else(|| no_memory_or(Error::NoMemory))
}

impl Frame<'_> {
    /// The slot that `name` stands for now. Usually a name has one slot, in every
    /// frame of that code, so that the answer may be kept. But an inlined
    /// comprehension whose variable is called like a variable of an enclosing
    /// function has two; then the first one that has a value counts, which is what the
    /// code itself sees (and `frame.f_locals`, from 3.13 on).
    ///
    /// The slot may be hidden ([`get_slot`](Self::get_slot) with
    /// [`Flags::HIDDEN`](crate::Flags::HIDDEN) reads it). Names of a module or class
    /// body are in a namespace and have no slot.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, b): pass\nf(1, 2)", |frame| {
    /// use localsplus::Error;
    ///
    /// // def f(a, b)
    /// assert_eq!(frame.index("b")?, 1);
    /// assert!(matches!(frame.index("c"), Err(Error::NoSuchName { .. })));
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchName`] and [`Error::NoMemory`].
    pub fn index(&self, name: &str) -> Result<usize, Error> {
        let name = new_str(name)?;
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        unsafe { index(self.reader, self.address(), name.as_non_null()) }
    }

    /// All slots of that name, in ascending order; empty if there are none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, b): pass\nf(1, 2)", |frame| {
    /// // def f(a, b)
    /// assert_eq!(frame.indexes("b")?, [1]);
    /// assert!(frame.indexes("c")?.is_empty());
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn indexes(&self, name: &str) -> Result<Vec<usize>, Error> {
        let name = new_str(name)?;
        // SAFETY: as above.
        unsafe { indexes(self.reader, self.address(), name.as_non_null()) }
    }

    /// What `name` stands for now: the value in the slot that
    /// [`index`](Self::index) answers, also if it is hidden, and in a module or class
    /// body else what the namespace has. `None` if the name has a slot, but no value.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a): b = a\nf(1)", |frame| {
    /// // A call f(1) of: def f(a): b = a
    /// assert!(frame.get_by_name("a")?.is_some());
    /// assert!(frame.get_by_name("b")?.is_none());
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchName`] and [`Error::NoMemory`]; in a module or class body
    /// [`Error::NotADict`], [`Error::Interrupted`] if a key of the namespace that is no
    /// `str` raises an exception, and [`Error::Unanswerable`] if the provider is
    /// "official" and this version's layout is not known.
    pub fn get_by_name(&self, name: &str) -> Result<Option<Object>, Error> {
        let name = new_str(name)?;
        // SAFETY: as above.
        let value = unsafe { get(self.reader, self.address(), name.as_non_null()) };
        value.inspect_err(|_| Interruption::postpone())
    }

    /// A new dict of all names that have a value, as [`get_by_name`](Self::get_by_name)
    /// answers them, in the order of their slots. Unlike `frame.f_locals`, this makes
    /// no frame object and leaves the namespace of a class body as it is, and what
    /// somebody has added to a function's `f_locals` is not in it.
    ///
    /// In a module or class body it is a copy of the namespace, with the variables of
    /// a comprehension that is running; the cells that the interpreter keeps there for
    /// itself (`__class__`, `__classdict__`, ...) are left out.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a): b = a\nf(1)", |frame| {
    /// // A call f(1) of: def f(a): b = a
    /// let locals = frame.dict()?;
    /// // SAFETY: this thread holds the GIL, and `locals` is a dict.
    /// assert_eq!(unsafe { pyo3_ffi::PyDict_Size(locals.as_ptr()) }, 1);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// As [`get_by_name`](Self::get_by_name), without [`Error::NoSuchName`].
    pub fn dict(&self) -> Result<Object, Error> {
        // SAFETY: as above.
        unsafe { dict(self.reader, self.address()) }.inspect_err(|_| Interruption::postpone())
    }
}

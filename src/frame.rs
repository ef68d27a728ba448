//! A borrowed frame, and everything one may ask of it.

use std::ffi::CStr;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

use pyo3_ffi::PyObject;

use crate::error::Error;
use crate::object::Object;
use crate::read::{self, Fault};
use crate::reader::{Question, Reader, reader};
use crate::runtime::{Interruption, PendingException, text};

/// Chooses the provider now instead of at the first use. The outcome, a refusal
/// too, is final for the process.
///
/// While the interpreter is checked, an eval-frame function of ours is installed
/// for a moment, and a few lines of Python run.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # embedding::start();
/// // SAFETY: this thread holds the GIL.
/// if let Err(reason) = unsafe { localsplus::init() } {
///     eprintln!("running uncompiled: {reason}");
/// #   return Err(reason);
/// }
/// # Ok(()) }
/// ```
///
/// # Safety
/// The calling thread is attached to an interpreter (holds the GIL, or is
/// attached in a free-threaded build).
///
/// # Errors
/// [`Error::Unsupported`] and [`Error::Forced`] are final;
/// [`Error::Interrupted`] and [`Error::Choosing`] are not.
pub unsafe fn init() -> Result<(), Error> {
    chosen().map(drop)
}

/// What answers in this process: "official", "layout 3.14", "layout 3.13t", ...
/// If an official symbol was present but failed its proof, the reason follows in
/// parentheses.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # embedding::start();
/// // SAFETY: this thread holds the GIL.
/// let provider = unsafe { localsplus::provider() }?.to_string_lossy();
/// assert!(provider.starts_with("layout 3.") || provider == "official");
/// # Ok(()) }
/// ```
///
/// # Safety
/// As [`init`].
///
/// # Errors
/// As [`init`].
pub unsafe fn provider() -> Result<&'static CStr, Error> {
    chosen().map(Reader::name)
}

/// The reader, or why there is none. Python's error indicator stays as it is.
#[inline]
pub(crate) fn chosen() -> Result<&'static Reader, Error> {
    reader().inspect_err(|_| Interruption::postpone())
}

/// A CPython interpreter frame (`struct _PyInterpreterFrame *`).
///
/// A frame has *slots*, in CPython's order: local variables (parameters first),
/// then cell variables that are not parameters, then free variables. An index is
/// valid in `0..frame.count()?`.
///
/// `'a` is the life of whatever keeps the frame alive. A `Frame` stays in its
/// thread; reading never runs Python code, allocates, modifies the frame or
/// touches Python's error indicator.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # each_frame_of_f("def f(a, b=2): c = a\nf(1)", |frame| {
/// // An eval-frame hook sees a call f(1) of: def f(a, b=2): c = a
/// let names: Result<Vec<_>, _> = frame.slots().map(|slot| slot.name()).collect();
/// assert_eq!(names?, ["a", "b", "c"]);
/// assert!(frame.get_local(1)?.is_some());
/// assert!(frame.get_local(2)?.is_none(), "c has no value yet");
/// # Ok(()) }) }
/// ```
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    pointer: NonNull<u8>,
    pub(crate) reader: &'static Reader,
    /// Neither `Send` nor `Sync`.
    owner: PhantomData<(&'a (), *mut ())>,
}

impl<'a> Frame<'a> {
    /// A frame from its address. `T` is whatever your bindings declare as
    /// `struct _PyInterpreterFrame`: `pyo3_ffi::_PyInterpreterFrame` of any
    /// version, an opaque type of your own, `c_void`.
    ///
    /// Chooses the provider if no call has done so before.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # embedding::start();
    /// use localsplus::{Error, Frame};
    ///
    /// /// The number of variables of the frame that an eval-frame function is given.
    /// ///
    /// /// # Safety
    /// /// This thread is about to run `frame`.
    /// unsafe fn count(frame: *mut std::ffi::c_void) -> Result<usize, Error> {
    ///     // SAFETY: by the caller's promise, the frame is alive and this thread's.
    ///     unsafe { Frame::from_ptr(frame) }?.count()
    /// }
    /// // SAFETY: NULL is allowed.
    /// let error = unsafe { count(std::ptr::null_mut()) };
    /// assert_eq!(error, Err(Error::Null { argument: "frame" }));
    /// # Ok(()) }
    /// ```
    ///
    /// # Safety
    /// - The calling thread is attached to the frame's interpreter, and stays so as
    ///   long as the frame and everything taken from it ([`Object`], [`Locals`])
    ///   are used or dropped.
    /// - `pointer` is NULL or an interpreter frame that lives as long as `'a`: one
    ///   that this thread is evaluating, that of a suspended generator, coroutine
    ///   or async generator that is held, or that of a frame object that is held.
    /// - Nobody runs the frame in another thread during `'a`, and the interpreter
    ///   is not just releasing its locals (as seen from a finaliser).
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::ShimFrame`] and [`Error::NotPythonCode`], and
    /// those of [`init`].
    #[inline]
    pub unsafe fn from_ptr<T>(pointer: *mut T) -> Result<Self, Error> {
        let reader = chosen()?;
        let pointer = NonNull::new(pointer.cast()).ok_or(Error::Null { argument: "frame" })?;
        let frame = Self::new(pointer, reader);
        // SAFETY: the caller promises a live frame and an attached thread.
        let code = unsafe { (reader.functions.code)(frame.address()) };
        code.map_err(|fault| frame.error(fault, Question::Code))?;
        Ok(frame)
    }

    pub(crate) fn new(pointer: NonNull<u8>, reader: &'static Reader) -> Self {
        Self {
            pointer,
            reader,
            owner: PhantomData,
        }
    }

    /// The frame's address.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\nf()", |frame| {
    /// let address: *mut std::ffi::c_void = frame.as_ptr();
    /// // SAFETY: the frame has not gone away since.
    /// let again = unsafe { localsplus::Frame::from_ptr(address) }?;
    /// assert_eq!(again.count()?, frame.count()?);
    /// # Ok(()) }) }
    /// ```
    pub fn as_ptr<T>(&self) -> *mut T {
        self.pointer.as_ptr().cast()
    }

    pub(crate) fn address(&self) -> usize {
        self.pointer.as_ptr() as usize
    }

    #[cold]
    pub(crate) fn error(&self, fault: Fault, question: Question) -> Error {
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        unsafe { self.reader.error(fault, self.address(), question) }
    }

    /// The code object that the frame runs.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\nf()", |frame| {
    /// let code = frame.code()?;
    /// // SAFETY: this thread holds the GIL, and `code` is alive.
    /// assert_ne!(unsafe { pyo3_ffi::PyCode_Check(code.as_ptr()) }, 0);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPythonCode`] if it has lost it since [`from_ptr`](Self::from_ptr).
    pub fn code(&self) -> Result<Object, Error> {
        let code = self.check_code()?;
        let Some(get_code) = self.reader.exported.code else {
            // SAFETY: the frame keeps its code object alive while we take a reference.
            return unsafe { Object::from_borrowed_ptr(code.as_ptr()) }.ok_or(Error::NotPythonCode);
        };
        // SAFETY: a live frame that runs a code object.
        let code = unsafe { get_code(self.address()) };
        // SAFETY: GetCode gives a reference away.
        unsafe { Object::from_owned_ptr(code) }.ok_or(Error::NotPythonCode)
    }

    /// The number of slots (`co_nlocalsplus`). Also answers for a finished
    /// generator's frame.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, b): c = a\nf(1, 2)", |frame| {
    /// // def f(a, b): c = a
    /// assert_eq!(frame.count()?, 3);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unanswerable`] if the interpreter runs out of memory (official
    /// provider without a layout only).
    pub fn count(&self) -> Result<usize, Error> {
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        let count = unsafe { (self.reader.functions.count)(self.address()) };
        count.map_err(|fault| self.error(fault, Question::Count))
    }

    /// A tuple of `str`: the name of each slot, by index. Two slots may carry the
    /// same name. Also answers for a finished generator's frame.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, b): c = a\nf(1, 2)", |frame| {
    /// // def f(a, b): c = a
    /// let names = frame.names()?;
    /// // SAFETY: this thread holds the GIL, and `names` is a tuple.
    /// assert_eq!(unsafe { pyo3_ffi::PyTuple_Size(names.as_ptr()) }, 3);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub fn names(&self) -> Result<Object, Error> {
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        let names = unsafe { (self.reader.functions.names)(self.address()) };
        let names = names.map_err(|fault| self.error(fault, Question::Names))?;
        // SAFETY: `names` gives a reference away.
        unsafe { Object::from_owned_ptr(names.as_ptr()) }
            .ok_or_else(|| self.error(Fault::Unanswerable, Question::Names))
    }

    /// What slot `index` is. Also answers for a finished generator's frame.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a):\n  return lambda: a\nf(1)", |frame| {
    /// // def f(a): return lambda: a
    /// let kind = frame.kind(0)?;
    /// assert!(kind.is_argument() && kind.is_local() && kind.is_cell());
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`]; [`Error::Unanswerable`] if the provider is
    /// "official" and this version's layout is not known.
    pub fn kind(&self, index: usize) -> Result<Kind, Error> {
        let index = clamp(index);
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        let kind = unsafe { (self.reader.functions.kind)(self.address(), index) };
        kind.map(Kind)
            .map_err(|fault| self.error(fault, Question::Kind(index)))
    }

    /// The value in slot `index`, or `None` if it has none: unbound, deleted,
    /// hidden, an empty cell, a free variable of a class body, a finished frame.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a): b = a\nf(17)", |frame| {
    /// // A call f(17) of: def f(a): b = a
    /// let a = frame.get_local(0)?.expect("an argument has a value");
    /// // SAFETY: this thread holds the GIL, and `a` is alive.
    /// assert_eq!(unsafe { pyo3_ffi::PyLong_AsLong(a.as_ptr()) }, 17);
    /// assert!(frame.get_local(1)?.is_none());
    /// assert!(frame.get_local(2).is_err(), "there is no third slot");
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`].
    #[inline]
    pub fn get_local(&self, index: usize) -> Result<Option<Object>, Error> {
        let index = clamp(index);
        let get_local = self.reader.functions.get_local;
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        match unsafe { get_local(self.address(), index) }.unpack() {
            Ok(None) => Ok(None),
            // SAFETY: `get_local` gives a reference away.
            Ok(Some(value)) => Ok(unsafe { Object::from_owned_ptr(value.as_ptr()) }),
            Err(fault) => Err(self.error(fault, Question::Slot(index))),
        }
    }

    /// Like [`get_local`](Self::get_local), changed by `flags`.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def o():\n  def f(): return lambda: x\n  f()\n  x = 1\no()", |frame| {
    /// use localsplus::Flags;
    ///
    /// // Called before `x` has a value: def f(): return lambda: x
    /// assert!(frame.get_slot(0, Flags::NONE)?.is_none(), "an empty cell is no value");
    /// assert!(frame.get_slot(0, Flags::RAW_CELL)?.is_some(), "the cell itself");
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`]; [`Error::Unanswerable`] if flags are set, the
    /// provider is "official" and this version's layout is not known.
    #[inline]
    pub fn get_slot(&self, index: usize, flags: Flags) -> Result<Option<Object>, Error> {
        let index = clamp(index);
        let mut value = null_mut();
        let get = self.reader.functions.get;
        // SAFETY: `from_ptr` was promised a live frame and an attached thread;
        // `value` can be written to.
        match unsafe { get(self.address(), index, flags.0, &raw mut value) } {
            // SAFETY: `get` gives a reference away, or writes NULL.
            Ok(_) => Ok(unsafe { Object::from_owned_ptr(value) }),
            Err(fault) => Err(self.error(fault, Question::Slot(index))),
        }
    }

    /// All slots' values at once, in `buffer`, which must have room for
    /// [`count`](Self::count) of them. They are dropped with the answer.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a): b = a\nf(1)", |frame| {
    /// use std::mem::MaybeUninit;
    ///
    /// let mut buffer = [const { MaybeUninit::uninit() }; 64];
    /// for (index, value) in frame.get_locals(&mut buffer)?.iter().enumerate() {
    ///     println!("{index}: {value:?}");
    /// }
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Capacity`] if `buffer` is too short.
    #[inline]
    pub fn get_locals<'b>(
        &self,
        buffer: &'b mut [MaybeUninit<Option<Object>>],
    ) -> Result<Locals<'b>, Error> {
        let capacity = buffer.len();
        // `Option<Object>` is a pointer, with NULL for `None`.
        let first = buffer.as_mut_ptr().cast::<*mut PyObject>();
        let get_all = self.reader.functions.get_all;
        // SAFETY: as in `get_slot`; `capacity` elements can be written to.
        match unsafe { get_all(self.address(), first, capacity) } {
            Ok(count) => Ok(Locals {
                first,
                count,
                drop_all: self.reader.functions.drop_all,
                buffer: PhantomData,
            }),
            Err(fault) => {
                let capacity = clamp(capacity);
                Err(self.error(fault, Question::Slots { capacity }))
            }
        }
    }

    /// Every slot, in order. Empty if the number of slots is not to be had.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, *rest): b = a\nf(1)", |frame| {
    /// // A call f(1) of: def f(a, *rest): b = a
    /// let mut bound = Vec::new();
    /// for slot in frame.slots() {
    ///     if slot.value()?.is_some() {
    ///         bound.push(slot.name()?);
    ///     }
    /// }
    /// assert_eq!(bound, ["a", "rest"]);
    /// # Ok(()) }) }
    /// ```
    pub fn slots(&self) -> impl ExactSizeIterator<Item = Slot<'a>> + use<'a> {
        let frame = *self;
        (0..self.count().unwrap_or_default()).map(move |index| Slot { frame, index })
    }
}

const _: () = assert!(size_of::<Option<Object>>() == size_of::<*mut PyObject>());

/// An index beyond `isize` is out of range all the same.
#[inline(always)]
pub(crate) fn clamp(index: usize) -> isize {
    isize::try_from(index).unwrap_or(isize::MAX)
}

/// The address: no Python code runs.
impl fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({:p})", self.pointer)
    }
}

/// The values of all slots of a frame, by index; `None` where there is none.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # each_frame_of_f("def f(a): b = a\nf(1)", |frame| {
/// // A call f(1) of: def f(a): b = a
/// let mut buffer = [const { std::mem::MaybeUninit::uninit() }; 8];
/// let mut locals = frame.get_locals(&mut buffer)?;
/// assert_eq!(locals.len(), 2);
/// let a = locals[0].take().expect("yours: it outlives the others");
/// drop(locals);
/// # drop(a);
/// # Ok(()) }) }
/// ```
pub struct Locals<'b> {
    first: *mut *mut PyObject,
    count: usize,
    /// All at once: cheaper than one by one.
    drop_all: unsafe fn(*mut *mut PyObject, usize),
    buffer: PhantomData<&'b mut [Option<Object>]>,
}

impl Deref for Locals<'_> {
    type Target = [Option<Object>];

    #[inline]
    fn deref(&self) -> &[Option<Object>] {
        // SAFETY: `get_locals` has filled that many elements, which are borrowed as
        // long as `self`.
        unsafe { std::slice::from_raw_parts(self.first.cast(), self.count) }
    }
}

impl DerefMut for Locals<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Option<Object>] {
        // SAFETY: as above, and `self` has the buffer to itself.
        unsafe { std::slice::from_raw_parts_mut(self.first.cast(), self.count) }
    }
}

/// The addresses: no Python code runs.
impl fmt::Debug for Locals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Drop for Locals<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the references are ours, and nobody sees them again.
        unsafe { (self.drop_all)(self.first, self.count) };
    }
}

/// One slot of a frame. It is read when asked, not before.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # each_frame_of_f("def f(a): b = a\nf(1)", |frame| {
/// // A call f(1) of: def f(a): b = a
/// let slot = frame.slots().last().expect("two slots");
/// assert_eq!((slot.index(), slot.name()?), (1, "b".to_owned()));
/// assert!(slot.kind()?.is_local() && slot.value()?.is_none());
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    frame: Frame<'a>,
    index: usize,
}

impl Slot<'_> {
    /// The index, for [`Frame::get_local`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a): b = a\nf(1)", |frame| {
    /// let indexes: Vec<usize> = frame.slots().map(|slot| slot.index()).collect();
    /// assert_eq!(indexes, [0, 1]);
    /// # Ok(()) }) }
    /// ```
    pub fn index(&self) -> usize {
        self.index
    }

    /// The variable's name. CPython makes up some: `.0` is the iterator that a
    /// comprehension or generator expression is given.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(größe): pass\nf(1)", |frame| {
    /// // def f(größe): pass
    /// let slot = frame.slots().next().expect("one slot");
    /// assert_eq!(slot.name()?, "größe");
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// As [`Frame::names`].
    pub fn name(&self) -> Result<String, Error> {
        let names = self.frame.names()?;
        let _pending = PendingException::take();
        // SAFETY: `names` is a tuple; the answer is borrowed or NULL.
        let name = unsafe { pyo3_ffi::PyTuple_GetItem(names.as_ptr(), clamp(self.index)) };
        // SAFETY: `names` keeps it alive while we take a reference.
        unsafe { Object::from_borrowed_ptr(name) }
            .and_then(|name| text(&name))
            .ok_or_else(|| self.frame.error(Fault::Unanswerable, Question::Names))
    }

    /// What it is.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a): b = a\nf(1)", |frame| {
    /// let kinds: Result<Vec<_>, _> = frame.slots().map(|slot| slot.kind()).collect();
    /// assert_eq!(format!("{:?}", kinds?), "[Kind(ARG|LOCAL), Kind(LOCAL)]");
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// As [`Frame::kind`].
    pub fn kind(&self) -> Result<Kind, Error> {
        self.frame.kind(self.index)
    }

    /// Its value, as [`Frame::get_local`] answers it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a): b = a\nf(1)", |frame| {
    /// // A call f(1) of: def f(a): b = a
    /// let values: Result<Vec<_>, _> = frame.slots().map(|slot| slot.value()).collect();
    /// let values = values?;
    /// assert!(values[0].is_some() && values[1].is_none());
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// As [`Frame::get_local`].
    pub fn value(&self) -> Result<Option<Object>, Error> {
        self.frame.get_local(self.index)
    }
}

/// What a slot is. It can be several things: a captured parameter is one, a
/// local, and a cell variable.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # each_frame_of_f("def f(a):\n  return lambda: a\nf(1)", |frame| {
/// // def f(a): return lambda: a
/// assert_eq!(frame.kind(0)?.to_string(), "ARG|LOCAL|CELL");
/// # Ok(()) }) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind(u8);

impl Kind {
    /// `LOCALSPLUS_KIND_*` bits.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a): pass\nf(1)", |frame| {
    /// // LOCALSPLUS_KIND_ARG | LOCALSPLUS_KIND_LOCAL
    /// assert_eq!(frame.kind(0)?.bits(), 0x01 | 0x20);
    /// # Ok(()) }) }
    /// ```
    pub fn bits(self) -> u8 {
        self.0
    }

    /// One of the function's parameters.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, *rest): b = a\nf(1)", |frame| {
    /// // def f(a, *rest): b = a
    /// assert!(frame.kind(0)?.is_argument() && frame.kind(1)?.is_argument());
    /// assert!(!frame.kind(2)?.is_argument());
    /// # Ok(()) }) }
    /// ```
    pub fn is_argument(self) -> bool {
        self.0 & read::kind::ARG != 0
    }

    /// Not answered by [`Frame::get_local`]: the iteration variable of a
    /// comprehension that was inlined into a module or class body.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(): pass\nf()", |frame| {
    /// let hidden = frame.slots().any(|slot| slot.kind().is_ok_and(|kind| kind.is_hidden()));
    /// assert!(!hidden, "there are none in a function");
    /// # Ok(()) }) }
    /// ```
    pub fn is_hidden(self) -> bool {
        self.0 & read::kind::HIDDEN != 0
    }

    /// A local variable.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def o(x):\n  def f(): b = x\n  f()\no(1)", |frame| {
    /// // def o(x): ...; def f(): b = x
    /// assert!(frame.kind(0)?.is_local(), "b");
    /// assert!(!frame.kind(1)?.is_local(), "x");
    /// # Ok(()) }) }
    /// ```
    pub fn is_local(self) -> bool {
        self.0 & read::kind::LOCAL != 0
    }

    /// A variable that inner functions capture.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, b):\n  return lambda: a\nf(1, 2)", |frame| {
    /// // def f(a, b): return lambda: a
    /// assert!(frame.kind(0)?.is_cell() && !frame.kind(1)?.is_cell());
    /// # Ok(()) }) }
    /// ```
    pub fn is_cell(self) -> bool {
        self.0 & read::kind::CELL != 0
    }

    /// A variable of an enclosing function.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def o(x):\n  def f(): b = x\n  f()\no(1)", |frame| {
    /// // def o(x): ...; def f(): b = x
    /// assert!(!frame.kind(0)?.is_free(), "b");
    /// assert!(frame.kind(1)?.is_free(), "x");
    /// # Ok(()) }) }
    /// ```
    pub fn is_free(self) -> bool {
        self.0 & read::kind::FREE != 0
    }
}

/// "ARG|LOCAL|CELL".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.is_argument(), "ARG"),
            (self.is_local(), "LOCAL"),
            (self.is_cell(), "CELL"),
            (self.is_free(), "FREE"),
            (self.is_hidden(), "HIDDEN"),
        ];
        let names = names
            .into_iter()
            .filter_map(|(is, name)| is.then_some(name));
        f.pad(&names.collect::<Vec<_>>().join("|"))
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({self})")
    }
}

/// What [`Frame::get_slot`] answers besides.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # each_frame_of_f("def f(): pass\nf()", |frame| {
/// use localsplus::Flags;
///
/// let everything = Flags::HIDDEN | Flags::RAW_CELL;
/// for slot in frame.slots() {
///     frame.get_slot(slot.index(), everything)?;
/// }
/// assert_eq!(Flags::default(), Flags::NONE);
/// # Ok(()) }) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u32);

impl Flags {
    /// Nothing besides: [`Frame::get_local`].
    pub const NONE: Self = Self(0);
    /// Also hidden slots.
    pub const HIDDEN: Self = Self(read::flags::HIDDEN);
    /// The cell object itself, also an empty one. A parameter that has not been
    /// put into its cell yet is answered as it is.
    pub const RAW_CELL: Self = Self(read::flags::RAW_CELL);
}

impl std::ops::BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

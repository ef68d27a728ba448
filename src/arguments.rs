//! The arguments that an unstarted frame was called with, for calling the same or
//! another function with them.

use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::error::Error;
use crate::frame::Frame;
use crate::layout::Layout;
use crate::object::Object;
use crate::read::{CO_VARARGS, CO_VARKEYWORDS, Fault, Interpreter, Packed, Prologue, PythonFrame};
use crate::reader::{Question, Reader};
use crate::runtime::{PendingException, drop_reference, may_end_thread};

/// `PY_VECTORCALL_ARGUMENTS_OFFSET`: `args[-1]` may be written to.
const ARGUMENTS_OFFSET: usize = 1 << (usize::BITS - 1);

/// The parameters of a frame's code. Their slots come first, in this order:
/// positional, keyword-only, `*args`, `**kwargs`.
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    /// Positional-only ones included.
    positional: usize,
    keyword_only: usize,
    /// Whether there is a `*args`.
    var_positional: bool,
    /// Whether there is a `**kwargs`.
    var_keyword: bool,
    /// The names of all slots, a tuple that the code object owns.
    names: usize,
}

/// The parameters of a frame that has not started; `None` if it has.
///
/// # Safety
/// As [`crate::read::code`].
pub unsafe fn parameters<L: Layout, I: Interpreter>(
    frame: usize,
) -> Result<Option<Parameters>, Fault> {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) }?;
    let code = &const { L::ROW.code };
    let flags = python.code_int(code.co_flags);
    // Never negative.
    let parameters = Parameters {
        positional: python.code_int(code.co_argcount) as u32 as usize,
        keyword_only: python.code_int(code.co_kwonlyargcount) as u32 as usize,
        var_positional: flags & CO_VARARGS != 0,
        var_keyword: flags & CO_VARKEYWORDS != 0,
        names: python.code_word(code.co_localsplusnames),
    };
    // A frame whose locals were released is not read, wherever it stands.
    let is_unstarted =
        python.prologue() == Prologue::NotStarted && python.all_live(parameters.count());
    Ok(is_unstarted.then_some(parameters))
}

/// A new reference to what parameter `index` was given. No cell has been made yet:
/// a cell in the slot is the argument itself.
///
/// # Safety
/// As [`crate::read::code`]; [`parameters`] has just answered that the frame has not
/// started, and `index` is that of a parameter.
pub unsafe fn argument<L: Layout, I: Interpreter>(frame: usize, index: usize) -> Packed {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) };
    Packed::new(python.map(|python| {
        let object = python.slot(index)?;
        python.new_reference(object)
    }))
}

impl Parameters {
    fn count(&self) -> usize {
        self.positional
            + self.keyword_only
            + usize::from(self.var_positional)
            + usize::from(self.var_keyword)
    }

    /// The name of parameter `index`, borrowed, or NULL.
    fn name(&self, index: usize) -> *mut PyObject {
        let names = self.names as *mut PyObject;
        // SAFETY: the code object, which its frame keeps alive, owns this tuple.
        unsafe { ffi::PyTuple_GetItem(names, index as isize) }
    }
}

/// The arguments that a frame was called with, ready for `PyObject_Vectorcall`:
/// called with them, the frame's function starts with the same locals.
///
/// Positional arguments come first, those collected in `*args` included; then the
/// values of keyword arguments, first the keyword-only ones, then those collected
/// in `**kwargs`. Defaults have been filled in. A method's `self` is the first
/// positional argument.
///
/// It owns a reference to every argument and to every name, and is independent of
/// the frame. Like [`Object`], it stays in its thread and is dropped there.
// `localsplus_arguments` in C.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
/// # fn main() -> Result<(), localsplus::Error> {
/// # each_frame_of_f("def f(a, *more, key=0): pass\nf(1, 2, 3)", |frame| {
/// // A call f(1, 2, 3) of: def f(a, *more, key=0)
/// let arguments = frame.arguments()?;
/// assert_eq!(arguments.positional().len(), 3);
/// assert_eq!(arguments.keyword_values().len(), 1, "defaults are applied");
/// # Ok(()) }) }
/// ```
#[repr(C)]
pub struct Arguments {
    /// NULL if cleared; else one element into an allocation.
    args: *mut *mut PyObject,
    /// `ARGUMENTS_OFFSET` is set.
    nargsf: usize,
    /// A tuple, or NULL if there are no keyword arguments.
    kwnames: *mut PyObject,
}

impl Arguments {
    /// None at all, not even no arguments: what C has before and after.
    pub(crate) const CLEARED: Self = Self {
        args: null_mut(),
        nargsf: 0,
        kwnames: null_mut(),
    };

    /// Those of `frame`. Python's error indicator stays as it is.
    ///
    /// # Safety
    /// As [`crate::read::code`].
    pub(crate) unsafe fn of(reader: &Reader, frame: usize) -> Result<Self, Error> {
        // SAFETY: passed on to the caller.
        let failed = |fault| unsafe { reader.error(fault, frame, Question::Arguments) };
        // SAFETY: passed on to the caller.
        let parameters = unsafe { (reader.functions.parameters)(frame) }.map_err(failed)?;
        let parameters = parameters.ok_or(Error::Started)?;
        let argument = |index, expected| {
            // SAFETY: the frame has not started, and `index` is a parameter's.
            let argument = unsafe { (reader.functions.argument)(frame, index) };
            // SAFETY: `argument` gives a reference away.
            argument
                .unpack()
                .map_err(failed)?
                .and_then(|argument| unsafe { Object::from_owned_ptr(argument.as_ptr()) })
                .ok_or(Error::NotAnArgument { index, expected })
        };
        let Parameters {
            positional,
            keyword_only,
            ..
        } = parameters;
        let simple = positional + keyword_only;
        let pending =
            (simple < parameters.count() || keyword_only > 0).then(PendingException::take);
        let star = parameters.var_positional.then_some(simple);
        let star = star.map(|index| Star::new(index, argument(index, Star::EXPECTED)?));
        let star = star.transpose()?;
        let double_star = simple + usize::from(parameters.var_positional);
        let double_star = parameters.var_keyword.then_some(double_star);
        let double_star =
            double_star.map(|index| DoubleStar::new(index, argument(index, DoubleStar::EXPECTED)?));
        let double_star = double_star.transpose()?;

        let further = star.as_ref().map_or(0, |star| star.size);
        let collected = double_star
            .as_ref()
            .map_or(0, |double_star| double_star.size);
        let (positionals, keywords) = (positional + further, keyword_only + collected);
        // The names are at the end until they have a tuple. No Python code can run
        // before that, so that nobody changes the collected ones.
        let mut block = Block::new(1 + positionals + 2 * keywords)?;
        for index in 0..positional {
            block.put(1 + index, argument(index, "a value")?);
        }
        if let Some(star) = star {
            for position in 0..further {
                block.put(1 + positional + position, star.item(position)?);
            }
        }
        let (values, names) = (1 + positionals, 1 + positionals + keywords);
        for position in 0..keyword_only {
            let index = positional + position;
            block.put(values + position, argument(index, "a value")?);
            // SAFETY: borrowed from the code object, or NULL.
            let name = unsafe { Object::from_borrowed_ptr(parameters.name(index)) };
            let name = name.ok_or_else(|| failed(Fault::Unanswerable))?;
            block.put(names + position, name);
        }
        if let Some(double_star) = double_star {
            for (position, item) in (keyword_only..keywords).zip(double_star.items()) {
                let (name, value) = item?;
                block.put(values + position, value);
                block.put(names + position, name);
            }
        }
        let kwnames = block.take_tuple(names, keywords)?;
        drop(pending);
        Ok(Self {
            args: block.into_memory().wrapping_add(1),
            nargsf: positionals | ARGUMENTS_OFFSET,
            kwnames: kwnames.map_or(null_mut(), Object::into_ptr),
        })
    }

    /// The number of positional arguments.
    fn positional_count(&self) -> usize {
        self.nargsf & !ARGUMENTS_OFFSET
    }

    /// The number of keyword arguments.
    fn keyword_count(&self) -> usize {
        if self.kwnames.is_null() {
            return 0;
        }
        // SAFETY: it is a tuple that we own.
        let count = unsafe { ffi::PyTuple_Size(self.kwnames) };
        usize::try_from(count).unwrap_or_default()
    }

    fn slice(&self, start: usize, count: usize) -> &[Object] {
        if self.args.is_null() {
            return &[];
        }
        let first = self.args.wrapping_add(start).cast();
        // SAFETY: the elements are references of ours, none of them NULL, and
        // `Object` is a pointer; nobody writes to them as long as `self` is borrowed.
        unsafe { std::slice::from_raw_parts(first, count) }
    }

    /// The positional arguments.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, b=2): pass\nf(b=3, a=1)", |frame| {
    /// // A call f(b=3, a=1) of: def f(a, b=2)
    /// let arguments = frame.arguments()?;
    /// let a = frame.get_local(0)?.map(|a| a.as_ptr());
    /// assert_eq!(Some(arguments.positional()[0].as_ptr()), a);
    /// # Ok(()) }) }
    /// ```
    pub fn positional(&self) -> &[Object] {
        self.slice(0, self.positional_count())
    }

    /// The values of the keyword arguments.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(*, key): pass\nf(key=1)", |frame| {
    /// // A call f(key=1) of: def f(*, key)
    /// assert_eq!(frame.arguments()?.keyword_values().len(), 1);
    /// # Ok(()) }) }
    /// ```
    pub fn keyword_values(&self) -> &[Object] {
        self.slice(self.positional_count(), self.keyword_count())
    }

    /// The names of the keyword arguments, a tuple of `str` in the order of
    /// [`keyword_values`](Self::keyword_values), or `None` if there are none.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(**kwargs): pass\nf(key=1)", |frame| {
    /// // A call f(key=1) of: def f(**kwargs)
    /// let names = frame.arguments()?.keyword_names().expect("there is one");
    /// // SAFETY: this thread holds the GIL, and `names` is a tuple.
    /// assert_eq!(unsafe { pyo3_ffi::PyTuple_Size(names.as_ptr()) }, 1);
    /// # Ok(()) }) }
    /// ```
    pub fn keyword_names(&self) -> Option<Object> {
        // SAFETY: NULL, or a tuple that we own.
        unsafe { Object::from_borrowed_ptr(self.kwnames) }
    }

    /// Calls `callable` with these arguments: what it returns, or `None` with a
    /// Python exception set in this thread. This runs Python code, and no exception
    /// may be set before.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, b): pass\nf(3, 4)", |frame| {
    /// # // SAFETY: this thread holds the GIL; the builtins are borrowed.
    /// # let builtins = unsafe { pyo3_ffi::PyEval_GetBuiltins() };
    /// # // SAFETY: a dict, and its item, which is borrowed.
    /// # let max = unsafe { pyo3_ffi::PyDict_GetItemString(builtins, c"max".as_ptr()) };
    /// # // SAFETY: the builtins keep it alive.
    /// # let max = unsafe { localsplus::Object::from_borrowed_ptr(max) }.expect("max");
    /// // A call f(3, 4) of: def f(a, b). `max` is the builtin function.
    /// let largest = frame.arguments()?.call(&max).expect("no exception");
    /// // SAFETY: this thread holds the GIL, and `largest` is alive.
    /// assert_eq!(unsafe { pyo3_ffi::PyLong_AsLong(largest.as_ptr()) }, 4);
    /// # Ok(()) }) }
    /// ```
    pub fn call(&self, callable: &Object) -> Option<Object> {
        // SAFETY: `callable` is alive; the arguments are as this function wants
        // them, and `args[-1]`, which it may borrow, is ours. Whoever could use
        // `self` meanwhile only reads the others.
        let result = may_end_thread(|| unsafe {
            PyObject_Vectorcall(callable.as_ptr(), self.args, self.nargsf, self.kwnames)
        });
        // SAFETY: the call gives a reference away, or answers NULL.
        unsafe { Object::from_owned_ptr(result) }
    }
}

const _: () = assert!(size_of::<Object>() == size_of::<*mut PyObject>());

impl Drop for Arguments {
    fn drop(&mut self) {
        if self.args.is_null() {
            return;
        }
        let count = self.positional_count() + self.keyword_count();
        for index in 0..count {
            // SAFETY: that many elements are there.
            let argument = unsafe { self.args.wrapping_add(index).read() };
            if let Some(argument) = NonNull::new(argument) {
                // SAFETY: the reference is ours, and nobody sees it again.
                unsafe { drop_reference(argument) };
            }
        }
        // SAFETY: NULL, or a reference of ours.
        drop(unsafe { Object::from_owned_ptr(self.kwnames) });
        // SAFETY: the allocation begins one element before.
        unsafe { ffi::PyMem_Free(self.args.wrapping_sub(1).cast()) };
    }
}

/// The addresses: no Python code runs.
impl std::fmt::Debug for Arguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arguments")
            .field("positional", &self.positional())
            .field("keyword_values", &self.keyword_values())
            .field("keyword_names", &self.keyword_names())
            .finish()
    }
}

impl Frame<'_> {
    /// The arguments that the frame was called with. Only for a frame that has not
    /// started, as an eval-frame function sees it: one at its first instruction. The
    /// call of a generator function is such a frame, a resumed generator is not.
    ///
    /// Code without parameters (of a module or class body) has no arguments.
    /// Allocates (on 3.11, that may start a garbage collection), and leaves the frame
    /// as it is.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
    /// # fn main() -> Result<(), localsplus::Error> {
    /// # each_frame_of_f("def f(a, *more): pass\nf(1, 2)", |frame| {
    /// // A call f(1, 2) of: def f(a, *more)
    /// let arguments = frame.arguments()?;
    /// assert_eq!((arguments.positional().len(), arguments.keyword_values().len()), (2, 0));
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Started`]; [`Error::NotAnArgument`] if somebody has replaced the
    /// tuple or dict of `*args` or `**kwargs` by something else;
    /// [`Error::NoMemory`]; [`Error::Unanswerable`] if the provider is "official" and
    /// this version's layout is not known.
    pub fn arguments(&self) -> Result<Arguments, Error> {
        // SAFETY: `from_ptr` was promised a live frame and an attached thread.
        unsafe { Arguments::of(self.reader, self.address()) }
    }
}

// Exported by every supported version; pyo3-ffi inlines it in some configurations.
unsafe extern "C-unwind" {
    fn PyObject_Vectorcall(
        callable: *mut PyObject,
        args: *const *mut PyObject,
        nargsf: usize,
        kwnames: *mut PyObject,
    ) -> *mut PyObject;
}

/// The size that the interpreter answers, or `None` for its error, which is
/// cleared.
fn size(answer: isize) -> Option<usize> {
    if answer < 0 {
        // SAFETY: the thread is attached. The caller has its own error.
        unsafe { ffi::PyErr_Clear() };
    }
    usize::try_from(answer).ok()
}

/// What `*args` was given.
struct Star {
    index: usize,
    tuple: Object,
    size: usize,
}

impl Star {
    const EXPECTED: &str = "the tuple of further positional arguments";

    fn new(index: usize, tuple: Object) -> Result<Self, Error> {
        // SAFETY: `tuple` is alive; anything but a tuple is an error.
        let size = size(unsafe { ffi::PyTuple_Size(tuple.as_ptr()) });
        let expected = Self::EXPECTED;
        let size = size.ok_or(Error::NotAnArgument { index, expected })?;
        Ok(Self { index, tuple, size })
    }

    fn item(&self, position: usize) -> Result<Object, Error> {
        // SAFETY: `position` is below the tuple's size; the answer is borrowed.
        let item = unsafe { ffi::PyTuple_GetItem(self.tuple.as_ptr(), position as isize) };
        // SAFETY: the tuple keeps it alive while we take a reference.
        unsafe { Object::from_borrowed_ptr(item) }.ok_or(Error::NotAnArgument {
            index: self.index,
            expected: Self::EXPECTED,
        })
    }
}

/// What `**kwargs` was given.
struct DoubleStar {
    index: usize,
    dict: Object,
    size: usize,
}

impl DoubleStar {
    const EXPECTED: &str = "the dict of further keyword arguments";

    fn new(index: usize, dict: Object) -> Result<Self, Error> {
        // SAFETY: `dict` is alive; anything but a dict is an error.
        let size = size(unsafe { ffi::PyDict_Size(dict.as_ptr()) });
        let expected = Self::EXPECTED;
        let size = size.ok_or(Error::NotAnArgument { index, expected })?;
        Ok(Self { index, dict, size })
    }

    /// The names and values, `size` of them.
    fn items(&self) -> impl Iterator<Item = Result<(Object, Object), Error>> {
        let mut position = 0;
        (0..self.size).map(move |_| {
            let failed = || Error::NotAnArgument {
                index: self.index,
                expected: Self::EXPECTED,
            };
            let (mut key, mut value) = (null_mut(), null_mut());
            let dict = self.dict.as_ptr();
            // SAFETY: `dict` is one, and the three can be written to.
            let found =
                unsafe { ffi::PyDict_Next(dict, &raw mut position, &raw mut key, &raw mut value) };
            if found == 0 {
                return Err(failed());
            }
            // SAFETY: `key` is alive; anything but a `str` is an error.
            size(unsafe { ffi::PyUnicode_GetLength(key) }).ok_or_else(failed)?;
            // SAFETY: the dict keeps it alive while we take a reference.
            let key = unsafe { Object::from_borrowed_ptr(key) };
            // SAFETY: as above.
            let value = unsafe { Object::from_borrowed_ptr(value) };
            key.zip(value).ok_or_else(failed)
        })
    }
}

/// Room for references, from the interpreter's allocator. Drops those put in.
struct Block {
    memory: NonNull<*mut PyObject>,
    room: usize,
}

impl Block {
    fn new(room: usize) -> Result<Self, Error> {
        // SAFETY: the thread is attached; no exception is set on failure.
        let memory = unsafe { ffi::PyMem_Calloc(room, size_of::<*mut PyObject>()) };
        let memory = NonNull::new(memory.cast()).ok_or(Error::NoMemory)?;
        Ok(Self { memory, room })
    }

    fn element(&self, index: usize) -> *mut *mut PyObject {
        debug_assert!(index < self.room);
        self.memory.as_ptr().wrapping_add(index)
    }

    /// `index` is below the room, and nothing was put there yet.
    fn put(&mut self, index: usize, object: Object) {
        // SAFETY: the element is ours, and within the allocation.
        unsafe { self.element(index).write(object.into_ptr()) };
    }

    /// Moves `count` elements into a tuple; `None` if that is nothing.
    fn take_tuple(&mut self, start: usize, count: usize) -> Result<Option<Object>, Error> {
        if count == 0 {
            return Ok(None);
        }
        // SAFETY: the thread is attached.
        let tuple = unsafe { ffi::PyTuple_New(count as isize) };
        // SAFETY: PyTuple_New gives a reference away, or answers NULL.
        let Some(tuple) = (unsafe { Object::from_owned_ptr(tuple) }) else {
            // SAFETY: the thread is attached. The caller has its own error.
            unsafe { ffi::PyErr_Clear() };
            return Err(Error::NoMemory);
        };
        for index in 0..count {
            // SAFETY: the element is ours, and initialised.
            let object = unsafe { self.element(start + index).replace(null_mut()) };
            // SAFETY: the tuple is new and nobody else's, `index` below its size, and
            // the reference given away.
            unsafe { ffi::PyTuple_SetItem(tuple.as_ptr(), index as isize, object) };
        }
        Ok(Some(tuple))
    }

    /// The allocation, with the references that are in it.
    fn into_memory(self) -> *mut *mut PyObject {
        ManuallyDrop::new(self).memory.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        for index in 0..self.room {
            // SAFETY: the element is ours, and initialised.
            let object = unsafe { self.element(index).read() };
            // SAFETY: NULL, or a reference that was put in.
            drop(unsafe { Object::from_owned_ptr(object) });
        }
        // SAFETY: the allocation is ours, and nobody uses it any more.
        unsafe { ffi::PyMem_Free(self.memory.as_ptr().cast()) };
    }
}

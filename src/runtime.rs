//! What interpreter is this process running?
//!
//! The library is built once for all versions, so it may call only functions
//! that all of them export. Those of the stable ABI come from pyo3-ffi; the rest
//! is looked up by name here, so that an interpreter without one of them is
//! refused instead of failing to load the library.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use cfg_if::cfg_if;
use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::error::Error;
use crate::layout::{DEBUG_OFFSETS_SIZE, Immortality, Layout, Row};
use crate::object::Object;
use crate::read::Interpreter;

/// Where the interpreter's symbols are.
pub struct Symbols {
    /// The process, then the module that holds the interpreter if that is
    /// another one: it may have been loaded `RTLD_LOCAL`.
    modules: Vec<Module>,
}

cfg_if! {
    if #[cfg(unix)] {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        use libloading::os::unix::Library as Module;

        /// `Dl_info`.
        #[repr(C)]
        struct DlInfo {
            dli_fname: *const c_char,
            dli_fbase: *mut c_void,
            dli_sname: *const c_char,
            dli_saddr: *mut c_void,
        }

        unsafe extern "C" {
            fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
        }

        cfg_if! {
            if #[cfg(target_os = "macos")] {
                const RTLD_NOLOAD: c_int = 0x10;
            } else {
                const RTLD_NOLOAD: c_int = 0x4;
            }
        }

        fn process() -> Module {
            Module::this()
        }

        /// The loaded module that `address` is in.
        fn module_of(address: *const c_void) -> Option<Module> {
            let mut info = DlInfo {
                dli_fname: std::ptr::null(),
                dli_fbase: null_mut(),
                dli_sname: std::ptr::null(),
                dli_saddr: null_mut(),
            };
            // SAFETY: dladdr accepts any address, and `info` can be written to.
            let found = unsafe { dladdr(address, &raw mut info) };
            if found == 0 || info.dli_fname.is_null() {
                return None;
            }
            // SAFETY: on success this is a C string, owned by the loaded module.
            let path = unsafe { CStr::from_ptr(info.dli_fname) };
            let path = OsStr::from_bytes(path.to_bytes());
            let flags = libloading::os::unix::RTLD_LAZY | RTLD_NOLOAD;
            // SAFETY: RTLD_NOLOAD runs no initialiser: the module is loaded, or
            // this fails.
            unsafe { Module::open(Some(path), flags) }.ok()
        }
    } else {
        use libloading::os::windows::Library as Module;

        fn process() -> Module {
            // The executable itself.
            match Module::this() {
                Ok(module) => module,
                Err(_) => std::process::abort(),
            }
        }

        /// The interpreter's DLL. Its name follows from the version, which is in
        /// every interpreter's `Py_GetVersion()`.
        fn module_of(_: *const c_void) -> Option<Module> {
            let minor: String = version_text()
                .strip_prefix("3.")?
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            ["", "t", "_d", "t_d"].iter().find_map(|suffix| {
                Module::open_already_loaded(format!("python3{minor}{suffix}.dll")).ok()
            })
        }
    }
}

impl Symbols {
    /// The modules of this process's interpreter.
    pub fn open() -> Self {
        let mut modules = vec![process()];
        // Any function that the dynamic linker bound to the interpreter.
        modules.extend(module_of(ffi::Py_IncRef as *const c_void));
        Self { modules }
    }

    /// The address of `name`, if the interpreter exports it.
    pub fn find(&self, name: &CStr) -> Option<NonNull<c_void>> {
        self.modules.iter().find_map(|module| {
            // SAFETY: the type is that of an address, which every symbol has; it
            // is not followed here.
            let symbol = unsafe { module.get::<*mut c_void>(name.to_bytes_with_nul()) };
            // A symbol may be there and NULL.
            NonNull::new(symbol.ok()?.as_raw_ptr())
        })
    }

    /// Whether the interpreter is a free-threaded build.
    pub fn is_free_threaded(&self) -> bool {
        // Exported by no other.
        self.find(c"PyUnstable_Module_SetGIL").is_some()
    }

    /// Keeps the module that `address` is in loaded until the process ends.
    pub fn pin(address: NonNull<c_void>) {
        if let Some(module) = module_of(address.as_ptr()) {
            std::mem::forget(module);
        }
    }
}

/// Puts the pending exception aside, and puts it back on drop.
pub struct PendingException([*mut PyObject; 3]);

#[allow(
    deprecated,
    reason = "its replacement, PyErr_GetRaisedException, is missing from 3.11"
)]
impl PendingException {
    /// Takes the exception that is set, if any. The calling thread is attached.
    pub fn take() -> Self {
        let [mut kind, mut value, mut traceback] = [null_mut(); 3];
        // SAFETY: the thread is attached, and the three can be written to.
        unsafe { ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut traceback) };
        Self([kind, value, traceback])
    }
}

#[allow(deprecated, reason = "as above")]
impl Drop for PendingException {
    fn drop(&mut self) {
        let [kind, value, traceback] = self.0;
        // SAFETY: the references that PyErr_Fetch gave us go back. If an
        // exception has been set in between, this replaces it.
        unsafe { ffi::PyErr_Restore(kind, value, traceback) };
    }
}

/// Calls into the interpreter where it may let go of the GIL.
///
/// When the process ends, older interpreters end a thread that wants the GIL back
/// with `pthread_exit`, which unwinds its stack. Whoever is further up must not
/// be unwound: it would clean up without a thread state. So the thread sleeps
/// until the process is gone, as it does from 3.14 on.
///
/// `call` must only call functions declared `extern "C-unwind"`.
pub fn may_end_thread<T>(call: impl FnOnce() -> T) -> T {
    struct Sleep;
    impl Drop for Sleep {
        fn drop(&mut self) {
            // A panic of ours goes on.
            while !std::thread::panicking() {
                std::thread::sleep(std::time::Duration::from_secs(3600));
            }
        }
    }
    let sleep = Sleep;
    let result = call();
    std::mem::forget(sleep);
    result
}

/// Waits for another thread without holding up the interpreter, which that thread
/// may need. The calling thread is attached, before and afterwards; `wait` must not
/// touch the interpreter.
pub fn detached(wait: impl FnOnce()) {
    type RestoreThread = unsafe extern "C-unwind" fn(*mut ffi::PyThreadState);
    // SAFETY: the calling thread is attached.
    let thread = unsafe { ffi::PyEval_SaveThread() };
    wait();
    let restore = ffi::PyEval_RestoreThread as *const ();
    // SAFETY: that function, which may unwind.
    let restore = unsafe { std::mem::transmute::<*const (), RestoreThread>(restore) };
    // SAFETY: this is what PyEval_SaveThread answered.
    may_end_thread(|| unsafe { restore(thread) });
}

/// The exception that interrupted the choice of a provider, on its way to the
/// caller: [`Error`](crate::Error) cannot hold it.
pub struct Interruption([*mut PyObject; 3]);

thread_local! {
    static INTERRUPTION: Cell<Option<Interruption>> = const { Cell::new(None) };
}

// pyo3-ffi declares this only in its newest versions.
unsafe extern "C" {
    fn PyThread_get_thread_ident() -> c_ulong;
}

#[allow(deprecated, reason = "as above")]
impl Interruption {
    /// Takes the exception that is set, and answers its type's name.
    pub fn take() -> String {
        let mut raised = Self([null_mut(); 3]);
        let [ty, value, traceback] = &mut raised.0;
        // SAFETY: the thread is attached, and the three can be written to.
        unsafe { ffi::PyErr_Fetch(ty, value, traceback) };
        // SAFETY: `raised` keeps the type alive while we take a reference.
        let ty = unsafe { Object::from_borrowed_ptr(raised.0[0]) };
        if ty.is_some() {
            INTERRUPTION.set(Some(raised));
        }
        let name = ty.and_then(|ty| attribute(&ty, c"__name__"));
        name.and_then(|name| text(&name))
            .unwrap_or_else(|| "for want of memory, it seems".to_owned())
    }

    /// Raises the exception in the caller; `false` if there is none.
    pub fn raise() -> bool {
        let Some(Self([ty, value, traceback])) = INTERRUPTION.take() else {
            return false;
        };
        // SAFETY: the references that PyErr_Fetch gave us go back.
        unsafe { ffi::PyErr_Restore(ty, value, traceback) };
        true
    }

    /// Raises an exception of its type in this thread some time soon, for callers
    /// that cannot raise one now: a Ctrl-C shall not get lost.
    pub fn postpone() {
        let Some(Self(raised)) = INTERRUPTION.take() else {
            return;
        };
        // SAFETY: each of the three references is ours, or NULL.
        let [ty, _, _] = raised.map(|object| unsafe { Object::from_owned_ptr(object) });
        if let Some(ty) = ty {
            // SAFETY: may be called at any time.
            let thread = unsafe { PyThread_get_thread_ident() } as _;
            // SAFETY: the thread is attached, and takes its own reference.
            unsafe { ffi::PyThreadState_SetAsyncExc(thread, ty.as_ptr()) };
        }
    }
}

/// The interpreter's types and functions that are not in the stable ABI, where
/// the hot path finds them with one load. Set once, before the first read.
struct Exports {
    code_type: AtomicUsize,
    function_type: AtomicUsize,
    cell_type: AtomicUsize,
    tuple_type: AtomicUsize,
    cell_get: AtomicPtr<c_void>,
    dealloc: AtomicPtr<c_void>,
}

static EXPORTS: Exports = Exports {
    code_type: AtomicUsize::new(0),
    function_type: AtomicUsize::new(0),
    cell_type: AtomicUsize::new(0),
    tuple_type: AtomicUsize::new(0),
    cell_get: AtomicPtr::new(null_mut()),
    dealloc: AtomicPtr::new(null_mut()),
};

// Where these run finalisers, the interpreter may end the thread. pyo3-ffi declares
// Py_DecRef as one that does not unwind, which is all that the compiler then believes.
type Dealloc = unsafe extern "C-unwind" fn(*mut PyObject);
unsafe extern "C-unwind" {
    fn _Py_DecRef(object: *mut PyObject);
}

/// `_Py_Dealloc`.
///
/// # Safety
/// Nobody has a reference to `object` any more, and the calling thread is
/// attached.
#[cold]
unsafe fn deallocate(object: NonNull<PyObject>) {
    let address = EXPORTS.dealloc.load(Ordering::Relaxed);
    // SAFETY: `attach` stored the address of _Py_Dealloc, whose signature this is.
    let dealloc: Dealloc = unsafe { std::mem::transmute(address) };
    // SAFETY: passed on to the caller.
    may_end_thread(|| unsafe { dealloc(object.as_ptr()) });
}

/// `Py_DECREF` of the running interpreter.
///
/// # Safety
/// As [`drop_reference`].
#[inline]
unsafe fn dec_ref(object: NonNull<PyObject>) {
    // SAFETY: passed on to the caller.
    may_end_thread(|| unsafe { _Py_DecRef(object.as_ptr()) });
}

type CellGet = unsafe extern "C" fn(*mut PyObject) -> *mut PyObject;

/// The interpreter that this process runs.
pub struct Running;

impl Running {
    /// Finds what [`Interpreter`] needs, or answers the name that is missing.
    pub fn attach(symbols: &Symbols) -> Result<(), &'static CStr> {
        let find = |name: &'static CStr| symbols.find(name).ok_or(name);
        let types = [
            (&EXPORTS.code_type, c"PyCode_Type"),
            (&EXPORTS.function_type, c"PyFunction_Type"),
            (&EXPORTS.cell_type, c"PyCell_Type"),
            (&EXPORTS.tuple_type, c"PyTuple_Type"),
        ];
        for (slot, name) in types {
            slot.store(find(name)?.as_ptr() as usize, Ordering::Relaxed);
        }
        let functions = [
            (&EXPORTS.cell_get, c"PyCell_Get"),
            (&EXPORTS.dealloc, c"_Py_Dealloc"),
        ];
        for (slot, name) in functions {
            slot.store(find(name)?.as_ptr(), Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Interpreter for Running {
    #[inline(always)]
    fn code_type() -> usize {
        EXPORTS.code_type.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn function_type() -> usize {
        EXPORTS.function_type.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn cell_type() -> usize {
        EXPORTS.cell_type.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn tuple_type() -> usize {
        EXPORTS.tuple_type.load(Ordering::Relaxed)
    }

    #[cold]
    unsafe fn is_tuple_subclass(ty: usize) -> bool {
        let tuple = Self::tuple_type() as *mut ffi::PyTypeObject;
        // SAFETY: two live types, by the caller's promise and `attach`.
        unsafe { ffi::PyType_IsSubtype(ty as *mut ffi::PyTypeObject, tuple) != 0 }
    }

    #[inline(always)]
    unsafe fn new_reference(object: NonNull<PyObject>) -> NonNull<PyObject> {
        // SAFETY: the caller promises a live object and an attached thread.
        unsafe { ffi::Py_IncRef(object.as_ptr()) };
        object
    }

    #[inline(always)]
    unsafe fn drop_reference(object: NonNull<PyObject>) {
        // SAFETY: passed on to the caller.
        unsafe { dec_ref(object) };
    }

    #[inline(always)]
    unsafe fn cell_contents(cell: NonNull<PyObject>) -> Option<NonNull<PyObject>> {
        let address = EXPORTS.cell_get.load(Ordering::Relaxed);
        // SAFETY: `attach` stored the address of PyCell_Get, whose signature this
        // is, before any provider could be used.
        let cell_get: CellGet = unsafe { std::mem::transmute(address) };
        // SAFETY: the caller promises a cell and an attached thread.
        NonNull::new(unsafe { cell_get(cell.as_ptr()) })
    }
}

/// Like `Running`, but takes references in place, as `Py_INCREF` does in a
/// release build of layout `L`. Only for builds without `Py_REF_DEBUG`.
pub struct Counting<L>(PhantomData<L>);

impl<L: Layout> Interpreter for Counting<L> {
    #[inline(always)]
    fn code_type() -> usize {
        Running::code_type()
    }

    #[inline(always)]
    fn function_type() -> usize {
        Running::function_type()
    }

    #[inline(always)]
    fn cell_type() -> usize {
        Running::cell_type()
    }

    #[inline(always)]
    fn tuple_type() -> usize {
        Running::tuple_type()
    }

    #[inline(always)]
    unsafe fn is_tuple_subclass(ty: usize) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { Running::is_tuple_subclass(ty) }
    }

    #[inline(always)]
    unsafe fn new_reference(object: NonNull<PyObject>) -> NonNull<PyObject> {
        let Some(ob_refcnt) = L::ROW.object.ob_refcnt else {
            // SAFETY: passed on to the caller.
            return unsafe { Running::new_reference(object) };
        };
        let count = object.as_ptr().wrapping_byte_add(ob_refcnt);
        // SAFETY: the caller promises a live object and an attached thread: with
        // a GIL, nobody else touches the count.
        unsafe { L::ROW.immortality.increment(count.cast()) };
        object
    }

    #[inline(always)]
    unsafe fn drop_reference(object: NonNull<PyObject>) {
        let Some(ob_refcnt) = L::ROW.object.ob_refcnt else {
            // SAFETY: passed on to the caller.
            return unsafe { Running::drop_reference(object) };
        };
        let count = object.as_ptr().wrapping_byte_add(ob_refcnt);
        // SAFETY: as in `new_reference`.
        if unsafe { L::ROW.immortality.decrement(count.cast()) } {
            // SAFETY: that was the last reference.
            unsafe { deallocate(object) };
        }
    }

    #[inline(always)]
    unsafe fn cell_contents(cell: NonNull<PyObject>) -> Option<NonNull<PyObject>> {
        // SAFETY: passed on to the caller.
        unsafe { Running::cell_contents(cell) }
    }
}

/// How [`drop_reference`] counts: in place, or by the exported function until a
/// layout has proved to fit.
static COUNTING: AtomicU8 = AtomicU8::new(EXPORTED);
const EXPORTED: u8 = 0;
const ALL_COUNTED: u8 = 1;
const SATURATING: u8 = 2;
const IMMORTAL_FROM: u8 = 3;

/// Has [`drop_reference`] count in place. `row` fits the running interpreter,
/// which is a build without `Py_REF_DEBUG`.
pub fn count_in_place(row: &Row) {
    // Elsewhere it is not worth it.
    if row.object.ob_refcnt == Some(0) {
        let counting = match row.immortality {
            Immortality::None => ALL_COUNTED,
            Immortality::Saturating => SATURATING,
            Immortality::From(_) => IMMORTAL_FROM,
        };
        COUNTING.store(counting, Ordering::Relaxed);
    }
}

/// Gives a reference back.
///
/// # Safety
/// `object` is alive, the reference is the caller's, and the calling thread is
/// attached.
#[inline]
pub unsafe fn drop_reference(object: NonNull<PyObject>) {
    let counting = COUNTING.load(Ordering::Relaxed);
    // The newest versions first.
    let immortality = if counting == IMMORTAL_FROM {
        // Where it begins only matters for taking references.
        Immortality::From(0)
    } else if counting == SATURATING {
        Immortality::Saturating
    } else if counting == ALL_COUNTED {
        Immortality::None
    } else {
        // SAFETY: passed on to the caller.
        return unsafe { dec_ref(object) };
    };
    // SAFETY: `ob_refcnt` comes first there, and the thread has the GIL.
    if unsafe { immortality.decrement(object.as_ptr().cast()) } {
        // SAFETY: that was the last reference.
        unsafe { deallocate(object) };
    }
}

/// `T.__basicsize__` of the types whose layouts matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BasicSizes {
    /// `object`.
    pub object: usize,
    /// `types.FrameType`.
    pub frame: usize,
    /// `types.CodeType`.
    pub code: usize,
    /// `types.GeneratorType`.
    pub generator: usize,
    /// `types.FunctionType`.
    pub function: usize,
}

/// The running interpreter, as it describes itself.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// `sys.implementation.name`.
    pub implementation: String,
    /// `PY_VERSION_HEX`.
    pub version: u32,
    /// `Py_GIL_DISABLED`.
    pub free_threaded: bool,
    /// `Py_DEBUG`.
    pub debug: bool,
    /// `Py_TRACE_REFS`.
    pub trace_refs: bool,
    /// `Py_STACKREF_DEBUG`: slots hold handles instead of pointers.
    pub stackref_debug: bool,
    /// Sizes of types.
    pub basic_sizes: BasicSizes,
    /// The first bytes of `_PyRuntime`, from 3.13 on: `_Py_DebugOffsets`.
    pub debug_offsets: Option<Box<[u8]>>,
}

/// Why the interpreter could not be inspected.
#[derive(Debug)]
pub enum Obscure {
    /// It lacks something that every supported one has.
    Missing(String),
    /// Something that Python code can change, or that takes memory, failed: the
    /// next time may be better.
    Failed(String),
}

impl Obscure {
    /// The refusal of that interpreter, or why there is none yet.
    pub fn error(self, interpreter: impl fmt::Display) -> Error {
        match self {
            Self::Missing(reason) => Error::Unsupported {
                interpreter: interpreter.to_string().into(),
                reason: reason.into(),
            },
            Self::Failed(reason) => Error::Interrupted {
                reason: reason.into(),
            },
        }
    }
}

impl Runtime {
    /// Asks the running interpreter. Needs an attached thread.
    pub fn inspect(symbols: &Symbols) -> Result<Self, Obscure> {
        let version = version(symbols).map_err(Obscure::Missing)?;
        let basicsize = |name: &'static CStr| basicsize(symbols, name);
        let object = basicsize(c"PyBaseObject_Type")?;
        let free_threaded = symbols.is_free_threaded();
        Ok(Self {
            implementation: implementation()?,
            version,
            free_threaded,
            // Exported under Py_REF_DEBUG, which Py_DEBUG implies.
            debug: symbols.find(c"_Py_NegativeRefcount").is_some(),
            // Two pointers more in every object, before 3.13.
            trace_refs: object > 2 * size_of::<usize>() && !free_threaded,
            // Exported by such a build only.
            stackref_debug: symbols.find(c"_Py_stackref_get_object").is_some(),
            basic_sizes: BasicSizes {
                object,
                frame: basicsize(c"PyFrame_Type")?,
                code: basicsize(c"PyCode_Type")?,
                generator: basicsize(c"PyGen_Type")?,
                function: basicsize(c"PyFunction_Type")?,
            },
            debug_offsets: debug_offsets(symbols, version).map_err(Obscure::Missing)?,
        })
    }

    /// 14 for 3.14, if the major version is 3.
    pub fn minor(&self) -> Option<u8> {
        let [major, minor, ..] = self.version.to_be_bytes();
        (major == 3).then_some(minor)
    }

    /// Whether this is neither an alpha nor a beta.
    pub fn is_candidate_or_final(&self) -> bool {
        self.version & 0xF0 >= 0xC0
    }
}

/// "CPython 3.15.0b1 (free-threaded, debug)".
impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, micro, release] = self.version.to_be_bytes();
        let name = match self.implementation.as_str() {
            "cpython" => "CPython",
            other => other,
        };
        write!(f, "{name} {major}.{minor}.{micro}")?;
        let serial = release & 0xF;
        match release >> 4 {
            0xA => write!(f, "a{serial}")?,
            0xB => write!(f, "b{serial}")?,
            0xC => write!(f, "rc{serial}")?,
            _ => {}
        }
        let properties: Vec<_> = [
            (self.free_threaded, "free-threaded"),
            (self.debug, "debug"),
            (self.trace_refs, "trace-refs"),
            (self.stackref_debug, "stackref-debug"),
        ]
        .into_iter()
        .filter_map(|(present, name)| present.then_some(name))
        .collect();
        if !properties.is_empty() {
            write!(f, " ({})", properties.join(", "))?;
        }
        Ok(())
    }
}

/// `PY_VERSION_HEX` of the running interpreter.
fn version(symbols: &Symbols) -> Result<u32, String> {
    if let Some(address) = symbols.find(c"Py_Version") {
        let address = address.cast::<c_ulong>().as_ptr();
        // SAFETY: that symbol is a `const unsigned long`, since 3.11.
        let version = unsafe { address.read() };
        return u32::try_from(version).map_err(|_| format!("Py_Version is {version:#x}"));
    }
    // Older than 3.11: enough to say which.
    let text = version_text();
    parse_version(&text).ok_or_else(|| format!("Py_GetVersion() is {text:?}"))
}

/// `Py_GetVersion()`.
fn version_text() -> std::borrow::Cow<'static, str> {
    // SAFETY: may be called at any time.
    let text = unsafe { ffi::Py_GetVersion() };
    // SAFETY: it is a static C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy()
}

/// `PY_VERSION_HEX` for "3.10.13 (main, ...", with "final" as release level.
pub fn parse_version(text: &str) -> Option<u32> {
    let number = text.split([' ', '+']).next()?;
    let mut parts = number.splitn(3, '.');
    let major: u8 = parts.next()?.parse().ok()?;
    let minor: u8 = parts.next()?.parse().ok()?;
    let micro = parts.next().unwrap_or("0");
    let digits = micro.find(|c: char| !c.is_ascii_digit());
    let micro: u8 = micro[..digits.unwrap_or(micro.len())].parse().ok()?;
    Some(u32::from_be_bytes([major, minor, micro, 0xF0]))
}

/// A new reference to an attribute, or `None`, with no exception set. Needs an
/// attached thread.
pub fn attribute(object: &Object, name: &CStr) -> Option<Object> {
    // SAFETY: `object` is alive, and `name` a C string.
    let value = unsafe { ffi::PyObject_GetAttrString(object.as_ptr(), name.as_ptr()) };
    // SAFETY: PyObject_GetAttrString gives a reference away, or NULL.
    let value = unsafe { Object::from_owned_ptr(value) };
    if value.is_none() {
        // SAFETY: the thread is attached; the exception is not of interest.
        unsafe { ffi::PyErr_Clear() };
    }
    value
}

/// `sys.<name>`, a new reference. Needs an attached thread.
pub fn sys_attribute(name: &CStr) -> Option<Object> {
    // SAFETY: `name` is a C string; the answer is borrowed or NULL, and sets no
    // exception.
    let value = unsafe { ffi::PySys_GetObject(name.as_ptr()) };
    // SAFETY: `sys` keeps the object alive while we take our own reference.
    unsafe { Object::from_borrowed_ptr(value) }
}

fn implementation() -> Result<String, Obscure> {
    let name = sys_attribute(c"implementation")
        .and_then(|implementation| attribute(&implementation, c"name"))
        .and_then(|name| text(&name));
    name.ok_or_else(|| Obscure::Failed("sys.implementation.name is not a str".to_owned()))
}

/// The text of a `str`. Needs an attached thread.
pub fn text(object: &Object) -> Option<String> {
    let mut length = 0;
    // SAFETY: `object` is alive; anything but a `str` is an error.
    let utf8 = unsafe { ffi::PyUnicode_AsUTF8AndSize(object.as_ptr(), &raw mut length) };
    if utf8.is_null() {
        // SAFETY: the thread is attached; the exception is not of interest.
        unsafe { ffi::PyErr_Clear() };
        return None;
    }
    // SAFETY: the interpreter says that there are `length` bytes, and keeps them
    // as long as the object.
    let bytes = unsafe { std::slice::from_raw_parts(utf8.cast::<u8>(), length as usize) };
    String::from_utf8(bytes.to_vec()).ok()
}

/// That a name is not exported.
pub fn missing(name: &CStr) -> Obscure {
    Obscure::Missing(format!("{} is not exported", name.to_string_lossy()))
}

fn basicsize(symbols: &Symbols, name: &'static CStr) -> Result<usize, Obscure> {
    let text = || name.to_string_lossy();
    let address = symbols.find(name).ok_or_else(|| missing(name))?;
    let failed = || Obscure::Failed(format!("{}.__basicsize__ is not to be had", text()));
    // SAFETY: these symbols are static type objects.
    let ty = unsafe { Object::from_borrowed_ptr(address.cast().as_ptr()) };
    let size = ty.and_then(|ty| attribute(&ty, c"__basicsize__"));
    let size = size.ok_or_else(failed)?;
    // SAFETY: `size` is alive; anything but an `int` is an error.
    let size = unsafe { ffi::PyLong_AsSsize_t(size.as_ptr()) };
    usize::try_from(size).map_err(|_| {
        // SAFETY: the thread is attached; the exception is not of interest.
        unsafe { ffi::PyErr_Clear() };
        failed()
    })
}

/// A copy of what may be `_Py_DebugOffsets`.
fn debug_offsets(symbols: &Symbols, version: u32) -> Result<Option<Box<[u8]>>, String> {
    if version < 0x030D_0000 {
        // Before 3.13, `_PyRuntime` starts with state that other threads change.
        return Ok(None);
    }
    let runtime = symbols
        .find(c"_PyRuntime")
        .ok_or("_PyRuntime is not exported")?;
    // SAFETY: `_PyRuntime` is a static struct of many kilobytes, whose first part
    // is constant.
    let bytes =
        unsafe { std::slice::from_raw_parts(runtime.cast::<u8>().as_ptr(), DEBUG_OFFSETS_SIZE) };
    Ok(Some(bytes.into()))
}

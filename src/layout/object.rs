//! Objects whose layout is the same in every supported version, but for the
//! header. Read in `Include/object.h`, `cpython/tupleobject.h`,
//! `cpython/bytesobject.h` and `cpython/funcobject.h` of 3.11.7 to 3.15.2.

use std::mem::offset_of;

use super::{FunctionLayout, ObjectLayout};

/// Any pointer field: only its size matters here.
pub type Ptr = *mut u8;

/// An object header.
pub trait Header: Sized {
    /// Offset of `ob_type`.
    const OB_TYPE: usize;
    /// Offset of `ob_refcnt`, if there is one count.
    const OB_REFCNT: Option<usize>;

    /// The offsets that depend on the header alone.
    const OBJECT: ObjectLayout = ObjectLayout {
        size: size_of::<Self>(),
        ob_type: Self::OB_TYPE,
        ob_refcnt: Self::OB_REFCNT,
        ob_size: offset_of!(PyVarObject<Self>, ob_size),
        bytes_ob_sval: offset_of!(PyBytesObject<Self>, ob_sval),
    };
}

/// The default build's header.
#[repr(C)]
pub struct PyObject {
    ob_refcnt: isize,
    ob_type: Ptr,
}

impl Header for PyObject {
    const OB_TYPE: usize = offset_of!(Self, ob_type);
    const OB_REFCNT: Option<usize> = Some(offset_of!(Self, ob_refcnt));
}

/// The header under `Py_GIL_DISABLED`, 3.13 to 3.15.
#[repr(C)]
pub struct FreeThreadedPyObject {
    ob_tid: usize,
    ob_flags: u16,
    ob_mutex: u8,
    ob_gc_bits: u8,
    ob_ref_local: u32,
    ob_ref_shared: isize,
    ob_type: Ptr,
}

impl Header for FreeThreadedPyObject {
    const OB_TYPE: usize = offset_of!(Self, ob_type);
    const OB_REFCNT: Option<usize> = None;
}

/// The header under `Py_TRACE_REFS`, on 3.11 and 3.12 only: from 3.13 on that
/// build keeps its list of objects elsewhere.
#[repr(C)]
pub struct TraceRefsPyObject {
    _ob_next: Ptr,
    _ob_prev: Ptr,
    ob_refcnt: isize,
    ob_type: Ptr,
}

impl Header for TraceRefsPyObject {
    const OB_TYPE: usize = offset_of!(Self, ob_type);
    const OB_REFCNT: Option<usize> = Some(offset_of!(Self, ob_refcnt));
}

/// `PyVarObject`.
#[repr(C)]
pub struct PyVarObject<H> {
    ob_base: H,
    ob_size: isize,
}

#[repr(C)]
struct PyBytesObject<H> {
    ob_base: PyVarObject<H>,
    ob_shash: isize,
    ob_sval: [u8; 1],
}

/// `PyFunctionObject`, with `WORDS` words after `func_closure`, which is where
/// the versions differ.
#[repr(C)]
struct PyFunctionObject<H, const WORDS: usize> {
    ob_base: H,
    func_globals: Ptr,
    func_builtins: Ptr,
    func_name: Ptr,
    func_qualname: Ptr,
    func_code: Ptr,
    func_defaults: Ptr,
    func_kwdefaults: Ptr,
    func_closure: Ptr,
    after_closure: [Ptr; WORDS],
}

impl FunctionLayout {
    pub(super) const fn of<H: Header, const WORDS: usize>() -> Self {
        Self {
            size: size_of::<PyFunctionObject<H, WORDS>>(),
            func_builtins: offset_of!(PyFunctionObject<H, WORDS>, func_builtins),
            func_closure: offset_of!(PyFunctionObject<H, WORDS>, func_closure),
        }
    }
}

/// `PyTupleObject` before 3.14.
#[repr(C)]
pub struct PyTupleObject<H> {
    ob_base: PyVarObject<H>,
    pub(super) ob_item: [Ptr; 1],
}

/// `_PyErr_StackItem`, part of a generator.
#[repr(C)]
pub struct PyErrStackItem {
    exc_value: Ptr,
    previous_item: Ptr,
}

//! CPython 3.12. Read in `internal/pycore_frame.h`, `cpython/code.h`,
//! `cpython/genobject.h`, `cpython/pystate.h` and `opcode.h` of 3.12.1.
//!
//! Since 3.11: the frame's fields are in another order and `f_func` became
//! `f_funcobj`; shim frames (owner 3) exist; kinds have `CO_FAST_HIDDEN`; the
//! generator lost `gi_code`.

use std::mem::offset_of;

use super::object::{Header, Ptr, PyErrStackItem, PyObject, PyVarObject, TraceRefsPyObject};
use super::slot::Pointer;
use super::{
    Build, FunctionLayout, GeneratorLayout, Immortality, Layout, Row, ThreadLayout, code_layout,
    frame_layout, v3_11,
};

#[repr(C)]
struct PyInterpreterFrame {
    f_code: Ptr,
    previous: Ptr,
    f_funcobj: Ptr,
    f_globals: Ptr,
    f_builtins: Ptr,
    f_locals: Ptr,
    frame_obj: Ptr,
    prev_instr: Ptr,
    stacktop: i32,
    return_offset: u16,
    owner: i8,
    localsplus: [Ptr; 1],
}

/// Up to the field that is read here.
#[repr(C)]
struct PyThreadState {
    prev: Ptr,
    next: Ptr,
    interp: Ptr,
    _status: u32,
    py_recursion_remaining: i32,
    py_recursion_limit: i32,
    c_recursion_remaining: i32,
    recursion_headroom: i32,
    tracing: i32,
    what_event: i32,
    cframe: Ptr,
}

#[repr(C)]
struct PyCFrame {
    current_frame: Ptr,
    previous: Ptr,
}

#[repr(C)]
struct PyCodeObject<H> {
    ob_base: PyVarObject<H>,
    co_consts: Ptr,
    co_names: Ptr,
    co_exceptiontable: Ptr,
    co_flags: i32,
    co_argcount: i32,
    co_posonlyargcount: i32,
    co_kwonlyargcount: i32,
    co_stacksize: i32,
    co_firstlineno: i32,
    co_nlocalsplus: i32,
    co_framesize: i32,
    co_nlocals: i32,
    co_ncellvars: i32,
    co_nfreevars: i32,
    co_version: u32,
    co_localsplusnames: Ptr,
    co_localspluskinds: Ptr,
    co_filename: Ptr,
    co_name: Ptr,
    co_qualname: Ptr,
    co_linetable: Ptr,
    co_weakreflist: Ptr,
    _co_cached: Ptr,
    _co_instrumentation_version: u64,
    _co_monitoring: Ptr,
    _co_firsttraceable: i32,
    co_extra: Ptr,
    co_code_adaptive: [u8; 1],
}

#[repr(C)]
struct PyGenObject<H> {
    ob_base: H,
    gi_weakreflist: Ptr,
    gi_name: Ptr,
    gi_qualname: Ptr,
    gi_exc_state: PyErrStackItem,
    gi_origin_or_finalizer: Ptr,
    gi_hooks_inited: i8,
    gi_closed: i8,
    gi_running_async: i8,
    gi_frame_state: i8,
    gi_iframe: [Ptr; 1],
}

pub(super) const fn row<H: Header>(build: Build) -> Row {
    Row {
        minor: 12,
        immortality: Immortality::Saturating,
        function: FunctionLayout::of::<H, 8>(),
        frame: frame_layout!(
            PyInterpreterFrame,
            executable: f_code,
            function: f_funcobj,
            instruction: Last(prev_instr),
            stack_top: Index(stacktop)
        ),
        thread: ThreadLayout {
            cframe: Some(offset_of!(PyThreadState, cframe)),
            current_frame: offset_of!(PyCFrame, current_frame),
        },
        hook_owns_frame: true,
        code: code_layout!(PyCodeObject<H>, co_tlbc: None),
        generator: GeneratorLayout {
            gi_iframe: offset_of!(PyGenObject<H>, gi_iframe),
            gi_frame_state: offset_of!(PyGenObject<H>, gi_frame_state),
            created: -2,
            executing: 0,
            finished: 1,
        },
        ..v3_11::row::<H>(build)
    }
}

/// The default build.
pub struct Gil;

impl Layout for Gil {
    type Slot = Pointer;
    const ROW: Row = row::<PyObject>(Build::Gil);
}

/// `--with-trace-refs`.
pub struct TraceRefs;

impl Layout for TraceRefs {
    type Slot = Pointer;
    const ROW: Row = row::<TraceRefsPyObject>(Build::TraceRefs);
}

const _: () = assert!(Gil::ROW.frame.executable == 0);
const _: () = assert!(Gil::ROW.frame.owner == 70);
const _: () = assert!(Gil::ROW.frame.localsplus == 72);
const _: () = assert!(Gil::ROW.code.co_code_adaptive == 192);
const _: () = assert!(Gil::ROW.generator.gi_iframe == 72);
const _: () = assert!(TraceRefs::ROW.code.co_code_adaptive == 208);

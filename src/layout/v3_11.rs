//! CPython 3.11. Read in `internal/pycore_frame.h`, `cpython/code.h`,
//! `cpython/genobject.h`, `cpython/pystate.h` and `internal/pycore_opcode.h` of 3.11.7; 3.11.2 is the
//! same.

use std::mem::offset_of;

use super::object::{
    Header, Ptr, PyErrStackItem, PyObject, PyTupleObject, PyVarObject, TraceRefsPyObject,
};
use super::slot::Pointer;
use super::{
    Build, FunctionLayout, GeneratorLayout, Immortality, Layout, Opcodes, Row, ThreadLayout,
    code_layout, frame_layout, frame_object_layout,
};

#[repr(C)]
struct PyInterpreterFrame {
    f_func: Ptr,
    f_globals: Ptr,
    f_builtins: Ptr,
    f_locals: Ptr,
    f_code: Ptr,
    frame_obj: Ptr,
    previous: Ptr,
    prev_instr: Ptr,
    stacktop: i32,
    is_entry: bool,
    owner: i8,
    localsplus: [Ptr; 1],
}

/// Up to the field that is read here.
#[repr(C)]
struct PyThreadState {
    prev: Ptr,
    next: Ptr,
    interp: Ptr,
    _initialized: i32,
    _static: i32,
    recursion_remaining: i32,
    recursion_limit: i32,
    recursion_headroom: i32,
    tracing: i32,
    tracing_what: i32,
    cframe: Ptr,
}

#[repr(C)]
struct PyCFrame {
    use_tracing: u8,
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
    co_warmup: i16,
    _co_linearray_entry_size: i16,
    co_argcount: i32,
    co_posonlyargcount: i32,
    co_kwonlyargcount: i32,
    co_stacksize: i32,
    co_firstlineno: i32,
    co_nlocalsplus: i32,
    co_nlocals: i32,
    co_nplaincellvars: i32,
    co_ncellvars: i32,
    co_nfreevars: i32,
    co_localsplusnames: Ptr,
    co_localspluskinds: Ptr,
    co_filename: Ptr,
    co_name: Ptr,
    co_qualname: Ptr,
    co_linetable: Ptr,
    co_weakreflist: Ptr,
    _co_code: Ptr,
    _co_linearray: Ptr,
    _co_firsttraceable: i32,
    co_extra: Ptr,
    co_code_adaptive: [u8; 1],
}

#[repr(C)]
struct PyFrameObject<H> {
    ob_base: H,
    f_back: Ptr,
    f_frame: Ptr,
    f_trace: Ptr,
    f_lineno: i32,
    f_trace_lines: i8,
    f_trace_opcodes: i8,
    f_fast_as_locals: i8,
    _f_frame_data: [Ptr; 1],
}

#[repr(C)]
struct PyGenObject<H> {
    ob_base: H,
    gi_code: Ptr,
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

/// 3.12 shares what its own file does not replace, and so on.
pub(super) const fn row<H: Header>(build: Build) -> Row {
    Row {
        minor: 11,
        build,
        object: H::OBJECT,
        immortality: Immortality::None,
        tuple_ob_item: offset_of!(PyTupleObject<H>, ob_item),
        function: FunctionLayout::of::<H, 7>(),
        frame: frame_layout!(
            PyInterpreterFrame,
            executable: f_code,
            function: f_func,
            instruction: Last(prev_instr),
            stack_top: Index(stacktop)
        ),
        hook_owns_frame: false,
        thread: ThreadLayout {
            cframe: Some(offset_of!(PyThreadState, cframe)),
            current_frame: offset_of!(PyCFrame, current_frame),
        },
        code: code_layout!(PyCodeObject<H>, co_tlbc: None),
        frame_object: frame_object_layout!(PyFrameObject<H>),
        generator: GeneratorLayout {
            gi_iframe: offset_of!(PyGenObject<H>, gi_iframe),
            gi_frame_state: offset_of!(PyGenObject<H>, gi_frame_state),
            created: -2,
            executing: 0,
            finished: 1,
        },
        opcode: Opcodes {
            make_cell: 135,
            copy_free_vars: 149,
            extended_arg: 144,
        },
        debug_offsets: None,
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

const _: () = assert!(Gil::ROW.frame.executable == 32);
const _: () = assert!(Gil::ROW.frame.owner == 69);
const _: () = assert!(Gil::ROW.frame.localsplus == 72);
const _: () = assert!(Gil::ROW.code.co_code_adaptive == 184);
const _: () = assert!(Gil::ROW.generator.gi_iframe == 80);
const _: () = assert!(TraceRefs::ROW.code.co_code_adaptive == 200);

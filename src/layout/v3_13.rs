//! CPython 3.13. Read in `internal/pycore_frame.h`, `cpython/code.h`,
//! `internal/pycore_runtime.h`, `cpython/pystate.h` and `opcode_ids.h` of 3.13.0; 3.13.15 is the same.
//!
//! Since 3.12: `f_executable` may hold something else than a code object;
//! `instr_ptr` points at the instruction to run instead of the one before it;
//! the free-threaded build appears, with the same frame; `_PyRuntime` starts
//! with `_Py_DebugOffsets`; the thread state itself has `current_frame`; a suspended
//! `yield from` has a state of its own.

use std::mem::offset_of;

use super::object::{FreeThreadedPyObject, Header, Ptr, PyObject, PyVarObject};
use super::slot::Pointer;
use super::{
    Build, DebugOffsets, GeneratorLayout, Layout, Opcodes, Row, ThreadLayout, code_layout,
    frame_layout, frame_object_layout, v3_12,
};

#[repr(C)]
struct PyInterpreterFrame {
    f_executable: Ptr,
    previous: Ptr,
    f_funcobj: Ptr,
    f_globals: Ptr,
    f_builtins: Ptr,
    f_locals: Ptr,
    frame_obj: Ptr,
    instr_ptr: Ptr,
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
    eval_breaker: usize,
    _status: u32,
    _whence: i32,
    state: i32,
    py_recursion_remaining: i32,
    py_recursion_limit: i32,
    c_recursion_remaining: i32,
    recursion_headroom: i32,
    tracing: i32,
    what_event: i32,
    current_frame: Ptr,
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
    co_executors: Ptr,
    _co_cached: Ptr,
    _co_instrumentation_version: usize,
    _co_monitoring: Ptr,
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
    f_extra_locals: Ptr,
    f_locals_cache: Ptr,
    _f_frame_data: [Ptr; 1],
}

pub(super) const fn row<H: Header>(build: Build) -> Row {
    let v3_12 = v3_12::row::<H>(build);
    Row {
        minor: 13,
        frame: frame_layout!(
            PyInterpreterFrame,
            executable: f_executable,
            function: f_funcobj,
            instruction: Next(instr_ptr),
            stack_top: Index(stacktop)
        ),
        thread: ThreadLayout {
            cframe: None,
            current_frame: offset_of!(PyThreadState, current_frame),
        },
        code: code_layout!(PyCodeObject<H>, co_tlbc: None),
        frame_object: frame_object_layout!(PyFrameObject<H>),
        generator: GeneratorLayout {
            created: -3,
            ..v3_12.generator
        },
        opcode: Opcodes {
            make_cell: 94,
            copy_free_vars: 62,
            extended_arg: 71,
        },
        debug_offsets: Some(DebugOffsets {
            thread_state: 152,
            interpreter_frame: 224,
            code_object: 272,
            pyobject: 352,
            tuple_object: 400,
            bytes_object: 512,
            gen_object: None,
        }),
        ..v3_12
    }
}

/// The default build.
pub struct Gil;

impl Layout for Gil {
    type Slot = Pointer;
    const ROW: Row = row::<PyObject>(Build::Gil);
}

/// `--disable-gil`.
pub struct FreeThreaded;

impl Layout for FreeThreaded {
    type Slot = Pointer;
    const ROW: Row = row::<FreeThreadedPyObject>(Build::FreeThreaded);
}

const _: () = assert!(Gil::ROW.frame.owner == 70);
const _: () = assert!(Gil::ROW.frame.localsplus == 72);
const _: () = assert!(Gil::ROW.code.co_code_adaptive == 200);
const _: () = assert!(FreeThreaded::ROW.code.co_code_adaptive == 216);
const _: () = assert!(FreeThreaded::ROW.object.size == 32);

//! CPython 3.14. Read in `internal/pycore_interpframe_structs.h`,
//! `internal/pycore_stackref.h`, `cpython/code.h`,
//! `internal/pycore_debug_offsets.h` and `opcode_ids.h` of 3.14.10.
//!
//! Since 3.13: slots, executable and function are tagged; `stackpointer`
//! replaces `stacktop`; tuples cache their hash; free-threaded builds keep a copy
//! of the bytecode per thread.

use std::mem::offset_of;

use super::object::{FreeThreadedPyObject, Header, Ptr, PyObject, PyVarObject};
use super::slot::StackRef as Tagged;
use super::{
    Build, DebugOffsets, FrameLayout, FunctionLayout, Immortality, Layout, Opcodes, Row,
    code_layout, frame_layout, frame_object_layout, v3_13,
};

/// `_PyStackRef`: `uintptr_t bits`.
type StackRef = usize;

#[repr(C)]
struct PyInterpreterFrame {
    f_executable: StackRef,
    previous: Ptr,
    f_funcobj: StackRef,
    f_globals: Ptr,
    f_builtins: Ptr,
    f_locals: Ptr,
    frame_obj: Ptr,
    instr_ptr: Ptr,
    stackpointer: Ptr,
    return_offset: u16,
    owner: i8,
    visited: u8,
    localsplus: [StackRef; 1],
}

/// Under `Py_GIL_DISABLED`.
#[repr(C)]
struct FreeThreadedInterpreterFrame {
    f_executable: StackRef,
    previous: Ptr,
    f_funcobj: StackRef,
    f_globals: Ptr,
    f_builtins: Ptr,
    f_locals: Ptr,
    frame_obj: Ptr,
    instr_ptr: Ptr,
    stackpointer: Ptr,
    tlbc_index: i32,
    return_offset: u16,
    owner: i8,
    visited: u8,
    localsplus: [StackRef; 1],
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
    _co_unique_id: isize,
    _co_firsttraceable: i32,
    co_extra: Ptr,
    co_code_adaptive: [u8; 1],
}

/// Under `Py_GIL_DISABLED`.
#[repr(C)]
struct FreeThreadedCodeObject<H> {
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
    _co_unique_id: isize,
    _co_firsttraceable: i32,
    co_extra: Ptr,
    co_tlbc: Ptr,
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
    f_overwritten_fast_locals: Ptr,
    _f_frame_data: [Ptr; 1],
}

#[repr(C)]
struct PyTupleObject<H> {
    ob_base: PyVarObject<H>,
    ob_hash: isize,
    ob_item: [Ptr; 1],
}

pub(super) const fn row<H: Header>(build: Build) -> Row {
    Row {
        minor: 14,
        immortality: Immortality::From(3 << 30),
        tuple_ob_item: offset_of!(PyTupleObject<H>, ob_item),
        function: FunctionLayout::of::<H, 9>(),
        frame: frame_layout!(
            PyInterpreterFrame,
            executable: f_executable,
            function: f_funcobj,
            instruction: Next(instr_ptr),
            stack_top: Pointer(stackpointer)
        ),
        code: code_layout!(PyCodeObject<H>, co_tlbc: None),
        frame_object: frame_object_layout!(PyFrameObject<H>),
        opcode: Opcodes {
            make_cell: 97,
            copy_free_vars: 60,
            extended_arg: 69,
        },
        debug_offsets: Some(DebugOffsets {
            thread_state: 176,
            interpreter_frame: 248,
            code_object: 312,
            pyobject: 400,
            tuple_object: 448,
            bytes_object: 592,
            gen_object: Some(664),
        }),
        ..v3_13::row::<H>(build)
    }
}

/// What `Py_GIL_DISABLED` changes besides the object header.
pub(super) const fn free_threaded(default: Row) -> Row {
    Row {
        frame: FrameLayout {
            tlbc_index: Some(offset_of!(FreeThreadedInterpreterFrame, tlbc_index)),
            owner: offset_of!(FreeThreadedInterpreterFrame, owner),
            ..default.frame
        },
        code: code_layout!(
            FreeThreadedCodeObject<FreeThreadedPyObject>,
            co_tlbc: Some(offset_of!(FreeThreadedCodeObject<FreeThreadedPyObject>, co_tlbc))
        ),
        ..default
    }
}

/// The default build.
pub struct Gil;

impl Layout for Gil {
    type Slot = Tagged;
    const ROW: Row = row::<PyObject>(Build::Gil);
}

/// `--disable-gil`.
pub struct FreeThreaded;

impl Layout for FreeThreaded {
    type Slot = Tagged;
    const ROW: Row = free_threaded(row::<FreeThreadedPyObject>(Build::FreeThreaded));
}

const _: () = assert!(Gil::ROW.frame.owner == 74);
const _: () = assert!(Gil::ROW.frame.localsplus == 80);
const _: () = assert!(Gil::ROW.code.co_code_adaptive == 208);
const _: () = assert!(FreeThreaded::ROW.frame.owner == 78);
const _: () = assert!(FreeThreaded::ROW.code.co_code_adaptive == 232);
const _: () = assert!(size_of::<FreeThreadedInterpreterFrame>() == size_of::<PyInterpreterFrame>());
const _: () =
    assert!(offset_of!(FreeThreadedInterpreterFrame, localsplus) == Gil::ROW.frame.localsplus);

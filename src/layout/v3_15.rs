//! CPython 3.15. Read in the same headers as 3.14, of 3.15.2.
//!
//! Since 3.14: no struct that is read here has changed. New are the generator
//! states, the opcodes and the positions in `_Py_DebugOffsets`.

use super::object::{FreeThreadedPyObject, Header, PyObject};
use super::slot::StackRef as Tagged;
use super::{Build, DebugOffsets, GeneratorLayout, Layout, Opcodes, Row, v3_14};

pub(super) use super::v3_14::free_threaded;

pub(super) const fn row<H: Header>(build: Build) -> Row {
    let v3_14 = v3_14::row::<H>(build);
    Row {
        minor: 15,
        generator: GeneratorLayout {
            created: 0,
            executing: 4,
            finished: 5,
            ..v3_14.generator
        },
        opcode: Opcodes {
            make_cell: 96,
            copy_free_vars: 58,
            extended_arg: 67,
        },
        debug_offsets: Some(DebugOffsets {
            thread_state: 176,
            interpreter_frame: 312,
            code_object: 376,
            pyobject: 464,
            tuple_object: 544,
            bytes_object: 688,
            gen_object: Some(792),
        }),
        ..v3_14
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

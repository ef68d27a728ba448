//! What the supported interpreters' structs look like, as data, and the
//! comparison of that data with what the running interpreter says of itself.
//!
//! A version file holds `#[repr(C)]` structs with CPython's own field names and
//! turns them into a [`Row`] per build. A debug build (`Py_DEBUG`) has the
//! layout of the release build in every version, hence no row of its own.

pub mod cross_check;
pub mod named_values;
mod object;
pub mod slot;
pub mod v3_11;
pub mod v3_12;
pub mod v3_13;
pub mod v3_14;
pub mod v3_15;

use std::fmt;

use crate::read::Functions;
use crate::runtime::{Counting, Running};
use slot::Slot;

/// One interpreter build's layout, for code that is generic over it.
pub trait Layout: 'static {
    /// How `localsplus[i]`, the executable and the function are stored.
    type Slot: Slot;
    /// The offsets.
    const ROW: Row;
}

/// The builds of one version that differ in layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// The default build.
    Gil,
    /// `Py_GIL_DISABLED`.
    FreeThreaded,
    /// `Py_TRACE_REFS`, which changes the object header on 3.11 and 3.12.
    TraceRefs,
}

/// One interpreter build's layout. All offsets are in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The minor version, 11 for 3.11.
    pub minor: u8,
    /// Which build of it.
    pub build: Build,
    /// `PyObject` and the objects that only depend on its size.
    pub object: ObjectLayout,
    /// How references are counted.
    pub immortality: Immortality,
    /// `PyTupleObject.ob_item`.
    pub tuple_ob_item: usize,
    /// `PyFunctionObject`.
    pub function: FunctionLayout,
    /// `_PyInterpreterFrame`.
    pub frame: FrameLayout,
    /// `PyThreadState`.
    pub thread: ThreadLayout,
    /// Whether an eval-frame function is to clear the frame that it is given (since
    /// 3.12). Otherwise its caller does.
    pub hook_owns_frame: bool,
    /// `PyCodeObject`.
    pub code: CodeLayout,
    /// `PyFrameObject`.
    pub frame_object: FrameObjectLayout,
    /// `PyGenObject`, and the coroutine objects that share its head.
    pub generator: GeneratorLayout,
    /// The opcodes of the prologue.
    pub opcode: Opcodes,
    /// Where `_PyRuntime` says the same; `None` before 3.13.
    pub debug_offsets: Option<DebugOffsets>,
}

impl fmt::Display for Row {
    /// As in the provider's name: `3.14`, `3.14t`, `3.11 trace-refs`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let build = match self.build {
            Build::Gil => "",
            Build::FreeThreaded => "t",
            Build::TraceRefs => " trace-refs",
        };
        write!(f, "3.{}{build}", self.minor)
    }
}

/// Offsets that follow from the object header alone.
#[derive(Debug, Clone, Copy)]
pub struct ObjectLayout {
    /// `sizeof(PyObject)`.
    pub size: usize,
    /// `PyObject.ob_type`.
    pub ob_type: usize,
    /// `PyObject.ob_refcnt`; `None` in free-threaded builds, which count in
    /// several fields.
    pub ob_refcnt: Option<usize>,
    /// `PyVarObject.ob_size`.
    pub ob_size: usize,
    /// `PyBytesObject.ob_sval`.
    pub bytes_ob_sval: usize,
}

/// What `Py_INCREF` does in a build without `Py_REF_DEBUG`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Immortality {
    /// Every object is counted (3.11).
    None,
    /// The low 32 bits are counted, and stay at their maximum (3.12, 3.13).
    Saturating,
    /// 32 bits are counted below this value (3.14 and later).
    From(u32),
}

impl Immortality {
    /// Counts one reference more.
    ///
    /// # Safety
    /// `count` is the `ob_refcnt` of a live object, and no other thread uses it.
    #[inline(always)]
    pub unsafe fn increment(self, count: *mut u64) {
        // As wide as the interpreter's own accesses: reading a count right after
        // part of it was stored stalls.
        match self {
            Self::None => {
                // SAFETY: the caller promises a live count.
                let old = unsafe { count.read() };
                // SAFETY: as above.
                unsafe { count.write(old.wrapping_add(1)) };
            }
            Self::Saturating => {
                // SAFETY: as above.
                let old = unsafe { count.read() };
                if old as u32 != u32::MAX {
                    // Py_INCREF stores half of it; Py_DECREF loads all of it.
                    // SAFETY: as above.
                    unsafe { count.write(old.wrapping_add(1)) };
                }
            }
            Self::From(first) => {
                let count = count.cast::<u32>();
                // SAFETY: as above; on a little-endian machine this is the low
                // half, which is what counts.
                let old = unsafe { count.read() };
                if old < first {
                    // SAFETY: as above.
                    unsafe { count.write(old.wrapping_add(1)) };
                }
            }
        }
    }

    /// Counts one reference less, and answers whether it was the last.
    ///
    /// # Safety
    /// As [`increment`](Self::increment); the reference is the caller's.
    #[inline(always)]
    pub unsafe fn decrement(self, count: *mut u64) -> bool {
        if self == Self::None {
            // SAFETY: the caller promises a live count.
            let left = unsafe { count.read() }.wrapping_sub(1);
            // SAFETY: as above.
            unsafe { count.write(left) };
            return left == 0;
        }
        // SAFETY: as above; this is the low half.
        let low = unsafe { count.cast::<u32>().read() };
        // `_Py_IsImmortal`: from 2**31 on.
        if (low as i32) < 0 {
            return false;
        }
        if let Self::From(_) = self {
            // SAFETY: as above.
            unsafe { count.cast::<u32>().write(low.wrapping_sub(1)) };
            return low == 1;
        }
        // SAFETY: as above.
        let left = unsafe { count.read() }.wrapping_sub(1);
        // SAFETY: as above.
        unsafe { count.write(left) };
        left == 0
    }
}

/// Offsets in `PyFunctionObject`.
#[derive(Debug, Clone, Copy)]
pub struct FunctionLayout {
    /// `sizeof(PyFunctionObject)`.
    pub size: usize,
    /// `func_builtins`.
    pub func_builtins: usize,
    /// A tuple of cells, or NULL.
    pub func_closure: usize,
}

/// How a frame says how much of `localsplus` is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackTop {
    /// `int stacktop`: an index into `localsplus`, -1 while executing.
    Index,
    /// `_PyStackRef *stackpointer`: NULL at times while executing.
    Pointer,
}

/// Which instruction a frame points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// `prev_instr`: the one that ran last. A frame that has not started points in
    /// front of its code.
    Last,
    /// `instr_ptr`: the one that is running, or runs next.
    Next,
}

/// Offsets in `_PyInterpreterFrame`, whatever the version calls the field.
#[derive(Debug, Clone, Copy)]
pub struct FrameLayout {
    /// `sizeof(_PyInterpreterFrame)`.
    pub size: usize,
    /// `f_code` (3.11, 3.12) or `f_executable`.
    pub executable: usize,
    /// `previous`.
    pub previous: usize,
    /// `f_func` (3.11) or `f_funcobj`.
    pub function: usize,
    /// `f_globals`: borrowed from the function.
    pub globals: usize,
    /// `f_builtins`: likewise.
    pub builtins: usize,
    /// `f_locals`: a mapping, or NULL.
    pub locals: usize,
    /// `frame_obj`: NULL if there is none.
    pub frame_obj: usize,
    /// `prev_instr` (3.11, 3.12) or `instr_ptr`.
    pub instruction: usize,
    /// Which of the two it is.
    pub instruction_kind: Instruction,
    /// `stacktop` or `stackpointer`.
    pub stack_top: usize,
    /// Which of the two it is.
    pub stack_top_kind: StackTop,
    /// `tlbc_index`: which copy of the bytecode `instruction` points into.
    pub tlbc_index: Option<usize>,
    /// `owner`.
    pub owner: usize,
    /// `localsplus`.
    pub localsplus: usize,
}

/// How a thread finds the frame that it is running.
#[derive(Debug, Clone, Copy)]
pub struct ThreadLayout {
    /// `PyThreadState.cframe`, on 3.11 and 3.12: `current_frame` is in there.
    pub cframe: Option<usize>,
    /// `current_frame`, in `_PyCFrame` or in `PyThreadState`.
    pub current_frame: usize,
}

/// Offsets in `PyCodeObject`.
#[derive(Debug, Clone, Copy)]
pub struct CodeLayout {
    /// `sizeof(PyCodeObject)`.
    pub size: usize,
    /// `co_flags`.
    pub co_flags: usize,
    /// `co_argcount`.
    pub co_argcount: usize,
    /// `co_posonlyargcount`.
    pub co_posonlyargcount: usize,
    /// `co_kwonlyargcount`.
    pub co_kwonlyargcount: usize,
    /// `co_stacksize`.
    pub co_stacksize: usize,
    /// `co_nlocalsplus`.
    pub co_nlocalsplus: usize,
    /// `co_nfreevars`.
    pub co_nfreevars: usize,
    /// `co_localsplusnames`.
    pub co_localsplusnames: usize,
    /// `co_localspluskinds`.
    pub co_localspluskinds: usize,
    /// `_co_firsttraceable`.
    pub co_firsttraceable: usize,
    /// `co_tlbc`: the threads' copies of the bytecode (free-threaded 3.14+).
    pub co_tlbc: Option<usize>,
    /// `co_code_adaptive`.
    pub co_code_adaptive: usize,
}

/// Offsets in `PyFrameObject`.
#[derive(Debug, Clone, Copy)]
pub struct FrameObjectLayout {
    /// `f_back`: NULL while the frame is linked to the one below it.
    pub f_back: usize,
    /// `f_frame`.
    pub f_frame: usize,
    /// `_f_frame_data`.
    pub f_frame_data: usize,
}

/// Offsets in `PyGenObject`.
#[derive(Debug, Clone, Copy)]
pub struct GeneratorLayout {
    /// `gi_iframe`.
    pub gi_iframe: usize,
    /// `gi_frame_state`.
    pub gi_frame_state: usize,
    /// `FRAME_CREATED`.
    pub created: i8,
    /// `FRAME_EXECUTING`. What is between the two is suspended.
    pub executing: i8,
    /// The lowest state that means "finished": `FRAME_COMPLETED`, or
    /// `FRAME_CLEARED` where there is no such state.
    pub finished: i8,
}

/// The opcodes of the prologue.
#[derive(Debug, Clone, Copy)]
pub struct Opcodes {
    /// `MAKE_CELL`.
    pub make_cell: u8,
    /// `COPY_FREE_VARS`.
    pub copy_free_vars: u8,
    /// `EXTENDED_ARG`.
    pub extended_arg: u8,
}

/// Where fields of `_Py_DebugOffsets` stand in `_PyRuntime`.
///
/// Every minor version inserts fields, so these are only read after the cookie
/// and the version have matched.
#[derive(Debug, Clone, Copy)]
pub struct DebugOffsets {
    /// `thread_state`: `current_frame` is its fifth word.
    pub thread_state: usize,
    /// `interpreter_frame`: six words from `size` to `owner`, then
    /// `stackpointer` and `tlbc_index` on 3.14 and later.
    pub interpreter_frame: usize,
    /// `code_object`: `size` is its first word, `localsplusnames`,
    /// `localspluskinds`, `co_code_adaptive` (and `co_tlbc`) its eighth to last.
    pub code_object: usize,
    /// `pyobject`: `size`, `ob_type`.
    pub pyobject: usize,
    /// `tuple_object`: `size`, `ob_item`, `ob_size`.
    pub tuple_object: usize,
    /// `bytes_object`: `size`, `ob_size`, `ob_sval`.
    pub bytes_object: usize,
    /// `gen_object`: `size`, `gi_name`, `gi_iframe`, `gi_frame_state`; since
    /// 3.14.
    pub gen_object: Option<usize>,
}

/// The [`CodeLayout`] of a struct with CPython's field names.
macro_rules! code_layout {
    ($code:ty, co_tlbc: $co_tlbc:expr) => {
        $crate::layout::CodeLayout {
            size: size_of::<$code>(),
            co_flags: offset_of!($code, co_flags),
            co_argcount: offset_of!($code, co_argcount),
            co_posonlyargcount: offset_of!($code, co_posonlyargcount),
            co_kwonlyargcount: offset_of!($code, co_kwonlyargcount),
            co_stacksize: offset_of!($code, co_stacksize),
            co_nlocalsplus: offset_of!($code, co_nlocalsplus),
            co_nfreevars: offset_of!($code, co_nfreevars),
            co_localsplusnames: offset_of!($code, co_localsplusnames),
            co_localspluskinds: offset_of!($code, co_localspluskinds),
            co_firsttraceable: offset_of!($code, _co_firsttraceable),
            co_tlbc: $co_tlbc,
            co_code_adaptive: offset_of!($code, co_code_adaptive),
        }
    };
}
use code_layout;

/// The [`FrameLayout`] of a struct, whatever it calls these fields.
macro_rules! frame_layout {
    (
        $frame:ty,
        executable: $executable:ident,
        function: $function:ident,
        instruction: $instruction_kind:ident($instruction:ident),
        stack_top: $kind:ident($stack_top:ident)
    ) => {
        $crate::layout::FrameLayout {
            size: size_of::<$frame>(),
            executable: offset_of!($frame, $executable),
            previous: offset_of!($frame, previous),
            function: offset_of!($frame, $function),
            globals: offset_of!($frame, f_globals),
            builtins: offset_of!($frame, f_builtins),
            locals: offset_of!($frame, f_locals),
            frame_obj: offset_of!($frame, frame_obj),
            instruction: offset_of!($frame, $instruction),
            instruction_kind: $crate::layout::Instruction::$instruction_kind,
            stack_top: offset_of!($frame, $stack_top),
            stack_top_kind: $crate::layout::StackTop::$kind,
            tlbc_index: None,
            owner: offset_of!($frame, owner),
            localsplus: offset_of!($frame, localsplus),
        }
    };
}
use frame_layout;

/// The [`FrameObjectLayout`] of a struct with CPython's field names.
macro_rules! frame_object_layout {
    ($frame_object:ty) => {
        $crate::layout::FrameObjectLayout {
            f_back: offset_of!($frame_object, f_back),
            f_frame: offset_of!($frame_object, f_frame),
            f_frame_data: offset_of!($frame_object, _f_frame_data),
        }
    };
}
use frame_object_layout;

/// How much of `_PyRuntime` is looked at: enough for every [`DebugOffsets`].
pub const DEBUG_OFFSETS_SIZE: usize = 1024;

/// A row, and the reading functions compiled for it.
pub struct Entry {
    /// The offsets.
    pub row: Row,
    /// The functions for this row in the running interpreter.
    pub functions: Functions,
    /// The same for `Py_REF_DEBUG` builds, which keep totals of all references.
    pub ref_debug_functions: Functions,
}

const fn entry<L: Layout>() -> Entry {
    Entry {
        row: L::ROW,
        functions: Functions::of::<L, Counting<L>>(),
        ref_debug_functions: Functions::of::<L, Running>(),
    }
}

/// Every layout there is.
pub static TABLE: [Entry; 10] = [
    entry::<v3_11::Gil>(),
    entry::<v3_11::TraceRefs>(),
    entry::<v3_12::Gil>(),
    entry::<v3_12::TraceRefs>(),
    entry::<v3_13::Gil>(),
    entry::<v3_13::FreeThreaded>(),
    entry::<v3_14::Gil>(),
    entry::<v3_14::FreeThreaded>(),
    entry::<v3_15::Gil>(),
    entry::<v3_15::FreeThreaded>(),
];

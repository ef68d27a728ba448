//! Every row with one column wrong at a time, for tests/python/test_columns.py: whether
//! the running interpreter refuses it.

use std::ffi::{CString, c_char};
use std::marker::PhantomData;
use std::ptr::null;

use localsplus::internals::{
    Counting, Entry, Functions, Immortality, Instruction, Layout, Row, Runtime, StackTop, Symbols,
    TABLE, named_values::named_values, refuse, v3_11, v3_12, v3_13, v3_14, v3_15,
};

/// `L` with column number `COLUMN` wrong.
struct Wrong<L, const COLUMN: usize>(PhantomData<L>);

impl<L: Layout, const COLUMN: usize> Layout for Wrong<L, COLUMN> {
    type Slot = L::Slot;
    const ROW: Row = wrong(L::ROW, COLUMN);
}

/// A column that this row has not stays as it is.
const fn moved(offset: Option<usize>) -> Option<usize> {
    match offset {
        Some(offset) => Some(offset + 8),
        None => None,
    }
}

macro_rules! columns {
    ($($number:literal $name:literal |$row:ident| $change:expr;)*) => {
        const NAMES: [&str; [$($number),*].len()] = [$($name),*];

        const fn wrong(mut row: Row, column: usize) -> Row {
            match column {
                $($number => {
                    let $row = &mut row;
                    $change;
                })*
                _ => {}
            }
            row
        }

        fn refuse_row<L: Layout>(column: usize, runtime: &Runtime, symbols: &Symbols) -> Option<String> {
            let entry = match column {
                $($number => const { &entry::<Wrong<L, $number>>() },)*
                _ => const { &entry::<L>() },
            };
            refuse(entry, runtime, symbols)
        }
    };
}

const fn entry<L: Layout>() -> Entry {
    Entry {
        row: L::ROW,
        functions: Functions::of::<L, Counting<L>>(),
        // Counting as a debug build does needs no column.
        ref_debug_functions: Functions::of::<L, Counting<L>>(),
    }
}

columns! {
    0 "object.size" |row| row.object.size += 8;
    1 "object.ob_type" |row| row.object.ob_type += 8;
    2 "object.ob_refcnt" |row| row.object.ob_refcnt = moved(row.object.ob_refcnt);
    3 "object.ob_size" |row| row.object.ob_size += 8;
    4 "object.bytes_ob_sval" |row| row.object.bytes_ob_sval += 8;
    5 "immortality" |row| row.immortality = match row.immortality {
        Immortality::None => Immortality::Saturating,
        Immortality::Saturating => Immortality::From(3 << 30),
        Immortality::From(_) => Immortality::None,
    };
    6 "tuple_ob_item" |row| row.tuple_ob_item += 8;
    7 "function.size" |row| row.function.size += 8;
    8 "function.func_builtins" |row| row.function.func_builtins += 8;
    9 "function.func_closure" |row| row.function.func_closure += 8;
    10 "frame.size" |row| row.frame.size += 8;
    11 "frame.executable" |row| row.frame.executable += 8;
    12 "frame.previous" |row| row.frame.previous += 8;
    13 "frame.function" |row| row.frame.function += 8;
    14 "frame.globals" |row| row.frame.globals += 8;
    15 "frame.builtins" |row| row.frame.builtins += 8;
    16 "frame.locals" |row| row.frame.locals += 8;
    17 "frame.frame_obj" |row| row.frame.frame_obj += 8;
    18 "frame.instruction" |row| row.frame.instruction += 8;
    19 "frame.instruction_kind" |row| row.frame.instruction_kind = match row.frame.instruction_kind {
        Instruction::Last => Instruction::Next,
        Instruction::Next => Instruction::Last,
    };
    // (The word after the next is empty, too, in a frame that is.)
    20 "frame.stack_top" |row| row.frame.stack_top += 4;
    21 "frame.stack_top_kind" |row| row.frame.stack_top_kind = match row.frame.stack_top_kind {
        StackTop::Index => StackTop::Pointer,
        StackTop::Pointer => StackTop::Index,
    };
    22 "frame.tlbc_index" |row| row.frame.tlbc_index = moved(row.frame.tlbc_index);
    23 "frame.owner" |row| row.frame.owner += 8;
    24 "frame.localsplus" |row| row.frame.localsplus += 8;
    25 "thread.cframe" |row| row.thread.cframe = moved(row.thread.cframe);
    26 "thread.current_frame" |row| row.thread.current_frame += 8;
    27 "hook_owns_frame" |row| row.hook_owns_frame = !row.hook_owns_frame;
    28 "code.size" |row| row.code.size += 8;
    29 "code.co_flags" |row| row.code.co_flags += 8;
    30 "code.co_argcount" |row| row.code.co_argcount += 8;
    31 "code.co_posonlyargcount" |row| row.code.co_posonlyargcount += 8;
    32 "code.co_kwonlyargcount" |row| row.code.co_kwonlyargcount += 8;
    33 "code.co_nlocalsplus" |row| row.code.co_nlocalsplus += 8;
    34 "code.co_nfreevars" |row| row.code.co_nfreevars += 8;
    35 "code.co_localsplusnames" |row| row.code.co_localsplusnames += 8;
    36 "code.co_localspluskinds" |row| row.code.co_localspluskinds += 8;
    37 "code.co_firsttraceable" |row| row.code.co_firsttraceable += 8;
    38 "code.co_tlbc" |row| row.code.co_tlbc = moved(row.code.co_tlbc);
    39 "code.co_code_adaptive" |row| row.code.co_code_adaptive += 8;
    40 "frame_object.f_back" |row| row.frame_object.f_back += 8;
    41 "frame_object.f_frame" |row| row.frame_object.f_frame += 8;
    42 "frame_object.f_frame_data" |row| row.frame_object.f_frame_data += 8;
    43 "generator.gi_iframe" |row| row.generator.gi_iframe += 8;
    44 "generator.gi_frame_state" |row| row.generator.gi_frame_state -= 8;
    45 "generator.created" |row| row.generator.created += 1;
    46 "generator.executing" |row| row.generator.executing += 1;
    47 "generator.finished" |row| row.generator.finished += 1;
    48 "opcode.make_cell" |row| row.opcode.make_cell += 1;
    49 "opcode.copy_free_vars" |row| row.opcode.copy_free_vars += 1;
    50 "opcode.extended_arg" |row| row.opcode.extended_arg += 1;
    51 "code.co_stacksize" |row| row.code.co_stacksize += 8;
}

/// The name of a column; NULL after the last.
#[unsafe(no_mangle)]
extern "C" fn wrong_rows_name(column: usize) -> *const c_char {
    NAMES.get(column).map_or(null(), |name| leaked(name))
}

/// A column that `named_values` knows and that is not wrong anywhere here; NULL if there
/// is none.
#[unsafe(no_mangle)]
extern "C" fn wrong_rows_forgotten() -> *const c_char {
    let values = named_values(&TABLE[0].row);
    let mut fields = values.iter().filter_map(|value| value.field);
    let is_forgotten = |field: &&str| !NAMES.contains(&field.trim_start_matches('.'));
    fields.find(is_forgotten).map_or(null(), leaked)
}

/// Why the running interpreter refuses the row of its version and build with that column
/// wrong (none, after the last); NULL if it does not. Needs an attached thread.
#[unsafe(no_mangle)]
extern "C" fn wrong_rows_refuse(column: usize) -> *const c_char {
    let symbols = Symbols::open();
    let Ok(runtime) = Runtime::inspect(&symbols) else {
        return leaked("this interpreter tells nothing");
    };
    let refuse = match (runtime.minor(), runtime.free_threaded, runtime.trace_refs) {
        (Some(11), _, false) => refuse_row::<v3_11::Gil>,
        (Some(11), _, true) => refuse_row::<v3_11::TraceRefs>,
        (Some(12), _, false) => refuse_row::<v3_12::Gil>,
        (Some(12), _, true) => refuse_row::<v3_12::TraceRefs>,
        (Some(13), false, _) => refuse_row::<v3_13::Gil>,
        (Some(13), true, _) => refuse_row::<v3_13::FreeThreaded>,
        (Some(14), false, _) => refuse_row::<v3_14::Gil>,
        (Some(14), true, _) => refuse_row::<v3_14::FreeThreaded>,
        (Some(15), false, _) => refuse_row::<v3_15::Gil>,
        (Some(15), true, _) => refuse_row::<v3_15::FreeThreaded>,
        _ => return leaked("no row"),
    };
    refuse(column, &runtime, &symbols).map_or(null(), |reason| leaked(&reason))
}

/// For a process that asks once and ends.
fn leaked(text: &str) -> *const c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

//! What a row says, by the names that `shims/offsets.c` prints out of CPython's
//! headers.

use super::{Build, Immortality, Instruction, Row, StackTop, slot};
use crate::read::{
    OWNED_BY_FRAME_OBJECT, OWNED_BY_GENERATOR, OWNED_BY_INTERPRETER, OWNED_BY_THREAD, kind,
};

/// One value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedValue {
    /// As `shims/offsets.c` prints it.
    pub name: &'static str,
    /// Where the row has it, `.frame.owner` for example; `None` for what follows
    /// from a kind, a version, or the reading code itself.
    pub field: Option<&'static str>,
    /// `None`: there is no such thing in this version or build.
    pub value: Option<u64>,
}

macro_rules! fields {
    ($row:ident: $($name:literal = $($field:ident).+,)*) => {
        vec![$(NamedValue {
            name: $name,
            field: Some(concat!($(".", stringify!($field)),+)),
            value: Some($row.$($field).+ as u64),
        },)*]
    };
}

/// Everything that `row` says, and what the reading code takes for granted in it.
pub fn named_values(row: &Row) -> Vec<NamedValue> {
    let mut values = fields![row:
        "object.size" = object.size,
        "object.ob_type" = object.ob_type,
        "varobject.ob_size" = object.ob_size,
        "bytes.ob_sval" = object.bytes_ob_sval,
        "tuple.ob_item" = tuple_ob_item,
        "basicsize.object" = object.size,
        "basicsize.function" = function.size,
        "function.func_builtins" = function.func_builtins,
        "function.func_closure" = function.func_closure,
        "frame.size" = frame.size,
        "frame.executable" = frame.executable,
        "frame.previous" = frame.previous,
        "frame.function" = frame.function,
        "frame.globals" = frame.globals,
        "frame.builtins" = frame.builtins,
        "frame.locals" = frame.locals,
        "frame.frame_obj" = frame.frame_obj,
        "frame.instr" = frame.instruction,
        "frame.stack" = frame.stack_top,
        "frame.owner" = frame.owner,
        "frame.localsplus" = frame.localsplus,
        "code.size" = code.size,
        "code.co_flags" = code.co_flags,
        "code.co_argcount" = code.co_argcount,
        "code.co_posonlyargcount" = code.co_posonlyargcount,
        "code.co_kwonlyargcount" = code.co_kwonlyargcount,
        "code.co_stacksize" = code.co_stacksize,
        "code.co_nlocalsplus" = code.co_nlocalsplus,
        "code.co_nfreevars" = code.co_nfreevars,
        "code.co_localsplusnames" = code.co_localsplusnames,
        "code.co_localspluskinds" = code.co_localspluskinds,
        "code._co_firsttraceable" = code.co_firsttraceable,
        "code.co_code_adaptive" = code.co_code_adaptive,
        "thread.current_frame" = thread.current_frame,
        "frame_object.f_back" = frame_object.f_back,
        "frame_object.f_frame" = frame_object.f_frame,
        "frame_object._f_frame_data" = frame_object.f_frame_data,
        "generator.gi_iframe" = generator.gi_iframe,
        "generator.gi_frame_state" = generator.gi_frame_state,
        "generator.finished" = generator.finished,
        "opcode.MAKE_CELL" = opcode.make_cell,
        "opcode.COPY_FREE_VARS" = opcode.copy_free_vars,
        "opcode.EXTENDED_ARG" = opcode.extended_arg,
    ];
    let other = |(name, value)| NamedValue {
        name,
        field: None,
        value,
    };
    values.extend(taken_for_granted(row).into_iter().map(other));
    values.extend(debug_offsets(row).into_iter().map(other));
    values
}

/// What other fields than offsets stand for.
fn taken_for_granted(row: &Row) -> Vec<(&'static str, Option<u64>)> {
    let number = |offset: usize| offset as u64;
    let (stack_size, null, tag_mask, int_tag) = match row.frame.stack_top_kind {
        StackTop::Index => (4, 0, 0, None),
        StackTop::Pointer => {
            let tags = slot::TAG_REFCNT | slot::TAG_NOT_OBJECT;
            let null = number(slot::TAG_REFCNT);
            (8, null, null, Some(number(tags)))
        }
    };
    let state = |state: i8| i64::from(state).cast_unsigned();
    let immortal_from = match row.immortality {
        // Several fields count.
        _ if row.build == Build::FreeThreaded => None,
        Immortality::None => Some(1 << 32),
        Immortality::Saturating => Some(u32::MAX.into()),
        Immortality::From(count) => Some(count.into()),
    };
    vec![
        ("object.ob_refcnt", row.object.ob_refcnt.map(number)),
        ("frame.stack_size", Some(stack_size)),
        (
            "frame.instr_is_next",
            Some((row.frame.instruction_kind == Instruction::Next).into()),
        ),
        ("thread.cframe", row.thread.cframe.map(number)),
        ("frame.tlbc_index", row.frame.tlbc_index.map(number)),
        ("code.co_tlbc", row.code.co_tlbc.map(number)),
        ("code_array.entries", row.code.co_tlbc.and(Some(8))),
        ("code.unit_size", Some(2)),
        ("slot.null", Some(null)),
        ("slot.tag_mask", Some(tag_mask)),
        ("slot.int_tag", int_tag),
        ("owner.generator", Some(OWNED_BY_GENERATOR.into())),
        ("owner.shim", Some(OWNED_BY_INTERPRETER.into())),
        ("owner.thread", Some(OWNED_BY_THREAD.into())),
        ("owner.frame_object", Some(OWNED_BY_FRAME_OBJECT.into())),
        ("kind.LOCAL", Some(kind::LOCAL.into())),
        ("kind.CELL", Some(kind::CELL.into())),
        ("kind.FREE", Some(kind::FREE.into())),
        (
            "kind.HIDDEN",
            (row.minor > 11).then_some(kind::HIDDEN.into()),
        ),
        ("flag.CO_OPTIMIZED", Some(0x1)),
        ("generator.created", Some(state(row.generator.created))),
        ("generator.executing", Some(state(row.generator.executing))),
        ("flag.CO_VARARGS", Some(0x4)),
        ("flag.CO_VARKEYWORDS", Some(0x8)),
        ("count.immortal_from", immortal_from),
    ]
}

/// The positions that the cross-check computes from those in the row.
fn debug_offsets(row: &Row) -> Vec<(&'static str, Option<u64>)> {
    let word = |start: Option<usize>, word: usize| start.map(|start| (start + 8 * word) as u64);
    let at = row.debug_offsets.as_ref();
    let thread = at.map(|at| at.thread_state);
    let frame = at.map(|at| at.interpreter_frame);
    let code = at.map(|at| at.code_object);
    let object = at.map(|at| at.pyobject);
    let tuple = at.map(|at| at.tuple_object);
    let bytes = at.map(|at| at.bytes_object);
    let generator = at.and_then(|at| at.gen_object);
    // Both came with the generator's.
    let new_frame = generator.and(frame);
    let new_code = generator.and(code);
    vec![
        ("debug_offsets.position", at.and(Some(0))),
        ("debug_offsets.thread_state.size", word(thread, 0)),
        ("debug_offsets.thread_state.current_frame", word(thread, 4)),
        ("debug_offsets.interpreter_frame.size", word(frame, 0)),
        ("debug_offsets.interpreter_frame.previous", word(frame, 1)),
        ("debug_offsets.interpreter_frame.executable", word(frame, 2)),
        ("debug_offsets.interpreter_frame.instr_ptr", word(frame, 3)),
        ("debug_offsets.interpreter_frame.localsplus", word(frame, 4)),
        ("debug_offsets.interpreter_frame.owner", word(frame, 5)),
        (
            "debug_offsets.interpreter_frame.stackpointer",
            word(new_frame, 6),
        ),
        (
            "debug_offsets.interpreter_frame.tlbc_index",
            word(new_frame, 7),
        ),
        ("debug_offsets.code_object.size", word(code, 0)),
        ("debug_offsets.code_object.localsplusnames", word(code, 7)),
        ("debug_offsets.code_object.localspluskinds", word(code, 8)),
        ("debug_offsets.code_object.co_code_adaptive", word(code, 9)),
        ("debug_offsets.code_object.co_tlbc", word(new_code, 10)),
        ("debug_offsets.pyobject.size", word(object, 0)),
        ("debug_offsets.pyobject.ob_type", word(object, 1)),
        ("debug_offsets.tuple_object.size", word(tuple, 0)),
        ("debug_offsets.tuple_object.ob_item", word(tuple, 1)),
        ("debug_offsets.tuple_object.ob_size", word(tuple, 2)),
        ("debug_offsets.bytes_object.size", word(bytes, 0)),
        ("debug_offsets.bytes_object.ob_sval", word(bytes, 2)),
        ("debug_offsets.gen_object.size", word(generator, 0)),
        ("debug_offsets.gen_object.gi_iframe", word(generator, 2)),
        (
            "debug_offsets.gen_object.gi_frame_state",
            word(generator, 3),
        ),
    ]
}

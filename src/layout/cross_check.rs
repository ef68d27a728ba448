//! Compares a row with what the running interpreter says of itself, before
//! anything is read through the row.

use super::{Build, DebugOffsets, Row};
use crate::error::Mismatch;
use crate::runtime::Runtime;

/// The first bytes of `_PyRuntime` since 3.13.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The field.
    pub field: &'static str,
    /// Where it stands in `_PyRuntime`, if it is one of `_Py_DebugOffsets`.
    pub position: Option<usize>,
    /// What the row says.
    pub expected: u64,
    /// What the interpreter says; `None` if it does not.
    pub found: Option<u64>,
}

impl Check {
    /// Whether the two agree.
    pub fn passes(&self) -> bool {
        self.found == Some(self.expected)
    }

    /// The two values, as text.
    pub fn mismatch(&self) -> Mismatch {
        let text = |value| match self.field {
            COOKIE_FIELD | VERSION_FIELD => format!("{value:#x}"),
            _ => u64::to_string(&value),
        };
        Mismatch {
            field: self.field.to_owned(),
            expected: text(self.expected),
            found: self.found.map_or_else(|| "nothing".to_owned(), text),
        }
    }
}

const COOKIE_FIELD: &str = "_Py_DebugOffsets.cookie";
const VERSION_FIELD: &str = "_Py_DebugOffsets.version";

/// The first comparison that fails, as an error.
pub fn cross_check(row: &Row, runtime: &Runtime) -> Result<(), Mismatch> {
    let failed = checks(row, runtime)
        .into_iter()
        .find(|check| !check.passes());
    failed.map_or(Ok(()), |check| Err(check.mismatch()))
}

/// Every comparison there is for `row`. If the debug offsets are not those of
/// this version, their fields mean nothing, and the list ends there.
pub fn checks(row: &Row, runtime: &Runtime) -> Vec<Check> {
    let sizes = &runtime.basic_sizes;
    let size = |field, expected: usize, found: usize| Check {
        field,
        position: None,
        expected: expected as u64,
        found: Some(found as u64),
    };
    let mut checks = vec![
        size("object.__basicsize__", row.object.size, sizes.object),
        size(
            "types.FrameType.__basicsize__",
            row.frame_object.f_frame_data + row.frame.localsplus,
            sizes.frame,
        ),
        size(
            "types.CodeType.__basicsize__",
            row.code.co_code_adaptive,
            sizes.code,
        ),
        size(
            "types.GeneratorType.__basicsize__",
            row.generator.gi_iframe + row.frame.localsplus,
            sizes.generator,
        ),
        size(
            "types.FunctionType.__basicsize__",
            row.function.size,
            sizes.function,
        ),
    ];
    if let Some(positions) = &row.debug_offsets {
        let word = |position: usize| {
            let bytes = runtime.debug_offsets.as_deref()?.get(position..)?;
            Some(u64::from_le_bytes(*bytes.first_chunk()?))
        };
        let check = |field, position, expected| Check {
            field,
            position: Some(position),
            expected,
            found: word(position),
        };
        checks.extend([
            check(COOKIE_FIELD, 0, COOKIE),
            check(VERSION_FIELD, 8, runtime.version.into()),
        ]);
        if checks.iter().all(Check::passes) {
            let free_threaded = row.build == Build::FreeThreaded;
            checks.push(check(
                "_Py_DebugOffsets.free_threaded",
                16,
                free_threaded.into(),
            ));
            let fields = debug_offsets(row, positions).into_iter();
            checks.extend(
                fields.map(|(field, position, offset)| check(field, position, offset as u64)),
            );
        }
    }
    checks
}

/// The fields of `_Py_DebugOffsets` that tell something which the row also
/// tells: name, position in `_PyRuntime`, value by the row.
fn debug_offsets(row: &Row, at: &DebugOffsets) -> Vec<(&'static str, usize, usize)> {
    let frame = |word: usize| at.interpreter_frame + 8 * word;
    let code = |word: usize| at.code_object + 8 * word;
    let mut fields = vec![
        (
            "thread_state.current_frame",
            at.thread_state + 32,
            row.thread.current_frame,
        ),
        ("interpreter_frame.size", frame(0), row.frame.size),
        ("interpreter_frame.previous", frame(1), row.frame.previous),
        (
            "interpreter_frame.executable",
            frame(2),
            row.frame.executable,
        ),
        (
            "interpreter_frame.instr_ptr",
            frame(3),
            row.frame.instruction,
        ),
        (
            "interpreter_frame.localsplus",
            frame(4),
            row.frame.localsplus,
        ),
        ("interpreter_frame.owner", frame(5), row.frame.owner),
        ("code_object.size", code(0), row.code.size),
        (
            "code_object.localsplusnames",
            code(7),
            row.code.co_localsplusnames,
        ),
        (
            "code_object.localspluskinds",
            code(8),
            row.code.co_localspluskinds,
        ),
        (
            "code_object.co_code_adaptive",
            code(9),
            row.code.co_code_adaptive,
        ),
        ("pyobject.size", at.pyobject, row.object.size),
        ("pyobject.ob_type", at.pyobject + 8, row.object.ob_type),
        (
            "tuple_object.ob_item",
            at.tuple_object + 8,
            row.tuple_ob_item,
        ),
        (
            "tuple_object.ob_size",
            at.tuple_object + 16,
            row.object.ob_size,
        ),
        (
            "bytes_object.ob_sval",
            at.bytes_object + 16,
            row.object.bytes_ob_sval,
        ),
    ];
    if let Some(generator) = at.gen_object {
        fields.extend([
            (
                "interpreter_frame.stackpointer",
                frame(6),
                row.frame.stack_top,
            ),
            (
                "gen_object.gi_iframe",
                generator + 16,
                row.generator.gi_iframe,
            ),
            (
                "gen_object.gi_frame_state",
                generator + 24,
                row.generator.gi_frame_state,
            ),
        ]);
    }
    if let (Some(tlbc_index), Some(co_tlbc)) = (row.frame.tlbc_index, row.code.co_tlbc) {
        fields.extend([
            ("interpreter_frame.tlbc_index", frame(7), tlbc_index),
            ("code_object.co_tlbc", code(10), co_tlbc),
        ]);
    }
    fields
}

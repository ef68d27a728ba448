//! The layouts are those of CPython's own headers: a C program that includes
//! them prints every offset, and each is compared with the row.
//!
//! The headers are those of the interpreters that `matrix/run --provide` found.
//! Builds that are not at hand are compiled from the headers of those that are,
//! with the macro that their configure option defines.

#![allow(clippy::panic, reason = "a test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use localsplus::internals::{Build, Row, StackTop, TABLE};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

struct Headers {
    name: String,
    minor: u8,
    free_threaded: bool,
    trace_refs: bool,
    debug: bool,
    arguments: Vec<String>,
}

fn headers() -> Vec<Headers> {
    let path = Path::new(ROOT).join("matrix/.cache/interpreters.json");
    let list = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}: run matrix/run --provide first",
            path.display()
        )
    });
    let list: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&list).expect("a JSON object of interpreters");
    let strings = |value: &serde_json::Value| -> Vec<String> {
        let items = value.as_array().expect("an array of strings").iter();
        let strings = items.map(|item| item.as_str().expect("a string").to_owned());
        strings.collect()
    };
    let headers = list.into_iter().map(|(name, interpreter)| {
        let version = interpreter["version"].as_str().expect("a version");
        let minor = version.split('.').nth(1).expect("a minor version");
        let build = interpreter["build"].as_str().expect("a build");
        let directories = strings(&interpreter["include_dirs"]);
        let mut arguments = strings(&interpreter["cflags"]);
        arguments.extend(directories.iter().map(|directory| format!("-I{directory}")));
        arguments.extend(
            directories
                .iter()
                .map(|directory| format!("-I{directory}/internal")),
        );
        Headers {
            minor: minor.parse().expect("a number"),
            free_threaded: build.contains("free-threaded"),
            trace_refs: build.contains("trace-refs"),
            debug: build.contains("debug"),
            arguments,
            name,
        }
    });
    headers.collect()
}

/// What the C program prints for `headers`, as the build that `row` is of.
fn offsets(headers: &Headers, row: &Row) -> BTreeMap<String, u64> {
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    let program = scratch(&format!("offsets {row} from {}", headers.name));
    compiler.args(&headers.arguments);
    match row.build {
        Build::FreeThreaded if !headers.free_threaded => _ = compiler.arg("-DPy_GIL_DISABLED=1"),
        Build::TraceRefs if !headers.trace_refs => _ = compiler.arg("-DPy_TRACE_REFS=1"),
        _ => {}
    }
    compiler.arg("-o").arg(&program);
    compiler.arg(Path::new(ROOT).join("shims/offsets.c"));
    let compiled = compiler.output().expect("a C compiler");
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{compiler:?}\n{errors}");
    let output = Command::new(&program).output().expect("the program runs");
    let output = String::from_utf8(output.stdout).expect("text");
    let line = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        // Words are printed as signed.
        let value: i64 = value.parse().ok()?;
        Some((name.to_owned(), value.cast_unsigned()))
    };
    output.lines().filter_map(line).collect()
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace([' ', '.'], "-"))
}

/// Everything that a row says, by the C program's names.
fn said(row: &Row) -> Vec<(&'static str, usize)> {
    let (frame, code, object) = (row.frame, row.code, row.object);
    let mut said = vec![
        ("object.size", object.size),
        ("object.ob_type", object.ob_type),
        ("varobject.ob_size", object.ob_size),
        ("bytes.ob_sval", object.bytes_ob_sval),
        ("tuple.ob_item", row.tuple_ob_item),
        ("basicsize.object", object.size),
        ("basicsize.function", row.function.size),
        ("function.func_closure", row.function.func_closure),
        ("frame.size", frame.size),
        ("frame.executable", frame.executable),
        ("frame.previous", frame.previous),
        ("frame.function", frame.function),
        ("frame.instr", frame.instruction),
        ("frame.stack", frame.stack_top),
        ("frame.owner", frame.owner),
        ("frame.localsplus", frame.localsplus),
        ("code.size", code.size),
        ("code.co_flags", code.co_flags),
        ("code.co_argcount", code.co_argcount),
        ("code.co_kwonlyargcount", code.co_kwonlyargcount),
        ("code.co_nlocalsplus", code.co_nlocalsplus),
        ("code.co_nfreevars", code.co_nfreevars),
        ("code.co_localsplusnames", code.co_localsplusnames),
        ("code.co_localspluskinds", code.co_localspluskinds),
        ("code._co_firsttraceable", code.co_firsttraceable),
        ("code.co_code_adaptive", code.co_code_adaptive),
        ("frame_object._f_frame_data", row.frame_object.f_frame_data),
        ("generator.gi_iframe", row.generator.gi_iframe),
        ("generator.gi_frame_state", row.generator.gi_frame_state),
        ("generator.finished", row.generator.finished as usize),
        ("opcode.MAKE_CELL", row.opcode.make_cell.into()),
        ("opcode.COPY_FREE_VARS", row.opcode.copy_free_vars.into()),
        ("opcode.EXTENDED_ARG", row.opcode.extended_arg.into()),
        ("owner.generator", 1),
        ("kind.LOCAL", 0x20),
        ("kind.CELL", 0x40),
        ("kind.FREE", 0x80),
        ("flag.CO_OPTIMIZED", 1),
    ];
    // What the codec and the reader take for granted.
    match frame.stack_top_kind {
        StackTop::Index => said.extend([("frame.stack_size", 4), ("slot.null", 0)]),
        StackTop::Pointer => said.extend([
            ("frame.stack_size", 8),
            ("slot.null", 1),
            ("slot.tag_mask", 1),
        ]),
    }
    if row.minor > 11 {
        said.extend([("owner.shim", 3), ("kind.HIDDEN", 0x10)]);
    }
    said.extend(object.ob_refcnt.map(|offset| ("object.ob_refcnt", offset)));
    said.extend(frame.tlbc_index.map(|offset| ("frame.tlbc_index", offset)));
    said.extend(code.co_tlbc.map(|offset| ("code.co_tlbc", offset)));
    if let Some(at) = row.debug_offsets {
        said.extend([
            ("debug_offsets.position", 0),
            ("debug_offsets.interpreter_frame.size", at.interpreter_frame),
            (
                "debug_offsets.interpreter_frame.owner",
                at.interpreter_frame + 40,
            ),
            ("debug_offsets.code_object.size", at.code_object),
            (
                "debug_offsets.code_object.localsplusnames",
                at.code_object + 56,
            ),
            (
                "debug_offsets.code_object.localspluskinds",
                at.code_object + 64,
            ),
            (
                "debug_offsets.code_object.co_code_adaptive",
                at.code_object + 72,
            ),
            ("debug_offsets.pyobject.size", at.pyobject),
            ("debug_offsets.pyobject.ob_type", at.pyobject + 8),
            ("debug_offsets.tuple_object.ob_item", at.tuple_object + 8),
            ("debug_offsets.tuple_object.ob_size", at.tuple_object + 16),
            ("debug_offsets.bytes_object.ob_sval", at.bytes_object + 16),
        ]);
        if let Some(generator) = at.gen_object {
            said.extend([
                (
                    "debug_offsets.interpreter_frame.stackpointer",
                    at.interpreter_frame + 48,
                ),
                (
                    "debug_offsets.interpreter_frame.tlbc_index",
                    at.interpreter_frame + 56,
                ),
                ("debug_offsets.code_object.co_tlbc", at.code_object + 80),
                ("debug_offsets.gen_object.gi_iframe", generator + 16),
                ("debug_offsets.gen_object.gi_frame_state", generator + 24),
            ]);
        }
    }
    said
}

/// Compares counting in place with what `Py_INCREF` and `Py_DECREF` did; answers
/// for how many counts.
fn counting_is_the_macros(row: &Row, printed: &BTreeMap<String, u64>) -> usize {
    let mut compared = 0;
    for (name, expected) in printed {
        let Some((count, what)) = name.strip_prefix("count.").and_then(|n| n.split_once('.'))
        else {
            continue;
        };
        let mut count: u64 = count.parse().expect("a number");
        let found = match what {
            "increment" => {
                // SAFETY: the count is ours.
                unsafe { row.immortality.increment(&raw mut count) };
                count
            }
            "decrement" => {
                // SAFETY: the count is ours.
                unsafe { row.immortality.decrement(&raw mut count) };
                count
            }
            // SAFETY: the count is ours.
            "last" => unsafe { row.immortality.decrement(&raw mut count) }.into(),
            other => panic!("{other}"),
        };
        assert_eq!(found, *expected, "{name} of {row} (left: Rust, right: C)");
        compared += 1;
    }
    compared
}

#[test]
fn rows_equal_the_headers() {
    let headers = headers();
    for row in TABLE.iter().map(|entry| &entry.row) {
        let usable: Vec<_> = headers
            .iter()
            .filter(|headers| headers.minor == row.minor)
            // Headers of a special build cannot be compiled as the default one.
            .filter(|headers| !headers.free_threaded || row.build == Build::FreeThreaded)
            .filter(|headers| !headers.trace_refs || row.build == Build::TraceRefs)
            .filter(|headers| !headers.debug || row.build != Build::TraceRefs)
            .collect();
        assert!(
            !usable.is_empty(),
            "no headers of CPython 3.{} at hand: run matrix/run --provide",
            row.minor
        );
        for headers in usable {
            let printed = offsets(headers, row);
            assert_eq!(
                printed.get("python.version_hex").map(|hex| hex >> 16),
                Some(0x0300 | u64::from(row.minor)),
            );
            let said = said(row);
            for (name, value) in &said {
                assert_eq!(
                    printed.get(*name),
                    Some(&(*value as u64)),
                    "{name} of {row}, from the headers of {} (left: C, right: Rust)",
                    headers.name,
                );
            }
            let counts = counting_is_the_macros(row, &printed);
            // Macros that are not the interpreter's calls.
            let macros = row.build != Build::FreeThreaded && !headers.debug;
            assert_eq!(counts > 0, macros, "{row} from {}", headers.name);
            println!(
                "layout {row}: {} values equal those of {}",
                said.len(),
                headers.name
            );
        }
    }
}

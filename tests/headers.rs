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

use localsplus::internals::named_values::named_values;
use localsplus::internals::{Build, Row, TABLE};

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
            let mut said = named_values(row);
            // Macros that are not the interpreter's calls.
            let macros = row.build != Build::FreeThreaded && !headers.debug;
            said.retain(|said| macros || said.name != "count.immortal_from");
            for said in &said {
                assert_eq!(
                    printed.get(said.name).copied(),
                    said.value,
                    "{} of {row}, from the headers of {} (left: C, right: Rust)",
                    said.name,
                    headers.name,
                );
            }
            let counts = counting_is_the_macros(row, &printed);
            assert_eq!(counts > 0, macros, "{row} from {}", headers.name);
            println!(
                "layout {row}: {} values equal those of {}",
                said.len(),
                headers.name
            );
        }
    }
}

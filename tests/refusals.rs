//! Whatever the running interpreter is, if it is not what a row describes, the
//! answer is a refusal that names what was expected and what was found.

use localsplus::internals::{BasicSizes, Runtime, Symbols, TABLE, checks, choose, cross_check};

mod described;
use described::{described_by, put, rows};

#[test]
fn an_interpreter_as_described_passes() {
    for row in rows() {
        assert_eq!(cross_check(row, &described_by(row)), Ok(()), "{row}");
    }
}

#[test]
fn a_wrong_basicsize_is_named() {
    type Size = fn(&mut BasicSizes) -> &mut usize;
    let doctor: [(&str, Size); 5] = [
        ("object.__basicsize__", |sizes| &mut sizes.object),
        ("types.FrameType.__basicsize__", |sizes| &mut sizes.frame),
        ("types.CodeType.__basicsize__", |sizes| &mut sizes.code),
        ("types.GeneratorType.__basicsize__", |sizes| {
            &mut sizes.generator
        }),
        ("types.FunctionType.__basicsize__", |sizes| {
            &mut sizes.function
        }),
    ];
    for row in rows() {
        for (field, size) in doctor {
            let mut runtime = described_by(row);
            let size = size(&mut runtime.basic_sizes);
            let right = *size;
            *size += 8;
            let mismatch = cross_check(row, &runtime).expect_err(field);
            let expected = format!("{field}: expected {right}, found {}", right + 8);
            assert_eq!(mismatch.to_string(), expected, "{row}");
        }
    }
}

#[test]
fn a_doctored_offset_table_is_named() {
    for row in rows().filter(|row| row.minor >= 13) {
        let all = checks(row, &described_by(row));
        let offsets: Vec<_> = all
            .iter()
            .filter(|check| check.position.is_some())
            .collect();
        // Cookie, version, free_threaded, and the fields.
        assert!(offsets.len() >= 18, "{row}: {}", offsets.len());
        for check in offsets {
            let mut runtime = described_by(row);
            let bytes = runtime
                .debug_offsets
                .as_mut()
                .expect("this version has them");
            let position = check.position.expect("filtered");
            put(bytes, position, check.expected + 8);
            let mismatch = cross_check(row, &runtime).expect_err(check.field);
            assert_eq!(mismatch.field, check.field, "{row}");
            assert_ne!(mismatch.expected, mismatch.found, "{row}");
        }
        let mut runtime = described_by(row);
        runtime.debug_offsets = Some([].into());
        let mismatch = cross_check(row, &runtime).expect_err("no table");
        assert_eq!(mismatch.found, "nothing", "{row}");
    }
}

/// A row of another version or build never fits.
#[test]
fn no_row_fits_another_interpreter() {
    for (i, row) in rows().enumerate() {
        for (j, other) in rows().enumerate() {
            let fits = cross_check(row, &described_by(other)).is_ok();
            assert_eq!(fits, i == j, "row {row}, interpreter {other}");
        }
    }
}

/// The interpreter that this test embeds, described falsely.
#[test]
fn false_descriptions_of_a_running_interpreter() {
    // SAFETY: nothing else in this process has started an interpreter.
    unsafe { pyo3_ffi::Py_InitializeEx(0) };
    let symbols = Symbols::open();
    let truth = Runtime::inspect(&symbols).expect("an interpreter");
    let minor = truth.minor().expect("CPython 3");
    let name = |runtime: &Runtime| {
        let reader = choose(runtime, &symbols, None).map_err(|error| error.to_string())?;
        Ok::<_, String>(reader.name().to_string_lossy().into_owned())
    };
    let refused = |doctor: &dyn Fn(&mut Runtime), parts: &[&str]| {
        let mut runtime = truth.clone();
        doctor(&mut runtime);
        let refusal = name(&runtime).expect_err("a refusal");
        for part in parts {
            assert!(refusal.contains(part), "{part:?} is not in {refusal:?}");
        }
    };

    let rest = "localsplus does not read frames of";
    let newest = TABLE.iter().map(|entry| entry.row.minor).max();
    let newest = newest.expect("rows");
    let supported = &format!("CPython 3.11 to 3.{newest}");
    refused(
        &|runtime| runtime.version = 0x030A_0DF0,
        &[rest, "CPython 3.10.13", supported],
    );
    refused(
        &|runtime| runtime.version = 0x0300_00F0 | u32::from(newest + 1) << 16,
        &[
            rest,
            &format!("CPython 3.{}.0", newest + 1),
            "PyUnstable_InterpreterFrame_GetLocal",
        ],
    );
    refused(
        &|runtime| runtime.version = 0x0403_00F0,
        &[rest, "CPython 4.3.0", supported],
    );
    refused(
        &|runtime| runtime.implementation = "pypy".to_owned(),
        &[rest, "pypy 3.", "it needs CPython 3.11"],
    );
    refused(
        &|runtime| runtime.stackref_debug = true,
        &["stackref-debug", "Py_STACKREF_DEBUG", "use one without"],
    );
    for (release, name) in [(0xA5, "a5"), (0xB2, "b2")] {
        refused(
            &move |runtime| runtime.version = runtime.version & !0xFF | release,
            &[name, "pre-release"],
        );
    }
    refused(
        &|runtime| runtime.basic_sizes.frame += 8,
        &["types.FrameType.__basicsize__: expected", "found"],
    );
    // Every other version's row: the sizes or the offsets give it away.
    for other in TABLE.iter().map(|entry| entry.row.minor) {
        if other != minor {
            let version = truth.version & !0xFF_0000 | u32::from(other) << 16;
            refused(
                &move |runtime| runtime.version = version,
                &["expected", "found"],
            );
        }
    }

    // And the truth, in between and at the end.
    assert_eq!(name(&truth), Ok(format!("layout 3.{minor}")));
    let candidate = Runtime {
        version: truth.version & !0xFF | 0xC1,
        ..truth.clone()
    };
    // (From 3.13 on, _Py_DebugOffsets says that it is no release candidate.)
    if minor < 13 {
        assert_eq!(name(&candidate), Ok(format!("layout 3.{minor}")));
        assert!(candidate.to_string().ends_with("rc1"), "{candidate}");
    }
}

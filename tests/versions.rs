//! What is said in several places is said the same everywhere: the versions of the
//! crate, of the C ABI, of Rust, of pyo3-ffi and of CPython, and the licence.

#![allow(clippy::panic, reason = "a test")]

use std::path::{Path, PathBuf};

use localsplus::internals::TABLE;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every text that stands between `before` and `after`, which is not empty.
fn every<'t>(text: &'t str, before: &str, after: &str) -> Vec<&'t str> {
    let parts = text.split(before).skip(1);
    let found: Vec<_> = parts
        .filter_map(|part| part.split_once(after))
        .map(|(found, _)| found)
        .filter(|found| !found.is_empty() && !found.contains('\n'))
        .collect();
    assert!(
        !found.is_empty(),
        "nothing between {before:?} and {after:?}"
    );
    found
}

fn only<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let found = every(text, before, after);
    assert_eq!(found.len(), 1, "{before:?}: {found:?}");
    found[0]
}

/// "1.88" of "1.88.0".
fn two(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

fn numbers(version: &str) -> Vec<u32> {
    let number = |part: &str| {
        part.parse()
            .unwrap_or_else(|_| panic!("version {version:?}"))
    };
    version.split('.').map(number).collect()
}

#[test]
fn crate_version() {
    let header = read("shims/include/localsplus.h");
    let parts = ["MAJOR", "MINOR", "PATCH"].map(|part| {
        only(
            &header,
            &format!("#define LOCALSPLUS_VERSION_{part} "),
            "\n",
        )
    });
    assert_eq!(parts.join("."), VERSION, "localsplus.h");
    let string = only(&header, "#define LOCALSPLUS_VERSION_STRING \"", "\"");
    assert_eq!(string, VERSION, "localsplus.h");
    let lock = only(
        &read("Cargo.lock"),
        "name = \"localsplus\"\nversion = \"",
        "\"",
    )
    .to_owned();
    assert_eq!(lock, VERSION, "Cargo.lock");
    let page = read("docs/CPP.md");
    for archive in every(&page, "localsplus-", ".tar.gz") {
        assert_eq!(archive, VERSION, "docs/CPP.md");
    }
    for wanted in every(&page, "find_package(localsplus ", " ") {
        assert_eq!(wanted, two(VERSION), "docs/CPP.md");
    }
    // These take it from Cargo.toml.
    for (file, placeholder) in [
        (
            "CMakeLists.txt",
            "project(localsplus VERSION \"${version}\"",
        ),
        ("packaging/localsplus.pc.in", "Version: @PROJECT_VERSION@"),
        (
            "packaging/localsplus-static.pc.in",
            "Version: @PROJECT_VERSION@",
        ),
    ] {
        assert!(read(file).contains(placeholder), "{file}: {placeholder}");
    }
}

#[test]
fn nothing_is_of_the_future() {
    let header = read("shims/include/localsplus.h");
    for since in every(&header, "Since ", ". */") {
        assert!(
            numbers(since) <= numbers(&two(VERSION)),
            "localsplus.h: since {since}, but this is {VERSION}"
        );
    }
}

#[test]
fn changelog() {
    let changelog = read("CHANGELOG.md");
    let headings = every(&changelog, "\n## [", "\n");
    assert_eq!(headings[0], "Unreleased]");
    // "0.1.0] - 2026-12-01"
    for released in &headings[1..] {
        let (version, date) = released
            .split_once("] - ")
            .unwrap_or_else(|| panic!("CHANGELOG.md: {released:?} has no date"));
        assert!(
            numbers(version) <= numbers(VERSION),
            "CHANGELOG.md has {version}, but this is {VERSION}"
        );
        let digits = date.chars().filter(char::is_ascii_digit).count();
        assert_eq!((date.len(), digits), (10, 8), "CHANGELOG.md: {released:?}");
    }
    let newest = headings
        .get(1)
        .and_then(|heading| heading.split(']').next());
    assert!(
        newest == Some(VERSION) || changelog.contains(&format!("version, {VERSION}. ABI")),
        "CHANGELOG.md does not say what {VERSION} is"
    );
}

#[test]
fn abi_version() {
    let header = read("shims/include/localsplus.h");
    let abi = only(&header, "#define LOCALSPLUS_ABI_VERSION ", "\n");
    let code = read("src/capi.rs");
    assert_eq!(only(&code, "const ABI_VERSION: c_int = ", ";"), abi);
    for name in every(&read("docs/CPP.md"), "`liblocalsplus.so.", "`") {
        assert_eq!(name, abi, "docs/CPP.md");
    }
    let list = format!("tests/c/abi-{abi}.txt");
    assert!(path(&list).exists(), "{list}");
    let list = format!("tests/consumers/rust-api-{}.txt", two(VERSION));
    assert!(path(&list).exists(), "{list}");
}

#[test]
fn rust_version() {
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    for (file, before, after) in [
        ("build.rs", "is_min_version(\"", "\")"),
        ("build.rs", "localsplus needs rustc ", " or later"),
        ("CMakeLists.txt", "(Rust ", " or later)"),
        ("packaging/localsplus_build.py", "(Rust ", " or later)"),
        ("docs/CPP.md", "(Rust ", " or later)"),
        ("README.md", "It needs Rust (", " or later)"),
    ] {
        for found in every(&read(file), before, after) {
            assert_eq!(two(found), two(wanted), "{file}: {before}{found}{after}");
        }
    }
}

#[test]
fn pyo3_ffi_range() {
    let manifest = read("Cargo.toml");
    let range = only(&manifest, "\npyo3-ffi = \"", "\"");
    let first = only(range, ">=", ", <").to_owned();
    let beyond = numbers(range.split('<').nth(1).unwrap_or_default());
    let page = read("docs/RUST.md");
    assert_eq!(only(&page, "\npyo3-ffi = \"", "\""), range);
    let (said_first, said_last) = only(&page, "Any pyo3-ffi from ", " (")
        .split_once(" to ")
        .unwrap_or_default();
    assert_eq!(said_first, first);
    assert_eq!(numbers(said_last), [beyond[0], beyond[1] - 1]);
}

#[test]
fn cpython_range() {
    let minors = TABLE.iter().map(|entry| entry.row.minor);
    let (first, last) = (minors.clone().min(), minors.max());
    let (Some(first), Some(last)) = (first, last) else {
        panic!("no layouts");
    };
    let range = format!("3.{first} to 3.{last}");
    for file in [
        "Cargo.toml",
        "README.md",
        "CHANGELOG.md",
        "src/lib.rs",
        "shims/include/localsplus.h",
    ] {
        assert!(read(file).contains(&range), "{file} does not say {range}");
    }
}

#[test]
fn licence() {
    assert_eq!(env!("CARGO_PKG_LICENSE"), "MIT OR Apache-2.0");
    assert!(read("README.md").contains("MIT or Apache-2.0"));
    assert!(read("LICENSE-MIT").contains("Permission is hereby granted, free of charge"));
    assert!(read("LICENSE-APACHE").contains("Version 2.0, January 2004"));
}

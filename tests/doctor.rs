//! The program `localsplus doctor`, as a user runs it: on the interpreter that is
//! linked, and on stand-ins for what else may be given to it.
#![cfg(unix)]

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use localsplus::internals::TABLE;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_localsplus");

fn program() -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("doctor").env_remove("LOCALSPLUS_PROVIDER");
    command
}

/// The Python that is linked.
fn python() -> &'static str {
    // The variable is missing if pyo3-ffi was configured by hand without one.
    option_env!("LOCALSPLUS_PYTHON").unwrap_or("python3")
}

/// An empty folder that no other test uses.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("doctor-{name}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("what an earlier run has left");
    }
    fs::create_dir_all(&folder).expect("a new folder");
    folder
}

/// The program, with nothing beside it.
fn copy_program(to: &Path) {
    let starting = STARTING.lock();
    fs::copy(PROGRAM, to).expect("a copy");
    drop(starting);
}

/// A shell script in place of an interpreter.
fn script(path: PathBuf, lines: &str) -> PathBuf {
    fs::create_dir_all(path.parent().expect("a file")).expect("its folder");
    let starting = STARTING.lock();
    fs::write(&path, format!("#!/bin/sh\n{lines}\n")).expect("the script");
    drop(starting);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its permissions");
    path
}

/// A script that says these records.
fn saying(path: PathBuf, records: &[&str]) -> PathBuf {
    let lines: Vec<_> = records
        .iter()
        .map(|record| format!("printf 'localsplus-doctor\\t{record}\\n'"))
        .collect();
    script(path, &lines.join("\n"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A file cannot be run as long as anybody has it open for writing, which includes
/// a program that another test is just starting.
static STARTING: Mutex<()> = Mutex::new(());

#[track_caller]
fn run(command: &mut Command) -> (i32, String, String) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let starting = STARTING.lock();
    let child = command.spawn().expect("the program starts");
    drop(starting);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("it ends");
    let code = status.code().expect("no signal");
    (code, text(&stdout), text(&stderr))
}

/// The verdict on `python` in one word, and in one line.
#[track_caller]
fn verdict(python: impl AsRef<Path>) -> (String, String) {
    let mut command = program();
    command.args(["--json", "--timeout", "20", "--"]);
    let (code, stdout, stderr) = run(command.arg(python.as_ref()));
    let document: Value = serde_json::from_str(&stdout).expect(&stderr);
    let report = &document["interpreters"][0];
    let works = report["works"].as_bool().expect("a bool");
    assert_eq!(document["works"].as_bool(), Some(works));
    assert_eq!(code, i32::from(!works), "{stdout}");
    let line = report["text"].as_str().expect("a text").to_owned();
    // The report for people ends with that line, but for the name of a file that
    // the library may have been written to.
    let mut command = program();
    command.args(["--timeout", "20", "--"]).arg(python.as_ref());
    let (_, people, _) = run(&mut command);
    let heading = line.split_once(':').expect("a heading").0;
    let last = people.lines().rev().nth(1).expect("lines");
    assert!(last.starts_with(&format!("  {heading}: ")), "{people}");
    (report["verdict"].as_str().expect("a word").to_owned(), line)
}

#[track_caller]
fn expect(python: impl AsRef<Path>, word: &str, parts: &[&str]) {
    let (found, line) = verdict(python);
    assert_eq!(found, word, "{line}");
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
}

#[test]
fn the_linked_interpreter_works() {
    expect(python(), "works", &["WORKS", "layout 3."]);
    let (code, stdout, stderr) = run(program().arg(python()));
    assert_eq!((code, stderr.as_str()), (0, ""));
    for part in [
        "CPython 3.",
        if cfg!(feature = "embedded-library") {
            "built in"
        } else {
            "beside the program"
        },
        "ok object.__basicsize__ ",
        "expected 16, found 16\n",
        "self-test on live frames: 18 of 18 agree\n",
    ] {
        assert!(stdout.contains(part), "{part:?} is not in {stdout}");
    }
}

#[test]
fn one_that_does_not_work_decides() {
    let (code, stdout, _) = run(program().arg(python()).arg("/no/such/python"));
    assert_eq!(code, 1);
    assert!(
        stdout.contains("  WORKS: ") && stdout.contains("  DOES NOT RUN: "),
        "{stdout}"
    );
}

#[test]
fn what_does_not_run() {
    let folder = folder("not-there");
    expect("/no/such/python", "does-not-run", &["No such file"]);
    expect(
        "no-such-python",
        "does-not-run",
        &["no such program on PATH"],
    );
    let file = folder.join("notes.txt");
    fs::write(&file, "import os\n").expect("a file");
    expect(&file, "does-not-run", &["Permission denied"]);
    expect(&folder, "does-not-run", &["Permission denied"]);
    symlink("nowhere", folder.join("broken")).expect("a link");
    expect(folder.join("broken"), "does-not-run", &["No such file"]);
}

#[test]
fn what_is_no_interpreter() {
    let folder = folder("no-interpreter");
    expect("/bin/sh", "not-python", &["yntax error"]);
    expect("/bin/true", "not-python", &["exit status: 0"]);
    // Its options are an interpreter's, and its message is long.
    expect("/bin/ls", "not-python", &["exit status: 2"]);
    assert!(verdict("/bin/ls").1.len() < 400);
    let talks = script(folder.join("talks"), "echo 'Python 3.14.0'");
    expect(talks, "not-python", &["exit status: 0"]);
    // More than fits into memory, if it were read.
    expect(
        script(folder.join("floods"), "exec yes"),
        "crashed",
        &["SIGPIPE"],
    );
}

#[test]
fn what_crashes_or_hangs() {
    let folder = folder("crashes");
    let crashes = script(folder.join("crashes"), "kill -SEGV $$");
    expect(
        crashes,
        "crashed",
        &["SIGSEGV", "before it ran a line of Python"],
    );
    let known = ["implementation\\tCPython", "version\\t3.14.0", "loading"];
    let path = saying(folder.join("loads"), &known);
    let lines = fs::read_to_string(&path).expect("written") + "kill -ABRT $$";
    let path = script(path, &lines);
    expect(
        path,
        "crashed",
        &["SIGABRT", "while the library was loaded"],
    );
    let raises = "echo 'Traceback' >&2; echo 'MemoryError: none' >&2; exit 1";
    let path = saying(folder.join("raises"), &["version\\t3.14.0"]);
    let lines = fs::read_to_string(&path).expect("written") + raises;
    let path = script(path, &lines);
    expect(
        path,
        "crashed",
        &[
            "exit status: 1",
            "before the library was loaded",
            "MemoryError",
        ],
    );

    // It starts another program, and both must be gone.
    let mark = folder.join("still-there");
    let lines = format!("(sleep 3; touch '{}') & sleep 1000", mark.display());
    let hangs = script(folder.join("hangs"), &lines);
    let started = Instant::now();
    let (code, stdout, _) = run(program().args(["--timeout", "1"]).arg(hangs));
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(code, 1);
    assert!(
        stdout.contains("TIMED OUT: stopped after 1 seconds"),
        "{stdout}"
    );
    std::thread::sleep(Duration::from_secs(4));
    assert!(!mark.exists(), "what it had started was left running");
}

#[test]
fn what_is_too_old_or_no_cpython() {
    let folder = folder("others");
    let unloadable = "unloadable\\tundefined symbol: PyInterpreterState_Get";
    let old = [
        "implementation\\tCPython",
        "version\\t3.8.18",
        "number\\t776",
        "loading",
    ];
    let path = saying(folder.join("old"), &[&old[..], &[unloadable]].concat());
    let oldest = TABLE.iter().map(|entry| entry.row.minor).min();
    let needs = format!(
        "localsplus needs CPython 3.{} or later",
        oldest.expect("rows")
    );
    expect(
        path,
        "does-not-load",
        &[&needs, "undefined symbol: PyInterpreterState_Get"],
    );
    let pypy = ["implementation\\tPyPy", "version\\t3.11.13", "number\\t779"];
    let path = saying(folder.join("pypy"), &[&pypy[..], &[unloadable]].concat());
    expect(path, "does-not-load", &["this is PyPy", "CPython only"]);
}

/// A report that claims success without having compared anything is none.
#[test]
fn an_empty_report_is_no_success() {
    let folder = folder("empty");
    let begin = ["version\\t3.14.0", "loading", "library\\t0.1.0\\t1"];
    let path = saying(folder.join("nothing"), &[&begin[..], &["end"]].concat());
    expect(path, "wrong", &["neither a provider nor a test"]);
    let provider = ["provider\\tlayout 3.14", "end"];
    let path = saying(folder.join("no-test"), &[&begin[..], &provider].concat());
    expect(path, "wrong", &["neither a provider nor a test"]);
    let untested = ["provider\\tlayout 3.14", "untested\\tsomething", "end"];
    let path = saying(folder.join("untested"), &[&begin[..], &untested].concat());
    expect(path, "wrong", &["the self-test did not run: something"]);
}

#[test]
fn what_is_no_library() {
    let notes = folder("library").join("notes.so");
    fs::write(&notes, "no library").expect("a file");
    let mut command = program();
    let (code, stdout, _) = run(command.arg("--library").arg(&notes).arg(python()));
    assert_eq!(code, 1);
    assert!(
        stdout.contains("DOES NOT LOAD: the library does not load in it"),
        "{stdout}"
    );
    let (code, _, stderr) = run(program().args(["--library", "/no/such/file", python()]));
    assert_eq!(code, 2);
    assert!(
        stderr.contains("--library /no/such/file: No such file"),
        "{stderr}"
    );
}

/// As after `cargo install` without the feature.
#[cfg(not(feature = "embedded-library"))]
#[test]
fn the_program_alone_says_what_it_lacks() {
    let alone = folder("alone").join("localsplus");
    copy_program(&alone);
    let (code, stdout, stderr) = run(Command::new(alone).arg("doctor").arg(python()));
    assert_eq!((code, stdout.as_str()), (2, ""));
    for part in [
        "no localsplus library",
        "--library",
        "--features embedded-library",
    ] {
        assert!(stderr.contains(part), "{part:?} is not in {stderr}");
    }
}

/// As after `cargo install` with it.
#[cfg(feature = "embedded-library")]
#[test]
fn the_program_alone_works() {
    let folder = folder("alone");
    let temporary = folder.join("temporary");
    fs::create_dir(&temporary).expect("a folder");
    let alone = folder.join("localsplus");
    copy_program(&alone);
    let mut command = Command::new(alone);
    command.args(["doctor", python()]).env("TMPDIR", &temporary);
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains(", built in\n"), "{stdout}");
    let left = temporary.read_dir().expect("still there").count();
    assert_eq!(left, 0, "the library was left behind");
}

/// A machine with nothing but what is put into it.
fn machine(root: &Path) -> Command {
    let mut command = program();
    command
        .env("PATH", root.join("bin"))
        .env("HOME", root.join("home"))
        .env("PYENV_ROOT", root.join("pyenv"));
    command
}

#[test]
fn no_interpreter() {
    let root = folder("no-interpreter-at-all");
    let (code, stdout, stderr) = run(&mut machine(&root));
    assert_eq!((code, stdout.as_str()), (2, ""));
    for part in [
        "no interpreter found",
        "PATH",
        "pyenv",
        "uv",
        "localsplus doctor PYTHON",
    ] {
        assert!(stderr.contains(part), "{part:?} is not in {stderr}");
    }
}

#[test]
fn the_interpreters_of_a_machine() {
    let root = folder("machine");
    let uv = "home/.local/share/uv/python";
    let stand_in = |path: &str, implementation: &str, minor: u32| {
        let path = root.join(path);
        let executable = path.display().to_string();
        let records = [
            &format!("implementation\\t{implementation}"),
            &format!("version\\t3.{minor}.0"),
            &format!("number\\t{}", 0x300 + minor),
            &format!("executable\\t{executable}"),
        ];
        saying(path, &records.map(String::as_str));
        executable
    };
    let found = [
        stand_in("bin/python3", "CPython", 13),
        stand_in("bin/python3.13t", "CPython", 13),
        stand_in("pyenv/versions/3.11.7/bin/python3.11", "CPython", 11),
        stand_in(
            "pyenv/versions/3.14.0t-debug/bin/python3.14td",
            "CPython",
            14,
        ),
        stand_in("pyenv/versions/3.15-dev/bin/python3.15", "CPython", 15),
        stand_in(
            &format!("{uv}/cpython-3.12.9-linux/bin/python3.12"),
            "CPython",
            12,
        ),
    ];
    // Another way to the first one.
    symlink("python3", root.join("bin/python3.13")).expect("a link");
    // Below the range, of another kind, or no command: not looked for.
    stand_in("bin/python3.10", "CPython", 10);
    stand_in("bin/python3.13-config", "CPython", 13);
    stand_in("bin/python3.12m", "CPython", 12);
    stand_in("pyenv/versions/3.10.13/bin/python3.10", "CPython", 10);
    stand_in("pyenv/versions/pypy3.11-7.3/bin/python3.11", "PyPy", 11);
    stand_in(
        &format!("{uv}/pypy-3.11.13-linux/bin/python3.11"),
        "PyPy",
        11,
    );
    // By their names they could be.
    stand_in("bin/python3.12", "PyPy", 12);
    script(
        root.join("bin/python3.14"),
        "echo 'command not found' >&2; exit 127",
    );

    let (code, stdout, stderr) = run(machine(&root).arg("--list"));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let (left_out, listed): (Vec<_>, Vec<_>) = stdout
        .lines()
        .partition(|line| line.starts_with("left out: "));
    assert_eq!(listed, found);
    assert_eq!(left_out.len(), 2, "{left_out:?}");
    assert!(left_out[0].contains("python3.12: PyPy 3.12.0; looked for CPython 3.11 or later"));
    assert!(left_out[1].contains("python3.14: does not run: exit status: 127, command not found"));
}

#[test]
fn bad_usage() {
    for (arguments, part) in [
        (&["--jsom"][..], "unknown option --jsom"),
        (&["--timeout"], "--timeout needs a value"),
        (&["--timeout", "soon"], "a number of seconds"),
        (&["--timeout=0"], "a number of seconds"),
        (&["--timeout=-1"], "a number of seconds"),
        (&["--json=yes"], "unknown option --json"),
    ] {
        let (code, stdout, stderr) = run(program().args(arguments));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(stderr.contains(part), "{part:?} is not in {stderr}");
        assert!(stderr.contains("Usage: localsplus doctor"), "{stderr}");
    }
    let (code, _, stderr) = run(Command::new(PROGRAM).arg("doctr"));
    assert_eq!(code, 2);
    assert!(stderr.contains("unknown command \"doctr\""), "{stderr}");
    for option in ["--help", "--version"] {
        let (code, stdout, _) = run(Command::new(PROGRAM).arg(option));
        assert_eq!(code, 0);
        assert!(stdout.contains("localsplus"), "{stdout}");
    }
}

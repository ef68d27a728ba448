//! The example program `stack_sampler`, as a user runs it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The program, built like this test. `cargo test` has built it as well, but not
/// if it was asked for some tests only.
fn stack_sampler() -> Command {
    // target/debug/deps/stack_sampler-0123456789abcdef
    let test = env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("the profile's folder");
    let profile = match folder.file_name() {
        Some(name) if name != "debug" => name,
        _ => OsStr::new("dev"),
    };
    let status = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "build",
            "--quiet",
            "--example",
            "stack_sampler",
            "--profile",
        ])
        .arg(profile)
        .arg("--target-dir")
        .arg(folder.parent().expect("the target folder"))
        .status();
    assert!(status.expect("cargo starts").success());
    let program = folder.join("examples/stack_sampler");
    Command::new(program.with_extension(env::consts::EXE_EXTENSION))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// Every call is sampled: the stacks are all that there were, as often as they were.
#[test]
fn stacks_are_those_of_the_program() {
    let file = |name: &str| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (program, stacks) = (file("sampled.py"), file("sampled.txt"));
    let source = "
import threading
class C:
    def __init__(self, values):
        self.values = sorted(values, key=lambda value: -value)
def leaf():
    pass
def branch():
    leaf()
    yield leaf()
def main():
    for _ in branch():
        C([1, 2])
main()
threading.Thread(target=leaf).start()
";
    fs::write(&program, source).expect("the file can be written");
    let mut command = stack_sampler();
    command.args(["--every", "0", "--output"]).arg(&stacks);
    let output = run(command.arg(&program));
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        Default::default()
    );
    let stacks = fs::read_to_string(&stacks).expect("stacks");
    let lines = |end: &str| -> Vec<_> {
        let own = |line: &&str| line.contains("(sampled.py)") && line.contains(end);
        stacks
            .lines()
            .filter(own)
            .map(|line| line.replace(" (sampled.py)", ""))
            .collect()
    };
    assert_eq!(
        lines("main (sampled.py);C.__init__ (sampled.py) "),
        ["<module>;main;C.__init__ 1"]
    );
    let keys = lines("<lambda>");
    assert_eq!(
        keys,
        ["<module>;main;C.__init__;C.__init__.<locals>.<lambda> 2"]
    );
    // Called once and resumed twice.
    assert_eq!(
        lines("main (sampled.py);branch (sampled.py) "),
        ["<module>;main;branch 3"]
    );
    assert_eq!(
        lines("branch (sampled.py);leaf"),
        ["<module>;main;branch;leaf 2"]
    );
    let [thread] = &lines("run (threading.py);leaf")[..] else {
        panic!("{stacks}");
    };
    assert!(!thread.contains("<module>"), "{thread}");
}

#[test]
fn cost_is_a_ratio() {
    let output = run(stack_sampler().arg("--cost"));
    let told = text(&output.stderr);
    assert!(
        told.starts_with("the fastest of 500 walks over 102 frames: "),
        "{told}"
    );
    assert!(
        told.contains(", 0 frame objects in all; by sys._getframe() and f_back: "),
        "{told}"
    );
    assert!(told.trim_end().ends_with(" times as long"), "{told}");
}

#[test]
fn usage_errors() {
    let output = stack_sampler().arg("--every").arg("soon").output();
    let output = output.expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Try --help"));
}

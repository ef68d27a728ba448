//! The example program `trace_locals`, as a user runs it.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The program, built like this test. `cargo test` has built it as well, but not
/// if it was asked for some tests only.
fn trace_locals() -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        // target/debug/deps/trace_locals-0123456789abcdef
        let test = env::current_exe().expect("the path of this test");
        let folder = test.ancestors().nth(2).expect("the profile's folder");
        let profile = match folder.file_name() {
            Some(name) if name != "debug" => name,
            _ => OsStr::new("dev"),
        };
        let status = Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["build", "--quiet", "--example", "trace_locals", "--profile"])
            .arg(profile)
            .arg("--target-dir")
            .arg(folder.parent().expect("the target folder"))
            .status();
        assert!(status.expect("cargo starts").success());
        let program = folder.join("examples/trace_locals");
        program.with_extension(env::consts::EXE_EXTENSION)
    });
    Command::new(program)
}

/// The Python that is linked, without a hook.
fn python() -> Command {
    // The variable is missing if pyo3-ffi was configured by hand without one.
    Command::new(option_env!("LOCALSPLUS_PYTHON").unwrap_or("python3"))
}

/// Writes a Python program to a file that no other test uses.
fn program(name: &str, source: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, source).expect("the file can be written");
    path
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// What a trace says of one entry.
#[derive(Debug)]
struct Entry {
    /// "name file:line", and the mark.
    title: String,
    /// "index name kind value".
    slots: Vec<String>,
}

struct Trace {
    first_line: String,
    entries: Vec<Entry>,
}

impl Trace {
    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let first_line = lines.next().unwrap_or_default().to_owned();
        let mut entries: Vec<Entry> = Vec::new();
        for line in lines {
            match line.strip_prefix("  ") {
                // The columns are aligned.
                Some(slot) => entries
                    .last_mut()
                    .expect("a slot belongs to an entry")
                    .slots
                    .push(slot.split_whitespace().collect::<Vec<_>>().join(" ")),
                None => entries.push(Entry {
                    title: line.to_owned(),
                    slots: Vec::new(),
                }),
            }
        }
        Self {
            first_line,
            entries,
        }
    }

    fn titles(&self) -> Vec<&str> {
        let titles = self.entries.iter().map(|entry| entry.title.as_str());
        titles.collect()
    }

    /// The slots of every entry with this title.
    #[track_caller]
    fn slots(&self, title: &str) -> Vec<Vec<&str>> {
        let entries = self.entries.iter().filter(|entry| entry.title == title);
        let slots: Vec<Vec<&str>> = entries
            .map(|entry| entry.slots.iter().map(String::as_str).collect())
            .collect();
        assert!(!slots.is_empty(), "no {title:?} in {:#?}", self.titles());
        slots
    }
}

/// Traces `source`, which must end well and print what it prints in plain Python.
#[track_caller]
fn trace(name: &str, source: &str, options: &[&str]) -> Trace {
    let file = program(name, source);
    let output = trace_locals().args(options).arg(&file).output();
    let output = output.expect("trace_locals starts");
    let trace = text(&output.stderr);
    assert!(output.status.success(), "{trace}");
    let plain = python().arg(&file).output().expect("python starts");
    assert_eq!(text(&output.stdout), text(&plain.stdout));
    Trace::parse(&trace)
}

fn minor_version() -> u32 {
    let code = "import sys; print(sys.version_info.minor)";
    let output = python().args(["-c", code]).output().expect("python starts");
    text(&output.stdout).trim().parse().expect("a number")
}

fn bundled() -> Trace {
    let output = trace_locals().output().expect("trace_locals starts");
    assert!(output.status.success());
    assert_eq!(
        text(&output.stdout),
        "closure: 42\n\
         comprehension: 60\n\
         generator: ['2 left', '1 left']\n\
         class: 0.02\n\
         coroutine: waiting\n\
         coroutine: ('how many?', 42)\n"
    );
    Trace::parse(&text(&output.stderr))
}

#[test]
fn names_provider_and_interpreter_first() {
    let minor = minor_version();
    let first_line = bundled().first_line;
    let start = format!("trace_locals: provider \"layout 3.{minor}\", Python 3.{minor}.");
    assert!(first_line.starts_with(&start), "{first_line}");
}

#[test]
fn begins_and_ends_with_the_program() {
    let trace = bundled();
    let titles = trace.titles();
    assert_eq!(titles.first(), Some(&"<module> program.py:1"));
    assert_eq!(
        titles.last(),
        Some(&"Reply.__await__ program.py:41 (resumed)")
    );
    let elsewhere = titles.iter().find(|title| !title.contains(" program.py:"));
    assert_eq!(elsewhere, None);
}

#[test]
fn shows_a_closure() {
    let trace = bundled();
    assert_eq!(
        trace.slots("make_counter program.py:4"),
        [[
            "0 start ARG|LOCAL 40",
            "1 increment LOCAL no value",
            "2 count CELL no value"
        ]]
    );
    assert_eq!(
        trace.slots("make_counter.<locals>.increment program.py:7"),
        [["0 step ARG|LOCAL 2", "1 count FREE 40"]]
    );
}

#[test]
fn shows_comprehensions() {
    let trace = bundled();
    let scaled = trace.slots("scaled program.py:15");
    if minor_version() == 11 {
        let list = trace.slots("scaled.<locals>.<listcomp> program.py:16");
        assert!(list[0][0].starts_with("0 .0 ARG|LOCAL <list_iterator object at 0x"));
        assert_eq!(
            list[0][1..],
            ["1 number LOCAL no value", "2 factor FREE 10"]
        );
        assert_eq!(scaled[0][1], "1 factor ARG|LOCAL|CELL 10");
    } else {
        // Inlined.
        assert_eq!(
            scaled,
            [[
                "0 numbers ARG|LOCAL [1, 2, 3]",
                "1 factor ARG|LOCAL 10",
                "2 number LOCAL no value",
                "3 products LOCAL no value"
            ]]
        );
    }
    let title = "scaled.<locals>.<genexpr> program.py:17";
    assert_eq!(trace.slots(title)[0][1], "1 product LOCAL no value");
    let resumed = trace.slots(&format!("{title} (resumed)"));
    let products: Vec<_> = resumed.iter().map(|slots| slots[1]).collect();
    assert_eq!(
        products,
        [
            "1 product LOCAL no value",
            "1 product LOCAL 10",
            "1 product LOCAL 20",
            "1 product LOCAL 30"
        ]
    );
}

#[test]
fn shows_a_generator_whenever_it_goes_on() {
    let trace = bundled();
    assert_eq!(
        trace.slots("countdown program.py:20"),
        [["0 start ARG|LOCAL 2", "1 left LOCAL no value"]]
    );
    assert_eq!(
        trace.slots("countdown program.py:20 (resumed)"),
        [
            ["0 start ARG|LOCAL 2", "1 left LOCAL no value"],
            ["0 start ARG|LOCAL 2", "1 left LOCAL '2 left'"],
            ["0 start ARG|LOCAL 1", "1 left LOCAL '1 left'"]
        ]
    );
}

#[test]
fn shows_class_bodies_and_methods() {
    let trace = bundled();
    assert!(trace.slots("Account program.py:27").len() == 1);
    let savings = trace.slots("Savings program.py:34");
    assert!(savings[0].contains(&"0 __class__ CELL no value"));
    let slots = &trace.slots("Savings.__init__ program.py:35")[0];
    assert!(slots[0].starts_with("0 self ARG|LOCAL <__main__.Savings object at 0x"));
    assert_eq!(
        slots[1..],
        [
            "1 balance ARG|LOCAL 100",
            "2 rate ARG|LOCAL 0.02",
            "3 __class__ FREE <class '__main__.Savings'>"
        ]
    );
}

#[test]
fn shows_a_coroutine() {
    let trace = bundled();
    let unanswered = [
        "0 question ARG|LOCAL 'how many?'",
        "1 answer LOCAL no value",
    ];
    assert_eq!(trace.slots("ask program.py:45"), [unanswered]);
    assert_eq!(trace.slots("ask program.py:45 (resumed)"), [unanswered; 2]);
    assert_eq!(trace.slots("Reply.__await__ program.py:41").len(), 1);
}

#[test]
fn only_selects_by_qualified_name() {
    let only = |glob| {
        let output = trace_locals().args(["--only", glob]).output();
        let trace = Trace::parse(&text(&output.expect("trace_locals starts").stderr));
        let titles = trace.titles().into_iter().map(str::to_owned);
        titles.collect::<Vec<_>>()
    };
    assert_eq!(only("main"), ["main program.py:50"]);
    assert_eq!(
        only("*.__init__"),
        [
            "Savings.__init__ program.py:35",
            "Account.__init__ program.py:30"
        ]
    );
    assert_eq!(only("[!a-zA-Z]module?"), ["<module> program.py:1"]);
    assert_eq!(only("mai"), [""; 0]);
}

#[test]
fn writes_to_a_file() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("trace.txt");
    let output = trace_locals()
        .args([OsStr::new("--output"), path.as_ref()])
        .output()
        .expect("trace_locals starts");
    assert_eq!(text(&output.stderr), "");
    let trace = Trace::parse(&fs::read_to_string(path).expect("a trace"));
    assert_eq!(trace.slots("main program.py:50").len(), 1);
}

#[test]
fn values_run_no_code_of_the_program() {
    let source = r#"
class Meta(type):
    def __repr__(cls): raise SystemError("a class's repr ran")
    def __getattribute__(cls, name): raise SystemError("a class's attribute was read")

class Touchy(metaclass=Meta):
    def __repr__(self): raise SystemError("repr ran")
    def __hash__(self): return 1
    def __eq__(self, other): raise SystemError("a comparison ran")
    def __getattribute__(self, name): raise SystemError("an attribute was read")

class Text(str):
    def __repr__(self): raise SystemError("a str's repr ran")

class Items(list):
    def __iter__(self): raise SystemError("an iteration ran")

class Method:
    def __repr__(self): raise SystemError("a method's object's repr ran")
    def method(self): pass

def show(value): print("shown")

show(Touchy())
show([(Touchy(), 1)])
show({Touchy()})
show({Touchy(): Touchy})
show(Text("text"))
show(Items())
show(Method().method)
"#;
    let trace = trace("touchy.py", source, &["--only", "show"]);
    let values = trace.entries.iter().map(|entry| {
        let value = entry.slots[0].strip_prefix("0 value ARG|LOCAL ");
        let value = value.expect("the argument");
        // Addresses differ.
        let mut parts = value.split("0x");
        let start = parts.next().unwrap_or_default().to_owned();
        let rest = parts.map(|part| part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
        rest.fold(start, |text, part| text + part)
    });
    assert_eq!(
        values.collect::<Vec<_>>(),
        [
            "<__main__.Touchy object at >",
            "[(<__main__.Touchy object at >, 1)]",
            "{<__main__.Touchy object at >}",
            "{<__main__.Touchy object at >: <class '__main__.Touchy'>}",
            "<__main__.Text object at >",
            "<__main__.Items object at >",
            "<method object at >",
        ]
    );
}

#[test]
fn values_fit_on_one_line() {
    let source = r#"
def show(value): pass
endless = []
endless.append(endless)
for value in (
    "a\nb", "ä" * 1000, b"x" * 1000000, 10 ** 100000, -1, list(range(100000)), endless,
    (), (1,), set(), {1}, frozenset(), frozenset((2,)), {"k": None}, "\ud800", 1.5, ..., show,
):
    show(value)
show.__qualname__ = "two\nlines"
show(show)
"#;
    let trace = trace("values.py", source, &["--only", "show"]);
    let values: Vec<_> = trace
        .entries
        .iter()
        .map(|entry| entry.slots[0].strip_prefix("0 value ARG|LOCAL "))
        .collect::<Option<_>>()
        .expect("one line for each");
    let cut = |text: String| text.chars().take(80).chain(['…']).collect::<String>();
    let numbers: Vec<_> = (0..100).map(|number| number.to_string()).collect();
    let expected = [
        r"'a\nb'".to_owned(),
        cut(format!("'{}", "ä".repeat(100))),
        cut(format!("b'{}", "x".repeat(100))),
        "<int of more than 1024 bits>".to_owned(),
        "-1".to_owned(),
        cut(format!("[{}", numbers.join(", "))),
        "[[[[[…]]]]]".to_owned(),
        "()".to_owned(),
        "(1,)".to_owned(),
        "set()".to_owned(),
        "{1}".to_owned(),
        "frozenset()".to_owned(),
        "frozenset({2})".to_owned(),
        "{'k': None}".to_owned(),
        r"'\ud800'".to_owned(),
        "1.5".to_owned(),
        "Ellipsis".to_owned(),
    ];
    assert_eq!(values[..expected.len()], expected);
    assert!(values[17].starts_with("<function show at 0x"));
    assert!(values[18].starts_with(r"<function two\nlines at 0x"));
}

#[test]
fn keeps_the_exception_that_is_thrown_into_a_generator() {
    let source = r#"
def careful():
    try:
        yield "begun"
    except KeyError as error:
        yield f"caught {error}"
    finally:
        print("cleaned up")

generator = careful()
print(next(generator))
print(generator.throw(KeyError("key")))
generator.close()
"#;
    let trace = trace("throw.py", source, &[]);
    assert_eq!(
        trace.titles()[1..],
        [
            "careful throw.py:2",
            "careful throw.py:2 (resumed)",
            "careful throw.py:2 (resumed by an exception)",
            "careful throw.py:2 (resumed by an exception)",
        ]
    );
}

#[test]
fn threads_are_shown_and_exit_handlers_are_not() {
    let source = r#"
import atexit, threading, time

def work(number):
    time.sleep(0.1)
    late(number)

def late(number): print("worked")

def goodbye(): print("goodbye")

atexit.register(goodbye)
threading.Thread(target=work, args=(1,)).start()
"#;
    let trace = trace("threads.py", source, &["--only", "[wlg]*"]);
    let titles = trace.titles();
    assert!(titles.contains(&"late threads.py:8"), "{titles:?}");
    assert!(!titles.contains(&"goodbye threads.py:10"), "{titles:?}");
}

#[test]
fn an_error_in_the_program_ends_with_its_traceback() {
    let source = "def divide(a, b):\n    return a / b\n\ndivide(1, 0)\n";
    let file = program("fails.py", source);
    let output = trace_locals().arg(&file).output();
    let output = output.expect("trace_locals starts");
    assert_eq!(output.status.code(), Some(1));
    let plain = python().arg(&file).output().expect("python starts");
    let (trace, traceback) = (text(&output.stderr), text(&plain.stderr));
    assert!(traceback.ends_with("ZeroDivisionError: division by zero\n"));
    let trace = trace.strip_suffix(&traceback).expect("the same traceback");
    let trace = Trace::parse(trace);
    assert_eq!(trace.titles(), ["<module> fails.py:1", "divide fails.py:1"]);
    assert_eq!(
        trace.slots("divide fails.py:1"),
        [["0 a ARG|LOCAL 1", "1 b ARG|LOCAL 0"]]
    );
}

/// Standard output and exit code, with and without the hook, of a program with
/// arguments.
#[track_caller]
fn assert_same_as_python(name: &str, source: &str, arguments: &[&OsStr]) -> Output {
    let file = program(name, source);
    let run = |mut command: Command| {
        let output = command.arg(&file).args(arguments).output();
        output.expect("the program starts")
    };
    let (traced, plain) = (run(trace_locals()), run(python()));
    assert_eq!(text(&traced.stdout), text(&plain.stdout));
    assert!(!traced.stdout.is_empty());
    assert_eq!(traced.status.code(), plain.status.code());
    traced
}

#[test]
fn json_tool_does_the_same() {
    let json = program(
        "input.json",
        r#"{"b": [1, 2.5, null], "a": {"ä": "\u00e9"}}"#,
    );
    let source = "import json.tool\njson.tool.main()\n";
    let arguments = ["--sort-keys".as_ref(), json.as_os_str()];
    let traced = assert_same_as_python("json_tool.py", source, &arguments);
    assert!(traced.status.success());
    let trace = Trace::parse(&text(&traced.stderr));
    assert_eq!(trace.titles()[0], "<module> json_tool.py:1");
    let titles = trace.titles();
    let decode = titles
        .iter()
        .find(|t| t.starts_with("JSONDecoder.decode decoder.py:"));
    let slots = trace.slots(decode.expect("a function of the json package"));
    assert!(slots[0].contains(&r#"1 s ARG|LOCAL '{"b": [1, 2.5, null], "a": {"ä": "\\u00e9"}}'"#));
}

#[test]
fn asyncio_does_the_same() {
    let source = r#"
import asyncio

async def produce(queue):
    for number in range(3):
        await queue.put(number)
        await asyncio.sleep(0)
    await queue.put(None)

async def numbers(queue):
    while (number := await queue.get()) is not None:
        yield number

async def main():
    queue = asyncio.Queue(1)
    async with asyncio.TaskGroup() as group:
        group.create_task(produce(queue))
        squares = [number ** 2 async for number in numbers(queue)]
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
    except TimeoutError:
        print("timed out")
    print(squares)
    raise SystemExit(3)

asyncio.run(main())
"#;
    let traced = assert_same_as_python("aio.py", source, &[]);
    assert_eq!(traced.status.code(), Some(3));
    assert_eq!(text(&traced.stdout), "timed out\n[0, 1, 4]\n");
    let trace = Trace::parse(&text(&traced.stderr));
    assert!(trace.slots("numbers aio.py:10 (resumed)").len() >= 4);
    let cancelled = trace.slots("main aio.py:14 (resumed by an exception)");
    let squares = cancelled[0].iter().find(|slot| slot.contains(" squares "));
    assert!(squares.is_some_and(|slot| slot.ends_with(" squares LOCAL [0, 1, 4]")));
}

#[test]
fn the_program_finds_itself_as_under_python() {
    let source = r#"
import sys
print(sys.argv, sys.orig_argv, sys.path[0], sys.executable, sys.prefix)
print(__name__, __file__, __spec__, sorted(vars()))
print(sys.flags, sys.gettrace(), sys.getprofile())
sys.exit("with a message")
"#;
    let arguments = ["--only", "-x", "--", "--help"].map(OsStr::new);
    let traced = assert_same_as_python("itself.py", source, &arguments);
    assert_eq!(traced.status.code(), Some(1));
    assert!(text(&traced.stderr).ends_with("with a message\n"));
}

/// Python aborts if memory is freed by another allocator than it came from.
#[test]
fn debug_allocators_find_nothing() {
    let file = program("allocators.py", "import sys\nprint(sys.flags.dev_mode)\n");
    let output = trace_locals()
        .env("PYTHONDEVMODE", "1")
        .arg(file)
        .output()
        .expect("trace_locals starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "True\n");
}

#[test]
fn usage_errors() {
    let no_folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("missing");
    let no_file = no_folder.join("file").into_os_string().into_string();
    let no_file = no_file.expect("UTF-8");
    let cases: [(&[&str], &str); 6] = [
        (&["--fast"], "invalid option '--fast'"),
        (&["--only"], "missing argument for option '--only'"),
        (&["--only", "["], "cannot parse argument \"[\""),
        (&["--output"], "missing argument for option '--output'"),
        (&["--output", &no_file], "missing/file\": "),
        (&[&no_file], "missing/file\": "),
    ];
    for (arguments, message) in cases {
        let output = trace_locals().args(arguments).output();
        let output = output.expect("trace_locals starts");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("trace_locals: "), "{stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn help() {
    let output = trace_locals().arg("--help").output();
    let output = output.expect("trace_locals starts");
    assert!(output.status.success());
    let help = text(&output.stdout);
    for word in [
        "--only",
        "--output",
        "(resumed)",
        "standard error",
        "exit code",
    ] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn a_refusal_is_told_before_the_program_runs() {
    let output = trace_locals()
        .env("LOCALSPLUS_PROVIDER", "nonsense")
        .output()
        .expect("trace_locals starts");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let stderr = text(&output.stderr);
    assert!(
        stderr.starts_with("trace_locals: LOCALSPLUS_PROVIDER=nonsense"),
        "{stderr}"
    );
}

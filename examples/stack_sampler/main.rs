//! Runs a Python program and samples its stack: a flame graph's input.
//!
//! `cargo run --release --example stack_sampler -- [--output FILE] [--every MICROSECONDS] [FILE [ARGS]...]`
//!
//! writes collapsed stacks (`outermost;...;innermost count`, a line each) to FILE,
//! or to standard error, which `inferno-flamegraph` and `flamegraph.pl` turn into a
//! picture. With `--cost` it writes what a frame costs instead, in comparison with a
//! walk by `sys._getframe` and `f_back`, and how many frame objects were made.
//!
//! A stack may only be read by the thread that it belongs to. So the sampler asks
//! at a safe point: whenever a Python function is called (an eval-frame hook) and
//! the time for the next sample has come. A function that calls no other is seen
//! through the functions that it returns to: for a program of many small functions,
//! as Python programs are, that comes close to sampling at any moment.

#[path = "../trace_locals/python.rs"]
#[allow(dead_code, reason = "the other example needs more of it")]
mod python;
mod sampler;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Write, stderr};
use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::*;

/// The executable of the Python that this program is linked with. An embedded
/// interpreter finds its standard library from there.
const PYTHON: &str = match option_env!("LOCALSPLUS_PYTHON") {
    Some(executable) => executable,
    None => "python3",
};

const PROGRAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/examples/stack_sampler/program.py"
);

const COST: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/examples/stack_sampler/cost.py"
);

const HELP: &str = "\
Runs a Python program and writes its sampled stacks, collapsed, one a line.

Usage: stack_sampler [OPTIONS] [FILE [ARGS]...]

  FILE [ARGS]...        The program. Default: one that comes with stack_sampler.

Options:
  --output FILE         Write the stacks to FILE instead of to standard error.
  --every MICROSECONDS  The time from one sample to the next, of each thread, at
                        least. Default: 1000.
  --cost                Instead, run a program that walks its own stack, and write
                        what a frame costs this way and that.
  -h, --help            Print this.
";

struct Arguments {
    output: Option<File>,
    every: Duration,
    cost: bool,
    program: Vec<OsString>,
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stack_sampler: {error}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    let command: Result<Vec<_>, _> = [PYTHON.into()]
        .into_iter()
        .chain(arguments.program)
        .map(|argument: OsString| CString::new(argument.into_encoded_bytes()))
        .collect();
    let command = command.expect("arguments hold no NUL, since that is where they end");
    python::initialize(&command);
    let installed = match arguments.cost {
        true => sampler::install_comparison(),
        false => sampler::install(arguments.every),
    };
    if let Err(error) = installed {
        eprintln!("stack_sampler: {error}");
        return ExitCode::FAILURE;
    }
    let code = python::run_main();
    let stacks = match arguments.cost {
        true => format!("{}\n", sampler::cost()),
        false => sampler::collapsed(),
    };
    let written = match arguments.output {
        Some(mut file) => file.write_all(stacks.as_bytes()),
        None => stderr().write_all(stacks.as_bytes()),
    };
    if let Err(error) = written {
        eprintln!("stack_sampler: the stacks could not be written: {error}");
        return ExitCode::FAILURE;
    }
    // The system keeps no more than the lowest eight bits either.
    ExitCode::from(code as u8)
}

fn parse() -> Result<Option<Arguments>, lexopt::Error> {
    let mut parser = lexopt::Parser::from_env();
    let mut arguments = Arguments {
        output: None,
        every: Duration::from_micros(1000),
        cost: false,
        program: vec![PROGRAM.into()],
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(None);
            }
            Long("output") => {
                let path = parser.value()?;
                let file = File::create(&path)
                    .map_err(|error| format!("{}: {error}", path.to_string_lossy()))?;
                arguments.output = Some(file);
            }
            Long("every") => arguments.every = Duration::from_micros(parser.value()?.parse()?),
            Long("cost") => {
                arguments.cost = true;
                arguments.program = vec![COST.into()];
            }
            Value(file) => {
                // All that follows is the program's own.
                arguments.program = [file].into_iter().chain(parser.raw_args()?).collect();
            }
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(Some(arguments))
}

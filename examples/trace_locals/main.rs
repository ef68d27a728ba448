//! Runs a Python program and prints the local variables of every function that
//! it enters, at that moment.
//!
//! `cargo run --example trace_locals -- --help` tells how to use it. Where to
//! look for what:
//!
//! - `arguments.rs`: the command line.
//! - `trace.rs`: the eval-frame hook, which asks `localsplus`.
//! - `value.rs`: values as text, without running Python code.
//! - `python.rs`: what both need of Python's C API.
//! - `program.py`: the Python program that runs unless another one is given.

mod arguments;
mod python;
mod trace;
mod value;

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Write, stdout};
use std::process::ExitCode;

use arguments::{Arguments, HELP, Request, UsageError};
use trace::Tracer;

/// The executable of the Python that this program is linked with. An embedded
/// interpreter finds its standard library from there.
const PYTHON: &str = match option_env!("LOCALSPLUS_PYTHON") {
    Some(executable) => executable,
    None => "python3",
};

const PROGRAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/examples/trace_locals/program.py"
);

fn main() -> ExitCode {
    match Request::parse(std::env::args_os()).and_then(run) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("trace_locals: {error}\nTry --help.");
            ExitCode::from(2)
        }
    }
}

fn run(request: Request) -> Result<ExitCode, UsageError> {
    match request {
        Request::Help => {
            // It is not our affair if nobody reads on: `--help | head`.
            let _ = stdout().write_all(HELP.as_bytes());
            Ok(ExitCode::SUCCESS)
        }
        Request::Trace(arguments) => trace(arguments),
    }
}

fn trace(arguments: Arguments) -> Result<ExitCode, UsageError> {
    let Arguments {
        only,
        output,
        program,
    } = arguments;
    let program = program.unwrap_or_else(|| vec![PROGRAM.into()]);
    // Python would tell as well, but not that this is about our own arguments.
    let file = &program[0];
    std::fs::metadata(file).map_err(|error| UsageError::file(file, error))?;
    let output = output
        .map(|path| File::create(&path).map_err(|error| UsageError::file(&path, error)))
        .transpose()?;

    python::initialize(&command(program));
    if let Err(error) = trace::install(Tracer { only, output }) {
        eprintln!("trace_locals: {error}");
        return Ok(ExitCode::FAILURE);
    }
    // The system keeps no more than the lowest eight bits either.
    Ok(ExitCode::from(python::run_main() as u8))
}

/// The command that would run the program without us.
fn command(program: Vec<OsString>) -> Vec<CString> {
    // In front of a file that looks like an option.
    let separator = program[0].to_string_lossy().starts_with('-');
    let separator = separator.then(|| "--".into());
    let command = [PYTHON.into()].into_iter().chain(separator).chain(program);
    command
        .map(|argument: OsString| CString::new(argument.into_encoded_bytes()))
        .collect::<Result<_, _>>()
        .expect("arguments hold no NUL, since that is where they end")
}

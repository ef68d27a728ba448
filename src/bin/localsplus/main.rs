//! `localsplus doctor`: does localsplus work in this interpreter, and if not, why?
//!
//! Every interpreter runs as a process of its own and loads the shared library,
//! which reports on it line by line. This program needs no interpreter itself.

mod arguments;
mod examination;
mod interpreters;
mod json;
mod library;
mod process;
mod records;
mod text;
mod verdict;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use examination::Examination;
use library::Library;

/// Everything that was asked works.
const WORKS: u8 = 0;
/// At least one interpreter does not.
const DOES_NOT: u8 = 1;
/// Nothing was examined.
const NOTHING_DONE: u8 = 2;

fn main() -> ExitCode {
    let code = match Arguments::parse(std::env::args_os().skip(1)) {
        Ok(Command::Say(text)) => say(&text),
        Ok(Command::Doctor(arguments)) => doctor(&arguments).unwrap_or_else(|reason| {
            eprintln!("localsplus doctor: {reason}");
            NOTHING_DONE
        }),
        Err(reason) => {
            eprintln!("localsplus: {reason}\n\n{}", arguments::USAGE);
            NOTHING_DONE
        }
    };
    ExitCode::from(code)
}

/// Prints `text`. Whoever has stopped reading does not want the rest.
fn say(text: &str) -> u8 {
    use std::io::Write;

    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => WORKS,
        Err(_) => NOTHING_DONE,
    }
}

fn doctor(arguments: &Arguments) -> Result<u8, String> {
    let timeout = arguments.timeout;
    let (interpreters, left_out) = match arguments.interpreters.as_slice() {
        [] => interpreters::find(timeout),
        given => (given.to_vec(), Vec::new()),
    };
    if arguments.list {
        return Ok(say(&text::list(&interpreters, &left_out)));
    }
    if interpreters.is_empty() {
        return Err(format!(
            "{}no interpreter found: {}. Name one: localsplus doctor PYTHON",
            text::left_out(&left_out),
            interpreters::RULE
        ));
    }
    let library = Library::find(arguments.library.as_deref())?;
    let mut examinations = Vec::new();
    for interpreter in &interpreters {
        let examination = Examination::make(interpreter, &library, timeout);
        if !arguments.json {
            say(&text::examination(&examination, &library));
        }
        examinations.push(examination);
    }
    if arguments.json {
        say(&json::document(&examinations, &left_out, &library));
    } else {
        say(&text::left_out(&left_out));
    }
    let works = |examination: &Examination| examination.verdict.works();
    Ok(if examinations.iter().all(works) {
        WORKS
    } else {
        DOES_NOT
    })
}

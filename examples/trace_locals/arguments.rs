//! The command line.

use std::ffi::OsString;
use std::io;

use glob::Pattern;

pub const HELP: &str = "\
Runs a Python program and prints the local variables of every Python function
that it enters, at that moment.

Usage: trace_locals [OPTIONS] [FILE [ARGS]...]

  FILE [ARGS]...   The program, run as `python FILE ARGS` would. Default: a small
                   program that comes with trace_locals.

Options:
  --only GLOB      Show only functions whose qualified name matches the whole of
                   GLOB: * and ? stand for any text and any character, [ab] and
                   [!ab] for one of, and none of, these. Example: --only 'Cart.*'
  --output FILE    Write the trace to FILE instead of to standard error.
  -h, --help       Print this.

The first line names the interpreter and what reads its frames. Then follows, for
every function entered, its qualified name, file and first line, and its slots:
index, name, kind (ARG, LOCAL, CELL, FREE, HIDDEN), and value or \"no value\".
The code of modules and of class bodies is entered, too: it is called <module>,
and as the class.

Calling a generator function or a coroutine function enters it once, to make the
generator; every time that it goes on, from the very first step, it is entered
again, with what its variables are by then. These entries are marked (resumed),
or (resumed by an exception) if it is thrown in, as by close().

The trace begins with the program's own code, and ends with it in the main thread:
exit handlers and the printing of a traceback are not shown. Other threads are
shown as long as they run; child processes, as far as they are forked.

Nothing is written to standard output, and nothing of the program's code is run
for the trace: a value of a built-in type is shown as repr() does, any other as
<module.Class object at 0x...>. Values are cut to one line. The program may meet
Python's limit of recursion sooner, since calls take more of the C stack now.

The exit code is the program's: 1 after an exception, which Python reports as
always. It is 2 if these arguments make no sense.
";

/// What the user wants.
pub enum Request {
    Help,
    Trace(Arguments),
}

pub struct Arguments {
    /// Which functions to show, by qualified name. Default: all.
    pub only: Option<Pattern>,
    /// Where the trace goes. Default: standard error.
    pub output: Option<OsString>,
    /// The program and its arguments. Never empty.
    pub program: Option<Vec<OsString>>,
}

/// Why the arguments make no sense.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error(transparent)]
    Arguments(#[from] lexopt::Error),
    #[error("{0:?}: {1}")]
    File(OsString, io::Error),
}

impl UsageError {
    pub fn file(path: &OsString, error: io::Error) -> Self {
        Self::File(path.clone(), error)
    }
}

impl Request {
    /// `arguments` begin with the name of this program.
    pub fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Self, UsageError> {
        use lexopt::prelude::*;

        let mut parser = lexopt::Parser::from_iter(arguments.collect::<Vec<_>>());
        let (mut only, mut output, mut program) = (None, None, None);
        while let Some(argument) = parser.next()? {
            match argument {
                Short('h') | Long("help") => return Ok(Self::Help),
                Long("only") => only = Some(parser.value()?.parse_with(Pattern::new)?),
                Long("output") => output = Some(parser.value()?),
                Value(file) => {
                    // All that follows is the program's own.
                    let arguments = parser.raw_args()?;
                    program = Some([file].into_iter().chain(arguments).collect());
                }
                _ => return Err(argument.unexpected().into()),
            }
        }
        Ok(Self::Trace(Arguments {
            only,
            output,
            program,
        }))
    }
}

//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

pub const USAGE: &str = "\
Usage: localsplus doctor [OPTION ...] [PYTHON ...]

Runs each PYTHON (a path, or a name on PATH), loads localsplus in it, and says
whether it reads frames there, and if not, why. Without PYTHON: every CPython 3.11
or later that is on PATH as python3 or python3.N, or that pyenv or uv have.

  --json              for machines
  --list              only say which interpreters would be examined
  --library FILE      the localsplus library to load instead of this program's own
  --timeout SECONDS   how long an interpreter may take (60)
  --help, --version

Exit status: 0 if it works in every interpreter, 1 if not in one of them, 2 if
none was examined.
";

pub enum Command {
    /// Print this.
    Say(String),
    Doctor(Arguments),
}

#[derive(Debug)]
pub struct Arguments {
    pub interpreters: Vec<PathBuf>,
    pub library: Option<PathBuf>,
    pub timeout: Duration,
    pub json: bool,
    pub list: bool,
}

impl Arguments {
    pub fn parse(words: impl Iterator<Item = OsString>) -> Result<Command, String> {
        let mut words = words;
        match words.next().as_deref().and_then(OsStr::to_str) {
            Some("doctor") => {}
            Some("--help" | "-h" | "help") => return Ok(Command::Say(USAGE.to_owned())),
            Some("--version" | "-V") => {
                return Ok(Command::Say(format!(
                    "localsplus {}\n",
                    env!("CARGO_PKG_VERSION")
                )));
            }
            Some(other) => return Err(format!("unknown command {other:?}")),
            None => return Err("a command is missing".to_owned()),
        }
        let mut arguments = Self {
            interpreters: Vec::new(),
            library: None,
            timeout: Duration::from_secs(60),
            json: false,
            list: false,
        };
        let mut only_interpreters = false;
        while let Some(word) = words.next() {
            let (option, value) = match word.to_str() {
                Some(option) if option.starts_with('-') && !only_interpreters => {
                    match option.split_once('=') {
                        Some((option, value)) => (option, Some(OsString::from(value))),
                        None => (option, None),
                    }
                }
                _ => {
                    arguments.interpreters.push(word.into());
                    continue;
                }
            };
            let has_value = value.is_some();
            let mut value = || {
                let value = value.clone().or_else(|| words.next());
                value.ok_or_else(|| format!("{option} needs a value"))
            };
            match option {
                "--library" => arguments.library = Some(value()?.into()),
                "--timeout" => arguments.timeout = seconds(&value()?)?,
                _ if has_value => return Err(format!("unknown option {option}=...")),
                "--json" => arguments.json = true,
                "--list" => arguments.list = true,
                "--help" | "-h" => return Ok(Command::Say(USAGE.to_owned())),
                "--" => only_interpreters = true,
                _ => return Err(format!("unknown option {option}")),
            }
        }
        Ok(Command::Doctor(arguments))
    }
}

fn seconds(value: &OsStr) -> Result<Duration, String> {
    let seconds = value.to_str().and_then(|value| value.parse::<f64>().ok());
    seconds
        .filter(|&seconds| seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("--timeout {value:?}: expected a number of seconds above 0"))
}

//! Runs one interpreter with the library, and draws the conclusion.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::interpreters::OLDEST;
use crate::library::Library;
use crate::process::{self, Ended};
use crate::records::{self, Record};
use crate::verdict::Verdict;

/// In the interpreter.
const SCRIPT: &str = include_str!("examine.py");

/// Some programs quote all of `SCRIPT` when they cannot make anything of it.
const LONGEST_LINE: usize = 200;

/// A value that was expected, and what was found.
pub struct Comparison {
    pub agrees: bool,
    /// The field of a check, or the test.
    pub name: String,
    /// What differs, if that is not the name.
    pub field: String,
    pub expected: String,
    pub found: String,
}

/// Everything that one interpreter has shown.
pub struct Examination {
    /// As it was named.
    pub python: PathBuf,
    records: Vec<Record>,
    pub checks: Vec<Comparison>,
    pub tests: Vec<Comparison>,
    /// The last lines of its standard error.
    pub stderr: Vec<String>,
    pub verdict: Verdict,
}

impl Examination {
    /// Takes `timeout` at most.
    pub fn make(python: &Path, library: &Library, timeout: Duration) -> Self {
        let mut command = Command::new(python);
        // Its environment is the user's, since their own program has it too.
        command.arg("-c").arg(SCRIPT).arg(&library.path);
        let mut examination = Self {
            python: python.to_owned(),
            records: Vec::new(),
            checks: Vec::new(),
            tests: Vec::new(),
            stderr: Vec::new(),
            verdict: Verdict::Works(String::new()),
        };
        examination.verdict = match process::run(command, timeout) {
            Ok(ended) => {
                examination.take(&ended);
                examination.conclude(ended.status, library, timeout)
            }
            Err(error) if error.kind() == ErrorKind::NotFound && is_name(python) => {
                Verdict::DoesNotRun("there is no such program on PATH".to_owned())
            }
            Err(error) => Verdict::DoesNotRun(error.to_string()),
        };
        examination
    }

    /// The values that the interpreter has given for `word`, the last time.
    pub fn values(&self, word: &str) -> Option<&[String]> {
        let mut records = self.records.iter().rev();
        let record = records.find(|record| record.first().is_some_and(|first| first == word));
        record.and_then(|record| record.get(1..))
    }

    /// The value of `word`, if the interpreter has said it.
    pub fn value(&self, word: &str) -> Option<&str> {
        self.values(word)?.first().map(String::as_str)
    }

    /// "JIT on", ...
    pub fn modes(&self) -> impl Iterator<Item = &str> {
        let modes = self.records.iter().filter(|record| record[0] == "mode");
        modes.filter_map(|record| record.get(1).map(String::as_str))
    }

    fn take(&mut self, ended: &Ended) {
        self.records = records::parse(&ended.stdout);
        for record in &self.records {
            let words: Vec<_> = record.iter().map(String::as_str).collect();
            let (list, name, [field, expected, found]) = match words[..] {
                ["check", _, field, expected, found] => {
                    (&mut self.checks, field, [field, expected, found])
                }
                ["test", _, test] => (&mut self.tests, test, [""; 3]),
                ["test", _, test, field, expected, found] => {
                    (&mut self.tests, test, [field, expected, found])
                }
                _ => continue,
            };
            list.push(Comparison {
                agrees: words[1] == "yes",
                name: name.to_owned(),
                field: field.to_owned(),
                expected: expected.to_owned(),
                found: found.to_owned(),
            });
        }
        let short = |line: &str| line.chars().take(LONGEST_LINE).collect();
        let lines: Vec<String> = ended.stderr.lines().map(short).collect();
        self.stderr = lines[lines.len().saturating_sub(12)..].to_vec();
    }

    fn conclude(
        &self,
        status: Option<ExitStatus>,
        library: &Library,
        timeout: Duration,
    ) -> Verdict {
        let Some(status) = status else {
            return Verdict::TimedOut(format!(
                "stopped after {} seconds, {}",
                timeout.as_secs_f64(),
                self.stage()
            ));
        };
        // An interpreter that is no CPython may have no such functions at all.
        let kind = || match self.value("implementation") {
            Some(name) if name != "CPython" => {
                format!("this is {name}, and localsplus reads frames of CPython only; ")
            }
            _ if self.is_too_old() => {
                format!("localsplus needs CPython 3.{OLDEST} or later; ")
            }
            _ => String::new(),
        };
        if let Some(reason) = self.value("unloadable") {
            return Verdict::DoesNotLoad(format!("{}{reason}", kind()));
        }
        if self.values("other-library").is_some() {
            return Verdict::DoesNotLoad(format!(
                "{} has no localsplus_report: it is not the library that cargo builds of \
                 localsplus {}",
                library.path.display(),
                env!("CARGO_PKG_VERSION")
            ));
        }
        if self.values("end").is_none() || !status.success() {
            return self.ended_early(status);
        }
        if let Some(refusal) = self.value("refusal") {
            return Verdict::Refused(refusal.to_owned());
        }
        if let Some(reason) = self.value("untested") {
            return Verdict::Wrong(format!("the self-test did not run: {reason}"));
        }
        if let Some(test) = self.tests.iter().find(|test| !test.agrees) {
            return Verdict::Wrong(format!(
                "{}, {}: expected {}, found {}",
                test.name, test.field, test.expected, test.found
            ));
        }
        match self.value("provider") {
            Some(provider) if !self.tests.is_empty() => Verdict::Works(provider.to_owned()),
            _ => Verdict::Wrong("the library reported neither a provider nor a test".to_owned()),
        }
    }

    fn is_too_old(&self) -> bool {
        let number = self.value("number").and_then(|number| number.parse().ok());
        number.is_some_and(|number: u32| number < 0x300 + OLDEST)
    }

    fn ended_early(&self, status: ExitStatus) -> Verdict {
        if self.records.is_empty() && self.signal(status).is_none() {
            let said = self.stderr.first().map(|line| format!(": {line}"));
            return Verdict::NotPython(format!(
                "it does not run a line of Python, but ended with {status}{}",
                said.unwrap_or_default()
            ));
        }
        let last_line = self.stderr.last().filter(|_| self.signal(status).is_none());
        let said = last_line.map(|line| format!(": {line}"));
        Verdict::Crashed(format!(
            "ended with {status}, {}{}",
            self.stage(),
            said.unwrap_or_default()
        ))
    }

    fn signal(&self, status: ExitStatus) -> Option<i32> {
        #[cfg(unix)]
        return std::os::unix::process::ExitStatusExt::signal(&status);
        #[cfg(not(unix))]
        return None.filter(|_: &i32| status.success());
    }

    /// What it was doing in the end.
    fn stage(&self) -> &'static str {
        let has = |word| self.values(word).is_some();
        if has("end") {
            "after the report"
        } else if has("testing") {
            "in the self-test"
        } else if has("choosing") {
            "while the provider was proved on frames of known content"
        } else if has("inspecting") {
            "while the library looked at types and offsets"
        } else if has("loading") {
            "while the library was loaded"
        } else if has("version") {
            "before the library was loaded"
        } else {
            "before it ran a line of Python"
        }
    }
}

/// Whether it is looked for on PATH.
fn is_name(python: &Path) -> bool {
    python.components().count() == 1 && !python.has_root()
}

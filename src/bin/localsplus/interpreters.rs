//! Finds the interpreters of this machine by the rule of the matrix
//! (`matrix/localsplus_matrix/installed.py`; a test there compares the two).

use std::collections::HashSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::records;

/// The oldest minor version with a layout; a test compares.
pub const OLDEST: u32 = 11;

pub const RULE: &str = "looked for python3 and python3.N (also python3.Nt, python3.Nd and \
                        python3.Ntd) on PATH, in pyenv's versions and in uv's folder";

/// Says what it is, and does nothing else without an argument.
const SCRIPT: &str = include_str!("examine.py");

/// An interpreter that would have been one, and why it is not.
pub struct LeftOut {
    pub path: PathBuf,
    pub reason: String,
}

/// Every CPython from 3.11 on, each once, and what else goes by such a name.
pub fn find(timeout: Duration) -> (Vec<PathBuf>, Vec<LeftOut>) {
    let mut seen = HashSet::new();
    let (mut found, mut left_out) = (Vec::new(), Vec::new());
    for path in candidates() {
        match ask(&path, timeout) {
            Ok(executable) => {
                if seen.insert(fs::canonicalize(&executable).unwrap_or(executable.clone())) {
                    found.push(executable);
                }
            }
            Err(reason) => left_out.push(LeftOut { path, reason }),
        }
    }
    (found, left_out)
}

fn candidates() -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    for folder in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
        let mut commands: Vec<_> = names(&folder)
            .into_iter()
            .filter(|name| name == "python3" || command_minor(name).is_some())
            .collect();
        commands.sort_by_key(|name| (command_minor(name), name.clone()));
        candidates.extend(commands.into_iter().map(|name| folder.join(name)));
    }
    let home = env::home_dir().unwrap_or_default();
    let pyenv = answer("pyenv", &["root"])
        .or_else(|| env::var_os("PYENV_ROOT").map(PathBuf::from))
        .unwrap_or_else(|| home.join(".pyenv"));
    candidates.extend(installed(&pyenv.join("versions"), pyenv_minor));
    let uv =
        answer("uv", &["python", "dir"]).unwrap_or_else(|| home.join(".local/share/uv/python"));
    candidates.extend(installed(&uv, uv_minor));
    candidates.retain(|path| is_executable(path));
    candidates
}

/// The interpreters of installations, of which each has a folder in `root`.
fn installed(root: &Path, minor: fn(&str) -> Option<u32>) -> Vec<PathBuf> {
    let mut folders: Vec<_> = names(root)
        .into_iter()
        .filter_map(|name| Some((minor(&name)?, name)))
        .collect();
    folders.sort_by_key(|(minor, name)| (*minor, numbers(name)));
    let interpreter = |(minor, name): (u32, String)| {
        let command = |suffix| {
            root.join(&name)
                .join(format!("bin/python3.{minor}{suffix}"))
        };
        ["td", "t", "d", ""]
            .map(command)
            .into_iter()
            .find(|path| path.exists())
    };
    folders.into_iter().filter_map(interpreter).collect()
}

/// 12 for "python3.12", "python3.12d", ...
fn command_minor(name: &str) -> Option<u32> {
    let (minor, suffix) = leading_number(name.strip_prefix("python3.")?)?;
    (minor >= OLDEST && ["", "t", "d", "td"].contains(&suffix)).then_some(minor)
}

/// 13 for "3.13.0", "3.15-dev", "3.13.2t-debug", ...
fn pyenv_minor(name: &str) -> Option<u32> {
    let (minor, rest) = leading_number(name.strip_prefix("3.")?)?;
    let rest = match rest.strip_prefix('.').and_then(leading_number) {
        Some((_, rest)) => rest,
        None => [".-dev", "-dev"]
            .iter()
            .find_map(|dev| rest.strip_prefix(dev))
            .unwrap_or(rest),
    };
    let rest = rest.strip_prefix('t').unwrap_or(rest);
    (minor >= OLDEST && ["", "-debug"].contains(&rest)).then_some(minor)
}

/// 14 for "cpython-3.14.0+freethreaded-linux-x86_64-gnu", ...
fn uv_minor(name: &str) -> Option<u32> {
    let (minor, rest) = leading_number(name.strip_prefix("cpython-3.")?)?;
    (minor >= OLDEST && rest.starts_with('.')).then_some(minor)
}

fn leading_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, rest) = text.split_at(end.unwrap_or(text.len()));
    Some((number.parse().ok()?, rest))
}

/// For the order of versions.
fn numbers(text: &str) -> Vec<u32> {
    let words = text.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).take(3).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.collect()
}

fn is_executable(path: &Path) -> bool {
    let Ok(metadata) = path.metadata() else {
        return false;
    };
    #[cfg(unix)]
    let may_run = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may_run = true;
    metadata.is_file() && may_run
}

/// What a program answers in one line: a path.
fn answer(program: &str, arguments: &[&str]) -> Option<PathBuf> {
    let mut command = Command::new(program);
    command.args(arguments);
    let ended = process::run(command, Duration::from_secs(60)).ok()?;
    let answer = ended.stdout.trim();
    (ended.status?.success() && !answer.is_empty()).then(|| answer.into())
}

/// The interpreter behind `path`: that may be a shim, or of a virtual environment.
fn ask(path: &Path, timeout: Duration) -> Result<PathBuf, String> {
    let mut command = Command::new(path);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("PYTHON") {
            command.env_remove(name);
        }
    }
    // From there, a pyenv shim shows the user's global choice.
    command.args(["-I", "-c", SCRIPT]).current_dir("/");
    let ended = process::run(command, timeout).map_err(|error| error.to_string())?;
    let Some(status) = ended.status else {
        return Err(format!("no answer in {} seconds", timeout.as_secs_f64()));
    };
    let records = records::parse(&ended.stdout);
    let value = |word: &str| {
        let record = records.iter().find(|record| record[0] == word);
        record.and_then(|record| record.get(1).cloned())
    };
    let (Some(implementation), Some(version), Some(number), Some(executable)) = (
        value("implementation"),
        value("version"),
        value("number").and_then(|number| number.parse::<u32>().ok()),
        value("executable"),
    ) else {
        let said = ended.stderr.lines().next().unwrap_or("no output");
        return Err(format!("does not run: {status}, {said}"));
    };
    if implementation != "CPython" || number < 0x300 + OLDEST {
        return Err(format!(
            "{implementation} {version}; looked for CPython 3.{OLDEST} or later"
        ));
    }
    Ok(match executable.is_empty() {
        true => path.to_owned(),
        false => OsStr::new(&executable).into(),
    })
}

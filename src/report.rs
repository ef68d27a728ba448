//! Everything there is to say about the running interpreter, in lines: what it is,
//! each comparison with the layout of its version, the provider or the refusal, and
//! what frames of a small program hold.
//!
//! A line is a word and its values, separated by tabs; `\t`, `\n`, `\r` and `\\`
//! stand for those characters in a value.

use crate::canary::call;
use crate::capi::ABI_VERSION;
use crate::layout::cross_check::checks;
use crate::object::Object;
use crate::reader::{entry, reader};
use crate::runtime::{Obscure, Runtime, Symbols};
use crate::self_test::{self, string};

/// Hands the report to `write`, line by line, so that a crash does not take away
/// what was known before. `None` if `write` has raised an exception.
pub fn report(write: &Object) -> Option<()> {
    let line = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(|word| escape(word)).collect();
        call(write, &[&string(&words.join("\t"))?]).map(drop)
    };
    let version = env!("CARGO_PKG_VERSION");
    line(&["library", version, &ABI_VERSION.to_string()])?;
    let symbols = Symbols::open();
    match Runtime::inspect(&symbols) {
        Ok(runtime) => {
            line(&["runtime", &runtime.to_string()])?;
            let entry = entry(&runtime).filter(|_| runtime.implementation == "cpython");
            if let Some(entry) = entry {
                line(&["layout", &entry.row.to_string()])?;
                for check in checks(&entry.row, &runtime) {
                    let agrees = if check.passes() { "yes" } else { "no" };
                    let texts = check.mismatch();
                    line(&["check", agrees, check.field, &texts.expected, &texts.found])?;
                }
            }
        }
        Err(Obscure::Missing(reason) | Obscure::Failed(reason)) => line(&["obscure", &reason])?,
    }
    line(&["choosing"])?;
    match reader() {
        Ok(reader) => {
            line(&["provider", &reader.name().to_string_lossy()])?;
            line(&["testing"])?;
            tests(&symbols, line)?;
        }
        Err(error) => line(&["refusal", &error.to_string()])?,
    }
    line(&["end"])
}

fn tests(symbols: &Symbols, line: impl Fn(&[&str]) -> Option<()>) -> Option<()> {
    match self_test::run(symbols) {
        Ok(outcomes) => outcomes.iter().try_for_each(|outcome| {
            let test = outcome.test.as_str();
            match &outcome.failure {
                None => line(&["test", "yes", test]),
                Some(failure) => line(&[
                    "test",
                    "no",
                    test,
                    &failure.field,
                    &failure.expected,
                    &failure.found,
                ]),
            }
        }),
        Err(reason) => line(&["untested", &reason]),
    }
}

fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\t' => escaped.push_str("\\t"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            other => escaped.push(other),
        }
    }
    escaped
}

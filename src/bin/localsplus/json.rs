//! The report for machines.

use std::fmt::Write;

use crate::examination::{Comparison, Examination};
use crate::interpreters::LeftOut;
use crate::library::Library;

pub fn document(examinations: &[Examination], left_out: &[LeftOut], library: &Library) -> String {
    let all_work = examinations.iter().all(|each| each.verdict.works());
    let left_out = left_out.iter().map(|LeftOut { path, reason }| {
        object(&[
            ("python", string(&path.to_string_lossy())),
            ("reason", string(reason)),
        ])
    });
    let document = object(&[
        ("program", string(env!("CARGO_PKG_VERSION"))),
        ("library", string(library.origin)),
        ("works", boolean(all_work)),
        ("interpreters", array(examinations.iter().map(interpreter))),
        ("left_out", array(left_out)),
    ]);
    format!("{document}\n")
}

fn interpreter(examination: &Examination) -> String {
    let value = |word| optional(examination.value(word));
    let number = |text: Option<&str>| {
        let number = text.and_then(|text| text.parse::<u32>().ok());
        number.map_or_else(|| "null".to_owned(), |number| number.to_string())
    };
    let library = examination.values("library").unwrap_or_default();
    object(&[
        ("python", string(&examination.python.to_string_lossy())),
        ("works", boolean(examination.verdict.works())),
        ("verdict", string(examination.verdict.word())),
        ("text", string(&examination.verdict.text())),
        ("executable", value("executable")),
        ("implementation", value("implementation")),
        ("version", value("version")),
        ("build", value("build")),
        ("bits", number(examination.value("bits"))),
        ("platform", value("platform")),
        ("modes", array(examination.modes().map(string))),
        ("library", value("library")),
        ("abi", number(library.get(1).map(String::as_str))),
        ("seen_as", value("runtime")),
        ("layout", value("layout")),
        ("provider", value("provider")),
        ("refusal", value("refusal")),
        ("checks", array(examination.checks.iter().map(comparison))),
        ("self_test", array(examination.tests.iter().map(comparison))),
        (
            "stderr",
            array(examination.stderr.iter().map(|line| string(line))),
        ),
    ])
}

fn comparison(comparison: &Comparison) -> String {
    let text = |text: &str| optional(Some(text).filter(|text| !text.is_empty()));
    object(&[
        ("name", string(&comparison.name)),
        ("agrees", boolean(comparison.agrees)),
        ("field", text(&comparison.field)),
        ("expected", text(&comparison.expected)),
        ("found", text(&comparison.found)),
    ])
}

fn object(members: &[(&str, String)]) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|(name, value)| format!("{}: {value}", string(name)))
        .collect();
    format!("{{{}}}", members.join(", "))
}

fn array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

fn boolean(value: bool) -> String {
    value.to_string()
}

fn optional(value: Option<&str>) -> String {
    value.map_or_else(|| "null".to_owned(), string)
}

fn string(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if control < ' ' => {
                // A String takes everything.
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

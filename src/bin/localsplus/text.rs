//! The report for people.

use std::fmt::Write;
use std::path::PathBuf;

use crate::examination::{Comparison, Examination};
use crate::interpreters::LeftOut;
use crate::library::Library;

pub fn examination(examination: &Examination, library: &Library) -> String {
    let mut text = format!("{}\n", examination.python.display());
    let mut line = |name: &str, value: &str| {
        // A String takes everything.
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    let value = |word| examination.value(word);
    if let Some(executable) = value("executable")
        && executable != examination.python.to_string_lossy()
    {
        line("executable", executable);
    }
    if let (Some(implementation), Some(version)) = (value("implementation"), value("version")) {
        let mut words = vec![format!("{implementation} {version}")];
        words.extend(value("build").map(str::to_owned));
        words.extend(value("bits").map(|bits| format!("{bits}-bit")));
        words.extend(value("platform").map(str::to_owned));
        words.extend(examination.modes().map(str::to_owned));
        line("interpreter", &words.join(", "));
    }
    if let Some(version) = value("library") {
        line(
            "library",
            &format!("localsplus {version}, {}", library.origin),
        );
    }
    if let Some(runtime) = value("runtime") {
        line("seen as", runtime);
    }
    if let Some(reason) = value("obscure") {
        line("seen as", &format!("nothing known: {reason}"));
    }
    if let Some(provider) = value("provider") {
        line("provider", provider);
    } else if value("library").is_some() {
        line("provider", "none");
    }
    if let Some(layout) = value("layout") {
        let name = format!("checks of layout {layout}");
        comparisons(&mut text, &name, &examination.checks);
    }
    if !examination.tests.is_empty() {
        comparisons(&mut text, "self-test on live frames", &examination.tests);
    }
    if !examination.verdict.works() && !examination.stderr.is_empty() {
        text.push_str("  standard error\n");
        for line in &examination.stderr {
            let _ = writeln!(text, "    {line}");
        }
    }
    let _ = writeln!(text, "  {}\n", examination.verdict.text());
    text
}

fn comparisons(text: &mut String, name: &str, comparisons: &[Comparison]) {
    let agree = comparisons.iter().filter(|each| each.agrees).count();
    let _ = writeln!(text, "  {name}: {agree} of {} agree", comparisons.len());
    let width = comparisons.iter().map(|each| each.name.chars().count());
    let width = width.max().unwrap_or_default();
    for each in comparisons {
        let mark = if each.agrees { "ok" } else { "NO" };
        let values = match (each.field.as_str(), each.field == each.name) {
            ("", _) => String::new(),
            (_, true) => format!("expected {}, found {}", each.expected, each.found),
            (field, _) => format!("{field}: expected {}, found {}", each.expected, each.found),
        };
        let line = format!("    {mark} {:<width$}  {values}", each.name);
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

pub fn left_out(left_out: &[LeftOut]) -> String {
    let lines = left_out
        .iter()
        .map(|LeftOut { path, reason }| format!("left out: {}: {reason}\n", path.display()));
    lines.collect()
}

pub fn list(interpreters: &[PathBuf], others: &[LeftOut]) -> String {
    let lines = interpreters
        .iter()
        .map(|path| format!("{}\n", path.display()));
    lines.collect::<String>() + &left_out(others)
}

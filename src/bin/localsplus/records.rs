//! What an interpreter has said, line by line.

const MARK: &str = "localsplus-doctor\t";

/// A word and its values.
pub type Record = Vec<String>;

/// The records in an interpreter's output, which may hold anything else.
pub fn parse(output: &str) -> Vec<Record> {
    let records = output.lines().filter_map(|line| line.strip_prefix(MARK));
    records
        .map(|record| record.split('\t').map(unescape).collect())
        .collect()
}

fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next().map(|escaped| match escaped {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                other => other,
            })),
            other => plain.push(other),
        }
    }
    plain
}

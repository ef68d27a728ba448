//! The frames of all layouts side by side, from the tables that read them.

use std::fmt::Write;

use localsplus::internals::named_values::named_values;
use localsplus::internals::{Row, TABLE};

const WORD: u64 = 8;
const WORD_HEIGHT: u64 = 34;
const COLUMN_WIDTH: u64 = 208;
const BOX_WIDTH: u64 = 160;
const LEFT: u64 = 48;
const TOP: u64 = 112;

/// A field of the frame.
struct Field {
    name: &'static str,
    offset: u64,
    size: u64,
}

/// One picture of a frame, and the layouts that it is true of.
struct Column {
    titles: Vec<String>,
    fields: Vec<Field>,
}

pub fn svg() -> String {
    let columns = columns();
    let end = columns
        .iter()
        .flat_map(|column| &column.fields)
        .map(|field| field.offset + field.size)
        .max()
        .unwrap_or_default();
    let width = LEFT + COLUMN_WIDTH * columns.len() as u64;
    let height = TOP + end / WORD * WORD_HEIGHT + 72;
    let mut svg = String::new();
    line(
        &mut svg,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">"
        ),
    );
    line(
        &mut svg,
        format_args!(
            "<title>struct _PyInterpreterFrame, as localsplus reads it in each version</title>"
        ),
    );
    line(
        &mut svg,
        format_args!("<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>"),
    );
    text(
        &mut svg,
        16,
        28,
        "start",
        "What localsplus reads of struct _PyInterpreterFrame, by offset in bytes.",
    );
    text(
        &mut svg,
        16,
        46,
        "start",
        "Lines lead to where a field has moved; what is white is not read.",
    );
    offsets(&mut svg, end);
    for pair in columns.windows(2).enumerate() {
        let (index, [left, right]) = pair else {
            continue;
        };
        moves(&mut svg, index as u64, left, right);
    }
    for (index, column) in columns.iter().enumerate() {
        draw(&mut svg, index as u64, column, end);
    }
    line(&mut svg, format_args!("</svg>"));
    svg
}

/// Layouts whose frames are alike share a column.
fn columns() -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for row in TABLE.iter().map(|entry| &entry.row) {
        let fields = fields(row);
        let alike = columns.iter_mut().find(|column| {
            let positions = |fields: &[Field]| -> Vec<_> {
                let position = |field: &Field| (field.name, field.offset, field.size);
                fields.iter().map(position).collect()
            };
            positions(&column.fields) == positions(&fields)
        });
        match alike {
            Some(column) => column.titles.push(row.to_string()),
            None => columns.push(Column {
                titles: vec![row.to_string()],
                fields,
            }),
        }
    }
    columns
}

fn fields(row: &Row) -> Vec<Field> {
    let values = named_values(row);
    let value = |name: &str| values.iter().find(|value| value.name == name)?.value;
    let mut fields = Vec::new();
    for named in &values {
        let Some(name) = named.name.strip_prefix("frame.") else {
            continue;
        };
        // Sizes and flags are no fields of the row; tlbc_index is one in some rows.
        if named.field.is_none() && name != "tlbc_index" {
            continue;
        }
        let size = match name {
            "size" => continue,
            "stack" => value("frame.stack_size").unwrap_or(WORD),
            "owner" => 1,
            "tlbc_index" => 4,
            _ => WORD,
        };
        if let Some(offset) = named.value {
            fields.push(Field { name, offset, size });
        }
    }
    fields.sort_by_key(|field| field.offset);
    fields
}

/// CPython's names, where one is in all versions; else what the versions call it.
fn label(name: &str) -> &str {
    match name {
        "executable" => "code, executable",
        "instr" => "instruction",
        "stack" => "stack top",
        "localsplus" => "localsplus[0] …",
        other => other,
    }
}

fn colour(name: &str) -> &'static str {
    match name {
        "localsplus" => "#ffd43b",
        "executable" | "function" => "#a5d8ff",
        "owner" => "#ffc9c9",
        "instr" => "#b2f2bb",
        "stack" => "#d0bfff",
        "tlbc_index" => "#ffd8a8",
        _ => "#e9ecef",
    }
}

fn left(column: u64) -> u64 {
    LEFT + column * COLUMN_WIDTH
}

fn top(offset: u64) -> u64 {
    TOP + offset / WORD * WORD_HEIGHT
}

fn offsets(svg: &mut String, end: u64) {
    for word in 0..end / WORD {
        let y = top(word * WORD) + 21;
        text(svg, LEFT - 10, y, "end", &(word * WORD).to_string());
    }
}

fn draw(svg: &mut String, index: u64, column: &Column, end: u64) {
    let x = left(index);
    let lines = column.titles.chunks(3);
    let last = lines.len() - 1;
    for (line, title) in lines.enumerate() {
        let goes_on = if line < last { "," } else { "" };
        text(
            svg,
            x + BOX_WIDTH / 2,
            TOP - 30 + 16 * line as u64,
            "middle",
            &(title.join(", ") + goes_on),
        );
    }
    let last = column
        .fields
        .last()
        .map_or(end, |field| field.offset + WORD);
    rect(svg, x, TOP, BOX_WIDTH, last / WORD * WORD_HEIGHT, "white");
    for field in &column.fields {
        let within = BOX_WIDTH * (field.offset % WORD) / WORD;
        let width = BOX_WIDTH * field.size / WORD;
        let y = top(field.offset);
        rect(svg, x + within, y, width, WORD_HEIGHT, colour(field.name));
        if field.size == 1 {
            // Too narrow for its name, which goes to where there is room.
            let (at, anchor) = if 4 * within >= 3 * BOX_WIDTH {
                (within - 2, "end")
            } else {
                (within + width + 3, "start")
            };
            let name = format!("<tspan font-size=\"10\">{}</tspan>", field.name);
            text(svg, x + at, y + 21, anchor, &name);
        } else {
            let middle = x + within + width / 2;
            text(svg, middle, y + 21, "middle", label(field.name));
        }
    }
}

/// Lines between the fields that are not where they were.
fn moves(svg: &mut String, index: u64, old: &Column, new: &Column) {
    for field in &old.fields {
        let Some(moved) = new.fields.iter().find(|other| other.name == field.name) else {
            continue;
        };
        if moved.offset / WORD != field.offset / WORD {
            line(
                svg,
                format_args!(
                    "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"#868e96\"/>",
                    left(index) + BOX_WIDTH,
                    top(field.offset) + WORD_HEIGHT / 2,
                    left(index + 1),
                    top(moved.offset) + WORD_HEIGHT / 2,
                ),
            );
        }
    }
}

fn rect(svg: &mut String, x: u64, y: u64, width: u64, height: u64, fill: &str) {
    line(
        svg,
        format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" \
             stroke=\"#495057\"/>"
        ),
    );
}

fn text(svg: &mut String, x: u64, y: u64, anchor: &str, text: &str) {
    line(
        svg,
        format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"#212529\">{text}</text>"
        ),
    );
}

fn line(svg: &mut String, line: std::fmt::Arguments<'_>) {
    // A String cannot refuse what is written to it.
    _ = writeln!(svg, "{line}");
}

//! Prints every layout as lines `minor build name field value`: the names are
//! those of `shims/offsets.c`, and `-` stands for no field and no value. For
//! matrix/new-version, and for whoever wants to compare.

use localsplus::internals::TABLE;
use localsplus::internals::named_values::named_values;

fn main() {
    for row in TABLE.iter().map(|entry| &entry.row) {
        for named in named_values(row) {
            let field = named.field.unwrap_or("-");
            let value = named
                .value
                .map_or_else(|| "-".to_owned(), |value| value.to_string());
            println!(
                "{} {:?} {} {field} {value}",
                row.minor, row.build, named.name
            );
        }
    }
}

//! What reads words, bytes and text from the outside is total: any input has an
//! answer, none a panic. `PROPTEST_CASES` sets how many are tried.

use localsplus::internals::slot::{Pointer, Slot, StackRef};
use localsplus::internals::{BasicSizes, Row, Runtime, checks, cross_check, parse_version};
use proptest::collection::vec;
use proptest::prelude::*;

mod described;
use described::{described_by, rows};

/// A word as slots hold them: anything, and what is close to a tag or a limit.
fn word() -> impl Strategy<Value = usize> {
    prop_oneof![
        any::<usize>(),
        0usize..64,
        (0usize..64).prop_map(|below| usize::MAX - below),
        // An address of an object, and its tags.
        (any::<u32>(), 0usize..4).prop_map(|(unit, tag)| (unit as usize) << 4 | tag),
        (0u32..64, 0usize..4).prop_map(|(bit, tag)| 1 << bit | tag),
    ]
}

fn a_row() -> impl Strategy<Value = &'static Row> {
    prop::sample::select(rows().collect::<Vec<_>>())
}

fn basic_sizes() -> impl Strategy<Value = BasicSizes> {
    [word(), word(), word(), word(), word()].prop_map(
        |[object, frame, code, generator, function]| BasicSizes {
            object,
            frame,
            code,
            generator,
            function,
        },
    )
}

fn with_cases(cases: u32) -> ProptestConfig {
    // Nothing is written beside the sources: a failure prints its input.
    ProptestConfig {
        cases: ProptestConfig::default().cases.max(cases),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(with_cases(4000))]

    #[test]
    fn a_tagged_slot_is_an_address_or_nothing(bits in word()) {
        // By the table of tags, one after the other.
        let expected = match (bits, bits & 3) {
            (0 | 1, _) | (_, 2 | 3) => None,
            (_, 1) => Some(bits - 1),
            _ => Some(bits),
        };
        prop_assert_eq!(StackRef::decode(bits), expected, "{:#x}", bits);
    }

    #[test]
    fn a_plain_slot_is_its_word(bits in word()) {
        prop_assert_eq!(Pointer::decode(bits), if bits == 0 { None } else { Some(bits) });
    }

    #[test]
    fn any_text_has_a_version_or_none(text in any::<String>()) {
        let _ = parse_version(&text);
    }

    #[test]
    fn text_like_a_version_has_one_or_none(text in "[0-9]{0,4}[.+ a-z\\u{e9}]{0,2}[0-9]{0,4}[.]?[0-9]{0,4}[abrc+ .\\u{1f40d}]{0,3}[0-9]{0,3}") {
        if let Some(version) = parse_version(&text) {
            let [major, minor, ..] = version.to_be_bytes();
            prop_assert!(text.trim_start_matches(['0', '+']).starts_with(&format!("{}", major)) || major == 0, "{text:?}");
            prop_assert!(text.contains(&minor.to_string()), "{text:?}");
        }
    }

    #[test]
    fn a_version_is_found_again(major: u8, minor: u8, micro: u8, tail in "(|a[0-9]|rc[0-9]|\\+)( .*)?") {
        let text = format!("{major}.{minor}.{micro}{tail}");
        let expected = u32::from_be_bytes([major, minor, micro, 0xF0]);
        prop_assert_eq!(parse_version(&text), Some(expected), "{}", text);
    }
}

proptest! {
    #![proptest_config(with_cases(1000))]

    /// Any bytes where the debug offsets should be, of any length.
    #[test]
    fn any_debug_offsets_are_compared(
        row in a_row(),
        version: u32,
        sizes in basic_sizes(),
        bytes in prop::option::of(vec(any::<u8>(), 0..1200)),
    ) {
        let mut runtime = described_by(row);
        runtime.version = version;
        runtime.basic_sizes = sizes;
        runtime.debug_offsets = bytes.map(Into::into);
        let fits = checks(row, &runtime).iter().all(|check| check.passes());
        prop_assert_eq!(cross_check(row, &runtime).is_ok(), fits);
        let _ = runtime.to_string();
    }

    /// The right bytes, cut off anywhere: what is missing is not taken for right.
    #[test]
    fn debug_offsets_that_end_too_early_are_refused(row in a_row(), length in 0usize..2000) {
        let mut runtime = described_by(row);
        let Some(bytes) = runtime.debug_offsets.take() else {
            return Ok(());
        };
        let needed = checks(row, &described_by(row)).iter().filter_map(|check| check.position).max();
        let needed = needed.expect("this version has them") + 8;
        let length = length.min(bytes.len());
        runtime.debug_offsets = Some(bytes[..length].into());
        prop_assert_eq!(cross_check(row, &runtime).is_ok(), length >= needed);
    }

    /// The right bytes with one of them changed: refused if, and only if, it is
    /// one that tells something.
    #[test]
    fn one_wrong_byte_is_found(row in a_row(), position: prop::sample::Index, change in 1u8..) {
        let mut runtime = described_by(row);
        let told: Vec<usize> = checks(row, &runtime).iter().filter_map(|check| check.position).collect();
        let Some(bytes) = runtime.debug_offsets.as_mut() else {
            return Ok(());
        };
        let position = position.index(bytes.len());
        bytes[position] ^= change;
        let matters = told.iter().any(|start| (*start..start + 8).contains(&position));
        prop_assert_eq!(cross_check(row, &runtime).is_err(), matters, "byte {}", position);
    }
}

/// So that the properties above cannot hold for want of rows.
#[test]
fn there_are_rows_with_debug_offsets() {
    let with = rows()
        .map(described_by)
        .filter(|Runtime { debug_offsets, .. }| debug_offsets.is_some());
    assert!(with.count() >= 6);
}

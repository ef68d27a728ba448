//! The picture of the layouts that is in the repository is the one that their
//! tables make.

#[path = "../examples/draw_layouts/drawing.rs"]
mod drawing;

#[test]
fn the_picture_is_that_of_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/layouts.svg");
    let committed = std::fs::read_to_string(path).expect("docs/layouts.svg");
    assert!(
        committed == drawing::svg(),
        "docs/layouts.svg is not up to date: cargo run --example draw_layouts > docs/layouts.svg"
    );
}

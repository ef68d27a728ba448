//! Draws docs/layouts.svg: `cargo run --example draw_layouts > docs/layouts.svg`.

mod drawing;

fn main() {
    print!("{}", drawing::svg());
}

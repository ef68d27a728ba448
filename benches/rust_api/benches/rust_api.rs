//! The Rust API on a frame that has not started: 17 slots, of which 9 have a
//! value, 2 are cell arguments and 2 free variables. For ratios between versions,
//! APIs and peers see benches/run.py, which times them side by side.

#[path = "../../../tests/embedding/mod.rs"]
mod embedding;

use std::hint::black_box;
use std::mem::MaybeUninit;

use criterion::Criterion;
use localsplus::Frame;

const SOURCE: &str = "
def outer(f0, f1):
    def inner(a0, a1, a2, a3, a4, a5, a6):
        if False:
            r0 = r1 = r2 = r3 = r4 = r5 = r6 = r7 = None
        return lambda: (a0, a1, f0, f1)
    return inner
outer(object(), object())(*[object() for _ in range(7)])
";

fn main() {
    embedding::start();
    let mut criterion = Criterion::default().configure_from_args();
    embedding::run(SOURCE, move |pointer| {
        // SAFETY: this thread is about to run that frame.
        let frame = unsafe { Frame::from_ptr(pointer) }.expect("a Python frame");
        let code = frame.code().expect("code");
        if embedding::text(&embedding::attribute(&code, c"co_name")) == "inner" {
            measure(&mut criterion, frame);
        }
    });
}

fn measure(criterion: &mut Criterion, frame: Frame<'_>) {
    let count = frame.count().expect("a count");
    assert_eq!(count, 17);
    criterion.bench_function("Frame::from_ptr", |bencher| {
        // SAFETY: the frame is alive, and this thread's.
        bencher.iter(|| unsafe { Frame::from_ptr(black_box(frame.as_ptr::<u8>())) });
    });
    criterion.bench_function("Frame::get_locals, 17 slots", |bencher| {
        let mut buffer = [const { MaybeUninit::uninit() }; 64];
        bencher.iter(|| drop(black_box(frame.get_locals(&mut buffer))));
    });
    criterion.bench_function("Frame::get_local, 17 times", |bencher| {
        bencher.iter(|| (0..count).for_each(|index| drop(black_box(frame.get_local(index)))));
    });
    for (name, index) in [("plain", 6), ("cell", 0), ("unset", 7), ("free", 15)] {
        criterion.bench_function(&format!("Frame::get_local, {name}"), |bencher| {
            bencher.iter(|| frame.get_local(black_box(index)));
        });
    }
}

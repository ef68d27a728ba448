//! Reads the local variables of a CPython interpreter frame
//! (`struct _PyInterpreterFrame *`) by index, on CPython 3.11 to 3.15, in one
//! binary and without internal headers.
//!
//! It is made for PEP 523 frame evaluators, debuggers, profilers and tracers,
//! which must read a frame's locals *before it starts*: no public API of those
//! versions can. Where the running interpreter exports the official
//! `PyUnstable_InterpreterFrame_GetLocal` (3.16 and later), that is found at run
//! time and used. Otherwise the frame is read through the layout of exactly the
//! running version. If neither is proved to be safe, every question is refused,
//! with the reason. There is a C API too: see `shims/include/localsplus.h`.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/doc_test.rs"));
//! # mod example {
//! use localsplus::{Error, Frame};
//!
//! /// To be called from an eval-frame function, with its `frame`.
//! ///
//! /// # Safety
//! /// The calling thread is about to run `frame`, or is running it.
//! # pub
//! unsafe fn print_locals(frame: *mut std::ffi::c_void) -> Result<(), Error> {
//!     // SAFETY: by the caller's promise, the frame is alive and this thread's.
//!     let frame = unsafe { Frame::from_ptr(frame) }?;
//!     for slot in frame.slots() {
//!         let (name, kind) = (slot.name()?, slot.kind()?);
//!         match slot.value()? {
//!             Some(value) => println!("{} {name} {kind}: {value:?}", slot.index()),
//!             None => println!("{} {name} {kind}: no value", slot.index()),
//!         }
//!     }
//!     Ok(())
//! }
//! # }
//! # fn main() -> Result<(), localsplus::Error> {
//! #     each_frame_of_f("def f(a): b = a\nf(1)", |frame| {
//! #         // SAFETY: the frame is alive and this thread's.
//! #         unsafe { example::print_locals(frame.as_ptr()) }
//! #     })
//! # }
//! ```
//!
//! The module [`hook`] installs eval-frame functions. Instead of running a frame, they
//! may [dispose of it](Frame::consume), or run [something else in its
//! place](Frame::evaluate_in_place).
//!
//! # Supported interpreters
//!
//! | CPython | default build | free-threaded | debug |
//! |---|---|---|---|
//! | 3.11 | yes, also with trace-refs | - | yes |
//! | 3.12 | yes | - | not tested |
//! | 3.13, 3.14, 3.15 | yes | yes | yes |
//! | 3.16 and later | official symbol | official symbol | official symbol |
//!
//! On 64-bit little-endian targets. Final releases and release candidates;
//! alphas and betas of a version may still change the layout and are refused.
//!
//! # What may be read, and where
//!
//! Every call needs a thread that is attached to the interpreter (holds the GIL,
//! or is attached in a free-threaded build). It may read a frame that it is
//! evaluating itself, in a hook or further down its own stack; the frame of a
//! suspended generator, coroutine or async generator that is held; and the frame
//! of a frame object that is held. It must not read a frame that another thread
//! is running, nor one whose locals the interpreter is just releasing (which a
//! finaliser can see).
//!
//! # What a slot answers
//!
//! A frame has `co_nlocalsplus` slots: local variables (parameters first), then
//! cell variables that are not parameters, then free variables. `docs/SEMANTICS.md`
//! has a program for each rule, and says where CPython's `f_locals` differs.
//!
//! 1. **R1** The order of questions is: owner, executable, index, kind, and only
//!    then memory. Shim frames (owner 3 and up) are [`Error::ShimFrame`].
//! 2. **R2** Hidden slots have no value, unless [`Flags::HIDDEN`] asks for it.
//! 3. **R3** A free slot of code without `CO_OPTIMIZED` (class bodies, `exec`) has
//!    no value.
//! 4. **R4** A free variable's cell is in the function's closure until the
//!    prologue (COPY_FREE_VARS and MAKE_CELL, before RESUME) has run, and in the
//!    slot afterwards, where an inlined comprehension may put another one. The
//!    answer is what the cell holds. A closure that is missing or too short means
//!    no value.
//! 5. **R5** A cell slot holds the plain argument until the prologue has run, even
//!    an argument that is a cell itself. Afterwards a cell is unboxed, and
//!    anything else is the value.
//! 6. **R6** An empty cell is no value.
//! 7. **R7** A slot that the frame's stack does not cover, or that belongs to a
//!    finished generator or a cleared frame, has no value and is not touched: it
//!    may dangle.
//! 8. **R8** On 3.14 and 3.15 slots are tagged: 0 and 1 are no value, the tag of a
//!    borrowed reference is stripped, tagged integers are no value.
//! 9. **R9** Cells are read by the interpreter's own `PyCell_Get`.
//! 10. **R10** Two slots may carry the same name; both are answered, by index.
//! 11. **R11** Iterating over cell objects in an inlined comprehension whose
//!     variable is also a cell variable: the slot cannot tell the two cells
//!     apart. The value is unboxed, as `frame.f_locals` does.
//! 12. **R12** A closure entry or free slot that holds no cell has no value.
//!
//! With the official provider, [`Frame::get_local`] and [`Frame::get_locals`] give
//! the interpreter's own answer. It differs in three places: a free variable always
//! comes from the closure (R4, after the prologue), an argument that is a cell is
//! unboxed before the prologue (R5), and what should be a cell is taken for one (R12).
//! [`Frame::kind`] and flags are then answered only if the layout of the version is
//! known as well.
//!
//! # By name, and the arguments of a call
//!
//! [`Frame::index`], [`Frame::get_by_name`] and [`Frame::dict`] answer what a name
//! stands for at this point of the code: of two slots of one name (R10) the first
//! that has a value, hidden slots included; in a module or class body else what is in
//! its namespace. This is what `frame.f_locals` answers from 3.13 on, but for three
//! things: inside a comprehension that is inlined into a module or class body,
//! `f_locals` leaves out the namespace; what somebody has added to a function's
//! `f_locals` is not found here; and cells and free variables of a class body are not
//! in the dict. (On 3.12, `f_locals` has the last slot of a name instead, which is not
//! what the code sees.)
//!
//! [`Frame::arguments`] rebuilds the arguments of a call from a frame that has not
//! started, ready to call something else with them.
//!
//! # What a frame is, besides
//!
//! Its [`State`], [function](Frame::function), [globals](Frame::globals),
//! [namespace](Frame::namespace), [line](Frame::line), [parameters](Frame::parameter)
//! and so on are read through the layout. What the frame has let go of is not
//! followed: a finished generator has no function any more, hence no globals. The
//! [frame below](Frame::previous) is the one that `f_back` would show, and no frame
//! object is made. With the official provider and no layout these questions are
//! [`Error::Unanswerable`], but for the instruction and the line, which the
//! interpreter itself answers since 3.12.
//!
//! # How the provider is chosen
//!
//! Once for the process, at the first call or by [`init`]: the official symbol, if
//! it is exported and its signature proves right on a frame of known content; else
//! the layout of exactly this version and build, if type sizes, the interpreter's
//! own `_Py_DebugOffsets` (3.13 and later) and such frames agree with it; else a
//! refusal. `LOCALSPLUS_PROVIDER=official` or `=layout` in the environment forces
//! one.

mod arguments;
mod canary;
mod capi;
mod error;
mod evaluate;
mod evaluation;
mod exported;
mod frame;
mod frame_questions;
pub mod hook;
mod layout;
mod name_map;
mod names;
mod object;
mod official;
mod question;
mod read;
mod reader;
mod report;
mod runtime;
mod self_test;

pub use arguments::Arguments;
pub use error::Error;
pub use frame::{Flags, Frame, Kind, Locals, Slot, init, provider};
pub use object::Object;
pub use question::{Parameter, State};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// For this package's own tests and programs; may change in any release.
#[doc(hidden)]
pub mod internals {
    pub use crate::layout::cross_check::{Check, checks, cross_check};
    pub use crate::layout::*;
    pub use crate::read::{Fault, Functions, Interpreter, flags, kind};
    pub use crate::reader::{Forced, Reader, choose, refuse};
    pub use crate::runtime::{BasicSizes, Counting, Obscure, Runtime, Symbols, parse_version};
}

//! The local variables of a CPython interpreter frame, by index, on CPython 3.11
//! to 3.15, in one binary and without internal headers.

mod canary;
mod capi;
mod error;
mod frame;
mod layout;
mod object;
mod official;
mod read;
mod reader;
mod runtime;

pub use error::Error;
pub use frame::{Flags, Frame, Kind, Slot, init, provider};
pub use object::Object;

/// For this package's own tests and programs; may change in any release.
#[doc(hidden)]
pub mod internals {
    pub use crate::layout::cross_check::{Check, checks, cross_check};
    pub use crate::layout::*;
    pub use crate::read::{Fault, Functions, Interpreter, flags, kind};
    pub use crate::reader::{Forced, Reader, choose};
    pub use crate::runtime::{BasicSizes, Runtime, Symbols};
}

//! What the interpreter exports about frames: its own answers where it has some,
//! and the types of the objects that hold frames.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use pyo3_ffi as ffi;
use pyo3_ffi::PyObject;

use crate::object::Object;
use crate::runtime::{Obscure, Symbols, attribute, missing, text};

/// `PyUnstable_InterpreterFrame_GetCode`: a new reference, for a shim frame to no code.
pub type CodeOfFrame = unsafe extern "C" fn(frame: usize) -> *mut PyObject;
type OfFrame = unsafe extern "C" fn(usize) -> c_int;
type LineOfCode = unsafe extern "C" fn(*mut PyObject, c_int) -> c_int;

/// Found once, with the provider.
#[derive(Debug, Clone, Copy)]
pub struct Exported {
    /// `PyUnstable_InterpreterFrame_GetCode`, since 3.12.
    pub code: Option<CodeOfFrame>,
    /// `PyUnstable_InterpreterFrame_GetLasti`, since 3.12.
    pub lasti: Option<OfFrame>,
    /// `PyUnstable_InterpreterFrame_GetLine`, since 3.12.
    pub line: Option<OfFrame>,
    /// `PyCode_Addr2Line`.
    pub line_of_code: LineOfCode,
    frame_type: usize,
    generator_types: [usize; 3],
}

impl Exported {
    /// Looks everything up that every supported interpreter exports.
    pub fn find(symbols: &Symbols) -> Result<Self, Obscure> {
        let find = |name: &'static CStr| symbols.find(name).ok_or_else(|| missing(name));
        let of_frame = |name: &'static CStr| {
            symbols.find(name).map(|address| {
                // SAFETY: both names have had this signature since they exist.
                unsafe { std::mem::transmute::<*mut c_void, OfFrame>(address.as_ptr()) }
            })
        };
        let code = symbols.find(c"PyUnstable_InterpreterFrame_GetCode");
        let line_of_code = find(c"PyCode_Addr2Line")?.as_ptr();
        // Objects are told by these addresses alone: they must be what they say.
        let type_named = |symbol, name| {
            let address = find(symbol)?.as_ptr();
            // SAFETY: these symbols are static type objects.
            let ty = unsafe { Object::from_borrowed_ptr(address.cast()) };
            let found = ty.and_then(|ty| attribute(&ty, c"__name__"));
            match found.and_then(|found| text(&found)) {
                Some(found) if found == name => Ok(address as usize),
                Some(found) => Err(Obscure::Missing(format!(
                    "{} is the type '{found}', not '{name}'",
                    symbol.to_string_lossy()
                ))),
                None => Err(Obscure::Failed(format!(
                    "{}.__name__ is not to be had",
                    symbol.to_string_lossy()
                ))),
            }
        };
        Ok(Self {
            code: code.map(|address| {
                // SAFETY: that name has had this signature since 3.12.
                unsafe { std::mem::transmute::<*mut c_void, CodeOfFrame>(address.as_ptr()) }
            }),
            lasti: of_frame(c"PyUnstable_InterpreterFrame_GetLasti"),
            line: of_frame(c"PyUnstable_InterpreterFrame_GetLine"),
            // SAFETY: the signature of that name, in every version.
            line_of_code: unsafe { std::mem::transmute::<*mut c_void, LineOfCode>(line_of_code) },
            frame_type: type_named(c"PyFrame_Type", "frame")?,
            generator_types: [
                type_named(c"PyGen_Type", "generator")?,
                type_named(c"PyCoro_Type", "coroutine")?,
                type_named(c"PyAsyncGen_Type", "async_generator")?,
            ],
        })
    }

    /// Whether `object` is a frame object. No class can derive from that type, nor
    /// from those below.
    pub fn is_frame_object(&self, object: &Object) -> bool {
        type_of(object).is_some_and(|ty| ty == self.frame_type)
    }

    /// Whether `object` is a generator, coroutine or async generator.
    pub fn is_generator(&self, object: &Object) -> bool {
        type_of(object).is_some_and(|ty| self.generator_types.contains(&ty))
    }
}

/// The address of an object's type, which the object keeps alive.
fn type_of(object: &Object) -> Option<usize> {
    // SAFETY: `object` is alive.
    let ty = NonNull::new(unsafe { ffi::PyObject_Type(object.as_ptr()) })?;
    // SAFETY: PyObject_Type gives a reference away.
    drop(unsafe { Object::from_owned_ptr(ty.as_ptr()) });
    Some(ty.as_ptr() as usize)
}

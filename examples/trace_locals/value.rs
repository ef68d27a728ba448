//! Python values as text on one line.
//!
//! The traced program must not notice, so none of its code runs here: neither a
//! `__repr__` of its classes, nor the `repr()` of a built-in type that calls one.

use std::ffi::c_char;
use std::ptr::null;

use localsplus::Object;
use pyo3_ffi as ffi;
use pyo3_ffi::{PyObject, PyTypeObject};

use crate::python::{attribute, owned, text};

/// So many characters of a value are shown.
const WIDTH: usize = 80;
/// So deep are containers in containers shown.
const DEPTH: usize = 4;

/// `value` on one line, cut.
pub fn one_line(value: &Object) -> String {
    let mut line = Line::default();
    line.value(value, 0);
    cut(&line.0)
}

fn cut(text: &str) -> String {
    let mut line = String::new();
    for (position, character) in text.chars().enumerate() {
        if position == WIDTH {
            line.push('…');
            break;
        }
        // The name of a function, say, may be any text.
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[derive(Default)]
struct Line(String);

impl Line {
    fn push(&mut self, text: &str) {
        self.0.push_str(text);
    }

    fn value(&mut self, value: &Object, depth: usize) {
        let builtin = builtin_type(value);
        match builtin.as_deref() {
            Some("str" | "bytes" | "bytearray") => self.characters(value),
            Some("int") => self.int(value),
            // Their `repr()` runs no Python code, and is short.
            Some(
                "NoneType"
                | "bool"
                | "float"
                | "complex"
                | "ellipsis"
                | "NotImplementedType"
                | "range"
                | "function"
                | "builtin_function_or_method"
                | "generator"
                | "coroutine"
                | "async_generator"
                | "code"
                | "cell",
            ) => self.repr(value),
            Some("list") => self.items(value, ["[", "]"], depth),
            Some("tuple") if size(value) == 1 => self.items(value, ["(", ",)"], depth),
            Some("tuple") => self.items(value, ["(", ")"], depth),
            Some("set") if size(value) != 0 => self.items(value, ["{", "}"], depth),
            Some("set") => self.push("set()"),
            Some("frozenset") if size(value) != 0 => {
                self.items(value, ["frozenset({", "})"], depth);
            }
            Some("frozenset") => self.push("frozenset()"),
            Some("dict") => self.entries(value, depth),
            Some("module") => self.module(value),
            _ => self.address(value),
        }
    }

    fn repr(&mut self, value: &Object) {
        // SAFETY: a live object.
        let repr = unsafe { ffi::PyObject_Repr(value.as_ptr()) };
        // SAFETY: PyObject_Repr gives a new reference away.
        match unsafe { owned(repr) }.and_then(|repr| text(&repr)) {
            Some(repr) => self.push(&repr),
            None => self.address(value),
        }
    }

    /// The time that its digits take grows with the square of their number, and
    /// from some thousands on Python refuses to write them.
    fn int(&mut self, value: &Object) {
        // SAFETY: a live object.
        let double = unsafe { ffi::PyLong_AsDouble(value.as_ptr()) };
        // SAFETY: may be called by any attached thread; the answer is borrowed.
        if double == -1.0 && !unsafe { ffi::PyErr_Occurred() }.is_null() {
            // SAFETY: may be called by any attached thread.
            unsafe { ffi::PyErr_Clear() };
            self.push("<int of more than 1024 bits>");
        } else {
            self.repr(value);
        }
    }

    /// A `str`, `bytes` or `bytearray`, which may be large.
    fn characters(&mut self, value: &Object) {
        // SAFETY: a live object.
        let start = unsafe { ffi::PySequence_GetSlice(value.as_ptr(), 0, WIDTH as isize) };
        // SAFETY: PySequence_GetSlice gives a new reference away.
        match unsafe { owned(start) } {
            Some(start) => self.repr(&start),
            None => self.address(value),
        }
        if size(value) > WIDTH as isize {
            self.push("…");
        }
    }

    /// The items of a built-in container.
    fn items(&mut self, container: &Object, brackets: [&str; 2], depth: usize) {
        self.separated(container, brackets, depth, |line, item| {
            line.value(item, depth + 1);
        });
    }

    fn entries(&mut self, dict: &Object, depth: usize) {
        let no_arguments = null::<c_char>();
        // SAFETY: a dict, the name of a method of it, and no format.
        let items =
            unsafe { ffi::PyObject_CallMethod(dict.as_ptr(), c"items".as_ptr(), no_arguments) };
        // SAFETY: PyObject_CallMethod gives a new reference away.
        let Some(items) = (unsafe { owned(items) }) else {
            return self.address(dict);
        };
        self.separated(&items, ["{", "}"], depth, |line, pair| {
            line.part(pair, 0, depth + 1);
            line.push(": ");
            line.part(pair, 1, depth + 1);
        });
    }

    fn part(&mut self, pair: &Object, index: isize, depth: usize) {
        // SAFETY: a live object; the answer is borrowed from it.
        let part = unsafe { ffi::PyTuple_GetItem(pair.as_ptr(), index) };
        // SAFETY: `pair` keeps it alive while we take a reference.
        if let Some(part) = unsafe { Object::from_borrowed_ptr(part) } {
            self.value(&part, depth);
        }
    }

    /// What the iterable `container`, of a built-in type, gives.
    fn separated(
        &mut self,
        container: &Object,
        [open, close]: [&str; 2],
        depth: usize,
        mut write: impl FnMut(&mut Self, &Object),
    ) {
        self.push(open);
        for (position, item) in iterate(container).enumerate() {
            if position > 0 {
                self.push(", ");
            }
            if depth == DEPTH || self.0.len() > WIDTH {
                self.push("…");
                break;
            }
            write(self, &item);
        }
        self.push(close);
    }

    /// Its `repr()` asks the import system, which is written in Python.
    fn module(&mut self, module: &Object) {
        // SAFETY: a live object.
        let name = unsafe { ffi::PyModule_GetNameObject(module.as_ptr()) };
        // SAFETY: PyModule_GetNameObject gives a new reference away.
        match unsafe { owned(name) }.and_then(|name| text(&name)) {
            Some(name) => self.push(&format!("<module '{name}'>")),
            None => self.address(module),
        }
    }

    /// For everything else: class and address, or `<class ...>` for a class.
    fn address(&mut self, value: &Object) {
        let repr = match is_class(value) {
            true => repr_of(&raw mut ffi::PyType_Type, value),
            false => repr_of(&raw mut ffi::PyBaseObject_Type, value),
        };
        self.push(repr.as_deref().unwrap_or("<unknown>"));
    }
}

/// The name of `value`'s type, if that is one of the interpreter's own.
fn builtin_type(value: &Object) -> Option<String> {
    let class = class_of(value)?;
    // SAFETY: a live type object.
    let flags = unsafe { ffi::PyType_GetFlags(class.as_ptr().cast()) };
    if flags & ffi::Py_TPFLAGS_HEAPTYPE != 0 {
        // Made at run time, by a `class` statement for instance.
        return None;
    }
    let repr = repr_of(&raw mut ffi::PyType_Type, &class)?;
    let name = repr.strip_prefix("<class '")?.strip_suffix("'>")?;
    // Types of other modules have its name in front.
    (!name.contains('.')).then(|| name.to_owned())
}

fn class_of(value: &Object) -> Option<Object> {
    // SAFETY: a live object.
    let class = unsafe { ffi::PyObject_Type(value.as_ptr()) };
    // SAFETY: PyObject_Type gives a new reference away.
    unsafe { owned(class) }
}

fn is_class(value: &Object) -> bool {
    let class_of_classes = &raw mut ffi::PyType_Type;
    class_of(value).is_some_and(|class| {
        // SAFETY: two live type objects.
        unsafe { ffi::PyType_IsSubtype(class.as_ptr().cast(), class_of_classes) != 0 }
    })
}

/// `class.__repr__(value)`, for the static type object of `object` or `type`.
/// Neither runs Python code.
fn repr_of(class: *mut PyTypeObject, value: &Object) -> Option<String> {
    // SAFETY: a static type object lives for ever.
    let class = unsafe { Object::from_borrowed_ptr(class.cast()) }?;
    let function = attribute(&class, c"__repr__")?;
    let end = null::<PyObject>();
    // SAFETY: a callable, its argument, and the end of the arguments.
    let repr = unsafe { ffi::PyObject_CallFunctionObjArgs(function.as_ptr(), value.as_ptr(), end) };
    // SAFETY: PyObject_CallFunctionObjArgs gives a new reference away.
    unsafe { owned(repr) }.and_then(|repr| text(&repr))
}

/// `len(value)`, for a built-in type.
fn size(value: &Object) -> isize {
    // SAFETY: a live object with a length, of which `len()` is certain.
    unsafe { ffi::PyObject_Size(value.as_ptr()) }
}

/// What a container of a built-in type gives, up to its end, or until another
/// thread changes it.
fn iterate(container: &Object) -> impl Iterator<Item = Object> {
    // SAFETY: a live object.
    let iterator = unsafe { ffi::PyObject_GetIter(container.as_ptr()) };
    // SAFETY: PyObject_GetIter gives a new reference away.
    let iterator = unsafe { owned(iterator) };
    std::iter::from_fn(move || {
        // SAFETY: an iterator.
        let next = unsafe { ffi::PyIter_Next(iterator.as_ref()?.as_ptr()) };
        // SAFETY: PyIter_Next gives a new reference away, or NULL at the end.
        unsafe { owned(next) }
    })
}

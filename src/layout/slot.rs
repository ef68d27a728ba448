//! How a slot holds a reference: the only place that knows tag bits.

/// Decodes the word in a slot, or in any other field of the same C type.
pub trait Slot {
    /// The highest word that stands for no reference.
    const NULL: usize;

    /// The object pointer in `bits`; `None` if there is none.
    fn decode(bits: usize) -> Option<usize>;
}

/// `PyObject *`, on 3.11 to 3.13.
pub struct Pointer;

impl Slot for Pointer {
    const NULL: usize = 0;

    #[inline(always)]
    fn decode(bits: usize) -> Option<usize> {
        (bits != 0).then_some(bits)
    }
}

/// `_PyStackRef`, on 3.14 and 3.15 (`Include/internal/pycore_stackref.h`).
pub struct StackRef;

/// `Py_TAG_REFCNT` (`Py_TAG_DEFERRED` on 3.14t): the slot owns no count. Alone,
/// it is `PyStackRef_NULL_BITS`.
pub const TAG_REFCNT: usize = 1;

/// Set in `Py_INT_TAG` (3) and `Py_TAG_INVALID` (2), never in a pointer.
pub const TAG_NOT_OBJECT: usize = 2;

impl Slot for StackRef {
    const NULL: usize = TAG_REFCNT;

    #[inline(always)]
    fn decode(bits: usize) -> Option<usize> {
        let address = bits & !TAG_REFCNT;
        // One comparison for "no address" and "not an object": rotated, the second
        // tag is the sign.
        const { assert!(TAG_NOT_OBJECT == 2) };
        if (address.rotate_right(2) as isize) <= 0 {
            return None;
        }
        Some(address)
    }
}

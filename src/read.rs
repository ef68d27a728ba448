//! The reading algorithm, generic over the layout: the only code that walks
//! `localsplus`.
//!
//! The rules and their numbers are in the crate documentation. The order of
//! every read is: owner, executable, index, kind, and only then memory that the
//! frame may have left dangling.

use std::marker::PhantomData;
use std::ptr::NonNull;

use pyo3_ffi::PyObject;

use crate::arguments::{self, Parameters};
use crate::capi::Direct;
use crate::layout::slot::Slot;
use crate::layout::{Layout, Row, StackTop};
use crate::names;
use crate::question::Questions;

/// `CO_FAST_*`: the bits of a kind that mean the same in every version.
pub mod kind {
    /// `CO_FAST_HIDDEN`, since 3.12.
    pub const HIDDEN: u8 = 0x10;
    /// `CO_FAST_LOCAL`.
    pub const LOCAL: u8 = 0x20;
    /// `CO_FAST_CELL`.
    pub const CELL: u8 = 0x40;
    /// `CO_FAST_FREE`.
    pub const FREE: u8 = 0x80;
    /// Ours: the slot is a parameter. (3.14 and later split this in three bits.)
    pub const ARG: u8 = 0x01;
}

/// Bits of the `flags` argument.
pub mod flags {
    /// Answer hidden slots.
    pub const HIDDEN: u32 = 1;
    /// Answer the cell instead of its contents.
    pub const RAW_CELL: u32 = 2;
    /// Every flag there is.
    pub const ALL: u32 = HIDDEN | RAW_CELL;
}

pub(crate) const CO_OPTIMIZED: i32 = 0x1;
pub(crate) const CO_VARARGS: i32 = 0x4;
pub(crate) const CO_VARKEYWORDS: i32 = 0x8;

/// `FRAME_OWNED_BY_THREAD`, the same in every version.
pub const OWNED_BY_THREAD: u8 = 0;
/// `FRAME_OWNED_BY_GENERATOR`, likewise.
pub const OWNED_BY_GENERATOR: u8 = 1;
/// `FRAME_OWNED_BY_FRAME_OBJECT`, likewise.
pub const OWNED_BY_FRAME_OBJECT: u8 = 2;
/// From this owner on, a frame is a shim: it runs no Python code, and its other
/// fields may be junk.
pub const OWNED_BY_INTERPRETER: u8 = 3;

/// Why a frame or slot cannot be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The index is outside `[0, count)`.
    Index,
    /// A shim frame.
    Shim,
    /// The executable is not a code object.
    NotCode,
    /// The buffer is shorter than the frame has slots.
    Capacity,
    /// The provider has no means to answer this question here.
    Unanswerable,
}

/// What reading asks of the running interpreter.
pub trait Interpreter: 'static {
    /// The address of `PyCode_Type`.
    fn code_type() -> usize;
    /// The address of `PyFunction_Type`.
    fn function_type() -> usize;
    /// The address of `PyCell_Type`.
    fn cell_type() -> usize;
    /// The address of `PyTuple_Type`.
    fn tuple_type() -> usize;
    /// Whether a type is a subclass of `tuple`.
    ///
    /// # Safety
    /// `ty` is the address of a live type of this interpreter, and the calling
    /// thread is attached.
    unsafe fn is_tuple_subclass(ty: usize) -> bool;
    /// Takes a new reference to `object`.
    ///
    /// # Safety
    /// `object` is a live object of this interpreter, and the calling thread is
    /// attached.
    unsafe fn new_reference(object: NonNull<PyObject>) -> NonNull<PyObject>;
    /// Gives a reference to `object` back.
    ///
    /// # Safety
    /// As [`new_reference`](Self::new_reference); the reference is the caller's.
    unsafe fn drop_reference(object: NonNull<PyObject>);
    /// A new reference to the contents of `cell`, if it has any.
    ///
    /// # Safety
    /// `cell` is a live object of type `PyCell_Type`, and the calling thread is
    /// attached.
    unsafe fn cell_contents(cell: NonNull<PyObject>) -> Option<NonNull<PyObject>>;
}

/// Reads a field.
///
/// # Safety
/// `base + offset` is the address of a live, initialised `T`.
#[inline(always)]
pub(crate) unsafe fn field<T: Copy>(base: usize, offset: usize) -> T {
    let address = base.wrapping_add(offset) as *const T;
    // SAFETY: the caller promises a live, initialised `T` there. Several kinds at
    // once may be at any alignment.
    unsafe { address.read_unaligned() }
}

/// How much of the prologue (COPY_FREE_VARS and MAKE_CELL, up to RESUME) ran.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prologue {
    NotStarted,
    /// This many code units of it ran.
    Partly(usize),
    Done,
}

/// A frame that is known to run Python code. Two words, so that it is passed in
/// registers.
pub(crate) struct PythonFrame<L, I> {
    pub(crate) frame: usize,
    pub(crate) code: usize,
    types: PhantomData<(L, I)>,
}

impl<L: Layout, I: Interpreter> PythonFrame<L, I> {
    /// # Safety
    /// `frame` is a live frame of layout `L` in the interpreter that `I` stands
    /// for, no other thread is running it, and the calling thread is attached.
    /// All methods rely on this.
    #[inline(always)]
    pub(crate) unsafe fn new(frame: usize) -> Result<Self, Fault> {
        // SAFETY: every frame, shims included, has an owner.
        let owner: u8 = unsafe { field(frame, L::ROW.frame.owner) };
        if owner >= OWNED_BY_INTERPRETER {
            return Err(Fault::Shim);
        }
        // SAFETY: a frame that is not a shim has an executable.
        let executable: usize = unsafe { field(frame, L::ROW.frame.executable) };
        let code = L::Slot::decode(executable).ok_or(Fault::NotCode)?;
        // SAFETY: the frame keeps its executable, an object, alive.
        if unsafe { type_of::<L>(code) } != I::code_type() {
            return Err(Fault::NotCode);
        }
        Ok(Self {
            frame,
            code,
            types: PhantomData,
        })
    }

    #[inline(always)]
    pub(crate) fn owner(&self) -> u8 {
        // SAFETY: as in `new`.
        unsafe { field(self.frame, L::ROW.frame.owner) }
    }

    #[inline(always)]
    pub(crate) fn code_int(&self, offset: usize) -> i32 {
        // SAFETY: `self.code` is a live code object and `offset` one of its
        // `int` fields in layout `L`.
        unsafe { field(self.code, offset) }
    }

    #[inline(always)]
    pub(crate) fn code_word(&self, offset: usize) -> usize {
        // SAFETY: `self.code` is a live code object and `offset` one of its
        // pointer fields in layout `L`.
        unsafe { field(self.code, offset) }
    }

    #[inline(always)]
    pub(crate) fn frame_word(&self, offset: usize) -> usize {
        // SAFETY: `self.frame` is a live frame with Python code, so that every
        // field of it is initialised; `offset` is one of its pointer fields.
        unsafe { field(self.frame, offset) }
    }

    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        // Never negative: without the sign it takes no extension.
        self.code_int(L::ROW.code.co_nlocalsplus) as u32 as usize
    }

    #[inline(always)]
    fn first_free(&self) -> usize {
        let free = self.code_int(L::ROW.code.co_nfreevars) as u32 as usize;
        self.count().wrapping_sub(free)
    }

    /// The address of the kinds, one byte a slot.
    #[inline(always)]
    fn raw_kinds(&self) -> usize {
        self.code_word(L::ROW.code.co_localspluskinds) + L::ROW.object.bytes_ob_sval
    }

    /// The kind of slot `index`, which must be below the count.
    #[inline(always)]
    fn raw_kind(&self, index: usize) -> u8 {
        // SAFETY: the kinds are a bytes object that the code object keeps alive,
        // as long as there are slots.
        unsafe { field(self.raw_kinds(), index) }
    }

    /// The number of leading slots whose memory is in use (R7); more than there
    /// are slots if all of them are.
    #[inline(always)]
    pub(crate) fn live(&self) -> usize {
        let row: &Row = &const { L::ROW };
        if self.owner() == OWNED_BY_GENERATOR && self.generator_is_finished() {
            // 3.11 and 3.12 keep the old stack top here, over freed slots.
            return 0;
        }
        match row.frame.stack_top_kind {
            StackTop::Index => {
                // SAFETY: `stacktop` is an `int` field of the frame. It is negative,
                // hence huge here, while the frame executes.
                let top: u32 = unsafe { field(self.frame, row.frame.stack_top) };
                top as usize
            }
            StackTop::Pointer => match self.frame_word(row.frame.stack_top) {
                0 => usize::MAX,
                // Never below `localsplus`.
                top => top.wrapping_sub(self.slot_address(0)) / size_of::<usize>(),
            },
        }
    }

    /// Whether all of `count` slots are live.
    #[inline(always)]
    pub(crate) fn all_live(&self, count: usize) -> bool {
        let row: &Row = &const { L::ROW };
        if self.owner() == OWNED_BY_GENERATOR && self.generator_is_finished() {
            return false;
        }
        match row.frame.stack_top_kind {
            StackTop::Index => {
                // SAFETY: as in `live`.
                let top: u32 = unsafe { field(self.frame, row.frame.stack_top) };
                top as usize >= count
            }
            StackTop::Pointer => {
                let top = self.frame_word(row.frame.stack_top);
                top == 0 || top >= self.slot_address(count)
            }
        }
    }

    #[inline(always)]
    fn slot_address(&self, index: usize) -> usize {
        self.frame + L::ROW.frame.localsplus + index * size_of::<usize>()
    }

    /// Only for a frame that is embedded in its generator.
    #[inline(always)]
    fn generator_is_finished(&self) -> bool {
        let generator = &const { L::ROW.generator };
        let state_before_frame = generator.gi_iframe - generator.gi_frame_state;
        // SAFETY: the owner says that this frame is the generator's `gi_iframe`;
        // `gi_frame_state` stands before that in the same object.
        let state: i8 = unsafe { field(self.frame - state_before_frame, 0) };
        state >= generator.finished
    }

    #[inline(always)]
    pub(crate) fn prologue(&self) -> Prologue {
        let row: &Row = &const { L::ROW };
        if self.owner() != OWNED_BY_THREAD {
            // RETURN_GENERATOR, which follows the prologue, made the generator. And
            // a frame object only takes over a frame that is past it: the bytecode
            // that the frame then points into may be gone with its thread.
            return Prologue::Done;
        }
        let distance = self
            .frame_word(row.frame.instruction)
            .wrapping_sub(self.code_start()) as isize;
        // Code units are two bytes. Before 3.13 the field starts out at the unit
        // *before* the first, so that it may be negative. In every version the
        // units before the one it points at have run.
        if distance < 2 {
            return Prologue::NotStarted;
        }
        let ran = distance as usize / 2;
        if ran >= self.code_int(row.code.co_firsttraceable) as u32 as usize {
            Prologue::Done
        } else {
            Prologue::Partly(ran)
        }
    }

    /// Where the bytecode begins that the frame's instruction pointer is in.
    #[inline(always)]
    pub(crate) fn code_start(&self) -> usize {
        let row: &Row = &const { L::ROW };
        let main = self.code + row.code.co_code_adaptive;
        let (Some(tlbc_index), Some(co_tlbc)) = (row.frame.tlbc_index, row.code.co_tlbc) else {
            return main;
        };
        // SAFETY: `tlbc_index` is an `int32_t` field of the frame.
        let index: i32 = unsafe { field(self.frame, tlbc_index) };
        if index <= 0 {
            return main;
        }
        // `_PyCodeArray`: a size, then that many pointers. It holds at least the
        // copy that this thread is running.
        let array = self.code_word(co_tlbc);
        let entry = size_of::<usize>() * (1 + index as usize);
        // SAFETY: the frame's index is within the array of its code object.
        unsafe { field(array, entry) }
    }

    /// Whether `opcode` ran for `oparg` in the first `ran` units of the prologue
    /// (for any oparg if `None`).
    #[cold]
    fn ran_in_prologue(&self, ran: usize, opcode: u8, oparg: Option<usize>) -> bool {
        let mut extended = 0;
        for unit in 0..ran {
            // SAFETY: the frame's instruction pointer is `ran` units into this
            // bytecode, which therefore has them.
            let [op, arg]: [u8; 2] = unsafe { field(self.code_start(), 2 * unit) };
            let arg = extended << 8 | usize::from(arg);
            if op == L::ROW.opcode.extended_arg {
                extended = arg;
                continue;
            }
            extended = 0;
            if op == opcode && oparg.is_none_or(|wanted| wanted == arg) {
                return true;
            }
        }
        false
    }

    fn made_cell(&self, prologue: Prologue, index: usize) -> bool {
        match prologue {
            Prologue::NotStarted => false,
            Prologue::Done => true,
            Prologue::Partly(ran) => {
                self.ran_in_prologue(ran, L::ROW.opcode.make_cell, Some(index))
            }
        }
    }

    fn copied_free_vars(&self, prologue: Prologue) -> bool {
        match prologue {
            Prologue::NotStarted => false,
            Prologue::Done => true,
            Prologue::Partly(ran) => self.ran_in_prologue(ran, L::ROW.opcode.copy_free_vars, None),
        }
    }

    /// The kinds of the first `count` slots, up to 16, in eight lanes, so that a bit is in one
    /// of them if any slot has it.
    #[inline(always)]
    fn union_of_few_kinds(&self, count: usize) -> u64 {
        let kinds = self.raw_kinds();
        // There are as many kinds as slots: the last read ends at the last of them,
        // and may overlap the one before.
        macro_rules! both_ends {
            ($lanes:ty) => {{
                // SAFETY: `count` is at least the size.
                let first: $lanes = unsafe { field(kinds, 0) };
                // SAFETY: as above.
                let last: $lanes = unsafe { field(kinds, count - size_of::<$lanes>()) };
                u64::from(first | last)
            }};
        }
        if count >= 8 {
            both_ends!(u64)
        } else if count >= 4 {
            both_ends!(u32)
        } else if count >= 2 {
            both_ends!(u16)
        } else if count == 1 {
            both_ends!(u8)
        } else {
            0
        }
    }

    /// `union_of_few_kinds` for at least eight.
    #[inline(always)]
    fn union_of_many_kinds(&self, count: usize) -> u64 {
        let kinds = self.raw_kinds();
        // SAFETY: at least eight kinds are there.
        let mut all: u64 = unsafe { field(kinds, count - 8) };
        for index in (0..count - 8).step_by(8) {
            // SAFETY: eight more kinds are there.
            all |= unsafe { field::<u64>(kinds, index) };
        }
        all
    }

    /// The object in slot `index`, borrowed. The slot must be live.
    #[inline(always)]
    pub(crate) fn slot(&self, index: usize) -> Option<usize> {
        // SAFETY: `index` is below the count and the slot is live, so its word
        // is initialised.
        let bits: usize = unsafe { field(self.slot_address(index), 0) };
        L::Slot::decode(bits)
    }

    /// The function's closure, an object, and its type (R4).
    #[inline(always)]
    fn closure_object(&self) -> Option<(usize, usize)> {
        let row: &Row = &const { L::ROW };
        let function = L::Slot::decode(self.frame_word(row.frame.function))?;
        // SAFETY: the frame keeps its function, an object, alive.
        if unsafe { type_of::<L>(function) } != I::function_type() {
            return None;
        }
        // SAFETY: `function` is a function object, whose closure is a pointer.
        let closure: usize = unsafe { field(function, row.function.func_closure) };
        if closure == 0 {
            return None;
        }
        // SAFETY: a closure that is not NULL is an object that the function owns.
        Some((closure, unsafe { type_of::<L>(closure) }))
    }

    /// The cells of the function's closure: an address, and how many.
    #[inline(always)]
    fn closure(&self) -> Option<(usize, usize)> {
        let (closure, ty) = self.closure_object()?;
        // A function can be made with a closure of a class derived from `tuple`.
        // SAFETY: a live object's type is alive.
        if ty != I::tuple_type() && !unsafe { I::is_tuple_subclass(ty) } {
            return None;
        }
        Some(self.tuple_items(closure))
    }

    /// Where the items of a tuple begin, and how many there are.
    #[inline(always)]
    fn tuple_items(&self, tuple: usize) -> (usize, usize) {
        let row: &Row = &const { L::ROW };
        // SAFETY: `tuple` is one, whose `ob_size` is a `Py_ssize_t`.
        let size: usize = unsafe { field(tuple, row.object.ob_size) };
        (tuple + row.tuple_ob_item, size)
    }

    /// Where the names of the slots begin, and how many there are.
    pub(crate) fn names(&self) -> (usize, usize) {
        self.tuple_items(self.code_word(L::ROW.code.co_localsplusnames))
    }

    /// The cell for free slot `index` in the closure, borrowed.
    #[inline(always)]
    fn closure_cell(&self, index: usize) -> Option<usize> {
        self.cell_among(self.closure()?, index)
    }

    /// `closure`, unless it is of a class derived from `tuple`.
    #[inline(always)]
    fn usual_closure(&self) -> Option<(usize, usize)> {
        let (closure, ty) = self.closure_object()?;
        (ty == I::tuple_type()).then(|| self.tuple_items(closure))
    }

    #[inline(always)]
    fn cell_among(&self, (cells, size): (usize, usize), index: usize) -> Option<usize> {
        // A hand-made code object may call any slot free: none of the closure's.
        let position = index.wrapping_sub(self.first_free());
        if position >= size {
            return None;
        }
        // SAFETY: `position` is below the tuple's size.
        let cell: usize = unsafe { field(cells, position * size_of::<usize>()) };
        (cell != 0).then_some(cell)
    }

    /// What slot `index` answers. It must be live, and `raw_kind` its kind.
    #[inline(always)]
    fn value(
        &self,
        index: usize,
        raw_kind: u8,
        flags: u32,
        prologue: Prologue,
    ) -> Option<NonNull<PyObject>> {
        if raw_kind & (kind::HIDDEN | kind::FREE) != 0 {
            if raw_kind & kind::HIDDEN != 0 && flags & flags::HIDDEN == 0 {
                return None; // R2
            }
            if raw_kind & kind::FREE != 0 {
                return self.free_value(index, flags, prologue);
            }
        }
        let value = self.slot(index)?;
        // R5: an argument that is itself a cell is not to be unboxed.
        if raw_kind & kind::CELL != 0 && self.is_cell(value) && self.made_cell(prologue, index) {
            return self.unbox(value, flags);
        }
        self.new_reference(value)
    }

    /// `value` for a free slot.
    #[inline(always)]
    fn free_value(
        &self,
        index: usize,
        flags: u32,
        prologue: Prologue,
    ) -> Option<NonNull<PyObject>> {
        if self.code_int(L::ROW.code.co_flags) & CO_OPTIMIZED == 0 {
            return None; // R3
        }
        let cell = if self.copied_free_vars(prologue) {
            self.slot(index)?
        } else {
            self.closure_cell(index)?
        };
        // R12: anything else than a cell is no value.
        self.is_cell(cell).then(|| self.unbox(cell, flags))?
    }

    #[inline(always)]
    fn is_cell(&self, object: usize) -> bool {
        // SAFETY: `object` comes from a live slot or closure, which owns it.
        unsafe { type_of::<L>(object) == I::cell_type() }
    }

    /// `cell` must be a cell from a live slot or closure.
    #[inline(always)]
    fn unbox(&self, cell: usize, flags: u32) -> Option<NonNull<PyObject>> {
        if flags & flags::RAW_CELL != 0 {
            return self.new_reference(cell);
        }
        let cell = NonNull::new(cell as *mut PyObject)?;
        // SAFETY: the caller has checked the type; slot or closure keep it alive.
        unsafe { I::cell_contents(cell) }
    }

    /// `object` must come from a live slot or closure.
    #[inline(always)]
    pub(crate) fn new_reference(&self, object: usize) -> Option<NonNull<PyObject>> {
        let object = NonNull::new(object as *mut PyObject)?;
        // SAFETY: slot or closure keep it alive; `new` promises that the calling
        // thread is attached.
        Some(unsafe { I::new_reference(object) })
    }
}

/// The address of an object's type.
///
/// # Safety
/// `object` is the address of a live object of layout `L`.
#[inline(always)]
pub(crate) unsafe fn type_of<L: Layout>(object: usize) -> usize {
    // SAFETY: every object has a type.
    unsafe { field(object, L::ROW.object.ob_type) }
}

/// The frame's code object, borrowed.
///
/// # Safety
/// `frame` is a live frame of layout `L` in the interpreter that `I` stands for,
/// no other thread is running it, and the calling thread is attached.
pub unsafe fn code<L: Layout, I: Interpreter>(frame: usize) -> Result<NonNull<PyObject>, Fault> {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) }?;
    NonNull::new(python.code as *mut PyObject).ok_or(Fault::NotCode)
}

/// The offset of the frame's instruction in its bytecode, in bytes, as that
/// version's own functions count it: negative in a frame that has not started,
/// before 3.13.
///
/// # Safety
/// As [`code`].
pub unsafe fn lasti<L: Layout, I: Interpreter>(frame: usize) -> Result<isize, Fault> {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) }?;
    let instruction = python.frame_word(L::ROW.frame.instruction);
    Ok(instruction.wrapping_sub(python.code_start()) as isize)
}

/// The number of slots.
///
/// # Safety
/// As [`code`].
pub unsafe fn count<L: Layout, I: Interpreter>(frame: usize) -> Result<usize, Fault> {
    // SAFETY: passed on to the caller.
    Ok(unsafe { PythonFrame::<L, I>::new(frame) }?.count())
}

/// The tuple of the slots' names, a new reference.
///
/// # Safety
/// As [`code`].
pub unsafe fn names<L: Layout, I: Interpreter>(frame: usize) -> Result<NonNull<PyObject>, Fault> {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) }?;
    let names = python.code_word(L::ROW.code.co_localsplusnames);
    python.new_reference(names).ok_or(Fault::NotCode)
}

/// The kind of a slot, in the bits of the module [`kind`].
///
/// # Safety
/// As [`code`].
pub unsafe fn kind_of<L: Layout, I: Interpreter>(frame: usize, index: isize) -> Result<u8, Fault> {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) }?;
    if index as usize >= python.count() {
        return Err(Fault::Index);
    }
    let code = &const { L::ROW.code };
    let flags = python.code_int(code.co_flags);
    // Parameters come first, in every version.
    let parameters = python.code_int(code.co_argcount)
        + python.code_int(code.co_kwonlyargcount)
        + i32::from(flags & CO_VARARGS != 0)
        + i32::from(flags & CO_VARKEYWORDS != 0);
    let common = kind::HIDDEN | kind::LOCAL | kind::CELL | kind::FREE;
    let argument = if index < parameters as isize {
        kind::ARG
    } else {
        0
    };
    Ok(python.raw_kind(index as usize) & common | argument)
}

/// A new reference to the value of slot `index`.
///
/// # Safety
/// As [`code`].
#[inline(always)]
pub unsafe fn value<L: Layout, I: Interpreter>(
    frame: usize,
    index: isize,
    flags: u32,
) -> Result<Option<NonNull<PyObject>>, Fault> {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) }?;
    // A negative index is a huge one.
    let index = index as usize;
    if index >= python.count() {
        return Err(Fault::Index);
    }
    let raw_kind = python.raw_kind(index);
    if index >= python.live() {
        return Ok(None);
    }
    if raw_kind & (kind::HIDDEN | kind::FREE) != 0 {
        return Ok(if raw_kind == kind::FREE && flags == 0 {
            free_value(python, index)
        } else {
            special_value(python, index, raw_kind, flags)
        });
    }
    let Some(value) = python.slot(index) else {
        return Ok(None);
    };
    if raw_kind & kind::CELL != 0 && python.is_cell(value) {
        return Ok(special_value(python, index, raw_kind, flags));
    }
    Ok(python.new_reference(value))
}

/// `value` for a live slot that takes more than a look. Out of line, so that what
/// it keeps in registers does not burden the rest.
#[inline(never)]
fn special_value<L: Layout, I: Interpreter>(
    python: PythonFrame<L, I>,
    index: usize,
    raw_kind: u8,
    flags: u32,
) -> Option<NonNull<PyObject>> {
    python.value(index, raw_kind, flags, python.prologue())
}

/// `special_value` for a free slot without flags. Everything that is not as usual
/// is left to that function, so that this one ends in PyCell_Get and needs no
/// stack.
#[inline(never)]
fn free_value<L: Layout, I: Interpreter>(
    python: PythonFrame<L, I>,
    index: usize,
) -> Option<NonNull<PyObject>> {
    if python.code_int(L::ROW.code.co_flags) & CO_OPTIMIZED == 0 {
        return None; // R3: without a look at the slot.
    }
    let cell = match python.prologue() {
        Prologue::NotStarted => python
            .usual_closure()
            .and_then(|cells| python.cell_among(cells, index)),
        Prologue::Done => python.slot(index),
        Prologue::Partly(_) => None,
    };
    match cell {
        Some(cell) if python.is_cell(cell) => python.unbox(cell, 0),
        _ => special_value(python, index, kind::FREE, 0),
    }
}

/// Writes a new reference to the value of slot `index` to `result`, or NULL.
///
/// # Safety
/// As [`code`]; `result` can be written to.
#[inline(always)]
pub unsafe fn get<L: Layout, I: Interpreter>(
    frame: usize,
    index: isize,
    flags: u32,
    result: *mut *mut PyObject,
) -> Result<bool, Fault> {
    // SAFETY: passed on to the caller.
    let value = unsafe { value::<L, I>(frame, index, flags) }?;
    // SAFETY: the caller lets us write there.
    unsafe { result.write(pointer(value)) };
    Ok(value.is_some())
}

/// What [`value`] answers, in one register: 0 for no value, a small number for a
/// fault, else the object's address.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Packed(usize);

impl Packed {
    /// Packs an answer.
    #[inline(always)]
    pub fn new(answer: Result<Option<NonNull<PyObject>>, Fault>) -> Self {
        match answer {
            Ok(value) => Self(pointer(value) as usize),
            Err(fault) => Self(1 + fault as usize),
        }
    }

    /// The answer.
    #[inline(always)]
    pub fn unpack(self) -> Result<Option<NonNull<PyObject>>, Fault> {
        const FAULTS: [Fault; 5] = [
            Fault::Index,
            Fault::Shim,
            Fault::NotCode,
            Fault::Capacity,
            Fault::Unanswerable,
        ];
        // No object is that close to zero.
        if self.0 > FAULTS.len() {
            return Ok(NonNull::new(self.0 as *mut PyObject));
        }
        match self.0.checked_sub(1) {
            None => Ok(None),
            Some(fault) => Err(FAULTS[fault]),
        }
    }
}

/// Writes a new reference to every slot's value, or NULL, to `result`, and
/// answers how many there are.
///
/// # Safety
/// As [`code`]; `capacity` elements of `result` can be written to.
#[inline(always)]
pub unsafe fn get_all<L: Layout, I: Interpreter>(
    frame: usize,
    result: *mut *mut PyObject,
    capacity: usize,
) -> Result<usize, Fault> {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) }?;
    let count = python.count();
    if capacity < count {
        return Err(Fault::Capacity);
    }
    if !python.all_live(count) {
        // SAFETY: the caller's capacity is enough.
        return Ok(unsafe { write_slots(python, result, 0) });
    }
    let first_free = python.first_free();
    if first_free > 16 {
        // SAFETY: as above.
        return Ok(unsafe { write_many_slots(python, result) });
    }
    let kinds = python.union_of_few_kinds(first_free);
    // SAFETY: as above.
    Ok(unsafe { write_live_slots(python, result, kinds) })
}

/// `write_slots` for a frame whose slots are all live, at least eight of them before
/// the first free one.
///
/// # Safety
/// As [`write_slots`].
#[inline(never)]
unsafe fn write_many_slots<L: Layout, I: Interpreter>(
    python: PythonFrame<L, I>,
    result: *mut *mut PyObject,
) -> usize {
    let kinds = python.union_of_many_kinds(python.first_free());
    // SAFETY: passed on to the caller.
    unsafe { write_live_slots(python, result, kinds) }
}

/// Whether a union of kinds has one of `bits`.
#[inline(always)]
fn has(union_of_kinds: u64, bits: u8) -> bool {
    union_of_kinds & (0x0101_0101_0101_0101 * u64::from(bits)) != 0
}

/// Writes new references to what is in the first `count` slots, which must be
/// live.
///
/// # Safety
/// `count` elements of `result` can be written to.
#[inline(always)]
unsafe fn write_plain_slots<L: Layout, I: Interpreter>(
    python: &PythonFrame<L, I>,
    result: *mut *mut PyObject,
    count: usize,
) {
    let put = |index: usize, object: Option<usize>| {
        let value = object.and_then(|object| python.new_reference(object));
        // SAFETY: `index` is below the count.
        unsafe { result.wrapping_add(index).write(pointer(value)) };
    };
    let pairs = count & !1;
    let mut index = 0;
    // Two at a time, as variables that are unset come in rows.
    while index < pairs {
        // SAFETY: two live slots, whose words are initialised.
        let [one, other]: [usize; 2] = unsafe { field(python.slot_address(index), 0) };
        if one | other <= L::Slot::NULL {
            // SAFETY: `index + 1` is below the count.
            unsafe {
                result
                    .wrapping_add(index)
                    .cast::<[usize; 2]>()
                    .write([0, 0])
            };
        } else {
            put(index, L::Slot::decode(one));
            put(index + 1, L::Slot::decode(other));
        }
        index += 2;
    }
    if index < count {
        put(index, python.slot(index));
    }
}

/// `write_slots` for a frame whose slots are all live. `kinds` is the union of those
/// before the first free slot.
///
/// # Safety
/// As [`write_slots`].
#[inline(always)]
unsafe fn write_live_slots<L: Layout, I: Interpreter>(
    python: PythonFrame<L, I>,
    result: *mut *mut PyObject,
    kinds: u64,
) -> usize {
    let (count, first_free) = (python.count(), python.first_free());
    let has_cells = has(kinds, kind::CELL) || first_free != count;
    let started = || python.prologue() != Prologue::NotStarted;
    if has(kinds, kind::HIDDEN | kind::FREE) || has_cells && started() {
        // SAFETY: passed on to the caller.
        return unsafe { write_started_slots(python, result) };
    }
    // Plain slots, and arguments that are not in their cells yet (R5).
    // SAFETY: passed on to the caller.
    unsafe { write_plain_slots(&python, result, first_free) };
    if first_free == count {
        return count;
    }
    // SAFETY: passed on to the caller.
    unsafe { write_free_slots(python, result) }
}

/// `write_slots` for the free slots of a frame that has not started.
///
/// # Safety
/// As [`write_slots`].
#[inline(never)]
unsafe fn write_free_slots<L: Layout, I: Interpreter>(
    python: PythonFrame<L, I>,
    result: *mut *mut PyObject,
) -> usize {
    let (count, first_free) = (python.count(), python.first_free());
    let kinds = python.raw_kinds();
    // SAFETY: there are as many kinds as slots.
    let is_free = |index: usize| unsafe { field::<u8>(kinds, index) } == kind::FREE;
    let optimized = python.code_int(L::ROW.code.co_flags) & CO_OPTIMIZED != 0;
    let cells = match python.usual_closure() {
        Some((cells, size))
            if optimized && size >= count - first_free && (first_free..count).all(is_free) =>
        {
            cells
        }
        // SAFETY: passed on to the caller.
        _ => return unsafe { write_slots(python, result, first_free) },
    };
    for position in 0..count - first_free {
        // SAFETY: `position` is below the closure's size.
        let cell: usize = unsafe { field(cells, position * size_of::<usize>()) };
        // R12: anything else than a cell is no value.
        let is_cell = cell != 0 && python.is_cell(cell);
        let value = is_cell.then(|| python.unbox(cell, 0)).flatten();
        let result = result.wrapping_add(first_free + position);
        // SAFETY: there is room for all slots.
        unsafe { result.write(pointer(value)) };
    }
    count
}

/// `write_slots` for a frame whose slots are all live and that has probably run its
/// prologue.
///
/// # Safety
/// As [`write_slots`].
#[inline(never)]
unsafe fn write_started_slots<L: Layout, I: Interpreter>(
    python: PythonFrame<L, I>,
    result: *mut *mut PyObject,
) -> usize {
    if python.prologue() != Prologue::Done {
        // SAFETY: passed on to the caller.
        return unsafe { write_slots(python, result, 0) };
    }
    let count = python.count();
    let kinds = python.raw_kinds();
    for index in 0..count {
        // SAFETY: there are as many kinds as slots.
        let raw_kind: u8 = unsafe { field(kinds, index) };
        let value = python.value(index, raw_kind, 0, Prologue::Done);
        // SAFETY: there is room for all slots.
        unsafe { result.wrapping_add(index).write(pointer(value)) };
    }
    count
}

/// Writes the values of the slots from `start` on to `result`, and answers how many
/// slots there are.
///
/// # Safety
/// There is room in `result` for as many elements as the frame has slots.
#[inline(never)]
unsafe fn write_slots<L: Layout, I: Interpreter>(
    python: PythonFrame<L, I>,
    result: *mut *mut PyObject,
    start: usize,
) -> usize {
    let count = python.count();
    let live = python.live().min(count);
    let prologue = python.prologue();
    let kinds = python.raw_kinds();
    for index in start..live {
        // SAFETY: there are as many kinds as slots.
        let raw_kind: u8 = unsafe { field(kinds, index) };
        let value = python.value(index, raw_kind, 0, prologue);
        // SAFETY: there is room for all slots.
        unsafe { result.wrapping_add(index).write(pointer(value)) };
    }
    for index in live.max(start)..count {
        // SAFETY: as above.
        unsafe { result.wrapping_add(index).write(std::ptr::null_mut()) };
    }
    count
}

/// Gives back the references in `values`, skipping NULL.
///
/// # Safety
/// `count` elements of `values` are references of the caller's, or NULL, and the
/// calling thread is attached.
unsafe fn drop_all<I: Interpreter>(values: *mut *mut PyObject, count: usize) {
    for index in 0..count {
        // SAFETY: `index` is below the count.
        let value = unsafe { values.wrapping_add(index).read() };
        if let Some(value) = NonNull::new(value) {
            // SAFETY: the caller gives it away.
            unsafe { I::drop_reference(value) };
        }
    }
}

/// A value as C has it.
#[inline(always)]
pub(crate) fn pointer(value: Option<NonNull<PyObject>>) -> *mut PyObject {
    value.map_or(std::ptr::null_mut(), NonNull::as_ptr)
}

/// The functions above for one layout, as a table. All of them take a frame
/// that is alive and that no other thread is running, and want the calling
/// thread attached; see each for the rest.
#[derive(Debug, Clone, Copy)]
pub struct Functions {
    /// `code`.
    pub code: unsafe fn(frame: usize) -> Result<NonNull<PyObject>, Fault>,
    /// `lasti`.
    pub lasti: unsafe fn(frame: usize) -> Result<isize, Fault>,
    /// `count`.
    pub count: unsafe fn(frame: usize) -> Result<usize, Fault>,
    /// `names`.
    pub names: unsafe fn(frame: usize) -> Result<NonNull<PyObject>, Fault>,
    /// `kind_of`.
    pub kind: unsafe fn(frame: usize, index: isize) -> Result<u8, Fault>,
    /// `get`.
    pub get: unsafe fn(usize, isize, u32, *mut *mut PyObject) -> Result<bool, Fault>,
    /// `value` without flags.
    pub get_local: unsafe fn(frame: usize, index: isize) -> Packed,
    /// `get_all`.
    pub get_all: unsafe fn(usize, *mut *mut PyObject, usize) -> Result<usize, Fault>,
    /// `drop_all`.
    pub drop_all: unsafe fn(*mut *mut PyObject, usize),
    /// `names::position`.
    pub position: unsafe fn(usize, name: usize, start: usize) -> Result<Option<usize>, Fault>,
    /// `names::namespace`.
    pub namespace: unsafe fn(frame: usize) -> Result<Option<NonNull<PyObject>>, Fault>,
    /// `arguments::parameters`.
    pub parameters: unsafe fn(frame: usize) -> Result<Option<Parameters>, Fault>,
    /// `arguments::argument`.
    pub argument: unsafe fn(frame: usize, index: usize) -> Packed,
    /// What C calls without a detour, if there is such a thing.
    pub direct: Option<Direct>,
    /// What the frame is, besides its slots; of a layout only.
    pub questions: Option<&'static Questions>,
}

impl Functions {
    /// The table for layout `L`.
    pub const fn of<L: Layout, I: Interpreter>() -> Self {
        Self {
            code: code::<L, I>,
            lasti: lasti::<L, I>,
            count: count::<L, I>,
            names: names::<L, I>,
            kind: kind_of::<L, I>,
            get: get::<L, I>,
            get_local: |frame, index| {
                // SAFETY: passed on to the caller.
                Packed::new(unsafe { value::<L, I>(frame, index, 0) })
            },
            get_all: get_all::<L, I>,
            drop_all: drop_all::<I>,
            position: names::position::<L, I>,
            namespace: names::namespace::<L, I>,
            parameters: arguments::parameters::<L, I>,
            argument: arguments::argument::<L, I>,
            direct: Some(Direct::of::<L, I>()),
            questions: Some(const { &Questions::of::<L, I>() }),
        }
    }
}

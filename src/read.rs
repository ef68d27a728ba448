//! The reading algorithm, generic over the layout: the only code that walks
//! `localsplus`.
//!
//! The rules and their numbers are in the crate documentation. The order of
//! every read is: owner, executable, index, kind, and only then memory that the
//! frame may have left dangling.

use std::marker::PhantomData;
use std::ptr::NonNull;

use pyo3_ffi::PyObject;

use crate::layout::slot::Slot;
use crate::layout::{Layout, Row, StackTop};

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

const CO_OPTIMIZED: i32 = 0x1;
const CO_VARARGS: i32 = 0x4;
const CO_VARKEYWORDS: i32 = 0x8;

/// `FRAME_OWNED_BY_GENERATOR`, the same in every version.
pub const OWNED_BY_GENERATOR: u8 = 1;
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
    /// Takes a new reference to `object`.
    ///
    /// # Safety
    /// `object` is a live object of this interpreter, and the calling thread is
    /// attached.
    unsafe fn new_reference(object: NonNull<PyObject>) -> NonNull<PyObject>;
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
unsafe fn field<T: Copy>(base: usize, offset: usize) -> T {
    let address = base.wrapping_add(offset) as *const T;
    // SAFETY: the caller promises a live, initialised `T` there; C structs keep
    // their fields aligned.
    unsafe { address.read() }
}

/// How much of the prologue (COPY_FREE_VARS and MAKE_CELL, up to RESUME) ran.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prologue {
    NotStarted,
    /// This many code units of it ran.
    Partly(usize),
    Done,
}

/// A frame that is known to run Python code.
struct PythonFrame<L, I> {
    frame: usize,
    code: usize,
    types: PhantomData<(L, I)>,
}

impl<L: Layout, I: Interpreter> PythonFrame<L, I> {
    /// # Safety
    /// `frame` is a live frame of layout `L` in the interpreter that `I` stands
    /// for, no other thread is running it, and the calling thread is attached.
    /// All methods rely on this.
    #[inline(always)]
    unsafe fn new(frame: usize) -> Result<Self, Fault> {
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
    fn code_int(&self, offset: usize) -> i32 {
        // SAFETY: `self.code` is a live code object and `offset` one of its
        // `int` fields in layout `L`.
        unsafe { field(self.code, offset) }
    }

    #[inline(always)]
    fn code_word(&self, offset: usize) -> usize {
        // SAFETY: `self.code` is a live code object and `offset` one of its
        // pointer fields in layout `L`.
        unsafe { field(self.code, offset) }
    }

    #[inline(always)]
    fn frame_word(&self, offset: usize) -> usize {
        // SAFETY: `self.frame` is a live frame with Python code, so that every
        // field of it is initialised; `offset` is one of its pointer fields.
        unsafe { field(self.frame, offset) }
    }

    #[inline(always)]
    fn count(&self) -> usize {
        self.code_int(L::ROW.code.co_nlocalsplus) as usize
    }

    #[inline(always)]
    fn first_free(&self) -> usize {
        self.count() - self.code_int(L::ROW.code.co_nfreevars) as usize
    }

    /// The kind of slot `index`, which must be below the count.
    #[inline(always)]
    fn raw_kind(&self, index: usize) -> u8 {
        let kinds = self.code_word(L::ROW.code.co_localspluskinds);
        // SAFETY: `kinds` is a bytes object that the code object keeps alive, and
        // it is as long as there are slots.
        unsafe { field(kinds, L::ROW.object.bytes_ob_sval + index) }
    }

    /// The number of leading slots whose memory is in use (R7).
    #[inline(always)]
    fn live(&self) -> usize {
        let row: &Row = &const { L::ROW };
        // SAFETY: as in `new`.
        let owner: u8 = unsafe { field(self.frame, row.frame.owner) };
        if owner == OWNED_BY_GENERATOR && self.generator_is_finished() {
            // 3.11 and 3.12 keep the old stack top here, over freed slots.
            return 0;
        }
        match row.frame.stack_top_kind {
            StackTop::Index => {
                // SAFETY: `stacktop` is an `int` field of the frame.
                let top: i32 = unsafe { field(self.frame, row.frame.stack_top) };
                // Negative while the frame executes.
                usize::try_from(top).unwrap_or(usize::MAX)
            }
            StackTop::Pointer => match self.frame_word(row.frame.stack_top) {
                0 => usize::MAX,
                top => top.saturating_sub(self.frame + row.frame.localsplus) / size_of::<usize>(),
            },
        }
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
    fn prologue(&self) -> Prologue {
        let row: &Row = &const { L::ROW };
        // SAFETY: as in `new`.
        let owner: u8 = unsafe { field(self.frame, row.frame.owner) };
        if owner == OWNED_BY_GENERATOR {
            // RETURN_GENERATOR, which follows the prologue, made the generator.
            return Prologue::Done;
        }
        let distance = self
            .frame_word(row.frame.instruction)
            .wrapping_sub(self.code_start()) as isize;
        // Code units are two bytes. Before 3.13 the field starts out at the unit
        // *before* the first, so that it may be negative. In every version the
        // units before the one it points at have run.
        let ran = distance / 2;
        if ran >= self.code_int(row.code.co_firsttraceable) as isize {
            Prologue::Done
        } else if ran <= 0 {
            Prologue::NotStarted
        } else {
            Prologue::Partly(ran as usize)
        }
    }

    /// Where the bytecode begins that the frame's instruction pointer is in.
    #[inline(always)]
    fn code_start(&self) -> usize {
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

    /// The object in slot `index`, borrowed. The slot must be live.
    #[inline(always)]
    fn slot(&self, index: usize) -> Option<usize> {
        // SAFETY: `index` is below the count and the slot is live, so its word
        // is initialised.
        let bits: usize = unsafe {
            field(
                self.frame,
                L::ROW.frame.localsplus + index * size_of::<usize>(),
            )
        };
        L::Slot::decode(bits)
    }

    /// The cell for free slot `index` in the function's closure, borrowed (R4).
    fn closure_cell(&self, index: usize) -> Option<usize> {
        let row: &Row = &const { L::ROW };
        let function = L::Slot::decode(self.frame_word(row.frame.function))?;
        // SAFETY: the frame keeps its function, an object, alive.
        if unsafe { type_of::<L>(function) } != I::function_type() {
            return None;
        }
        // SAFETY: `function` is a function object, whose closure is a pointer.
        let closure: usize = unsafe { field(function, row.function.func_closure) };
        // SAFETY: a closure that is not NULL is an object that the function owns.
        if closure == 0 || unsafe { type_of::<L>(closure) } != I::tuple_type() {
            return None;
        }
        let position = index - self.first_free();
        // SAFETY: `closure` is a tuple, whose `ob_size` is a `Py_ssize_t`.
        let size: isize = unsafe { field(closure, row.object.ob_size) };
        if position as isize >= size {
            return None;
        }
        // SAFETY: `position` is below the tuple's size.
        let cell: usize =
            unsafe { field(closure, row.tuple_ob_item + position * size_of::<usize>()) };
        (cell != 0).then_some(cell)
    }

    /// What slot `index` answers. It must be below the count, and `raw_kind` its
    /// kind.
    #[inline(always)]
    fn value(
        &self,
        index: usize,
        raw_kind: u8,
        live: usize,
        flags: u32,
    ) -> Option<NonNull<PyObject>> {
        if index >= live {
            return None;
        }
        if raw_kind & (kind::HIDDEN | kind::CELL | kind::FREE) != 0 {
            return self.special_value(index, raw_kind, flags);
        }
        self.new_reference(self.slot(index)?)
    }

    /// `value` for a live slot that is not just a local variable.
    fn special_value(&self, index: usize, raw_kind: u8, flags: u32) -> Option<NonNull<PyObject>> {
        if raw_kind & kind::HIDDEN != 0 && flags & flags::HIDDEN == 0 {
            return None; // R2
        }
        if raw_kind & kind::FREE != 0 {
            if self.code_int(L::ROW.code.co_flags) & CO_OPTIMIZED == 0 {
                return None; // R3
            }
            let cell = if self.copied_free_vars(self.prologue()) {
                self.slot(index)?
            } else {
                self.closure_cell(index)?
            };
            // R12: anything else than a cell is no value.
            return self.is_cell(cell).then(|| self.unbox(cell, flags))?;
        }
        let value = self.slot(index)?;
        // R5: an argument that is itself a cell is not to be unboxed.
        if raw_kind & kind::CELL != 0
            && self.is_cell(value)
            && self.made_cell(self.prologue(), index)
        {
            return self.unbox(value, flags);
        }
        self.new_reference(value)
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
    fn new_reference(&self, object: usize) -> Option<NonNull<PyObject>> {
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
unsafe fn type_of<L: Layout>(object: usize) -> usize {
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

/// Writes a new reference to the value of slot `index` to `result`, or NULL.
///
/// # Safety
/// As [`code`]; `result` can be written to.
pub unsafe fn get<L: Layout, I: Interpreter>(
    frame: usize,
    index: isize,
    flags: u32,
    result: *mut *mut PyObject,
) -> Result<bool, Fault> {
    // SAFETY: passed on to the caller.
    let python = unsafe { PythonFrame::<L, I>::new(frame) }?;
    // A negative index is a huge one.
    let index = index as usize;
    if index >= python.count() {
        return Err(Fault::Index);
    }
    let value = python.value(index, python.raw_kind(index), python.live(), flags);
    // SAFETY: the caller lets us write there.
    unsafe { result.write(pointer(value)) };
    Ok(value.is_some())
}

/// Writes a new reference to every slot's value, or NULL, to `result`, and
/// answers how many there are.
///
/// # Safety
/// As [`code`]; `capacity` elements of `result` can be written to.
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
    let live = python.live();
    for index in 0..count {
        let value = python.value(index, python.raw_kind(index), live, 0);
        // SAFETY: `index` is below the capacity.
        unsafe { result.wrapping_add(index).write(pointer(value)) };
    }
    Ok(count)
}

/// A value as C has it.
#[inline(always)]
fn pointer(value: Option<NonNull<PyObject>>) -> *mut PyObject {
    value.map_or(std::ptr::null_mut(), NonNull::as_ptr)
}

/// The functions above for one layout, as a table. All of them take a frame
/// that is alive and that no other thread is running, and want the calling
/// thread attached; see each for the rest.
#[derive(Debug, Clone, Copy)]
pub struct Functions {
    /// `code`.
    pub code: unsafe fn(frame: usize) -> Result<NonNull<PyObject>, Fault>,
    /// `count`.
    pub count: unsafe fn(frame: usize) -> Result<usize, Fault>,
    /// `names`.
    pub names: unsafe fn(frame: usize) -> Result<NonNull<PyObject>, Fault>,
    /// `kind_of`.
    pub kind: unsafe fn(frame: usize, index: isize) -> Result<u8, Fault>,
    /// `get`.
    pub get: unsafe fn(usize, isize, u32, *mut *mut PyObject) -> Result<bool, Fault>,
    /// `get_all`.
    pub get_all: unsafe fn(usize, *mut *mut PyObject, usize) -> Result<usize, Fault>,
}

impl Functions {
    /// The table for layout `L`.
    pub const fn of<L: Layout, I: Interpreter>() -> Self {
        Self {
            code: code::<L, I>,
            count: count::<L, I>,
            names: names::<L, I>,
            kind: kind_of::<L, I>,
            get: get::<L, I>,
            get_all: get_all::<L, I>,
        }
    }
}

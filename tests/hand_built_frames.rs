//! Every layout, on frames that are built by hand: no interpreter runs. What the
//! rows say of the real structs is compared with CPython's headers elsewhere
//! (`headers.rs`); here it is the algorithm's turn.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr::{NonNull, null_mut};

use localsplus::internals::{
    Fault, Functions, Instruction, Interpreter, Layout, Row, StackTop, TABLE, flags, kind, v3_11,
    v3_12, v3_13, v3_14, v3_15,
};
use localsplus::{Parameter, State};
use pyo3_ffi::PyObject;

const CO_OPTIMIZED: i32 = 1;
const CO_VARARGS: i32 = 4;
const CO_VARKEYWORDS: i32 = 8;

/// Types are told apart by address only.
static TYPES: [u64; 7] = [0; 7];
fn type_address(which: usize) -> usize {
    &raw const TYPES[which] as usize
}
const CODE: usize = 0;
const FUNCTION: usize = 1;
const CELL: usize = 2;
const TUPLE: usize = 3;
const PLAIN: usize = 4;
const BYTES: usize = 5;
const TUPLE_SUBCLASS: usize = 6;

/// An address that nobody may follow.
const JUNK: usize = 0xdead_bee8;

thread_local! {
    /// The references taken, by object. An object that is not in here must not be
    /// touched.
    static TAKEN: RefCell<HashMap<usize, usize>> = RefCell::default();
    /// What the cells hold.
    static CONTENTS: RefCell<HashMap<usize, usize>> = RefCell::default();
}

/// Counts references instead of running Python.
struct Fake;

impl Interpreter for Fake {
    fn code_type() -> usize {
        type_address(CODE)
    }
    fn function_type() -> usize {
        type_address(FUNCTION)
    }
    fn cell_type() -> usize {
        type_address(CELL)
    }
    fn tuple_type() -> usize {
        type_address(TUPLE)
    }
    unsafe fn is_tuple_subclass(ty: usize) -> bool {
        ty == type_address(TUPLE_SUBCLASS)
    }
    unsafe fn new_reference(object: NonNull<PyObject>) -> NonNull<PyObject> {
        TAKEN.with_borrow_mut(|taken| {
            let count = taken.get_mut(&(object.as_ptr() as usize));
            *count.expect("a reference to something that is not an object") += 1;
        });
        object
    }
    unsafe fn drop_reference(object: NonNull<PyObject>) {
        TAKEN.with_borrow_mut(|taken| {
            let count = taken.get_mut(&(object.as_ptr() as usize));
            *count.expect("an object") -= 1;
        });
    }
    unsafe fn cell_contents(cell: NonNull<PyObject>) -> Option<NonNull<PyObject>> {
        let cell = cell.as_ptr() as usize;
        let contents = CONTENTS.with_borrow(|cells| *cells.get(&cell).expect("not a cell"));
        let contents = NonNull::new(contents as *mut PyObject)?;
        // SAFETY: `Fake` looks the object up, and follows no pointer.
        Some(unsafe { Self::new_reference(contents) })
    }
}

/// Zeroed memory of words, with room in front for a generator's head.
struct Memory(Vec<u64>);

impl Memory {
    fn new(bytes: usize) -> Self {
        Self(vec![0; bytes / 8 + 64])
    }
    fn address(&self) -> usize {
        self.0.as_ptr() as usize + 256
    }
    fn put(&mut self, offset: isize, bytes: &[u8]) {
        let start = (256 + offset) as usize;
        for (i, byte) in bytes.iter().enumerate() {
            let (word, shift) = ((start + i) / 8, (start + i) % 8 * 8);
            self.0[word] = self.0[word] & !(0xff << shift) | u64::from(*byte) << shift;
        }
    }
    fn put_word(&mut self, offset: usize, word: usize) {
        self.put(offset as isize, &word.to_le_bytes());
    }
    fn put_int(&mut self, offset: usize, int: i32) {
        self.put(offset as isize, &int.to_le_bytes());
    }
}

/// A frame, its code object, and everything that hangs on them.
struct Built {
    row: Row,
    functions: Functions,
    frame: Memory,
    code: Memory,
    others: Vec<Memory>,
}

/// Where the frame stands.
const FIRST_TRACEABLE: i32 = 4;

impl Built {
    /// An optimised function's frame, not started, with these kinds; all slots
    /// are unset.
    fn new<L: Layout>(kinds: &[u8]) -> Self {
        let row = L::ROW;
        let mut built = Self {
            row,
            functions: Functions::of::<L, Fake>(),
            frame: Memory::new(row.frame.localsplus + 8 * kinds.len() + 64),
            code: Memory::new(row.code.size + 64),
            others: Vec::new(),
        };
        let free = kinds.iter().filter(|&kind| kind & kind::FREE != 0).count();
        let bytes = built.bytes(kinds);
        let code = row.code;
        built.code.put_word(row.object.ob_type, type_address(CODE));
        built.code.put_int(code.co_flags, CO_OPTIMIZED);
        built.code.put_int(code.co_nlocalsplus, kinds.len() as i32);
        built.code.put_int(code.co_nfreevars, free as i32);
        built.code.put_int(code.co_firsttraceable, FIRST_TRACEABLE);
        built.code.put_word(code.co_localspluskinds, bytes);
        let code = built.code.address();
        built.frame.put_word(row.frame.executable, code);
        for index in 0..kinds.len() {
            built.set_bits(index, built.null());
        }
        built.not_started();
        built.stack_covers(kinds.len());
        built
    }

    fn is_tagged(&self) -> bool {
        self.row.frame.stack_top_kind == StackTop::Pointer
    }
    fn null(&self) -> usize {
        usize::from(self.is_tagged())
    }
    fn set_bits(&mut self, index: usize, bits: usize) {
        self.frame
            .put_word(self.row.frame.localsplus + 8 * index, bits);
    }
    fn owner(&mut self, owner: u8) {
        self.frame.put(self.row.frame.owner as isize, &[owner]);
    }

    /// The instruction pointer as it is when `ran` units of the code have run.
    fn instruction(&mut self, ran: isize) {
        let start = self.code.address() + self.row.code.co_code_adaptive;
        self.frame.put_word(
            self.row.frame.instruction,
            start.wrapping_add_signed(2 * ran),
        );
    }
    fn not_started(&mut self) {
        // `prev_instr` is one unit before the code then, `instr_ptr` is not.
        self.instruction(if self.row.minor < 13 { -1 } else { 0 });
    }
    fn started(&mut self) {
        self.instruction(FIRST_TRACEABLE as isize);
    }

    /// The stack field as in a frame that is not executing.
    fn stack_covers(&mut self, slots: usize) {
        let offset = self.row.frame.stack_top;
        match self.row.frame.stack_top_kind {
            StackTop::Index => self.frame.put_int(offset, slots as i32),
            StackTop::Pointer => {
                let top = self.frame.address() + self.row.frame.localsplus + 8 * slots;
                self.frame.put_word(offset, top);
            }
        }
    }
    /// The stack field as in an executing frame.
    fn executing(&mut self) {
        let offset = self.row.frame.stack_top;
        match self.row.frame.stack_top_kind {
            StackTop::Index => self.frame.put_int(offset, -1),
            StackTop::Pointer => self.frame.put_word(offset, 0),
        }
    }
    fn generator_state(&mut self, state: i8) {
        self.owner(1);
        let generator = self.row.generator;
        let before = generator.gi_iframe - generator.gi_frame_state;
        self.frame.put(-(before as isize), &state.to_le_bytes());
    }

    fn keep(&mut self, memory: Memory) -> usize {
        let address = memory.address();
        TAKEN.with_borrow_mut(|taken| taken.insert(address, 0));
        self.others.push(memory);
        address
    }
    fn object(&mut self, ty: usize) -> usize {
        let mut memory = Memory::new(256);
        memory.put_word(self.row.object.ob_type, type_address(ty));
        self.keep(memory)
    }
    /// A cell; 0 for an empty one.
    fn cell(&mut self, contents: usize) -> usize {
        let cell = self.object(CELL);
        CONTENTS.with_borrow_mut(|cells| cells.insert(cell, contents));
        cell
    }
    fn bytes(&mut self, bytes: &[u8]) -> usize {
        let mut memory = Memory::new(256 + bytes.len());
        memory.put_word(self.row.object.ob_type, type_address(BYTES));
        memory.put(self.row.object.bytes_ob_sval as isize, bytes);
        self.keep(memory)
    }
    fn tuple(&mut self, items: &[usize]) -> usize {
        self.tuple_of_type(TUPLE, items)
    }
    fn tuple_of_type(&mut self, ty: usize, items: &[usize]) -> usize {
        let mut memory = Memory::new(256 + 8 * items.len());
        memory.put_word(self.row.object.ob_type, type_address(ty));
        memory.put_word(self.row.object.ob_size, items.len());
        let value = self.object(PLAIN);
        // Who reads past the end, finds a cell.
        let stray = self.cell(value);
        for (i, item) in items.iter().chain([&stray]).enumerate() {
            memory.put_word(self.row.tuple_ob_item + 8 * i, *item);
        }
        self.keep(memory)
    }
    /// Makes `closure` the closure of the frame's function.
    fn closure(&mut self, closure: usize) {
        let mut memory = Memory::new(256);
        memory.put_word(self.row.object.ob_type, type_address(FUNCTION));
        memory.put_word(self.row.function.func_closure, closure);
        let function = self.keep(memory);
        self.frame.put_word(self.row.frame.function, function);
    }

    fn get(&self, index: isize, flags: u32) -> Result<usize, Fault> {
        let mut result = JUNK as *mut PyObject;
        // SAFETY: the frame is complete, and nobody runs it.
        let value =
            unsafe { (self.functions.get)(self.frame.address(), index, flags, &raw mut result) }?;
        assert_eq!(value, !result.is_null());
        Ok(result as usize)
    }
    /// The value, having checked that it came with exactly one new reference; 0
    /// for no value.
    fn value(&self, index: usize, flags: u32) -> usize {
        let before = TAKEN.with_borrow(Clone::clone);
        let value = self.get(index as isize, flags).expect("a valid index");
        let mut expected = before;
        if value != 0 {
            *expected.get_mut(&value).expect("an object") += 1;
        }
        TAKEN.with_borrow(|taken| assert_eq!(*taken, expected, "references"));
        if flags == 0 {
            assert_eq!(self.all()[index], value, "get_all and get differ");
            // SAFETY: as in `get`.
            let local = unsafe { (self.functions.get_local)(self.frame.address(), index as isize) };
            let local = local
                .unpack()
                .map(|local| local.map_or(0, |o| o.as_ptr() as usize));
            assert_eq!(local, Ok(value));
        }
        value
    }
    fn local(&self, index: usize) -> usize {
        self.value(index, 0)
    }
    /// All values, having checked that one by one they are the same.
    fn values(&self) -> Vec<usize> {
        let all = self.all();
        for (index, value) in all.iter().enumerate() {
            assert_eq!(self.local(index), *value, "get and get_all differ");
        }
        all
    }
    fn all(&self) -> Vec<usize> {
        // SAFETY: the frame is complete, and nobody runs it.
        let count = unsafe { (self.functions.count)(self.frame.address()) }.expect("a count");
        let mut values = vec![JUNK as *mut PyObject; count + 1];
        // SAFETY: as above, and the buffer is as long as said.
        let filled =
            unsafe { (self.functions.get_all)(self.frame.address(), values.as_mut_ptr(), count) };
        assert_eq!(filled, Ok(count));
        let end = values.pop().map(|p| p as usize);
        assert_eq!(end, Some(JUNK), "written past the count");
        let taken = TAKEN.with_borrow(Clone::clone);
        // SAFETY: the references are ours; they are only counted.
        unsafe { (self.functions.drop_all)(values.as_mut_ptr(), count) };
        let given_back = values.iter().filter(|value| !value.is_null()).count();
        let sum = |taken: &HashMap<usize, usize>| taken.values().sum::<usize>();
        assert_eq!(TAKEN.with_borrow(sum), sum(&taken) - given_back);
        values.into_iter().map(|p| p as usize).collect()
    }
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }
}

/// Runs a generic test for every layout.
macro_rules! for_every_layout {
    ($($(#[$doc:meta])* fn $name:ident<$L:ident>() $body:block)*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            fn test<$L: Layout>() {
                eprintln!("layout {}", $L::ROW);
                $body
            }
            // As many as there are rows, or this does not compile.
            let tests: [fn(); TABLE.len()] = [
                test::<v3_11::Gil>,
                test::<v3_11::TraceRefs>,
                test::<v3_12::Gil>,
                test::<v3_12::TraceRefs>,
                test::<v3_13::Gil>,
                test::<v3_13::FreeThreaded>,
                test::<v3_14::Gil>,
                test::<v3_14::FreeThreaded>,
                test::<v3_15::Gil>,
                test::<v3_15::FreeThreaded>,
            ];
            tests.iter().for_each(|test| test());
        }
    )*};
}

const LOCAL: u8 = kind::LOCAL;

for_every_layout! {
    fn plain_slots<L>() {
        let mut frame = Built::new::<L>(&[LOCAL, LOCAL]);
        let value = frame.object(PLAIN);
        frame.set_bits(0, value);
        assert_eq!((frame.local(0), frame.local(1)), (value, 0));
        frame.executing();
        assert_eq!((frame.local(0), frame.local(1)), (value, 0));
    }

    /// R8.
    fn tags<L>() {
        let mut frame = Built::new::<L>(&[LOCAL]);
        if !frame.is_tagged() {
            return;
        }
        let value = frame.object(PLAIN);
        for (bits, expected) in [
            (value, value),
            (value | 1, value), // borrowed or immortal
            (1, 0),             // PyStackRef_NULL
            (0, 0),             // PyStackRef_ZERO_BITS
            (7 << 2 | 3, 0),    // a tagged integer
            (2, 0),             // PyStackRef_ERROR
            (value | 2, 0),     // Py_TAG_INVALID
            (3, 0),
        ] {
            frame.set_bits(0, bits);
            assert_eq!(frame.local(0), expected, "bits {bits:#x}");
        }
        // The executable and the function are tagged in the same way.
        let code = frame.code.address();
        frame.set_bits(0, value);
        frame.frame.put_word(frame.row.frame.executable, code | 1);
        assert_eq!(frame.local(0), value);
    }

    fn index_range<L>() {
        let frame = Built::new::<L>(&[LOCAL, LOCAL]);
        for index in [-1, 2, 3, isize::MIN, isize::MAX] {
            assert_eq!(frame.get(index, 0), Err(Fault::Index), "index {index}");
            // SAFETY: the frame is complete, and nobody runs it.
            let local = unsafe { (frame.functions.get_local)(frame.frame.address(), index) };
            assert_eq!(local.unpack(), Err(Fault::Index), "index {index}");
            // SAFETY: the frame is complete, and nobody runs it.
            let kind = unsafe { (frame.functions.kind)(frame.frame.address(), index) };
            assert_eq!(kind, Err(Fault::Index), "index {index}");
        }
    }

    fn no_slots<L>() {
        assert!(Built::new::<L>(&[]).values().is_empty());
    }

    fn capacity<L>() {
        let mut frame = Built::new::<L>(&[LOCAL, LOCAL]);
        let value = frame.object(PLAIN);
        frame.set_bits(0, value);
        let mut result = [null_mut(); 2];
        // SAFETY: the frame is complete, and the buffer longer than said.
        let answer = unsafe { (frame.functions.get_all)(frame.frame.address(), result.as_mut_ptr(), 1) };
        assert_eq!(answer, Err(Fault::Capacity));
        assert_eq!(result, [null_mut(); 2]);
        TAKEN.with_borrow(|taken| assert_eq!(taken[&value], 0));
    }

    /// R1: everything but the owner of a shim frame may be junk.
    fn shim_frames<L>() {
        let mut frame = Built::new::<L>(&[LOCAL]);
        for offset in (0..frame.row.frame.size).step_by(8) {
            frame.frame.put_word(offset, JUNK);
        }
        for owner in [3, 4, 5, 255] {
            frame.owner(owner);
            assert_eq!(frame.get(0, 0), Err(Fault::Shim), "owner {owner}");
            // SAFETY: a frame has an owner at least.
            let local = unsafe { (frame.functions.get_local)(frame.frame.address(), 0) };
            assert_eq!(local.unpack(), Err(Fault::Shim), "owner {owner}");
        }
    }

    fn executables_without_code<L>() {
        let mut frame = Built::new::<L>(&[LOCAL]);
        let none = frame.object(PLAIN);
        for executable in [0, frame.null(), none] {
            frame.frame.put_word(frame.row.frame.executable, executable);
            assert_eq!(frame.get(0, 0), Err(Fault::NotCode), "executable {executable:#x}");
        }
    }

    /// R2.
    fn hidden_slots<L>() {
        let mut frame = Built::new::<L>(&[LOCAL | kind::HIDDEN]);
        let value = frame.object(PLAIN);
        frame.set_bits(0, value);
        assert_eq!(frame.local(0), 0);
        assert_eq!(frame.value(0, flags::HIDDEN), value);
        assert_eq!(frame.value(0, flags::RAW_CELL), 0);
    }

    /// R2 and R5.
    fn hidden_cells<L>() {
        let mut frame = Built::new::<L>(&[kind::CELL | kind::HIDDEN]);
        frame.started();
        let value = frame.object(PLAIN);
        let cell = frame.cell(value);
        frame.set_bits(0, cell);
        assert_eq!(frame.local(0), 0);
        assert_eq!(frame.value(0, flags::HIDDEN), value);
        assert_eq!(frame.value(0, flags::HIDDEN | flags::RAW_CELL), cell);
    }

    /// R3, whatever the flags.
    fn free_slots_of_class_bodies<L>() {
        let mut frame = Built::new::<L>(&[kind::FREE]);
        frame.code.put_int(frame.row.code.co_flags, 0);
        frame.started();
        frame.set_bits(0, JUNK);
        for flags in 0..=flags::ALL {
            assert_eq!(frame.value(0, flags), 0, "flags {flags}");
        }
    }

    /// R4: before the prologue ran, the slot is not looked at.
    fn free_slots_before_the_prologue<L>() {
        let mut frame = Built::new::<L>(&[LOCAL, kind::FREE, kind::FREE]);
        let value = frame.object(PLAIN);
        let (full, empty) = (frame.cell(value), frame.cell(0));
        let closure = frame.tuple(&[full, empty]);
        frame.closure(closure);
        frame.set_bits(1, JUNK);
        assert_eq!((frame.local(1), frame.local(2)), (value, 0));
        assert_eq!(frame.value(1, flags::RAW_CELL), full);
        assert_eq!(frame.value(2, flags::RAW_CELL), empty);
    }

    /// R4 and R12: hand-made functions.
    fn odd_closures<L>() {
        let mut frame = Built::new::<L>(&[kind::FREE, kind::FREE]);
        let value = frame.object(PLAIN);
        let cell = frame.cell(value);
        let short = frame.tuple(&[cell]);
        let empty = frame.tuple(&[]);
        let no_cells = frame.tuple(&[value, 0]);
        let derived = frame.tuple_of_type(TUPLE_SUBCLASS, &[cell, cell]);
        for (closure, expected) in [
            (0, [0, 0]),
            (value, [0, 0]), // not a tuple
            (empty, [0, 0]),
            (short, [value, 0]),
            (no_cells, [0, 0]),
            (derived, [value, value]),
        ] {
            frame.closure(closure);
            assert_eq!(frame.values(), expected);
        }
        let null = frame.null();
        for function in [0, null, value] {
            frame.frame.put_word(frame.row.frame.function, function);
            assert_eq!(frame.values(), [0, 0], "function {function:#x}");
        }
    }

    /// R4: afterwards the slot counts, also when it holds another cell (case F5).
    fn free_slots_after_the_prologue<L>() {
        let mut frame = Built::new::<L>(&[kind::FREE, kind::FREE, kind::FREE]);
        let (old, new) = (frame.object(PLAIN), frame.object(PLAIN));
        let (in_closure, in_slot) = (frame.cell(old), frame.cell(new));
        let closure = frame.tuple(&[in_closure, in_closure, in_closure]);
        frame.closure(closure);
        frame.started();
        frame.set_bits(0, in_slot);
        frame.set_bits(1, old); // R12: not a cell
        assert_eq!(frame.values(), [new, 0, 0]);
        assert_eq!(frame.value(0, flags::RAW_CELL), in_slot);
        assert_eq!(frame.value(1, flags::RAW_CELL), 0);
    }

    /// Whatever a frame looks like, all slots at once are the slots one by one.
    fn random_frames<L>() {
        let mut random = Random(0x2545_F491_4F6C_DD1D);
        for _ in 0..400 {
            TAKEN.take();
            CONTENTS.take();
            let mut kinds = Vec::new();
            for _ in 0..random.below(40) {
                kinds.push(match random.below(20) {
                    0 => LOCAL | kind::CELL,
                    1 => kind::CELL,
                    2 if random.below(4) == 0 => LOCAL | kind::HIDDEN,
                    3 if random.below(4) == 0 => kind::FREE,
                    _ => LOCAL,
                });
            }
            for _ in 0..random.below(4) {
                kinds.push(match random.below(9) {
                    0 => LOCAL,
                    1 => kind::FREE | kind::HIDDEN,
                    _ => kind::FREE,
                });
            }
            let mut frame = Built::new::<L>(&kinds);
            let value = frame.object(PLAIN);
            let cell = frame.cell(value);
            let empty = frame.cell(0);
            let not_object = if frame.is_tagged() { 0b11 } else { 0 };
            let choices = [value, value, cell, empty, frame.null(), frame.null(), 0, not_object];
            for index in 0..kinds.len() {
                frame.set_bits(index, choices[random.below(choices.len())]);
            }
            let cells = [cell, cell, empty, value, 0];
            let cells: Vec<_> = (0..random.below(5)).map(|_| cells[random.below(5)]).collect();
            let closure = frame.tuple(&cells);
            if random.below(8) != 0 {
                frame.closure(closure);
            }
            match random.below(4) {
                0 => frame.started(),
                1 => frame.instruction(1),
                _ => {}
            }
            match random.below(4) {
                0 => frame.executing(),
                1 => frame.stack_covers(random.below(kinds.len() + 1)),
                _ => {}
            }
            if random.below(8) == 0 {
                frame.code.put_int(frame.row.code.co_flags, 0);
            }
            frame.values();
        }
    }

    /// R5 and R6 (cases C2 and C4).
    fn cell_slots<L>() {
        let mut frame = Built::new::<L>(&[LOCAL | kind::CELL]);
        let value = frame.object(PLAIN);
        let (full, empty) = (frame.cell(value), frame.cell(0));
        // A plain argument, then a comprehension's variable.
        frame.set_bits(0, value);
        assert_eq!(frame.local(0), value);
        assert_eq!(frame.value(0, flags::RAW_CELL), value);
        frame.started();
        assert_eq!(frame.local(0), value);
        for (bits, boxed, raw) in [(full, value, full), (empty, 0, empty)] {
            frame.set_bits(0, bits);
            frame.started();
            assert_eq!(frame.local(0), boxed);
            assert_eq!(frame.value(0, flags::RAW_CELL), raw);
            // An argument that is a cell itself.
            frame.not_started();
            assert_eq!(frame.local(0), bits);
            assert_eq!(frame.value(0, flags::RAW_CELL), bits);
        }
    }

    /// Native code inside MAKE_CELL sees a prologue that ran in part.
    fn partly_run_prologue<L>() {
        let kinds = [LOCAL | kind::CELL, LOCAL | kind::CELL, kind::FREE];
        let mut frame = Built::new::<L>(&kinds);
        let (a, b, free) = (frame.object(PLAIN), frame.object(PLAIN), frame.object(PLAIN));
        let (cell_a, cell_b, cell_free) = (frame.cell(a), frame.cell(b), frame.cell(free));
        let closure = frame.tuple(&[cell_free]);
        frame.closure(closure);
        let opcode = frame.row.opcode;
        let code = [
            [opcode.copy_free_vars, 1],
            [opcode.make_cell, 0],
            [opcode.extended_arg, 0],
            [opcode.make_cell, 1],
        ];
        let start = frame.row.code.co_code_adaptive as isize;
        frame.code.put(start, code.as_flattened());
        let null = frame.null();
        for (ran, slots, expected) in [
            (0, [cell_a, cell_b, null], [cell_a, cell_b, free]),
            (1, [cell_a, cell_b, cell_free], [cell_a, cell_b, free]),
            (2, [cell_a, cell_b, cell_free], [a, cell_b, free]),
            (3, [cell_a, cell_b, cell_free], [a, cell_b, free]),
            (4, [cell_a, cell_b, cell_free], [a, b, free]),
        ] {
            for (index, bits) in slots.into_iter().enumerate() {
                frame.set_bits(index, bits);
            }
            frame.instruction(ran);
            assert_eq!(frame.values(), expected, "{ran} units ran");
        }
        // EXTENDED_ARG counts: this is slot 256, not slot 0.
        frame.code.put(start, [[opcode.copy_free_vars, 1], [opcode.extended_arg, 1]].as_flattened());
        frame.code.put(start + 4, &[opcode.make_cell, 0]);
        frame.instruction(3);
        assert_eq!(frame.values(), [cell_a, cell_b, free]);
    }

    /// Free-threaded 3.14 and later: each thread runs its own copy of the code.
    fn thread_local_bytecode<L>() {
        let mut frame = Built::new::<L>(&[kind::FREE]);
        let (Some(tlbc_index), Some(co_tlbc)) = (frame.row.frame.tlbc_index, frame.row.code.co_tlbc)
        else {
            return;
        };
        let copy = frame.object(PLAIN);
        let mut array = Memory::new(64);
        array.put_word(0, 3);
        array.put_word(8, JUNK);
        array.put_word(16, JUNK);
        array.put_word(24, copy);
        let array = frame.keep(array);
        frame.code.put_word(co_tlbc, array);
        frame.frame.put_int(tlbc_index, 2);
        let value = frame.object(PLAIN);
        let cell = frame.cell(value);
        let closure = frame.tuple(&[cell]);
        frame.closure(closure);
        for (ran, expected) in [(0, value), (FIRST_TRACEABLE as usize, 0)] {
            frame.frame.put_word(frame.row.frame.instruction, copy + 2 * ran);
            assert_eq!(frame.local(0), expected, "{ran} units ran");
        }
    }

    /// R7: what the stack does not cover dangles.
    fn slots_beyond_the_stack<L>() {
        let mut frame = Built::new::<L>(&[LOCAL, LOCAL | kind::CELL, LOCAL]);
        frame.started();
        let value = frame.object(PLAIN);
        frame.set_bits(0, value);
        frame.set_bits(1, JUNK);
        frame.set_bits(2, JUNK);
        frame.stack_covers(1);
        assert_eq!(frame.values(), [value, 0, 0]);
        frame.set_bits(0, JUNK);
        frame.stack_covers(0);
        assert_eq!(frame.values(), [0, 0, 0]);
        // More on the stack than slots: a suspended generator.
        frame.set_bits(0, value);
        frame.set_bits(1, value);
        frame.set_bits(2, value);
        frame.stack_covers(5);
        assert_eq!(frame.values(), [value, value, value]);
    }

    /// R7: 3.11 and 3.12 keep the stack top of a finished generator.
    fn generators<L>() {
        let mut frame = Built::new::<L>(&[LOCAL, kind::FREE]);
        let value = frame.object(PLAIN);
        let cell = frame.cell(value);
        let (alive, finished): (&[i8], &[i8]) = if frame.row.minor < 15 {
            (&[-3, -2, -1, 0], &[1, 4])
        } else {
            (&[0, 1, 2, 3, 4], &[5])
        };
        for &state in alive {
            frame.generator_state(state);
            frame.set_bits(0, value);
            frame.set_bits(1, cell);
            // The prologue has run, wherever the instruction pointer is.
            assert_eq!(frame.values(), [value, value], "state {state}");
        }
        for &state in finished {
            frame.generator_state(state);
            frame.set_bits(0, JUNK);
            frame.set_bits(1, JUNK);
            assert_eq!(frame.values(), [0, 0], "state {state}");
        }
        // The byte in front of another frame means nothing.
        frame.set_bits(0, value);
        frame.set_bits(1, cell);
        frame.started();
        for owner in [0, 2] {
            frame.owner(owner);
            assert_eq!(frame.values(), [value, value], "owner {owner}");
        }
    }

    fn kinds<L>() {
        let raw = [LOCAL | 0x02, LOCAL | 0x04, LOCAL | kind::CELL | 0x06, LOCAL | 0x08, LOCAL | 0x0c, LOCAL, kind::FREE];
        let mut frame = Built::new::<L>(&raw);
        let code = frame.row.code;
        frame.code.put_int(code.co_argcount, 2);
        frame.code.put_int(code.co_kwonlyargcount, 1);
        frame.code.put_int(code.co_flags, CO_OPTIMIZED | CO_VARARGS | CO_VARKEYWORDS);
        let arg = LOCAL | kind::ARG;
        let expected = [arg, arg, arg | kind::CELL, arg, arg, LOCAL, kind::FREE];
        for (index, expected) in expected.into_iter().enumerate() {
            // SAFETY: the frame is complete, and nobody runs it.
            let kind = unsafe { (frame.functions.kind)(frame.frame.address(), index as isize) };
            assert_eq!(kind, Ok(expected), "slot {index}");
        }
    }

    /// Only where nothing ran, and as they are in the slots.
    fn arguments<L>() {
        let cell_parameter = LOCAL | kind::CELL;
        let mut frame = Built::new::<L>(&[LOCAL, cell_parameter, LOCAL, kind::FREE]);
        let code = frame.row.code;
        frame.code.put_int(code.co_argcount, 1);
        frame.code.put_int(code.co_kwonlyargcount, 1);
        let (plain, contents) = (frame.object(PLAIN), frame.object(PLAIN));
        let cell = frame.cell(contents);
        frame.set_bits(0, plain);
        frame.set_bits(1, cell);
        let arguments = |frame: &Built| {
            let address = frame.frame.address();
            // SAFETY: the frame is complete, and nobody runs it.
            let parameters = unsafe { (frame.functions.parameters)(address) };
            parameters.expect("a Python frame").is_some().then(|| {
                [0, 1].map(|index| {
                    // SAFETY: as above; both are parameters.
                    let argument = unsafe { (frame.functions.argument)(address, index) };
                    let argument = argument.unpack().expect("a Python frame");
                    argument.map_or(0, |object| object.as_ptr() as usize)
                })
            })
        };
        assert_eq!(arguments(&frame), Some([plain, cell]));
        TAKEN.with_borrow(|taken| {
            assert_eq!([plain, cell, contents].map(|object| taken[&object]), [1, 1, 0]);
        });
        // Not even the first instruction is over.
        frame.instruction(0);
        frame.executing();
        assert_eq!(arguments(&frame), Some([plain, cell]));
        for ran in 1..=FIRST_TRACEABLE as isize {
            frame.instruction(ran);
            assert_eq!(arguments(&frame), None, "{ran} units ran");
        }
        frame.not_started();
        // Somebody releases the locals.
        frame.stack_covers(1);
        assert_eq!(arguments(&frame), None);
        frame.stack_covers(4);
        for owner in [1, 2] {
            frame.owner(owner);
            assert_eq!(arguments(&frame), None, "owner {owner}");
        }
    }

    fn names<L>() {
        let mut frame = Built::new::<L>(&[LOCAL, LOCAL, kind::FREE]);
        let (one, other, third) = (frame.object(PLAIN), frame.object(PLAIN), frame.object(PLAIN));
        let names = frame.tuple(&[one, other, one]);
        let code = frame.row.code;
        frame.code.put_word(code.co_localsplusnames, names);
        let position = |name, start| {
            // SAFETY: the frame is complete, and nobody runs it.
            unsafe { (frame.functions.position)(frame.frame.address(), name, start) }
        };
        assert_eq!((position(one, 0), position(one, 1)), (Ok(Some(0)), Ok(Some(2))));
        assert_eq!((position(one, 2), position(one, 3)), (Ok(Some(2)), Ok(None)));
        assert_eq!((position(other, 0), position(other, 2)), (Ok(Some(1)), Ok(None)));
        assert_eq!((position(third, 0), position(one, usize::MAX)), (Ok(None), Ok(None)));
    }

    fn namespaces<L>() {
        let mut frame = Built::new::<L>(&[]);
        let namespace = |frame: &Built| {
            // SAFETY: the frame is complete, and nobody runs it.
            let namespace = unsafe { (frame.functions.namespace)(frame.frame.address()) };
            let namespace = namespace.expect("a Python frame");
            namespace.map_or(0, |object| object.as_ptr() as usize)
        };
        let (code, locals) = (frame.row.code, frame.row.frame.locals);
        let mapping = frame.object(PLAIN);
        // A function's is nobody's business.
        frame.frame.put_word(locals, JUNK);
        assert_eq!(namespace(&frame), 0);
        frame.code.put_int(code.co_flags, 0);
        frame.frame.put_word(locals, mapping);
        assert_eq!(namespace(&frame), mapping);
        TAKEN.with_borrow(|taken| assert_eq!(taken[&mapping], 1));
        frame.frame.put_word(locals, 0);
        assert_eq!(namespace(&frame), 0);
        // A finished generator has let go of it.
        frame.frame.put_word(locals, JUNK);
        frame.generator_state(frame.row.generator.finished);
        assert_eq!(namespace(&frame), 0);
    }
}

/// What a frame is, besides its slots.
impl Built {
    fn state(&self) -> State {
        let questions = self.functions.questions.expect("a layout's");
        // SAFETY: the frame is complete, and nobody runs it.
        unsafe { (questions.state)(self.frame.address()) }.expect("a Python frame")
    }

    /// function, globals, builtins, namespace, closure, frame object; 0 for none.
    fn objects(&self) -> [usize; 6] {
        let questions = self.functions.questions.expect("a layout's");
        let ask = [
            questions.function,
            questions.globals,
            questions.builtins,
            questions.namespace,
            questions.closure,
            questions.frame_object,
        ];
        ask.map(|ask| {
            // SAFETY: as above.
            let object = unsafe { ask(self.frame.address()) }.expect("a Python frame");
            object.map_or(0, |object| object.as_ptr() as usize)
        })
    }

    fn previous(&self) -> usize {
        let questions = self.functions.questions.expect("a layout's");
        // SAFETY: as above, and so are the frames below.
        let below = unsafe { (questions.previous)(self.frame.address()) };
        below
            .expect("a frame")
            .map_or(0, |frame| frame.as_ptr() as usize)
    }

    fn link(&mut self, below: usize) {
        self.frame.put_word(self.row.frame.previous, below);
    }
}

for_every_layout! {
    fn states<L>() {
        let mut frame = Built::new::<L>(&[LOCAL]);
        assert_eq!(frame.state(), State::Unstarted);
        frame.instruction(FIRST_TRACEABLE as isize - 1);
        assert_eq!(frame.state(), State::Unstarted);
        frame.started();
        assert_eq!(frame.state(), State::Executing);
        frame.owner(2);
        assert_eq!(frame.state(), State::Finished);
        frame.stack_covers(0);
        assert_eq!(frame.state(), State::Cleared);
        let generator: &[(State, &[i8])] = match frame.row.minor {
            11 | 12 => &[
                (State::Unstarted, &[-2]),
                (State::Suspended, &[-1]),
                (State::Executing, &[0]),
                (State::Finished, &[1, 4]),
            ],
            13 | 14 => &[
                (State::Unstarted, &[-3]),
                (State::Suspended, &[-2, -1]),
                (State::Executing, &[0]),
                (State::Finished, &[1, 4]),
            ],
            _ => &[
                (State::Unstarted, &[0]),
                (State::Suspended, &[1, 2, 3]),
                (State::Executing, &[4]),
                (State::Finished, &[5]),
            ],
        };
        for &(expected, states) in generator {
            for &state in states {
                frame.generator_state(state);
                assert_eq!(frame.state(), expected, "state {state}");
            }
        }
    }

    /// At the first instruction, in a function without a prologue.
    fn state_at_the_first_instruction<L>() {
        let mut frame = Built::new::<L>(&[LOCAL]);
        frame.code.put_int(frame.row.code.co_firsttraceable, 0);
        match (frame.row.frame.instruction_kind, frame.row.frame.stack_top_kind) {
            (Instruction::Last, _) => {
                assert_eq!(frame.state(), State::Unstarted);
                frame.instruction(0);
                assert_eq!(frame.state(), State::Executing);
            }
            (Instruction::Next, StackTop::Pointer) => {
                assert_eq!(frame.state(), State::Unstarted);
                frame.link(JUNK);
                assert_eq!(frame.state(), State::Executing);
            }
            // 3.13 looks whether the thread is running it: there is none here.
            (Instruction::Next, StackTop::Index) => {}
        }
        frame.instruction(1);
        assert_eq!(frame.state(), State::Executing);
    }

    fn objects<L>() {
        let mut frame = Built::new::<L>(&[LOCAL]);
        let closure = frame.tuple(&[]);
        frame.closure(closure);
        let [globals, builtins, namespace, object] = [(); 4].map(|()| frame.object(PLAIN));
        let offsets = frame.row.frame;
        frame.frame.put_word(offsets.globals, globals);
        frame.frame.put_word(offsets.builtins, builtins);
        frame.frame.put_word(offsets.locals, namespace);
        frame.frame.put_word(offsets.frame_obj, object);
        let [function, ..] = frame.objects();
        assert_eq!(frame.objects(), [function, globals, builtins, 0, closure, object]);
        frame.code.put_int(frame.row.code.co_flags, 0);
        assert_eq!(frame.objects(), [function, globals, builtins, namespace, closure, object]);
        // No reference is taken here.
        TAKEN.with_borrow(|taken| assert!(taken.values().all(|&count| count == 0)));
        // The frame object is around a frame that it owns.
        frame.owner(2);
        let around = frame.frame.address() - frame.row.frame_object.f_frame_data;
        assert_eq!(frame.objects(), [function, globals, builtins, namespace, closure, around]);
        // Without a function the other fields may be junk.
        frame.owner(0);
        let none = frame.object(PLAIN);
        frame.frame.put_word(offsets.function, none);
        frame.frame.put_word(offsets.globals, JUNK);
        assert_eq!(frame.objects(), [0, 0, 0, namespace, 0, object]);
        // What a finished generator has let go of is not looked at.
        for offset in [offsets.function, offsets.globals, offsets.builtins, offsets.locals, offsets.frame_obj] {
            frame.frame.put_word(offset, JUNK);
        }
        frame.generator_state(frame.row.generator.finished);
        assert_eq!(frame.objects(), [0; 6]);
    }

    /// Shim frames and those that have not reached their own code are passed over.
    fn previous<L>() {
        let [mut shim, mut incomplete] = [(); 2].map(|()| Built::new::<L>(&[]));
        let [mut caller, mut callee] = [(); 2].map(|()| Built::new::<L>(&[]));
        for offset in (0..shim.row.frame.size).step_by(8) {
            shim.frame.put_word(offset, JUNK);
        }
        shim.owner(3);
        caller.started();
        incomplete.link(caller.frame.address());
        shim.link(incomplete.frame.address());
        callee.link(shim.frame.address());
        callee.started();
        assert_eq!(callee.previous(), caller.frame.address());
        assert_eq!(shim.previous(), caller.frame.address());
        assert_eq!(caller.previous(), 0);
        // What does not run is not linked, whatever the field says.
        callee.link(JUNK);
        callee.not_started();
        assert_eq!(callee.previous(), 0);
        for state in [callee.row.generator.created, callee.row.generator.finished] {
            callee.generator_state(state);
            assert_eq!(callee.previous(), 0, "state {state}");
        }
        if callee.row.minor < 14 {
            // Otherwise the calling thread is asked whether it runs it after all.
            callee.link(0);
        }
        callee.generator_state(callee.row.generator.executing - 1);
        assert_eq!(callee.previous(), 0);
        callee.generator_state(callee.row.generator.executing);
        callee.link(shim.frame.address());
        assert_eq!(callee.previous(), caller.frame.address());
    }

    fn parameters<L>() {
        let mut frame = Built::new::<L>(&[LOCAL; 7]);
        let code = frame.row.code;
        frame.code.put_int(code.co_argcount, 3);
        frame.code.put_int(code.co_posonlyargcount, 1);
        frame.code.put_int(code.co_kwonlyargcount, 1);
        frame.code.put_int(code.co_flags, CO_OPTIMIZED | CO_VARARGS | CO_VARKEYWORDS);
        let questions = frame.functions.questions.expect("a layout's");
        // SAFETY: the frame is complete, and nobody runs it.
        let ask = |index| unsafe { (questions.parameter)(frame.frame.address(), index) };
        let expected = [
            Some(Parameter::PositionalOnly),
            Some(Parameter::Positional),
            Some(Parameter::Positional),
            Some(Parameter::KeywordOnly),
            Some(Parameter::VarPositional),
            Some(Parameter::VarKeyword),
            None,
        ];
        for (index, expected) in expected.into_iter().enumerate() {
            assert_eq!(ask(index as isize), Ok(expected), "slot {index}");
        }
        for index in [-1, 7, isize::MIN, isize::MAX] {
            assert_eq!(ask(index), Err(Fault::Index), "slot {index}");
        }
        // SAFETY: as above.
        assert_eq!(unsafe { (questions.parameter_count)(frame.frame.address()) }, Ok(6));
    }
}

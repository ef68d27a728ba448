"""Frames that no interpreter ever ran: what hand-made code and a damaged frame must be answered with.

The memory is laid out by the interpreter's own headers and is poisoned wherever a test does not say otherwise, so that
a reader which looks too far crashes.
"""

import types
import unittest

import _cases
import _oracle
from support import FLAGS, NO_VALUE, RAW_CELL, VERSION, hooked, read_slots as read

THREAD, GENERATOR, FRAME_OBJECT, SHIM = range(4)
TAGGED_SLOTS = VERSION >= (3, 14)
EXECUTING = -1

FUNCTIONS = ("get_local", "get_locals", "get_slot", "count", "kind", "names")


def outer():
    free = other = 0

    def template(argument, captured):
        local = free, other
        return lambda: (captured, cell)
        cell = 1

    return template


TEMPLATE = outer()
NAMES = ("argument", "captured", "local", "cell", "free", "other")


class HandMade:
    """A frame of the template function."""

    def __init__(self, closure, values=None, owner=THREAD, depth=6, started=False, finished=False):
        self.function = _cases.function_with_closure(TEMPLATE.__code__, globals(), closure)
        self.values = values or {}
        bits = tuple(self.bits_of(self.values[name]) if name in self.values else _oracle.null_bits() for name in NAMES)
        self.address = _oracle.new_frame(TEMPLATE.__code__, owner)
        _oracle.fill_frame(self.address, self.function, bits, depth, started, finished)

    @staticmethod
    def bits_of(value):
        return value.bits if isinstance(value, Bits) else _oracle.borrowed_bits(value)

    def __del__(self):
        _oracle.free_frame(self.address)


class Bits:
    """The contents of a slot as they stand."""

    def __init__(self, bits):
        self.bits = bits


def cell(*contents):
    return types.CellType(*contents)


CELLS = (cell("in the closure"), cell())


class Rules(unittest.TestCase):
    def test_the_template(self):
        self.assertEqual(TEMPLATE.__code__.co_freevars, ("free", "other"))
        frame = HandMade(CELLS, {"argument": "a", "captured": "c"})
        slots = read(frame.address)
        self.assertEqual(slots.names, NAMES)
        self.assertEqual(slots.present(), {"argument": "a", "captured": "c", "free": "in the closure"})

    def test_r4_closure_that_does_not_fit(self):
        for closure, expected in (
            (None, {}),
            ((), {}),
            ((cell("free"),), {"free": "free"}),
            ((cell("free"), cell("other"), cell("more")), {"free": "free", "other": "other"}),
        ):
            with self.subTest(closure=closure):
                frame = HandMade(closure)
                for flags in FLAGS:
                    found = read(frame.address).present(flags)
                    self.assertEqual(found.keys(), expected.keys())
                self.assertEqual(read(frame.address).present(), expected)

    def test_r4_closure_of_a_tuple_subclass(self):
        class Closure(tuple):
            pass

        # Python code can make such a function, and CPython runs it.
        function = types.FunctionType(TEMPLATE.__code__, globals(), closure=Closure((cell("free"), cell("other"))))
        with hooked("template") as seen:
            function("a", "c")
        self.assertEqual(seen[0].present(), {"argument": "a", "captured": "c", "free": "free", "other": "other"})

    def test_r4_function_that_is_none(self):
        for function in (None, 5, "a str", object()):
            with self.subTest(function=function):
                frame = HandMade(CELLS)
                bits = (_oracle.null_bits(),) * len(NAMES)
                if VERSION < (3, 12) and function is not None:
                    continue  # f_func is a function by its type
                _oracle.fill_frame(frame.address, function, bits, 6, False, False)
                self.assertEqual(read(frame.address).present(), {})

    def test_r4_started_frame_reads_the_slot(self):
        frame = HandMade(CELLS, {"free": cell("in the slot")}, started=True)
        self.assertEqual(read(frame.address).present(), {"free": "in the slot"})

    def test_r5_cell_slot(self):
        mine = cell("contents")
        unstarted = HandMade(CELLS, {"captured": mine})
        self.assertIs(read(unstarted.address).value("captured"), mine)
        started = HandMade(CELLS, {"captured": mine}, started=True)
        self.assertEqual(read(started.address).value("captured"), "contents")
        self.assertIs(read(started.address).value("captured", RAW_CELL), mine)
        plain = HandMade(CELLS, {"captured": "plain", "cell": "plain too"}, started=True)
        self.assertEqual(read(plain.address).present(), {"captured": "plain", "cell": "plain too"})

    def test_r5_plain_slot_with_a_cell(self):
        mine = cell("contents")
        frame = HandMade(CELLS, {"argument": mine, "local": mine}, started=True)
        self.assertEqual(read(frame.address).present(), {"argument": mine, "local": mine})

    def test_r6_empty_cell(self):
        empty = cell()
        frame = HandMade(CELLS, {"captured": empty, "cell": empty, "free": empty}, started=True)
        self.assertEqual(read(frame.address).present(), {})
        self.assertEqual(read(frame.address).present(RAW_CELL), {"captured": empty, "cell": empty, "free": empty})

    def test_r7_stack_field_decides(self):
        values = {"argument": 1, "captured": cell(2), "local": 3, "cell": cell(4), "free": cell(5), "other": cell(6)}
        everything = {"argument": 1, "captured": 2, "local": 3, "cell": 4, "free": 5, "other": 6}
        for depth, expected in ((EXECUTING, everything), (6, everything), (9, everything), (0, {})):
            with self.subTest(depth=depth):
                frame = HandMade(CELLS, values, depth=depth, started=True)
                self.assertEqual(read(frame.address).present(), expected)

    def test_r7_dead_slots_are_not_read(self):
        dangling = {name: Bits(0xA5A5A5A5A5A5A5A0) for name in NAMES}
        cleared = HandMade(CELLS, dangling, owner=FRAME_OBJECT, depth=0, started=True)
        finished = HandMade(CELLS, dangling, owner=GENERATOR, depth=6, started=True, finished=True)
        for frame in (cleared, finished):
            for flags in FLAGS:
                self.assertEqual(read(frame.address).present(flags), {})

    def test_r7_live_generator(self):
        frame = HandMade(CELLS, {"argument": 1, "free": cell(2)}, owner=GENERATOR, started=True)
        self.assertEqual(read(frame.address).present(), {"argument": 1, "free": 2})

    def test_r8_bits_that_are_no_reference(self):
        # An object at an address of its own, tagged in every way.
        value = object()
        no_value = {"nothing": 0}
        if TAGGED_SLOTS:
            no_value.update({"NULL": 1, "tagged int": (5 << 2) | 3, "invalid": 2})
            no_value.update({"wrapped pointer": id(value) | 2, "both tags": id(value) | 3})
        for what, bits in no_value.items():
            for name in NAMES:
                with self.subTest(what=what, slot=name):
                    frame = HandMade(CELLS, {name: Bits(bits)}, started=True)
                    for flags in FLAGS:
                        self.assertEqual(read(frame.address).present(flags), {})

    def test_r8_tag_is_stripped(self):
        value = object()
        for bits in (id(value), id(value) | 1) if TAGGED_SLOTS else (id(value),):
            frame = HandMade(CELLS, {"argument": Bits(bits)}, started=True)
            self.assertIs(read(frame.address).value("argument"), value)

    def test_r12_not_a_cell(self):
        impostor = ["no cell"]
        in_slot = HandMade(CELLS, {"free": impostor, "other": cell("a cell")}, started=True)
        in_closure = HandMade((impostor, cell("a cell")))
        for frame in (in_slot, in_closure):
            self.assertEqual(read(frame.address).present(), {"other": "a cell"})
            self.assertEqual(set(read(frame.address).present(RAW_CELL)), {"other"})

    def assert_refused(self, address):
        for function in FUNCTIONS:
            status, result, error = _cases.call(function, address, 0, 0, 8, False, None)
            self.assertEqual((function, status, type(error)), (function, -1, ValueError))

    def test_r1_shim_frame(self):
        for owner in (SHIM, SHIM + 1):
            for executable in (None, TEMPLATE.__code__, 0):
                with self.subTest(owner=owner, executable=executable):
                    address = _oracle.new_frame(executable, owner)
                    self.assert_refused(address)
                    _oracle.free_frame(address)

    def test_r1_executable_that_is_no_code(self):
        for executable in (None, len, TEMPLATE, 0):
            for owner in (THREAD, GENERATOR, FRAME_OBJECT):
                with self.subTest(owner=owner, executable=executable):
                    address = _oracle.new_frame(executable, owner)
                    self.assert_refused(address)
                    _oracle.free_frame(address)

    def test_index_is_checked_before_memory(self):
        # Slots and function are poison here: only the code object may be read.
        address = _oracle.new_frame(TEMPLATE.__code__, THREAD)
        for index in (-1, 6, 1 << 40):
            status, result, error = _cases.call("get_local", address, index, 0, 0, False, None)
            self.assertEqual((status, result, type(error)), (-1, NO_VALUE, IndexError))
        self.assertEqual(_cases.count(address), 6)
        self.assertEqual(_cases.names(address), NAMES)
        self.assertEqual(_cases.kind(address, 0), _cases.KIND_ARG | _cases.KIND_LOCAL)
        _oracle.free_frame(address)

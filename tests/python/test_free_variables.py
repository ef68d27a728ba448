"""Free variables: in the closure before the prologue ran, in the slot afterwards."""

import gc
import sys
import types
import unittest

import _cases
import _oracle
from support import INLINED_COMPREHENSIONS, NO_VALUE, RAW_CELL, hooked, look, looked, read

CELL, FREE, LOCAL = _cases.KIND_CELL, _cases.KIND_FREE, _cases.KIND_LOCAL


class FreeVariables(unittest.TestCase):
    def test_f1_reading_leaves_no_trace(self):
        def mk():
            x = [11]

            def t(y):
                return x

            return t

        t = mk()
        (cell,) = t.__closure__
        x = cell.cell_contents
        argument = object()

        def read_often(address):
            objects = (x, cell, t.__closure__, argument, t)
            before = [sys.getrefcount(each) for each in objects], _oracle.state(address)
            _cases.read_repeatedly(address, 1000)
            after = [sys.getrefcount(each) for each in objects], _oracle.state(address)
            self.assertEqual(before, after)

        with hooked("t", at_entry=read_often) as seen:
            self.assertIs(t(argument), x)
        self.assertEqual(seen[0].present(), {"y": argument, "x": [11]})
        self.assertIs(seen[0].value("x"), x)
        self.assertIs(seen[0].value("x", RAW_CELL), cell)
        self.assertTrue(seen[0].state.is_empty(seen[0].index("x")))
        self.assertEqual(seen[0].state.frame_obj, 0)

    def test_f2_evaluation_after_reading(self):
        def captured(a):
            def inner():
                return a

            return inner

        def mk():
            x = 11

            def t(y):
                return x + y

            return t

        t = mk()
        with hooked("captured", "t"):
            for number in range(1000):
                self.assertEqual(captured(number)(), number)
                self.assertEqual(t(number), 11 + number)

    def test_f2_evaluation_after_reading_in_c(self):
        def captured(a):
            return lambda: a

        def mk():
            x = 11

            def t(y):
                return x + y

            return t

        t = mk()
        _cases.install_hook(frozenset({"captured", "t"}))
        try:
            for number in range(10_000):
                self.assertEqual(captured(number)(), number)
                self.assertEqual(t(number), 11 + number)
        finally:
            records = _cases.remove_hook()
        self.assertEqual(len(records), 20_000)

    def test_f3_nonlocal_and_comprehension_of_one_name(self):
        def o():
            key = 1

            def t():
                nonlocal key
                key = 2
                result = [look() for key in [7]]
                look()
                return result

            return t()

        o()
        inside, after = looked()
        if INLINED_COMPREHENSIONS:
            self.assertEqual((inside.of_kind("key", LOCAL), inside.of_kind("key", FREE)), (7, 2))
            self.assertEqual((after.of_kind("key", LOCAL), after.of_kind("key", FREE)), (NO_VALUE, 2))
        else:
            self.assertEqual(set(inside.present()), {".0", "key"})
            self.assertEqual((inside.value("key"), after.value("key")), (7, 2))

    def test_f4_comprehension_variable_named_like_a_free_one(self):
        def o():
            k = 10

            def t():
                k
                [look() for k in [0]]
                look()

            t()

        o()
        inside, after = looked()
        if INLINED_COMPREHENSIONS:
            self.assertEqual((inside.of_kind("k", LOCAL), inside.of_kind("k", FREE)), (0, 10))
            self.assertEqual((after.of_kind("k", LOCAL), after.of_kind("k", FREE)), (NO_VALUE, 10))
        else:
            self.assertEqual((inside.value("k"), after.value("k")), (0, 10))

    def test_f5_slot_with_another_cell_than_the_closure(self):
        def o():
            k = 10

            def t():
                k
                [(look(), lambda: k) for k in [0]]
                look()
                return k

            return t, t()

        t, code_reads = o()
        inside, after = looked()
        self.assertEqual(t.__closure__[0].cell_contents, 10)
        if INLINED_COMPREHENSIONS:
            # gh-156664: the comprehension puts its own cell into the free slot, and leaves it there.
            self.assertEqual(code_reads, 0)
            for slots in (inside, after):
                self.assertEqual((slots.of_kind("k", LOCAL), slots.of_kind("k", FREE)), (NO_VALUE, 0))
            self.assertIsNot(after.of_kind("k", FREE, RAW_CELL), t.__closure__[0])
        else:
            self.assertEqual(code_reads, 10)
            self.assertEqual((inside.value("k"), after.value("k")), (0, 10))

    def test_f6_free_variable_of_a_class_body(self):
        def o():
            x = 5

            class K:
                y = x
                look()
                namespace.update(sys._getframe().f_locals)

            return K

        namespace = {}
        self.assertEqual(o().y, 5)
        (slots,) = looked()
        self.assertEqual(slots.kinds[slots.index("x")], FREE)
        self.assertEqual(slots.present(), {})
        self.assertEqual(slots.present(RAW_CELL), {})
        self.assertEqual(namespace["y"], 5)

    def test_f7_closed_over_but_unused(self):
        def o():
            a = 1
            b = 2

            def t():
                look()
                return a

            t()
            return b

        o()
        (slots,) = looked()
        self.assertEqual(slots.names, ("a",))
        self.assertEqual(slots.present(), {"a": 1})
        with self.assertRaises(LookupError):
            slots.index("b")

    def test_rebound_between_two_reads(self):
        def o():
            def t():
                nonlocal x
                look()
                x = 2
                look()
                del x
                look()

            x = 1
            t()

        o()
        self.assertEqual([slots.value("x") for slots in looked()], [1, 2, NO_VALUE])

    def test_closure_is_kept_by_the_frame_alone(self):
        def o():
            x = [1]

            def t():
                return x

            return t

        def drop(address):
            functions.clear()
            gc.collect()
            self.assertEqual(read(address).value("x"), [1])

        functions = [o()]
        with hooked("t", at_entry=drop):
            functions[0]()

    def test_cells_shared_by_hand(self):
        def o():
            x = y = 0
            return lambda: (x, y)

        code = o().__code__
        shared = types.CellType("shared")
        function = types.FunctionType(code, globals(), closure=(shared, shared))
        with hooked("<lambda>") as seen:
            function()
        self.assertEqual(seen[0].present(), {"x": "shared", "y": "shared"})

"""Who owns what: references, dead frames, and values that change under a reader."""

import os
import sys
import types
import unittest
import weakref

import _cases
import support
from support import DEBUG, NO_VALUE, TESTS_C, VERSION, look, looked, read, run_scenario


class C:
    pass


class Lifetime(unittest.TestCase):
    def test_l1_no_reference_is_kept(self):
        def t():
            o = C()
            alive.append(weakref.ref(o))
            look()
            return o

        def twice():
            o = C()
            alive.append(weakref.ref(o))
            look()
            looked()
            del o
            look()

        alive = []
        twice()
        (after,) = looked()
        self.assertEqual(after.present(), {"alive": alive})
        self.assertIs(after.value("o"), NO_VALUE)
        self.assertIsNone(alive.pop()())

        t()
        (slots,) = looked()
        # The reader's reference alone keeps the object alive.
        self.assertIs(alive[0](), slots.value("o"))
        del slots
        self.assertIsNone(alive.pop()())

    def test_l2_frame_of_a_traceback(self):
        def t(a):
            b = a + 1
            raise ValueError(b)

        try:
            t(1)
        except ValueError as error:
            frame = error.__traceback__.tb_next.tb_frame
        self.assertEqual(read(frame).present(), {"a": 1, "b": 2})
        frame.clear()
        slots = read(frame)
        self.assertEqual(slots.present(), {})
        self.assertEqual(slots.names, ("a", "b"))

    def test_l2_cleared_frame_with_cells(self):
        def t(a):
            raise ValueError(lambda: (a, free))

        free = 1
        try:
            t(1)
        except ValueError as error:
            frame = error.__traceback__.tb_next.tb_frame
        self.assertEqual(read(frame).present(), {"a": 1, "free": 1})
        frame.clear()
        self.assertEqual(read(frame).present(), {})

    def test_l2_frame_that_returned(self):
        def t(a):
            b = [a]
            return sys._getframe(), lambda: b

        frame, inner = t(1)
        slots = read(frame)
        self.assertEqual(slots.present(), {"a": 1, "b": [1]})
        self.assertIs(slots.value("b"), inner.__closure__[0].cell_contents)

    def every_kind_of_slot(self):
        """A frame with a plain, captured, empty, unset and free slot, and the objects in it."""
        plain, captured, free = C(), C(), C()

        def t(plain, captured):
            return sys._getframe(), lambda: (captured, empty), free
            empty = unset = None

        frame, inner, _ = t(plain, captured)
        slots = read(frame)
        self.assertEqual(slots.present(), {"plain": plain, "captured": captured, "free": free})
        return frame, (plain, captured, free, *inner.__closure__, t.__closure__[0])

    def test_l3_many_reads_leave_reference_counts_alone(self):
        frame, objects = self.every_kind_of_slot()
        before = [sys.getrefcount(each) for each in objects]
        _cases.read_repeatedly(frame, 100_000)
        self.assertEqual([sys.getrefcount(each) for each in objects], before)

    def test_l3_immortal_objects(self):
        def t(none, true, small, empty, interned):
            return sys._getframe()

        values = (None, True, 1, (), sys.intern("immortal or not"))
        frame = t(*values)

        def counts():
            return [sys.getrefcount(each) for each in values]

        before = counts()
        held = [_cases.get_locals(frame) for _ in range(1000)]
        gained = [now - then for now, then in zip(counts(), before)]
        # Immortal since 3.12: nobody counts them. Until then others use them, too.
        for count in gained[:4]:
            self.assertEqual(round(count / 1000), 0 if VERSION >= (3, 12) else 1)
        held.clear()
        _cases.read_repeatedly(frame, 100_000)
        for then, now in zip(before, counts()):
            self.assertLess(abs(now - then), 100)

    @unittest.skipUnless(DEBUG, "sys.gettotalrefcount() exists on debug builds only")
    def test_l3_total_reference_count(self):
        frame, _ = self.every_kind_of_slot()

        def growth(times):
            before = sys.gettotalrefcount()
            _cases.read_repeatedly(frame, times)
            for _ in range(100):
                _cases.names(frame)
            return sys.gettotalrefcount() - before

        growth(10)
        self.assertLess(abs(growth(100_000)), 100)

    def test_l3_a_reference_is_really_taken(self):
        def t(plain, captured):
            return sys._getframe(), lambda: captured

        plain, captured = C(), C()
        frame, _ = t(plain, captured)
        for name, value in (("plain", plain), ("captured", captured)):
            with self.subTest(name):
                index = _cases.names(frame).index(name)
                before = sys.getrefcount(value)
                held = [_cases.get_local(frame, index) for _ in range(10)]
                held += [_cases.get_locals(frame)[index] for _ in range(10)]
                held += [_cases.get_slot(frame, index, 0) for _ in range(10)]
                self.assertEqual(sys.getrefcount(value), before + 30)
                held.clear()
                self.assertEqual(sys.getrefcount(value), before)

    def test_l4_write_through_f_locals(self):
        def t(x):
            local = sys._getframe().f_locals
            look()
            local["x"] = 5
            local["new"] = 6
            look()
            return x, local["new"]

        # Before 3.13, f_locals is a copy.
        expected = 5 if VERSION >= (3, 13) else 1
        self.assertEqual(t(1), (expected, 6))
        before, after = looked()
        self.assertEqual((before.value("x"), after.value("x")), (1, expected))
        self.assertEqual(after.names, ("x", "local"))

    def test_l5_exec_makes_no_slot(self):
        def t():
            exec("b = 2")
            look()

        t()
        (slots,) = looked()
        self.assertEqual((slots.count, slots.present()), (0, {}))

    def test_reading_does_not_allocate(self):
        counter = support.toolchain.shared_object("count_malloc.so", [os.path.join(TESTS_C, "count_malloc.c")])
        run_scenario("reading_does_not_allocate", env={"LD_PRELOAD": counter})

    def test_frame_object_that_never_ran(self):
        def o():
            free = 1

            def t(plain, captured):
                return lambda: (captured, free)

            return t

        frame = _cases.new_frame_object(o().__code__, globals())
        slots = read(frame)
        self.assertEqual((slots.names, slots.present()), (("plain", "captured", "free"), {}))

    def test_values_of_awkward_types(self):
        class Raises:
            def __eq__(self, other):
                raise AssertionError("compared")

            def __getattr__(self, name):
                raise AssertionError(name)

            def __bool__(self):
                raise AssertionError("asked for its truth")

            __hash__ = None

        def t(a, b, c, d, e):
            look()

        values = (Raises(), Raises, types.CellType, NotImplemented, None)
        t(*values)
        (slots,) = looked()
        for got, given in zip(slots.together, values):
            self.assertIs(got, given)

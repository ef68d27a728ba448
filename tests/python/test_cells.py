"""Cell variables: slots that hold a plain argument, then a cell, and at times something else."""

import sys
import types
import unittest

import _cases
from support import INLINED_COMPREHENSIONS, NO_VALUE, RAW_CELL, VERSION, hooked, look, looked, read


class Cells(unittest.TestCase):
    def test_c1_super(self):
        class A:
            def m(self):
                parent = super()
                look()
                return parent

        a = A()
        with hooked("m") as seen:
            parent = a.m()
        self.assertEqual(seen[0].present(), {"self": a, "__class__": A})
        self.assertTrue(seen[0].state.is_empty(seen[0].index("__class__")))
        (slots,) = looked()
        self.assertEqual(slots.present(), {"self": a, "__class__": A, "parent": parent})

    def test_c2_argument_that_is_a_cell(self):
        def t(a):
            frames.append(sys._getframe())

            def inner():
                return a

            return inner

        frames = []
        c = types.CellType(99)
        with hooked("t") as seen:
            inner = t(c)
        self.assertIs(seen[0].value("a"), c)
        self.assertIs(seen[0].value("a", RAW_CELL), c)
        after = read(frames.pop())
        self.assertIs(after.value("a"), c)
        self.assertIs(after.value("a", RAW_CELL), inner.__closure__[0])

    def test_c2_argument_that_is_an_empty_cell(self):
        def t(a):
            return lambda: a

        c = types.CellType()
        with hooked("t") as seen:
            t(c)
        self.assertIs(seen[0].value("a"), c)

    def test_c2_plain_argument_that_is_a_cell(self):
        def t(a):
            look()

        c = types.CellType(99)
        with hooked("t") as seen:
            t(c)
        self.assertIs(seen[0].value("a"), c)
        (slots,) = looked()
        self.assertIs(slots.value("a"), c)

    def test_c3_variable_only_passed_through(self):
        def o():
            x = 1

            def m():
                def i():
                    return x

                look()
                return i

            return m()

        i = o()
        (slots,) = looked()
        self.assertEqual(slots.present(), {"i": i, "x": 1})

    def test_c4_cell_slot_with_a_plain_value(self):
        def t():
            h = lambda: k
            k = 1
            [look() for k in [0]]
            look()
            return h

        h = t()
        inside, after = looked()
        if INLINED_COMPREHENSIONS:
            self.assertEqual(inside.present(), {"h": h, "k": 0})
            self.assertEqual(inside.value("k", RAW_CELL), 0)
        else:
            self.assertEqual(inside.value("k"), 0)
            self.assertEqual(set(inside.names), {".0", "k"})
        self.assertEqual(after.present(), {"h": h, "k": 1})
        self.assertIs(after.value("k", RAW_CELL), h.__closure__[0])

    def test_c5_iterating_over_cells(self):
        def t():
            h = lambda: x
            x = 1
            [look() for x in [cell2]]
            return h

        globals()["cell2"] = cell2 = types.CellType(5)
        self.addCleanup(globals().pop, "cell2")
        t()
        (inside,) = looked()
        # The slot cannot tell the user's cell from the variable's own.
        self.assertIs(inside.value("x"), 5 if INLINED_COMPREHENSIONS else cell2)
        self.assertIs(inside.value("x", RAW_CELL), cell2)

    def test_c6_two_closures_over_one_variable(self):
        def counter():
            n = 0

            def up():
                nonlocal n
                n += 1

            def down():
                nonlocal n
                n -= 1

            return up, down

        up, down = counter()
        with hooked("up", "down") as seen:
            up()
            up()
            down()
            up()
        self.assertEqual([slots.value("n") for slots in seen], [0, 1, 2, 1])

    def test_empty_cell(self):
        def t():
            look()
            return lambda: x
            x = 1

        t()
        (slots,) = looked()
        self.assertEqual(slots.present(), {})
        # The cell is there, though nothing is in it.
        cell = slots.value("x", RAW_CELL)
        self.assertIs(type(cell), types.CellType)
        with self.assertRaises(ValueError):
            cell.cell_contents

    def test_deleted_cell_variable(self):
        def t(x):
            look()
            del x
            look()
            return lambda: x

        t(5)
        self.assertEqual([slots.present() for slots in looked()], [{"x": 5}, {}])

    def test_many_cell_variables(self):
        # Enough of them for the prologue to need EXTENDED_ARG.
        names = [f"v{number}" for number in range(300)]
        namespace = {"look": look}
        source = f"def t({', '.join(names)}):\n  look()\n  return lambda: ({', '.join(names)})"
        exec(source, namespace)
        with hooked("t") as seen:
            namespace["t"](*range(300))
        expected = {name: number for number, name in enumerate(names)}
        self.assertEqual(seen[0].present(), expected)
        self.assertEqual(looked()[0].present(), expected)

    @unittest.skipIf(VERSION < (3, 12), "type parameters came with 3.12")
    def test_type_parameters(self):
        namespace = {"look": look}
        exec("def t[T](a: T) -> T:\n  look()\n  return T", namespace)
        with hooked("t") as seen:
            type_variable = namespace["t"](1)
        self.assertEqual(seen[0].present(), {"a": 1, "T": type_variable})
        self.assertEqual(looked()[0].present(), {"a": 1, "T": type_variable})
        self.assertIs(seen[0].kinds[seen[0].index("T")], _cases.KIND_FREE)


class ClassBodies(unittest.TestCase):
    def test_class_cell_is_unset_while_the_body_runs(self):
        class K:
            look()

            def m(self):
                return __class__

        (slots,) = looked()
        self.assertIs(slots.value("__class__"), NO_VALUE)

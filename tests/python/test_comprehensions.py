"""Inlined comprehensions and the slots they hide in modules and class bodies."""

import unittest

import _cases
from support import HIDDEN, INLINED_COMPREHENSIONS, NO_VALUE, look, looked


def run(source, namespace=None, local=None):
    namespace = {"look": look} if namespace is None else namespace
    exec(compile(source, "<case>", "exec"), namespace, namespace if local is None else local)
    return namespace


class Comprehensions(unittest.TestCase):
    def test_h1_variable_after_the_comprehension(self):
        def t():
            [a for a in [1]]
            look()

        t()
        (slots,) = looked()
        self.assertEqual(slots.present(), {})
        self.assertEqual(slots.names, ("a",) if INLINED_COMPREHENSIONS else ())

    def test_h2_class_body(self):
        run("x = 5\nclass K:\n  y = x\n  r = [look() for i in [0]]\n  look()")
        inside, after = looked()
        if INLINED_COMPREHENSIONS:
            self.assertEqual(inside.present(), {})
            self.assertEqual(inside.present(HIDDEN), {"i": 0})
            self.assertTrue(inside.kind("i") & _cases.KIND_HIDDEN)
        else:
            self.assertEqual(inside.value("i"), 0)
        self.assertEqual(after.present(), {})
        self.assertEqual(after.present(HIDDEN), {})

    def test_h3_exec(self):
        local = {"l": 1}
        run("x=1\nlook()\n[look() for q in [5]]", local=local)
        before, inside = looked()
        self.assertEqual(before.present(HIDDEN), {})
        if INLINED_COMPREHENSIONS:
            self.assertEqual(inside.present(), {})
            self.assertEqual(inside.present(HIDDEN), {"q": 5})
        else:
            self.assertEqual(inside.value("q"), 5)
        self.assertEqual(local, {"l": 1, "x": 1})

    def test_h4_module_level(self):
        namespace = run("foo = None\n[foo for foo in [0]]\nlook()\nbar = foo\nlook()\nbaz = 1")
        for slots in looked():
            if INLINED_COMPREHENSIONS:
                self.assertIs(slots.value("foo", HIDDEN), NO_VALUE)
                self.assertTrue(slots.state.is_empty(slots.index("foo")))
            self.assertEqual(slots.present(HIDDEN), {})
        self.assertEqual((namespace["foo"], namespace["bar"], namespace["baz"]), (None, None, 1))

    def test_nested_comprehensions(self):
        def t(n):
            return [[look() for y in range(2)] for x in range(n)]

        t(1)
        first, second = looked()
        if INLINED_COMPREHENSIONS:
            self.assertEqual(first.present(), {"n": 1, "x": 0, "y": 0})
            self.assertEqual(second.present(), {"n": 1, "x": 0, "y": 1})
        else:
            self.assertEqual((first.value("y"), second.value("y")), (0, 1))

    def test_set_and_dict_comprehensions(self):
        def t():
            {look() for a in [1]}
            {look(): b for b in [2]}

        t()
        first, second = looked()
        self.assertEqual((first.value("a"), second.value("b")), (1, 2))

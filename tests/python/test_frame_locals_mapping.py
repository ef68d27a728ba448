"""examples/frame_locals_mapping: what it holds when a function is entered is what locals() and the closure say."""

import ast
import asyncio
import contextlib
import gc
import os
import sys
import types
import unittest
import weakref

from consumers import REPOSITORY, build_extension
from support import INLINED_COMPREHENSIONS

mapping = None


def setUpModule():
    global mapping
    folder = os.path.join(REPOSITORY, "examples", "frame_locals_mapping")
    build_extension("mapping", os.path.join(folder, "mapping.cpp"), "c++17")
    import mapping


class Seen:
    def __init__(self, code, values, variables):
        self.code, self.values, self.variables = code, values, dict(variables)


@contextlib.contextmanager
def watching(name):
    """Collects the mappings of functions called `name`."""
    seen = []

    def callback(code, values, variables):
        if code.co_name == name:
            seen.append(Seen(code, values, variables))

    mapping.watch(callback)
    try:
        yield seen
    finally:
        mapping.watch(None)


def closure_of(function):
    """The values of a function's free variables, by name: those that are bound."""
    variables = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):
            variables[name] = cell.cell_contents
    return variables


class FrameLocalsMapping(unittest.TestCase):
    def assertSame(self, one, other):
        """The same names, with the same objects."""
        self.assertEqual(list(one), list(other))
        for name in one:
            self.assertIs(one[name], other[name], name)

    def enter(self, function, *args, **kwargs):
        """Calls a function whose first statement returns locals(); answers what was seen, which must be that."""
        with watching(function.__code__.co_name) as seen:
            own = function(*args, **kwargs)
        (entered,) = seen
        self.assertSame(entered.variables, own)
        for name, value in closure_of(function).items():
            self.assertIs(entered.variables[name], value)
        self.assertIs(entered.code, function.__code__)
        held = [value[0] for value in entered.values if value]
        self.assertEqual([id(value) for value in held], [id(value) for value in entered.variables.values()])
        return entered

    def test_nothing(self):
        def f():
            return locals()

        self.assertEqual(self.enter(f).values, ())

    def test_every_kind_of_parameter(self):
        def f(a, /, b, *args, c, d=object(), **kwargs):
            return locals()

        entered = self.enter(f, object(), object(), object(), c=object(), e=object())
        self.assertEqual(set(entered.variables), {"a", "b", "c", "d", "args", "kwargs"})

    def test_variables_that_are_not_bound_yet(self):
        def f(a):
            return locals()
            b = a

        self.assertEqual(self.enter(f, object()).values[1], ())

    def test_captured_parameters(self):
        def f(a, b):
            return locals()
            return lambda: (a, c)
            c = b

        entered = self.enter(f, object(), object())
        self.assertEqual(set(entered.variables), {"a", "b"})

    def test_parameter_that_is_a_cell(self):
        def f(a):
            return locals()
            return lambda: a

        cell = types.CellType(object())
        self.assertIs(self.enter(f, cell).variables["a"], cell)

    def test_free_variables(self):
        def outer(bound, unused):
            def f(a):
                return locals()
                return bound, later

            yield f
            later = object()
            yield f

        closures = outer(object(), object())
        self.assertEqual(set(self.enter(next(closures), object()).variables), {"a", "bound"})
        self.assertEqual(set(self.enter(next(closures), object()).variables), {"a", "bound", "later"})

    def test_closure_that_has_changed_since(self):
        def outer(n):
            def f():
                return locals()
                return n

            def change(value):
                nonlocal n
                n = value

            return f, change

        f, change = outer(1)
        new = object()
        change(new)
        self.assertIs(self.enter(f).variables["n"], new)

    def test_name_in_two_slots(self):
        # From 3.12 on x is the comprehension's variable and a free one.
        def outer(x):
            def f(items):
                return locals()
                return [x for x in items], x

            return f

        value = object()
        entered = self.enter(outer(value), ())
        self.assertIs(entered.variables["x"], value)
        if INLINED_COMPREHENSIONS:
            self.assertEqual(len([item for item in entered.values if item]), 2)

    def test_module_and_class_bodies(self):
        source = "def outer(n):\n  class K:\n    inside = n\n    [i for i in (1,)]\n  return K\nouter(1)\n[j for j in (2,)]"
        for name in ("<module>", "K"):
            with watching(name) as seen:
                exec(compile(source, "<case>", "exec"), {})
            (entered,) = seen
            self.assertEqual(entered.variables, {}, "a class body's free variables and hidden slots have no value")
            self.assertEqual(set(entered.values), {()} if entered.values else set())

    def test_hidden_slot_with_a_value(self):
        # The only frame that is entered (again) while a hidden slot has a value: a module that awaits.
        @types.coroutine
        def pause():
            yield

        async def numbers():
            for number in range(2):
                yield number
                await pause()

        source = compile("[j async for j in numbers()]", "<case>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with watching("<module>") as seen:
            coroutine = eval(source, {"numbers": numbers})
            with self.assertRaises(StopIteration):
                while True:
                    coroutine.send(None)
        self.assertEqual([entered.variables for entered in seen], [{}] * len(seen))
        self.assertEqual(len(seen), 4)
        self.assertEqual(set(seen[-1].values), {()} if INLINED_COMPREHENSIONS else set())

    def test_generator(self):
        def outer(n):
            def f(a):
                b = a
                yield locals()
                yield n, b

            return f

        f = outer(object())
        a = object()
        with watching("f") as seen:
            generator = f(a)
            own = next(generator)
            n, b = next(generator)
        made, first, second = seen
        self.assertSame(made.variables, {"a": a, "n": n})
        self.assertSame(first.variables, {"a": a, "n": n})
        self.assertSame(second.variables, own)
        self.assertIs(second.variables["b"], b)

    def test_generator_expression(self):
        n = object()
        with watching("<genexpr>") as seen:
            list((n, i) for i in (1,))
        self.assertEqual(set(seen[0].variables), {".0", "n"})
        self.assertIs(seen[0].variables["n"], n)

    def test_coroutine(self):
        async def f(a):
            return locals()

        a = object()
        with watching("f") as seen:
            own = asyncio.run(f(a))
        for entered in seen:
            self.assertSame(entered.variables, own)

    def test_the_callback_fails(self):
        def f():
            return 1

        def callback(code, values, variables):
            if code is f.__code__:
                raise ZeroDivisionError

        mapping.watch(callback)
        try:
            with self.assertRaises(ZeroDivisionError):
                f()
        finally:
            mapping.watch(None)
        self.assertEqual(f(), 1)

    def test_bad_callback(self):
        with self.assertRaisesRegex(TypeError, "not int"):
            mapping.watch(1)

    def test_nothing_leaks(self):
        class Value:
            pass

        def outer(n):
            def f(a, *args):
                return n, a, args

            return f

        free, argument = Value(), Value()
        f = outer(free)
        before = sys.getrefcount(free), sys.getrefcount(argument), sys.getrefcount(f.__code__)
        with watching("f") as seen:
            for _ in range(50):
                f(argument, 1)
        self.assertEqual(len(seen), 50)
        seen.clear()
        gc.collect()
        self.assertEqual((sys.getrefcount(free), sys.getrefcount(argument), sys.getrefcount(f.__code__)), before)
        alive = weakref.ref(argument)
        del argument
        gc.collect()
        self.assertIsNone(alive())

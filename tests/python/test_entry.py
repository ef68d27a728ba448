"""Frames at the entry of a function, as a PEP 523 evaluator gets them."""

import gc
import sys
import unittest

import _cases
from support import NO_VALUE, VERSION, hooked, look, looked, read


class Entry(unittest.TestCase):
    def test_e1_generator_expression(self):
        def t(t_, n):
            return tuple(x for x in reversed(t_) for _ in range(n))

        with hooked("<genexpr>") as seen:
            self.assertEqual(t((1, 2), 2), (2, 2, 1, 1))
        created, _, second_resume = seen[:3]
        # When the generator expression is called, n is nowhere but in the closure.
        self.assertEqual(set(created.present()), {".0", "n"})
        self.assertEqual(created.value("n"), 2)
        self.assertTrue(created.state.is_empty(created.index("n")))
        values = second_resume.present()
        values.pop(".0")
        self.assertEqual(values, {"x": 2, "_": 0, "n": 2})

    def test_e2_closure_with_an_empty_cell(self):
        def o():
            def t():
                return x

            try:
                t()
            except NameError:
                pass
            x = 1
            return t()

        with hooked("t") as seen:
            self.assertEqual(o(), 1)
        self.assertEqual([slots.present() for slots in seen], [{}, {"x": 1}])

    def test_e3_argument_that_is_captured(self):
        def t(a):
            frames.append(sys._getframe())

            def inner():
                return a

            return inner

        frames = []
        with hooked("t") as seen:
            inner = t(7)
        self.assertEqual(seen[0].value("a"), 7)
        self.assertFalse(seen[0].state.prologue_ran)
        after = read(frames.pop())
        self.assertEqual(after.value("a"), 7)
        self.assertIs(after.value("a", _cases.RAW_CELL), inner.__closure__[0])

    def test_e4_current_frame_is_the_callers(self):
        def t(mine):
            return mine

        def caller():
            return t("t's")

        current = []
        with hooked("t", at_entry=lambda address: current.append(sys._getframe(2))) as seen:
            caller()
        # sys._getframe(0) is the callback and (1) the support code around it.
        self.assertEqual(current[0].f_code.co_name, "caller")
        self.assertEqual(seen[0].present(), {"mine": "t's"})

    def test_e5_instruction_at_entry(self):
        def t():
            pass

        with hooked("t") as seen:
            t()
        self.assertEqual(seen[0].state.instr_index, 0 if VERSION >= (3, 13) else -1)

    def test_e6_specialised_caller(self):
        def callee(a, b=2):
            return a + b

        def caller():
            return callee(1)

        for _ in range(5000):
            caller()
        with hooked("callee") as seen:
            caller()
        self.assertEqual([slots.present() for slots in seen], [{"a": 1, "b": 2}])

    def test_e7_python_between_two_reads(self):
        def t(argument):
            return argument, free

        free = [object()]
        reads = []

        def read_twice(address):
            reads.append(read(address))
            gc.collect()
            sorted([3, 1, 2], key=lambda number: -number)
            reads.append(read(address))

        with hooked("t", at_entry=read_twice):
            t([object()])
        first, second = reads
        self.assertEqual(set(first.present()), {"argument", "free"})
        for name, value in first.present().items():
            self.assertIs(second.value(name), value)

    def test_e8_unset_local(self):
        def t(flag):
            if flag:
                x = 1
            look()

        t(False)
        (slots,) = looked()
        self.assertEqual(slots.present(), {"flag": False})
        self.assertIs(slots.value("x"), NO_VALUE)

    def test_arguments_of_every_sort(self):
        def t(posonly, /, positional, default=3, *args, kwonly, **kwargs):
            local = 0
            return local

        with hooked("t") as seen:
            t(1, 2, kwonly=4, extra=5)
        slots = seen[0]
        self.assertEqual(
            slots.present(),
            {"posonly": 1, "positional": 2, "default": 3, "args": (), "kwonly": 4, "kwargs": {"extra": 5}},
        )
        argument = _cases.KIND_ARG | _cases.KIND_LOCAL
        self.assertEqual(
            dict(zip(slots.names, slots.kinds)),
            {
                "posonly": argument,
                "positional": argument,
                "default": argument,
                "args": argument,
                "kwonly": argument,
                "kwargs": argument,
                "local": _cases.KIND_LOCAL,
            },
        )

    def test_kinds_of_captured_variables(self):
        def o():
            free = 1

            def t(argument):
                cell = 2
                return lambda: (free, argument, cell)

            return t

        t = o()
        with hooked("t") as seen:
            t(0)
        self.assertEqual(
            dict(zip(seen[0].names, seen[0].kinds)),
            {
                "argument": _cases.KIND_ARG | _cases.KIND_LOCAL | _cases.KIND_CELL,
                "cell": _cases.KIND_CELL,
                "free": _cases.KIND_FREE,
            },
        )

    def test_function_without_slots(self):
        def t():
            return 0

        with hooked("t") as seen:
            t()
        self.assertEqual((seen[0].count, seen[0].names, seen[0].together), (0, (), ()))

    def test_exception_thrown_in_at_entry(self):
        def t(a):
            try:
                yield a
            except ValueError:
                yield "caught"

        generator = t(1)
        next(generator)
        with hooked("t") as seen:
            self.assertEqual(generator.throw(ValueError()), "caught")
        self.assertEqual([(slots.throwflag, slots.present()) for slots in seen], [(1, {"a": 1})])



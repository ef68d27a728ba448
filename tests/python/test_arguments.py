"""The arguments that an unstarted frame was called with, and calls made with them."""

import gc
import inspect
import random
import sys
import textwrap
import types
import unittest

import _cases
import _names
import _oracle
from support import DEBUG, NO_VALUE, VERSION, hooked, read_generator, tracing
from test_rules import CELLS, THREAD, Bits, HandMade, cell

# In the form that the compiler gives them (NFKC).
NAMES = "x y self é ß 名前 переменная args kwargs _ ω".split() + [f"name_{i}" for i in range(30)]


class Value:
    """Told apart by identity."""


def taken_apart(slots):
    """What localsplus_arguments_get should answer for an unstarted frame with these slots, from the oracle's answers."""
    code = slots.code
    simple = code.co_argcount + code.co_kwonlyargcount
    positional = list(slots.singly[: code.co_argcount])
    names, values = list(slots.names[code.co_argcount : simple]), list(slots.singly[code.co_argcount : simple])
    rest = iter(slots.singly[simple:])
    if code.co_flags & inspect.CO_VARARGS:
        positional += next(rest)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        collected = next(rest)
        names += collected
        values += collected.values()
    return tuple(positional), tuple(names), tuple(values)


def identities(arguments):
    positional, names, values = arguments
    return [id(each) for each in positional], [(name, id(value)) for name, value in zip(names, values)]


class Entered:
    """The first frame of a code object that a call enters: what its slots hold, and its arguments."""

    def __init__(self, code, call, ask=_names.arguments):
        self.arguments = None
        self.asked = 0

        def at_entry(address):
            if _oracle.executable(address) is code and not self.asked:
                self.asked += 1
                self.arguments = ask(address)

        with hooked(code.co_name, at_entry=at_entry) as seen:
            result = call()
        if hasattr(result, "close"):
            result.close()  # a coroutine that nobody awaits
        self.slots = next(slots for slots in seen if slots.state.executable in (code, id(code)))
        self.slots.code = code


def same_slots(test, before, after, code):
    """A call with rebuilt arguments begins with the same locals; what *args and **kwargs collect is collected anew."""
    simple = code.co_argcount + code.co_kwonlyargcount
    parameters = simple + sum(bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS))
    test.assertEqual(before.names, after.names)
    for index, (one, other) in enumerate(zip(before.singly, after.singly)):
        if simple <= index < parameters and one is not other:
            if isinstance(one, tuple):
                test.assertEqual([*map(id, one)], [*map(id, other)])
            else:
                test.assertEqual([(k, id(v)) for k, v in one.items()], [(k, id(v)) for k, v in other.items()])
        else:
            test.assertIs(one, other, before.names[index])


class Arguments(unittest.TestCase):
    def check(self, function, /, *args, **kwargs):
        """Asks at the entry of function(*args, **kwargs), and calls it again with the answer."""
        code = getattr(function, "__func__", function).__code__
        entered = Entered(code, lambda: function(*args, **kwargs))
        arguments = entered.arguments
        self.assertEqual(identities(arguments), identities(taken_apart(entered.slots)), function)
        positional, names, values = arguments
        plain = getattr(function, "__func__", function)
        again = Entered(code, lambda: plain(*positional, **dict(zip(names, values))))
        same_slots(self, entered.slots, again.slots, code)
        self.assertEqual(identities(again.arguments), identities(arguments))
        # Called from the hook, straight with what was answered.
        passed = []
        call = lambda address: _names.call(address, lambda *a, **k: passed.append((a, k)))
        inner = Entered(code, lambda: function(*args, **kwargs), call)
        self.assertEqual(inner.asked, 1)
        ((a, k),) = passed
        self.assertEqual(identities((a, tuple(k), tuple(k.values()))), identities(arguments))
        return arguments

    def test_every_kind_of_parameter(self):
        def f(a, b=2, /, c=3, d=4, *args, e, g=6, **kwargs):
            pass

        self.assertEqual(self.check(f, 1, e=5), ((1, 2, 3, 4), ("e", "g"), (5, 6)))
        self.assertEqual(self.check(f, 1, 20, c=30, e=5, b=7), ((1, 20, 30, 4), ("e", "g", "b"), (5, 6, 7)))
        self.assertEqual(
            self.check(f, 1, 2, 3, 4, 5, 6, g=8, z=10, e=7, y=11),
            ((1, 2, 3, 4, 5, 6), ("e", "g", "z", "y"), (7, 8, 10, 11)),
        )

    def test_nothing(self):
        def f():
            local = 1

        self.assertEqual(self.check(f), ((), (), ()))

    def test_collected_by_themselves(self):
        def star(*args):
            pass

        def double_star(**kwargs):
            pass

        def both(*args, **kwargs):
            pass

        self.assertEqual(self.check(star), ((), (), ()))
        self.assertEqual(self.check(star, 1, 2), ((1, 2), (), ()))
        self.assertEqual(self.check(double_star), ((), (), ()))
        self.assertEqual(self.check(double_star, a=1), ((), ("a",), (1,)))
        self.assertEqual(self.check(both, 1, a=2), ((1,), ("a",), (2,)))

    def test_a_name_that_is_positional_only_and_a_keyword(self):
        def f(a, /, **kwargs):
            pass

        self.assertEqual(self.check(f, 1, a=2), ((1,), ("a",), (2,)))

    def test_names_that_are_no_identifiers(self):
        def f(**kwargs):
            pass

        odd = {"": 1, "a b": 2, "\0": 3, "名": 4, "\ud800": 5, "class": 6}
        self.assertEqual(self.check(f, **odd), ((), tuple(odd), tuple(odd.values())))

    def test_names_of_a_str_subclass(self):
        class Name(str):
            pass

        def f(**kwargs):
            pass

        name = Name("n")
        _, (found,), _ = self.check(f, **{name: 1})
        self.assertIs(found, name)

    def test_captured_parameters(self):
        def f(a, b=2, *args, c, **kwargs):
            return lambda: (a, b, args, c, kwargs)

        self.assertEqual(self.check(f, 1, c=3), ((1, 2), ("c",), (3,)))
        self.assertEqual(self.check(f, 1, 2, 3, c=4, d=5), ((1, 2, 3), ("c", "d"), (4, 5)))

    def test_arguments_that_are_cells(self):
        def plain(a, *, b, **kwargs):
            pass

        def captured(a, *, b, **kwargs):
            return lambda: (a, b, kwargs)

        cells = [types.CellType(i) for i in range(3)]
        for f in (plain, captured):
            (a,), names, (b, c) = self.check(f, cells[0], b=cells[1], c=cells[2])
            self.assertTrue(a is cells[0] and b is cells[1] and c is cells[2])
        empty = types.CellType()
        self.assertIs(self.check(captured, empty, b=empty)[0][0], empty)

    def test_free_variables_are_no_arguments(self):
        def outer():
            free = 1

            def f(a):
                return free, a

            return f

        self.assertEqual(self.check(outer(), 5), ((5,), (), ()))

    def test_methods(self):
        class A:
            def method(self, a, *, k=2):
                return super().__init__()

            @classmethod
            def of_class(cls, a):
                pass

            @staticmethod
            def static(a):
                pass

            def __call__(self, a):
                pass

        it = A()
        self.assertEqual(self.check(it.method, 1), ((it, 1), ("k",), (2,)))
        self.assertEqual(self.check(A.of_class, 1), ((A, 1), (), ()))
        self.assertEqual(self.check(A.static, 1), ((1,), (), ()))
        entered = Entered(A.__call__.__code__, lambda: it(7))
        self.assertEqual(entered.arguments, ((it, 7), (), ()))

    def test_lambda(self):
        self.assertEqual(self.check(lambda a, b=2, *c: a, 1), ((1, 2), (), ()))

    def test_generators_and_coroutines(self):
        def generator(a, *, k=1):
            yield lambda: a

        async def coroutine(a, **kwargs):
            return a

        async def async_generator(a, *args):
            yield a

        self.assertEqual(self.check(generator, 5), ((5,), ("k",), (1,)))
        self.assertEqual(self.check(coroutine, 5, z=1), ((5,), ("z",), (1,)))
        self.assertEqual(self.check(async_generator, 5, 6), ((5, 6), (), ()))

    def test_generator_expression(self):
        values = iter([1])
        make = lambda: (x for x in values)
        (code,) = filter(inspect.iscode, make.__code__.co_consts)
        entered = Entered(code, make)
        ((iterator,), names, _) = entered.arguments
        self.assertEqual((iterator is values, names), (True, ()))

    def test_code_without_parameters(self):
        source = "x = 1\nclass K:\n    y = x\n"
        module = compile(source, "file", "exec")
        (body,) = [each for each in module.co_consts if inspect.iscode(each)]
        for code in (module, body):
            entered = Entered(code, lambda: exec(module, {}))
            self.assertEqual((entered.asked, entered.arguments), (1, ((), (), ())))

    def test_many_parameters(self):
        names = [f"p{i}" for i in range(300)]
        for signature, args, kwargs in (
            (", ".join(names), range(300), {}),
            ("*, " + ", ".join(names), (), dict(zip(names, range(300)))),
            (", ".join(names[:150]) + ", *args, " + ", ".join(names[150:]) + ", **kwargs", range(200), dict(zip(names[150:], range(150)), z=1)),
        ):
            for body in ("pass", "return lambda: (" + ", ".join(names) + ")"):
                space = {}
                exec(f"def f({signature}): {body}", space)
                positional, found, values = self.check(space["f"], *args, **kwargs)
                self.assertEqual(positional, tuple(args))
                self.assertEqual(dict(zip(found, values)), kwargs)

    def test_many_collected(self):
        def f(*args, **kwargs):
            pass

        kwargs = {f"k{i}": i for i in range(10_000)}
        self.assertTrue(self.check(f, *range(100_000), **kwargs) == (tuple(range(100_000)), tuple(kwargs), tuple(range(10_000))))

    def test_generated(self):
        rng = random.Random(20)
        for round in range(400):
            with self.subTest(round=round):
                source, args, kwargs = generated(rng)
                space = {}
                exec(source, space)
                self.check(space["f"], *args, **kwargs)


def generated(rng):
    """A function with some of everything, and arguments to call it with."""
    names = iter(rng.sample(NAMES, len(NAMES)))
    value = lambda: types.CellType(1) if rng.random() < 0.2 else rng.choice([Value(), None, 1, ()])
    parts, used, args, kwargs = [], [], [], {}
    only, both, keyword = (rng.randrange(5) for _ in range(3))
    first_default = rng.randrange(only + both + 1)
    for position in range(only + both):
        used.append(next(names))
        has_default = position >= first_default
        parts.append(used[-1] + ("=[]" if has_default else ""))
        if position + 1 == only:
            parts.append("/")
        if not has_default or rng.random() < 0.5:
            if len(args) == position:
                args.append(value())
            elif position >= only:
                kwargs[used[-1]] = value()
    star, double_star = rng.random() < 0.5, rng.random() < 0.5
    if star:
        used.append(next(names))
        parts.append("*" + used[-1])
        if len(args) == only + both:
            args += [value() for _ in range(rng.randrange(4))]
    elif keyword:
        parts.append("*")
    for _ in range(keyword):
        used.append(next(names))
        has_default = rng.random() < 0.5
        parts.append(used[-1] + ("={}" if has_default else ""))
        if not has_default or rng.random() < 0.5:
            kwargs[used[-1]] = value()
    if double_star:
        used.append(next(names))
        parts.append("**" + used[-1])
        for _ in range(rng.randrange(4)):
            kwargs[next(names)] = value()
    captured = ", ".join(rng.sample(used, rng.randrange(len(used) + 1)))
    body = rng.choice(["{0}", "yield {0}", "local = 1; {0}"]).format(f"return lambda: ({captured})" if captured else "return")
    if body.startswith("yield"):
        body = f"yield lambda: ({captured})"
    definition = "async def" if rng.random() < 0.2 else "def"
    if definition == "async def" and "yield" not in body:
        body = f"return lambda: ({captured})"
    source = f"{definition} f({', '.join(parts)}):\n    {body}\n"
    if rng.random() < 0.3:
        source = "def outer():\n    free = 1\n" + textwrap.indent(source.replace("):\n", "):\n    free\n", 1), "    ") + "    return f\nf = outer()\n"
    items = list(kwargs.items())
    rng.shuffle(items)
    return source, args, dict(items)


class Refused(unittest.TestCase):
    def refused(self, error, words, address):
        with self.assertRaisesRegex(error, words):
            _names.arguments(address)

    def test_bad_input(self):
        self.refused(ValueError, "'frame' must not be NULL", 0)
        with self.assertRaisesRegex(ValueError, "'arguments' must not be NULL"):
            _names.arguments_into_null(0)
        address = _oracle.new_frame(None, 3)
        self.refused(ValueError, "shim frame", address)
        _oracle.free_frame(address)

    def test_running(self):
        def f(a):
            return _names.arguments(_cases.address(sys._getframe()))

        def with_cell(a):
            lambda: a
            return _names.arguments(_cases.address(sys._getframe()))

        for function in (f, with_cell):
            with self.assertRaisesRegex(ValueError, "already started"):
                function(1)

    def test_generator(self):
        def g(a):
            yield a

        async def c(a):
            pass

        async def ag(a):
            yield a

        for function in (g, c, ag):
            made = function(1)
            self.refused(ValueError, "already started", _oracle.frame_of_generator(made))
            if function is g:
                next(made)
                self.refused(ValueError, "already started", _oracle.frame_of_generator(made))
            if function is not ag:
                made.close()
                self.refused(ValueError, "already started", _oracle.frame_of_generator(made))

    def test_resumed_generator(self):
        def g(a):
            yield a

        failures = []

        def at_entry(address):
            try:
                _names.arguments(address)
            except ValueError as error:
                failures.append(str(error))
            else:
                failures.append(None)

        with hooked("g", at_entry=at_entry):
            list(g(1))
        self.assertIsNone(failures[0])
        self.assertEqual(len(failures), 3)
        for failure in failures[1:]:
            self.assertIn("already started", failure)

    def test_finished(self):
        def f(a):
            return sys._getframe()

        frame = f(1)
        self.refused(ValueError, "already started", _cases.address(frame))
        frame.clear()
        self.refused(ValueError, "already started", _cases.address(frame))

    def test_frame_that_never_runs(self):
        # A frame object of its own is past the prologue for us, as it is for every read.
        frame = _cases.new_frame_object((lambda: 0).__code__, globals())
        self.refused(ValueError, "already started", _cases.address(frame))

    def test_first_instruction(self):
        """Where a trace function sees a call, a function without a prologue has run nothing."""
        found = []

        def f(a, *, k):
            pass

        def trace(frame, event, _):
            if event == "call" and frame.f_code is f.__code__:
                found.append(_names.arguments(_cases.address(frame)))

        with tracing(trace):
            f(1, k=2)
        self.assertEqual(found, [((1,), ("k",), (2,))])

    def test_released_locals(self):
        frame = HandMade(CELLS, {"argument": "a", "captured": "c"}, depth=0)
        self.refused(ValueError, "already started", frame.address)

    def test_no_argument(self):
        frame = HandMade(CELLS, {"captured": "c"})
        self.refused(ValueError, "slot 0 .* does not hold a value", frame.address)
        frame = HandMade(CELLS, {"argument": "a"})
        self.refused(ValueError, "slot 1 .* does not hold a value", frame.address)

    def test_hand_made(self):
        raw = cell(1)
        frame = HandMade(CELLS, {"argument": "a", "captured": raw})
        self.assertIs(_names.arguments(frame.address)[0][1], raw)

    def collected(self, args, kwargs):
        def f(a, *args, k, **kwargs):
            pass

        address = _oracle.new_frame(f.__code__, THREAD)
        self.addCleanup(_oracle.free_frame, address)
        self.kept = (f, args, kwargs)
        bits = tuple(_oracle.borrowed_bits(each) for each in ("a", "k", args, kwargs))
        _oracle.fill_frame(address, f, bits, 4, False, False)
        return address

    def test_collected_something_else(self):
        good = ((1,), {"z": 2})
        self.assertEqual(_names.arguments(self.collected(*good)), (("a", 1), ("k", "z"), ("k", 2)))
        for args in (None, [1], 5):
            self.refused(ValueError, "slot 2 .* the tuple of further positional", self.collected(args, good[1]))
        for kwargs in (None, [("z", 1)], {1: 2}, {"z": 1, None: 2}):
            self.refused(ValueError, "slot 3 .* the dict of further keyword", self.collected(good[0], kwargs))

    def test_pending_exception(self):
        for good in (((1,), {"z": 2}), ((), {})):
            self.assertTrue(_names.arguments_with_pending(self.collected(*good)))


class Lifetime(unittest.TestCase):
    def at_entry(self, ask, *args, **kwargs):
        def f(a, b=2, *args, c, **kwargs):
            return lambda: (a, args, c)

        entered = Entered(f.__code__, lambda: f(*args, **kwargs), ask)
        self.assertEqual(entered.asked, 1)
        return entered.arguments

    def test_references(self):
        values = [Value() for _ in range(6)]
        # Not a constant: those are immortal in a free-threaded build.
        name = " ".join(["made", "here"])
        kwargs = {"c": values[4], name: values[5]}

        def counts():
            return [sys.getrefcount(each) for each in (*values, name)]

        def ask(address):
            _names.arguments_repeatedly(address, 1)
            before = counts()
            held = [_names.arguments(address) for _ in range(1000)]
            during = counts()
            del held
            _names.arguments_repeatedly(address, 20_000)
            return before, during, counts()

        before, during, after = self.at_entry(ask, *values[:4], **kwargs)
        self.assertEqual(before, after)
        self.assertEqual([now - then for then, now in zip(before, during)], [1000] * 7)

    @unittest.skipUnless(DEBUG, "sys.gettotalrefcount() exists on debug builds only")
    def test_total_reference_count(self):
        def ask(address):
            _names.arguments_repeatedly(address, 100)
            before = sys.gettotalrefcount()
            _names.arguments_repeatedly(address, 20_000)
            return sys.gettotalrefcount() - before

        self.assertLess(abs(self.at_entry(ask, 1, 2, 3, c=4, d=5)), 100)

    def test_they_outlive_the_frame(self):
        def f(a):
            a = None

        kept = []
        Entered(f.__code__, lambda: f(Value()), lambda address: kept.append(_names.arguments(address)))
        gc.collect()
        self.assertIsInstance(kept[0][0][0], Value)

    def test_out_of_memory(self):
        values = [Value() for _ in range(60)]
        # More names than any free list of tuples has room for.
        kwargs = {f"some_name_{i}": value for i, value in enumerate(values)}

        def counts():
            return [sys.getrefcount(each) for each in (*values, *kwargs)]

        def ask(address):
            _names.arguments_repeatedly(address, 1)
            before = counts()
            failures = 0
            for good in range(20):
                for _ in range(50):
                    try:
                        enough = _names.without_memory("arguments", address, good)
                    except MemoryError:
                        enough = False
                        failures += 1
                if enough:
                    break
            blocks = sys.getallocatedblocks()
            for _ in range(1000):
                try:
                    _names.without_memory("arguments", address, 1)
                except MemoryError:
                    pass
            return failures, good, [now - then for then, now in zip(before, counts())], sys.getallocatedblocks() - blocks

        failures, good, growth, blocks = self.at_entry(ask, *values[:50], c=1, **kwargs)
        # The arguments, and the tuple of names. (The interpreter asks one of its allocators for another.)
        self.assertIn(good, (2, 4))
        self.assertEqual(failures, 50 * good)
        self.assertEqual(set(growth), {0})
        self.assertLess(abs(blocks), 50)


if __name__ == "__main__":
    unittest.main()

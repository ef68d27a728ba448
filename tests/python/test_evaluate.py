"""localsplus_consume and localsplus_evaluate_in_place: a frame is disposed of, and something else runs in its place."""

import asyncio
import contextlib
import gc
import inspect
import os
import sys
import sysconfig
import threading
import time
import types
import unittest
import weakref

import _cases
import support
from support import DEBUG, VERSION

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

hooks = None


def setUpModule():
    global hooks
    toolchain = support.toolchain
    toolchain.extension("_hooks", [os.path.join(support.HERE, "_hooks.c")], link_library=True)
    import _hooks as hooks


@contextlib.contextmanager
def replaced(*pairs):
    """While it lasts, each function (or code) of a pair is replaced by what is paired with it."""
    hooks.replace({id(getattr(function, "__code__", function)): replacement for function, replacement in pairs})
    try:
        yield
    finally:
        hooks.replace(None)


@contextlib.contextmanager
def copied(*functions):
    """While it lasts, functions are replaced by copies of their code."""
    with replaced(*((function, function.__code__.replace()) for function in functions)):
        yield


def everything(*args, **kwargs):
    return args, kwargs


class Consume(unittest.TestCase):
    def test_answers_something_else(self):
        def fn(a, *args, **kwargs):
            raise AssertionError("it ran")

        def generator(a):
            raise AssertionError("it ran")
            yield

        def closure():
            return fn, generator

        with replaced((fn, ("value",)), (generator, ("no generator",)), (closure, (None,))):
            for _ in range(100):
                self.assertEqual(fn(1, 2, b=3), "value")
                self.assertEqual(generator(1), "no generator")
                self.assertIsNone(closure())

    def test_an_exception_set_afterwards(self):
        def fn(a):
            raise AssertionError("it ran")

        with replaced((fn, ())):
            with self.assertRaisesRegex(ZeroDivisionError, "from the hook") as caught:
                fn(1)
        self.assertIsNone(caught.exception.__context__)

    def test_what_the_frame_held_is_released(self):

        class Value:
            def __del__(self):
                seen.append("deleted")

        def fn(*args, **kwargs):
            raise AssertionError("it ran")

        def trace(frame, event, argument):
            if frame.f_code.co_name in ("__del__", "fn"):
                traced.append((event, frame.f_code.co_name))

        seen, traced = [], []
        with replaced((fn, ("value",))):
            fn(Value(), Value(), k=Value())
            gc.collect()
            self.assertEqual(seen, ["deleted"] * 3)
            sys.settrace(trace)
            try:
                fn(*[Value()])
                fn(**{"k": Value()})
            finally:
                sys.settrace(None)
        self.assertEqual(traced, [("call", "__del__")] * 2)

    def test_the_same_depth_is_to_be_had_again(self):
        def fn(x):
            raise AssertionError("it ran")

        def deep(n):
            return fn(n) if n == 0 else deep(n - 1)

        with replaced((fn, ("value",))):
            for _ in range(200):
                self.assertEqual(deep(50), "value")

    def test_takes_as_long_at_any_depth(self):
        """Where only the links between frames tell that one has not started, not all are followed."""

        def fn():
            raise AssertionError("it ran")

        def generator():
            yield duration()

        def duration():
            # Not around the recursion, which a hook makes one of C functions.
            with replaced((fn, ("value",))):
                start = time.perf_counter()
                for _ in range(300):
                    fn()
                return time.perf_counter() - start

        def below(n, function):
            return below(n - 1, function) if n else function()

        for function in (duration, lambda: next(generator())):
            shallow, deep = (min(below(n, function) for _ in range(9)) for n in (5, 800))
            self.assertLess(deep / shallow, 3)

    def test_at_the_recursion_limit(self):
        """The frame is gone, and nothing else happens, though unwinding it takes a level."""

        def fn():
            raise AssertionError("it ran")

        def deep(n):
            try:
                answers.append(fn())
            except RecursionError:
                answers.append("RecursionError")
            return deep(n + 1)

        for replacement, wanted in ((("value",), {"value"}), (lambda: "called", {"called", "RecursionError"})):
            answers = []
            with replaced((fn, replacement)):
                with self.assertRaises(RecursionError):
                    deep(0)
            self.assertLessEqual(set(answers), wanted | {"RecursionError"})
            self.assertGreater(len(answers), 100)


class Refused(unittest.TestCase):
    """What has started, or never does."""

    def refuse(self, address, error=ValueError, message="has already started"):
        with self.assertRaisesRegex(error, message):
            hooks.consume(address)
        with self.assertRaisesRegex(error, message):
            hooks.evaluate(address, everything)

    def test_running(self):
        self.refuse(_cases.address(sys._getframe()))

    def test_at_the_first_instruction(self):
        """A trace function is called from there; the frame looks like one that has not started."""
        refused = []

        def plain():
            return "ran"

        def argument(x):
            return "ran"

        def cell(x):
            return (lambda: x) and "ran"

        def generator(x):
            yield "ran"

        def trace(frame, event, argument):
            if event == "call" and frame.f_code.co_name in ("plain", "argument", "cell", "generator"):
                self.refuse(_cases.address(frame))
                refused.append(frame.f_code.co_name)

        for install in (sys.settrace, sys.setprofile):
            refused.clear()
            install(trace)
            try:
                self.assertEqual([plain(), argument(1), cell(1), *generator(1)], ["ran"] * 4)
            finally:
                install(None)
            self.assertLessEqual({"plain", "argument", "cell", "generator"}, set(refused))

    @unittest.skipIf(VERSION < (3, 12), "sys.monitoring came with 3.12")
    def test_at_the_first_event(self):
        refused = []

        def plain():
            return "ran"

        def argument(x):
            return "ran"

        def on_start(code, offset):
            frame = sys._getframe(1)
            if code.co_name in ("plain", "argument"):
                self.refuse(_cases.address(frame))
                refused.append(code.co_name)

        with support.monitoring(on_start, "PY_START"):
            self.assertEqual([plain(), argument(1)], ["ran"] * 2)
        self.assertEqual(refused, ["plain", "argument"])

    def test_generators(self):
        def generator():
            yield

        made = generator()
        for _ in range(3):
            self.refuse(_cases.address(made.gi_frame))
            if next(made, "end") == "end":
                break

    def test_finished(self):
        def fn():
            return sys._getframe()

        finished = fn()
        self.refuse(_cases.address(finished))

    @unittest.skipIf(VERSION < (3, 12), "shim frames came with 3.12")
    def test_shims(self):
        addresses = []

        def key(value):
            addresses.append(support.FrameState(_cases.address(sys._getframe())).previous)
            self.refuse(addresses[-1], message="shim frame")
            return value

        sorted([1], key=key)
        self.assertTrue(addresses)


class EvaluateCallables(unittest.TestCase):
    def test_every_kind_of_argument(self):
        def fn(a, /, b, c=3, *args, d, e=5, **kwargs):
            raise AssertionError("it ran")

        with replaced((fn, everything)):
            self.assertEqual(fn(1, 2, d=4), ((1, 2, 3), {"d": 4, "e": 5}))
            self.assertEqual(fn(1, b=2, d=4, f=6), ((1, 2, 3), {"d": 4, "e": 5, "f": 6}))
            self.assertEqual(fn(1, 2, 3, 4, 5, d=4, **{"ä": 1}), ((1, 2, 3, 4, 5), {"d": 4, "e": 5, "ä": 1}))
            with self.assertRaises(TypeError):
                fn()

    def test_kinds_of_callables(self):
        class Class:
            def __init__(self, a, b):
                self.ab = a, b

            def method(self, a, b):
                return self, a, b

        def fn(a, b):
            raise AssertionError("it ran")

        instance = Class(1, 2)
        for callable, wanted in (
            (instance.method, (instance, "a", "b")),
            (max, "b"),
            (lambda a, b: (a, b), ("a", "b")),
            (type(len), TypeError),
        ):
            with replaced((fn, callable)):
                if wanted is TypeError:
                    self.assertRaises(TypeError, fn, "a", "b")
                else:
                    self.assertEqual(fn("a", "b"), wanted)
        with replaced((fn, Class)):
            self.assertEqual(fn("a", "b").ab, ("a", "b"))

    def test_a_callable_that_does_not_take_them(self):
        def fn(a):
            raise AssertionError("it ran")

        with replaced((fn, lambda: None)):
            with self.assertRaisesRegex(TypeError, "takes 0 positional arguments but 1 was given"):
                fn(1)

    def test_a_callable_that_raises(self):
        def raises(*args):
            raise KeyError(*args)

        def fn(a):
            raise AssertionError("it ran")

        with replaced((fn, raises)):
            try:
                fn(1)
            except KeyError as error:
                self.assertIsNone(error.__context__)
                traceback, names = error.__traceback__, []
        while traceback is not None:
            names.append(traceback.tb_frame.f_code.co_name)
            traceback = traceback.tb_next
        self.assertEqual(names, ["test_a_callable_that_raises", "raises"])

    def test_in_place_of_a_class_body_and_a_module(self):
        source = "raise AssertionError('it ran')"
        module = compile(source, "module", "exec")
        with replaced((module, lambda: "module")):
            self.assertIsNone(exec(module, {}))

        def make():
            class Class:
                x = 1

            return Class

        (body,) = [constant for constant in make.__code__.co_consts if isinstance(constant, types.CodeType)]
        with replaced((body, lambda: None)):
            self.assertFalse(hasattr(make(), "x"))
        self.assertEqual(make().x, 1)


class EvaluateCode(unittest.TestCase):
    def test_globals_and_builtins(self):
        namespace = {"value": 1, "__builtins__": {"len": lambda x: "our len"}}
        exec("def fn(x): return value, len(x)", namespace)
        fn = namespace["fn"]
        with copied(fn):
            self.assertEqual(fn([]), (1, "our len"))
            # A function keeps those that it was made with.
            namespace["__builtins__"] = {}
            self.assertEqual(fn([]), (1, "our len"))
            del namespace["__builtins__"]
            gc.collect()
            before = sys.getrefcount(fn.__builtins__)
            for _ in range(1000):
                self.assertEqual(fn([]), (1, "our len"))
            # On a free-threaded build functions are freed by it alone.
            gc.collect()
            if not (FREE_THREADED and VERSION < (3, 14)):  # which then keeps them for ever
                self.assertLess(abs(sys.getrefcount(fn.__builtins__) - before), 10)

    def test_closures(self):
        def make(a):
            b = [a]

            def fn(x):
                nonlocal a
                a += 1
                return x, a, b

            return fn

        one, two = make(1), make(10)
        with copied(one):
            self.assertEqual(one("x"), ("x", 2, [1]))
            self.assertEqual(two("x"), ("x", 11, [10]))
        self.assertEqual(one("x"), ("x", 3, [1]))

    def test_free_variables_by_name(self):
        def outer():
            a, b, c = "a", "b", "c"

            def fn():
                return a, b, c

            def other():
                return c, a

            return fn, other

        fn, other = outer()
        with replaced((fn, other.__code__)):
            self.assertEqual(fn(), ("c", "a"))
        with replaced((other, fn.__code__)):
            for _ in range(100):
                with self.assertRaisesRegex(ValueError, "free variable \"b\""):
                    other()

        def plain():
            raise AssertionError("it ran")

        with replaced((plain, fn.__code__)):
            with self.assertRaisesRegex(ValueError, "free variable"):
                plain()

    def test_unbound_free_variable(self):
        def outer():
            def fn():
                return late

            with copied(fn):
                with self.assertRaises(NameError):
                    fn()
                late = 1
                return fn()

        self.assertEqual(outer(), 1)

    def test_locals(self):
        def fn(a, b=2):
            c = a
            return locals(), sorted(sys._getframe().f_locals), list(map(eval, ["a"])), globals() is sys._getframe().f_globals

        with copied(fn):
            before = set(globals())
            self.assertEqual(fn(1), ({"a": 1, "b": 2, "c": 1}, ["a", "b", "c"], [1], True))
            self.assertEqual(set(globals()), before)

    def test_super_and_methods(self):
        class Base:
            def method(self, x):
                return "base", x

        class Class(Base):
            def method(self, x):
                return "class", super().method(x), __class__

            @classmethod
            def of_class(cls, x):
                return cls, x

            @property
            def p(self):
                return "p", self

        instance = Class()
        with copied(Base.method, Class.method, Class.of_class, Class.p.fget):
            self.assertEqual(instance.method(1), ("class", ("base", 1), Class))
            self.assertEqual(Class.of_class(1), (Class, 1))
            self.assertEqual(instance.p, ("p", instance))

    def test_arguments_that_are_cells(self):
        def fn(c, d):
            return (lambda: c)(), d

        cell, other = types.CellType(1), types.CellType(2)
        with copied(fn):
            self.assertEqual([id(x) for x in fn(cell, other)], [id(cell), id(other)])

    def test_every_kind_of_argument(self):
        def fn(a, /, b, c=3, *args, d, e=5, **kwargs):
            return a, b, c, args, d, e, kwargs

        with copied(fn):
            self.assertEqual(fn(1, 2, d=4), (1, 2, 3, (), 4, 5, {}))
            self.assertEqual(fn(1, b=2, d=4, f=6), (1, 2, 3, (), 4, 5, {"f": 6}))
            self.assertEqual(fn(1, 2, 3, 4, d=4, e=0, f=6), (1, 2, 3, (4,), 4, 0, {"f": 6}))

    def test_another_signature(self):
        def fn(a, b):
            raise AssertionError("it ran")

        with replaced((fn, (lambda a: None).__code__)):
            with self.assertRaisesRegex(TypeError, "positional argument"):
                fn(1, 2)

    def test_scopes(self):
        def fn():
            raise AssertionError("it ran")

        body = compile("x = 1", "body", "exec")
        with replaced((fn, body)):
            with self.assertRaisesRegex(ValueError, "CO_OPTIMIZED"):
                fn()
        with replaced((body, fn.__code__)):
            with self.assertRaisesRegex(ValueError, "CO_OPTIMIZED"):
                exec(body, {})

    def test_module_and_class_bodies(self):
        first, second = compile("x = 1", "first", "exec"), compile("y = z", "second", "exec")
        namespace, local = {"z": 2}, {}
        with replaced((first, second)):
            exec(first, namespace)
            exec(first, namespace, local)
        self.assertEqual((namespace["y"], local), (2, {"y": 2}))
        self.assertNotIn("x", namespace)

        def make(free):
            class Class:
                x = free

                def method(self):
                    return __class__

            return Class

        (body,) = [constant for constant in make.__code__.co_consts if isinstance(constant, types.CodeType)]
        with replaced((body, body.replace())):
            made = make("free")
            self.assertEqual((made.x, made().method(), made.__qualname__), ("free", made, make("f").__qualname__))

    def test_generators(self):
        def fn(a):
            got = yield a
            yield got, free
            return "end"

        free = "free"
        fn.__name__, fn.__qualname__ = "name", "qualname"
        with copied(fn):
            made = fn(1)
            self.assertEqual((made.__name__, made.__qualname__), ("name", "qualname"))
            self.assertEqual((next(made), made.send(2)), (1, (2, "free")))
            with self.assertRaisesRegex(StopIteration, "end"):
                next(made)
            made = fn(1)
            next(made)
            with self.assertRaises(KeyError):
                made.throw(KeyError)

    def test_coroutines(self):
        async def fn(a):
            await asyncio.sleep(0)
            return a

        async def generator(n):
            for value in range(n):
                await asyncio.sleep(0)
                yield value

        async def main():
            return await asyncio.gather(fn(1), fn(2)), [value async for value in generator(3)]

        with copied(fn, generator, main):
            self.assertEqual(asyncio.run(main()), ([1, 2], [0, 1, 2]))
            made = fn(1)
            self.assertTrue(inspect.iscoroutine(made))
            made.close()

    def test_recursion(self):
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        with copied(fib):
            self.assertEqual(fib(15), 610)

    def test_recursion_without_end(self):
        def fn(x):
            return fn(x)

        with copied(fn):
            for _ in range(3):
                with self.assertRaises(RecursionError):
                    fn(1)

    def test_threads(self):
        def fn(a, *args, k=1, **kwargs):
            return a, args, k, kwargs, free

        free = "free"
        failures = []

        def work():
            for number in range(500):
                if fn(number, 1, k=2, z=3) != (number, (1,), 2, {"z": 3}, "free"):
                    failures.append(number)

        with copied(fn):
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])


class References(unittest.TestCase):
    ROUNDS = 5000

    def functions(self):
        free = ["free"]

        def plain(x, *args, k=1, **kwargs):
            return x

        def closure(x, *args, k=None):
            return lambda: (x, free)

        def generator(x, *args, k=None):
            yield x, free

        return plain, closure, generator

    def replacements(self, fn):
        return fn.__code__.replace(), everything, ("value",), 7, (lambda: None).__code__

    def test_nothing_is_leaked_or_lost(self):
        class Value:
            pass

        for fn in self.functions():
            for replacement in self.replacements(fn):
                value = Value()

                def rounds(count):
                    for _ in range(count):
                        try:
                            fn(value, value, k=value)
                        except TypeError:
                            pass

                with replaced((fn, replacement)):
                    rounds(100)
                    gc.collect()
                    before = sys.getrefcount(value), sys.getrefcount(fn), sys.getallocatedblocks()
                    rounds(self.ROUNDS)
                    gc.collect()
                    after = sys.getrefcount(value), sys.getrefcount(fn), sys.getallocatedblocks()
                self.assertEqual(before[:2], after[:2], (fn.__name__, replacement))
                if not FREE_THREADED:
                    self.assertLess(abs(after[2] - before[2]), 200, (fn.__name__, replacement))
                del rounds
                gone = weakref.ref(value)
                del value
                gc.collect()
                self.assertIsNone(gone(), (fn.__name__, replacement))

    def test_no_function_is_kept(self):
        """Free-threaded 3.13 keeps every function that is made of code which is not nested, once it had a thread."""
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        namespace = {}
        exec("def plain(x): return x\ndef generator(x): yield x", namespace)
        namespace["generator"].__name__ = "other"
        with copied(namespace["plain"], namespace["generator"]):
            gc.collect()
            before = sys.getrefcount(namespace)
            for _ in range(self.ROUNDS):
                namespace["plain"](1)
                self.assertEqual(next(namespace["generator"](1)), 1)
            gc.collect()
            self.assertLess(abs(sys.getrefcount(namespace) - before), 100)

    @unittest.skipUnless(DEBUG, "sys.gettotalrefcount() exists on debug builds only")
    def test_total_reference_count(self):
        for fn in self.functions():
            for replacement in self.replacements(fn):

                def rounds(count):
                    for _ in range(count):
                        try:
                            fn([], [], k=[])
                        except TypeError:
                            pass
                    gc.collect()

                with replaced((fn, replacement)):
                    rounds(100)
                    before = sys.gettotalrefcount()
                    rounds(2000)
                    self.assertLess(abs(sys.gettotalrefcount() - before), 100, (fn.__name__, replacement))


class Tools(unittest.TestCase):
    """What is seen of a replaced call: the replacement, nothing of the original."""

    def setUp(self):
        def original(x):
            raise AssertionError("it ran")

        def replacement(x):
            return x

        def raises(x):
            raise KeyError(x)

        self.original, self.replacement, self.raises = original, replacement, raises

    NAMES = {"original", "replacement", "raises"}

    def call_all(self):
        with replaced((self.original, self.replacement.__code__)):
            self.original(1)
        with replaced((self.original, ("value",))):
            self.original(1)
        with replaced((self.original, self.raises)):
            self.assertRaises(KeyError, self.original, 1)

    def observe(self, install):
        seen = []

        def function(frame, event, argument):
            if frame.f_code.co_name in self.NAMES:
                seen.append((event, frame.f_code.co_name))
            return function

        install(function)
        try:
            self.call_all()
        finally:
            install(None)
        return seen

    def test_profile(self):
        self.assertEqual(
            self.observe(sys.setprofile),
            [("call", "replacement"), ("return", "replacement"), ("call", "raises"), ("return", "raises")],
        )

    def test_trace(self):
        self.assertEqual(
            self.observe(sys.settrace),
            [
                *(("call", "replacement"), ("line", "replacement"), ("return", "replacement")),
                *(("call", "raises"), ("line", "raises"), ("exception", "raises"), ("return", "raises")),
            ],
        )

    @unittest.skipIf(VERSION < (3, 12), "sys.monitoring came with 3.12")
    def test_monitoring(self):
        wanted = ["PY_START", "PY_RETURN", "PY_UNWIND", "PY_THROW", "RAISE", "PY_YIELD"]
        events = sys.monitoring.events
        seen = []
        tool = sys.monitoring.DEBUGGER_ID
        sys.monitoring.use_tool_id(tool, "localsplus")
        try:
            for name in wanted:

                def callback(code, *arguments, name=name):
                    if code.co_name in self.NAMES:
                        seen.append((name, code.co_name))

                sys.monitoring.register_callback(tool, getattr(events, name), callback)
            sys.monitoring.set_events(tool, sum(getattr(events, name) for name in wanted))
            self.call_all()
        finally:
            sys.monitoring.set_events(tool, 0)
            sys.monitoring.free_tool_id(tool)
        self.assertEqual(
            seen,
            [
                *(("PY_START", "replacement"), ("PY_RETURN", "replacement")),
                *(("PY_START", "raises"), ("RAISE", "raises"), ("PY_UNWIND", "raises")),
            ],
        )

    def test_frames(self):
        def look(x):
            frame = sys._getframe()
            return frame.f_code.co_name, frame.f_back.f_code.co_name

        with replaced((self.original, look.__code__)):
            self.assertEqual(self.original(1), ("look", "test_frames"))
        with replaced((self.original, look)):
            self.assertEqual(self.original(1), ("look", "test_frames"))

    def test_inside_an_except_block(self):
        def look(x):
            return sys.exc_info()[1]

        with replaced((self.original, look.__code__)):
            try:
                raise KeyError("handled")
            except KeyError as error:
                self.assertIs(self.original(1), error)
                self.assertIs(sys.exc_info()[1], error)

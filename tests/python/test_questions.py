"""What a frame is, besides its slots, and the ways to one: compared with what CPython itself tells about it, through
frame objects, generators, inspect and tracebacks. (Every frame that read() or a hook sees is compared with the oracle
in these as well.)
"""

import asyncio
import inspect
import sys
import types
import unittest

import _cases
import _oracle
import _questions as q
from _cases import HIDDEN
from support import VERSION, hooked, monitoring, questions, read, tracing

NAMED_STATES = {
    **dict.fromkeys((inspect.GEN_CREATED, inspect.CORO_CREATED), q.UNSTARTED),
    **dict.fromkeys((inspect.GEN_RUNNING, inspect.CORO_RUNNING), q.EXECUTING),
    **dict.fromkeys((inspect.GEN_SUSPENDED, inspect.CORO_SUSPENDED), q.SUSPENDED),
    **dict.fromkeys((inspect.GEN_CLOSED, inspect.CORO_CLOSED), q.FINISHED),
}
KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: q.PARAMETER_POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: q.PARAMETER_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY: q.PARAMETER_KEYWORD_ONLY,
    inspect.Parameter.VAR_POSITIONAL: q.PARAMETER_VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD: q.PARAMETER_VAR_KEYWORD,
}
# gh-125723 (see test_generators): the generator's frame is gone then.
FRAME_LOST_WITH_GENERATOR = (3, 13, 0) <= VERSION <= (3, 13, 5)


def compare_with_frame_object(frame):
    """Every question that a frame object answers, too; the answers."""
    slots = read(frame)
    address = q.frame_of_object(frame)
    assert address == _oracle.frame_of(frame)
    answers = questions(address)
    own = {
        "frame_object": frame,
        "globals": frame.f_globals,
        "builtins": frame.f_builtins,
        "function": answers["function"],
    }
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED and answers["state"] != q.CLEARED:
        names = frame.f_locals
        # In the middle of an inlined comprehension it is something else: names and hidden slots together.
        if slots.present(HIDDEN) == slots.present():
            own["namespace"] = names
    for name, expected in own.items():
        assert answers[name] is expected, f"{name}: {answers[name]!r} is not {expected!r}"
    assert q.code(address) is frame.f_code
    assert answers["function"].__code__ is frame.f_code
    assert answers["closure"] is answers["function"].__closure__
    assert answers["line"] == frame.f_lineno, (answers["line"], frame.f_lineno)
    assert answers["lasti"] == frame.f_lasti, (answers["lasti"], frame.f_lasti)
    back = frame.f_back and q.frame_of_object(frame.f_back)
    assert answers["previous"] == back, (answers["previous"], back)
    return answers


_noted = []


def note():
    """Compares the caller's frame, and keeps it. A global, so that it adds nothing to the code under test."""
    frame = sys._getframe(1)
    _noted.append((frame, compare_with_frame_object(frame)))


def noted():
    seen = _noted[:]
    _noted.clear()
    return seen


SCOPES = """
note()
class C:
    note()
    hidden = [note() for hidden in (1,)]
    def method(self):
        note()
        return __class__
C().method()
def function(a, b=2, *c, d, **e):
    free = a
    note()
    (lambda x: note())(free)
    [note() for x in (free,)]
    {note() for x in (free,)}
    {x: note() for x in (free,)}
    all(note() for x in (free,))
    def nested():
        note()
        return free
    nested()
    exec("note()")
    exec("note()", {"note": note, "__builtins__": {}}, {})
    eval("note()")
function(1, d=4)
def generator():
    note()
    yield
    note()
    yield from (note() for _ in (1,))
list(generator())
async def asynchronous_generator():
    note()
    yield 1
async def coroutine():
    note()
    async for _ in asynchronous_generator():
        note()
    note()
run(coroutine())
"""


class Running(unittest.TestCase):
    def test_in_every_scope(self):
        names = {"note": note, "run": asyncio.run, "__name__": "scopes"}
        exec(compile(SCOPES, "<scopes>", "exec"), names)
        seen = noted()
        self.assertGreater(len(seen), 20)
        for frame, answers in seen:
            self.assertEqual(answers["state"], q.EXECUTING)
            code = frame.f_code
            generator = code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
            self.assertEqual(answers["is_generator"], bool(generator), code)
            self.assertEqual(answers["namespace"] is None, bool(code.co_flags & inspect.CO_OPTIMIZED), code)
        module, class_body = seen[0][1], seen[1][1]
        self.assertIs(module["namespace"], names)
        self.assertEqual(class_body["namespace"]["__qualname__"], "C")
        by_name = {frame.f_code.co_name: answers for frame, answers in seen}
        self.assertIs(by_name["function"]["function"], names["function"])
        self.assertIs(by_name["method"]["function"], names["C"].method)
        self.assertIs(by_name["generator"]["function"], names["generator"])
        # When all of it is over, the same frames are in their frame objects.
        for frame, before in dict(seen).items():
            with self.subTest(code=frame.f_code.co_name):
                after = questions(q.frame_of_object(frame))
                if before["is_generator"]:
                    if FRAME_LOST_WITH_GENERATOR:
                        continue
                else:
                    compare_with_frame_object(frame)
                self.assertEqual((after["state"], after["is_generator"]), (q.FINISHED, 0))
                for name in ("function", "globals", "builtins", "closure", "namespace"):
                    self.assertIs(after[name], before[name], name)
                frame.clear()
                self.check_cleared(frame)

    def check_cleared(self, frame):
        answers = compare_with_frame_object(frame)
        has_slots = _cases.count(frame) > 0
        if has_slots:
            self.assertEqual(answers["state"], q.CLEARED, frame.f_code)
        else:
            self.assertIn(answers["state"], (q.FINISHED, q.CLEARED))

    def test_the_very_first_instruction(self):
        """Trace functions are called from there. It looks like a frame that has not started, from 3.13 on."""

        def t():
            pass

        def with_slots(a, b):
            c = a

        def look_at(frame):
            if frame.f_code in (t.__code__, with_slots.__code__):
                seen.append(compare_with_frame_object(frame)["state"])

        seen = []
        with tracing(lambda frame, event, argument: look_at(frame)):
            t()
            with_slots(1, 2)
        sys.setprofile(lambda frame, event, argument: event == "call" and look_at(frame))
        try:
            t()
            with_slots(1, 2)
        finally:
            sys.setprofile(None)
        self.assertEqual(seen, [q.EXECUTING] * 4)
        if VERSION >= (3, 12):
            seen.clear()
            with monitoring(lambda code, *arguments: look_at(sys._getframe(2)), "PY_START"):
                t()
                with_slots(1, 2)
            self.assertEqual(seen, [q.EXECUTING] * 2)

    def test_a_trace_function_that_moves_the_line(self):
        # f_lineno is then what the trace function has set; the instruction is there, too.
        def t():
            x = 1
            x = 2
            lines.append(q.line(q.frame_of_object(sys._getframe())) - t.__code__.co_firstlineno)

        def trace(frame, event, argument):
            if frame.f_code is t.__code__:
                if event == "line" and frame.f_lineno == t.__code__.co_firstlineno + 1:
                    frame.f_lineno = t.__code__.co_firstlineno + 3
                return trace

        lines = []
        with tracing(trace):
            t()
        self.assertEqual(lines, [3])


class Unstarted(unittest.TestCase):
    def entry(self, function, *arguments, name=None, **keywords):
        def at_entry(address):
            answers.append(questions(address))

        answers = []
        with hooked(name or function.__name__, at_entry=at_entry):
            function(*arguments, **keywords)
        return answers

    def test_function(self):
        free = []

        def t(a, /, b, *c, d=4, **e):
            x = 1
            return free

        (answers,) = self.entry(t, 1, 2, 3, d=5, f=6)
        self.assertIs(answers["function"], t)
        self.assertIs(answers["globals"], globals())
        self.assertIs(answers["builtins"], t.__builtins__)
        self.assertIs(answers["closure"], t.__closure__)
        self.assertEqual(
            [answers[name] for name in ("namespace", "frame_object", "previous", "state", "is_generator")],
            [None, None, None, q.UNSTARTED, 0],
        )

    def test_line(self):
        def plain():
            pass

        (answers,) = self.entry(plain)
        self.assertEqual(answers["line"], plain.__code__.co_firstlineno)

        def with_free():
            return plain

        # The instructions in front belong to no line.
        (answers,) = self.entry(with_free)
        expected = with_free.__code__.co_firstlineno if VERSION < (3, 13) else None
        self.assertEqual(answers["line"], expected)

    def test_module_and_class_body(self):
        names, seen = {"__name__": "m"}, []

        def at_entry(address):
            seen.append(questions(address))

        with hooked("<module>", "Body", at_entry=at_entry):
            exec(compile("class Body:\n    x = 1", "<m>", "exec"), names)
        module, body = seen
        self.assertIs(module["namespace"], names)
        self.assertIs(module["globals"], names)
        self.assertIs(body["globals"], names)
        self.assertEqual(body["namespace"]["x"], 1)
        self.assertIsNot(body["namespace"], names)

    def test_generator(self):
        def g(a):
            yield a
            yield a

        answers = self.entry(lambda: list(g(1)), name="g")
        self.assertEqual([each["state"] for each in answers], [q.UNSTARTED] + [q.EXECUTING] * 3)
        self.assertEqual([each["is_generator"] for each in answers], [0, 1, 1, 1])
        # It is linked to the frame below only when it runs.
        self.assertEqual([each["function"] for each in answers], [g] * 4)

    def test_current_frame_is_the_callers(self):
        def t():
            pass

        def caller():
            t()

        def at_entry(address):
            # Below the support code is the frame that was running before.
            current.append(q.current_frame())
            frame = sys._getframe()
            while frame.f_code is not caller.__code__:
                frame = frame.f_back
            expected.append(q.frame_of_object(frame))
            found = current[0]
            while found != expected[0]:
                found = q.previous(found)
            self.assertIs(q.code(found), caller.__code__)

        current, expected = [], []
        with hooked("t", at_entry=at_entry):
            caller()
        self.assertEqual(len(current), 1)


class Generators(unittest.TestCase):
    """Against inspect, and the generators' own attributes."""

    def check(self, generator, tell, prefix, frame_object=True):
        address = q.frame_of_generator(generator)
        self.assertEqual(address, _oracle.frame_of_generator(generator))
        state = q.state(address)
        self.assertEqual(state, NAMED_STATES[tell(generator)])
        self.assertEqual(q.is_generator(address), 1)
        self.assertEqual(state == q.EXECUTING, getattr(generator, prefix + "_running"))
        if prefix == "gi" and VERSION >= (3, 11):
            self.assertEqual(state == q.SUSPENDED, generator.gi_suspended)
        read(address)
        self.assertIs(q.code(address), getattr(generator, prefix + "_code"))
        if not frame_object:
            return state
        frame = getattr(generator, prefix + "_frame")
        self.assertEqual(frame is None, state == q.FINISHED)
        if frame is not None:
            self.assertEqual(q.frame_of_object(frame), address)
            self.assertEqual(compare_with_frame_object(frame)["previous"] is None, state != q.EXECUTING)
        return state

    def test_generator(self):
        def g(a):
            states.append(self.check(generator, inspect.getgeneratorstate, "gi", frame_object))
            yield a
            yield from inner()

        def inner():
            yield 1

        for frame_object in (True, False):
            states, generator = [], None
            generator = g(1)
            check = lambda: states.append(self.check(generator, inspect.getgeneratorstate, "gi", frame_object))
            check()
            for _ in generator:
                check()
            check()
            expected = [q.UNSTARTED, q.EXECUTING, q.SUSPENDED, q.SUSPENDED, q.FINISHED]
            self.assertEqual(states, expected)
            address = q.frame_of_generator(generator)
            self.assertIsNone(q.function(address))
            self.assertIsNone(q.closure(address))
            for name in ("globals", "builtins"):
                with self.assertRaisesRegex(ValueError, name):
                    getattr(q, name)(address)

    def test_never_started_and_closed(self):
        def g():
            yield

        generator = g()
        generator.close()
        self.assertEqual(self.check(generator, inspect.getgeneratorstate, "gi"), q.FINISHED)

    def test_coroutine(self):
        class Pause:
            def __await__(self):
                yield

        async def c():
            states.append(self.check(coroutine, inspect.getcoroutinestate, "cr"))
            await Pause()

        states = []
        coroutine = c()
        states.append(self.check(coroutine, inspect.getcoroutinestate, "cr"))
        coroutine.send(None)
        states.append(self.check(coroutine, inspect.getcoroutinestate, "cr"))
        with self.assertRaises(StopIteration):
            coroutine.send(None)
        states.append(self.check(coroutine, inspect.getcoroutinestate, "cr"))
        self.assertEqual(states, [q.UNSTARTED, q.EXECUTING, q.SUSPENDED, q.FINISHED])

    def test_async_generator(self):
        async def a():
            states.append(q.state(q.frame_of_generator(generator)))
            yield 1

        async def main():
            async for _ in generator:
                states.append(q.state(q.frame_of_generator(generator)))

        states = []
        generator = a()
        address = q.frame_of_generator(generator)
        self.assertEqual(q.frame_of_object(generator.ag_frame), address)
        states.append(q.state(address))
        asyncio.run(main())
        states.append(q.state(address))
        self.assertEqual(states, [q.UNSTARTED, q.EXECUTING, q.SUSPENDED, q.FINISHED])

    def test_frame_object_outlives_the_generator(self):
        def g(a):
            yield a

        generator = g(1)
        next(generator)
        frame = generator.gi_frame
        generator.close()
        if FRAME_LOST_WITH_GENERATOR:
            self.skipTest("gh-125723: this version forgets to tell the frame object")
        answers = compare_with_frame_object(frame)
        self.assertEqual((answers["state"], answers["is_generator"]), (q.FINISHED, 0))
        self.assertIs(answers["function"], g)
        self.assertNotEqual(q.frame_of_object(frame), q.frame_of_generator(generator))


class Finished(unittest.TestCase):
    def test_traceback(self):
        def innermost(x):
            raise KeyError(x)

        def middle():
            return innermost(
                1
            )

        try:
            middle()
        except KeyError as error:
            traceback = error.__traceback__
        lines = []
        while traceback is not None:
            answers = questions(q.frame_of_object(traceback.tb_frame))
            lines.append((answers["line"], answers["lasti"]))
            if traceback.tb_frame is not sys._getframe():
                self.assertEqual((traceback.tb_lineno, traceback.tb_lasti), lines[-1])
                self.assertEqual(compare_with_frame_object(traceback.tb_frame)["state"], q.FINISHED)
            traceback = traceback.tb_next
        self.assertEqual(len(lines), 3)

    def test_cleared(self):
        def t(a):
            return sys._getframe()

        frame = t([])
        self.assertEqual(compare_with_frame_object(frame)["state"], q.FINISHED)
        frame.clear()
        answers = compare_with_frame_object(frame)
        self.assertEqual(answers["state"], q.CLEARED)
        self.assertIs(answers["function"], t)

    def test_frame_object_that_never_ran(self):
        frame = _cases.new_frame_object((lambda a: a).__code__, globals())
        answers = questions(q.frame_of_object(frame))
        self.assertEqual(answers["state"], q.FINISHED)
        self.assertIs(answers["globals"], globals())
        self.assertIsNone(answers["previous"])


class Walking(unittest.TestCase):
    def chains(self):
        """From the caller down: by f_back, and by previous."""
        frame, address = sys._getframe(1), q.frame_of_object(sys._getframe(1))
        by_back, by_previous = [], []
        while frame is not None:
            by_back.append(frame.f_code)
            frame = frame.f_back
        while address is not None:
            by_previous.append(q.code(address))
            address = q.previous(address)
        self.assertEqual(by_previous, by_back)
        return by_previous

    def test_through_shims(self):
        found = []
        sorted([1], key=lambda v: found.append(self.chains()) or v)
        self.assertEqual(found[0][1], sys._getframe().f_code)

    def test_through_a_specialised_class_call(self):
        class C:
            def __init__(self):
                if warm:
                    chains.append(test.chains())

        test, chains, warm = self, [], False

        def make():
            C()

        for _ in range(100):
            make()
        warm = True
        make()
        (chain,) = chains
        self.assertEqual(
            [code.co_qualname.rpartition(".")[2] for code in chain[:3]],
            ["__init__", "make", "test_through_a_specialised_class_call"],
        )

    def test_in_generators_and_threads(self):
        import threading

        def g():
            found.append(self.chains())
            yield from h()

        def h():
            found.append(self.chains())
            yield

        found = []
        list(g())
        thread = threading.Thread(target=lambda: list(g()))
        thread.start()
        thread.join()
        self.assertEqual(len(found), 4)
        self.assertEqual([code.co_name for code in found[1][:2]], ["h", "g"])

    def test_told_of_a_yield(self):
        def g():
            yield 1

        def delegating():
            yield from g()

        def told(frame, *event):
            if frame.f_code is g.__code__:
                address = q.frame_of_object(frame)
                below = [address := q.previous(address) for _ in range(2)]
                found.append([q.code(address).co_name for address in below])
            return told

        def on_yield(code, *value):
            told(sys._getframe(2))

        expected = ["delegating", "test_told_of_a_yield"]
        for way in ("trace", "profile", "monitoring"):
            found = []
            generator = delegating()
            if way == "trace":
                with tracing(told):
                    next(generator)
            elif way == "profile":
                sys.setprofile(told)
                next(generator)
                sys.setprofile(None)
            elif VERSION >= (3, 12):
                with monitoring(on_yield, "PY_YIELD"):
                    next(generator)
            else:
                continue
            self.assertTrue(found)
            self.assertEqual([names for names in found if names != expected], [], way)
            # And when it waits.
            self.assertIsNone(q.previous(_oracle.frame_of_generator(generator)))

    def test_current_frame(self):
        def t():
            return q.current_frame(), q.frame_of_object(sys._getframe())

        one, other = t()
        self.assertEqual(one, other)
        self.assertIn(q.current_frame(), [q.frame_of_object(sys._getframe())])
        self.assertEqual(q.current_frame(), _oracle.running_frame())

    def test_makes_no_frame_object(self):
        def t():
            address = q.current_frame()
            while address is not None:
                seen.append(q.frame_object(address))
                address = q.previous(address)
            return seen

        seen = []
        # In a thread, where nobody else has asked for one.
        import threading

        thread = threading.Thread(target=t)
        thread.start()
        thread.join()
        self.assertGreater(len(seen), 1)
        self.assertEqual(set(seen), {None})

    def test_a_shim_frame(self):
        if VERSION < (3, 12):
            self.skipTest("3.11 has no shim frames")

        def walk(_):
            address = q.current_frame()
            while address and _oracle.is_python_frame(address):
                address = _oracle.previous(address)
            shims.append(address)
            expected.append(_oracle.previous(address))
            below.append(q.previous(address))
            for name in ("function", "globals", "state", "line", "code", "frame_object"):
                with self.assertRaisesRegex(ValueError, "shim"):
                    getattr(q, name)(address)

        shims, below, expected = [], [], []
        sorted([1], key=walk)
        self.assertEqual(below, expected)


class Parameters(unittest.TestCase):
    def test_against_signatures(self):
        def plain(a, b): pass
        def all_kinds(a, /, b, c=1, *d, e, f=2, **g): x = 1; return lambda: (a, d, g, x)
        def keyword_only(*, a): pass
        def only_var(*a, **b): pass
        def only_keywords(**a): x = 1
        def positional_only(a, b=1, /): pass
        def none(): x = 1
        async def coroutine(a, *, b): pass
        def generator(a, *b): yield

        for function in (
            plain, all_kinds, keyword_only, only_var, only_keywords, positional_only, none, coroutine, generator,
            lambda a, *b: 0,
        ):
            with self.subTest(function.__qualname__):
                frame = _cases.new_frame_object(function.__code__, globals())
                address = q.frame_of_object(frame)
                signature = inspect.signature(function).parameters
                by_slot = dict(zip(_cases.names(frame), questions(address)["parameters"]))
                expected = {name: KINDS[parameter.kind] for name, parameter in signature.items()}
                self.assertEqual({name: kind for name, kind in by_slot.items() if kind}, expected)
                self.assertEqual(q.parameter_count(address), len(expected))

    def test_index(self):
        def t(a):
            b = a

        frame = _cases.new_frame_object(t.__code__, globals())
        address = q.frame_of_object(frame)
        self.assertEqual([q.parameter(address, 0), q.parameter(address, 1)], [2, q.PARAMETER_NONE])
        for index in (-1, 2, sys.maxsize, -sys.maxsize - 1):
            with self.assertRaisesRegex(IndexError, str(index)):
                q.parameter(address, index)


class BadInput(unittest.TestCase):
    FIELDS = (
        "function globals builtins namespace closure frame_object code line lasti state is_generator parameter_count "
        "previous"
    ).split()

    def test_null(self):
        for name in self.FIELDS:
            with self.subTest(name), self.assertRaisesRegex(ValueError, "'frame'"):
                getattr(q, name)(0)
        with self.assertRaisesRegex(ValueError, "'frame'"):
            q.parameter(0, 0)
        with self.assertRaisesRegex(ValueError, "'frame_object'"):
            q.frame_of_object(None)
        with self.assertRaisesRegex(ValueError, "'generator'"):
            q.frame_of_generator(None)
        address = q.current_frame()
        for name in ("function", "namespace", "closure", "frame_object", "previous", "current_frame"):
            with self.subTest(name), self.assertRaisesRegex(ValueError, "'result'"):
                q.without_result(address, name)

    def test_other_types(self):
        async def a():
            yield

        generator = a()
        step = generator.asend(None)
        for wrong in (1, "text", sys._getframe, type(sys._getframe()), [], generator):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "frame object.*" + type(wrong).__name__):
                q.frame_of_object(wrong)
        for wrong in (1, sys._getframe(), types.GeneratorType, step, iter([])):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "generator.*" + type(wrong).__name__):
                q.frame_of_generator(wrong)
        step.close()


class References(unittest.TestCase):
    def test_every_answer_is_one_reference(self):
        def outer():
            free = []

            def t(a):
                return free, sys._getframe()

            return t

        function = outer()
        frame = function(1)[1]
        address = q.frame_of_object(frame)
        held = [frame, function, function.__closure__, function.__globals__, function.__builtins__, function.__code__]
        before = [sys.getrefcount(each) for each in held]
        for _ in range(1000):
            questions(address)
            q.code(address)
            q.frame_of_object(frame)
            q.frame_of_generator((_ for _ in ()))
        self.assertEqual([sys.getrefcount(each) for each in held], before)
        for wrong in (function, 1):
            before = sys.getrefcount(function)
            for _ in range(100):
                with self.assertRaises(TypeError):
                    q.frame_of_object(wrong)
            self.assertEqual(sys.getrefcount(function), before)

"""Hooks, and what a hook does with a frame: every bad argument and every allocation that fails, as test_bad_input.py
has it for what only answers."""

import gc
import sys
import types
import unittest

import _faults
import situations
import support
from support import VERSION
from test_bad_input import NULL, SSIZE_MAX, NoStr, ask, shim_frame
from test_hook import FREE_THREADED, ROOM, subinterpreters

HOOK_FUNCTIONS = ("hook_install", "hook_remove")
FRAME_FUNCTIONS = ("consume", "evaluate_in_place")
PENDING = (None, ZeroDivisionError("pending"))


def kept(once, times):
    """The blocks that are kept by calling it so often, once what takes up some for good has done so (free lists)."""
    fewest = sys.maxsize
    for _ in range(8):
        gc.collect()
        blocks = sys.getallocatedblocks()
        for _ in range(times):
            once()
        gc.collect()
        fewest = min(fewest, sys.getallocatedblocks() - blocks)
        if fewest < times * 0.9:
            break
    return fewest


def counts(objects):
    """Of a tuple's items. (A call under a hook counts its own arguments once more. Before 3.12, None and small numbers
    are counted, and everybody uses them.)"""
    return [sys.getrefcount(each) for each in objects if VERSION >= (3, 12) or not isinstance(each, (type(None), int))]


class HookTest(unittest.TestCase):
    def check(self, function, wanted, data, pending=None, **given):
        """`wanted` is what it answers, or the exception's type and words."""
        watched = data, pending
        before = counts(watched)
        status, _, error = ask(function, 0, name=data, pending=pending, **given)
        if isinstance(wanted, int):
            self.assertEqual((status, error), (wanted, pending), function)
        else:
            error_type, *words = wanted
            self.assertEqual((status, type(error)), (-1, error_type), function)
            for word in words:
                self.assertIn(word, error.args[0], function)
        del error
        self.assertEqual(counts(watched), before, function)


class Complete(unittest.TestCase):
    def test_every_function_that_acts(self):
        self.assertEqual({*HOOK_FUNCTIONS, *FRAME_FUNCTIONS}, set(_faults.actions()))


class BadHooks(HookTest):
    def test_null(self):
        for function in HOOK_FUNCTIONS:
            for pending in PENDING:
                self.check(function, (ValueError, "'function'", "NULL"), object(), pending, result=False)
                self.check(function, (ValueError, "'function'", "NULL"), NULL, pending, result=False)

    def test_twice(self):
        data, other = object(), object()
        for pending in PENDING:
            for name in (data, other):
                self.check("hook_remove", 0, name, pending)
            self.check("hook_install", 1, data, pending)
            self.check("hook_install", 0, data, pending)
            # The same function, and other data: another hook.
            self.check("hook_remove", 0, other, pending)
            self.check("hook_remove", 0, NULL, pending)
            self.check("hook_remove", 1, data, pending)
            self.check("hook_remove", 0, data, pending)
            # No data are data.
            self.check("hook_install", 1, NULL, pending)
            self.check("hook_remove", 0, data, pending)
            self.check("hook_remove", 1, NULL, pending)

    def test_no_room(self):
        installed = [object() for _ in range(ROOM)]
        for data in installed:
            self.check("hook_install", 1, data)
        try:
            for pending in PENDING:
                self.check("hook_install", (RuntimeError, f"{ROOM} hooks are installed"), object(), pending)
                self.check("hook_install", 0, installed[0], pending)
                self.check("hook_remove", 0, object(), pending)
        finally:
            for data in installed:
                self.check("hook_remove", 1, data)

    @unittest.skipIf(subinterpreters() is None, "this interpreter has no module for subinterpreters")
    def test_another_interpreter(self):
        source = f"""
import sys
sys.path[:] = {sys.path!r}
import _faults
def ask(function):
    # None is the same object in all of them.
    return _faults.ask(function, 0, 0, 0, 0, True, None, None)[::2]
assert ask("hook_remove") == (0, None)
assert {{ask("hook_install"), ask("hook_install")}} == {{(1, None), (0, None)}}
assert ask("hook_remove") == (1, None)
assert ask("hook_remove") == (0, None)
"""
        self.check("hook_install", 1, None)
        module = subinterpreters()
        interpreter = module.create()
        try:
            self.assertIsNone(module.run_string(interpreter, source))
        finally:
            module.destroy(interpreter)
            self.check("hook_remove", 1, None)


class HooksOutOfMemory(unittest.TestCase):
    def test_again(self):
        data = object()
        for persistent in (False, True):
            before = sys.getrefcount(data)
            failures = self.install(data, persistent)
            self.assertGreater(failures, 0)
            self.assertEqual(sys.getrefcount(data), before)
            for status in (1, 0):
                # Not even one is asked for.
                asked, outcome = _faults.without_memory("hook_remove", 0, 0, 0, 0, 1, SSIZE_MAX, data)
                self.assertEqual((asked, outcome), (0, status))

        def once():
            self.install(data, False)
            ask("hook_remove", 0, name=data)

        self.assertLess(kept(once, 100), 90)

    def install(self, data, persistent):
        """How many allocations failed before one time all were there."""
        for number in range(1, 100):
            last = SSIZE_MAX if persistent else number
            asked, outcome = _faults.without_memory("hook_install", 0, 0, 0, 0, number, last, data)
            if outcome is not MemoryError:
                self.assertEqual(outcome, 1)
                return number - 1
            # It is not there.
            self.assertEqual(ask("hook_remove", 0, name=data)[0], 0)
        self.fail("no end of allocations")

    def test_for_the_first_time(self):
        """In a process of its own: what an interpreter needs for hooks is made once."""
        support.run_scenario("no_memory_for_hooks", script="fault_scenarios.py")


def allowed(function, replacement):
    if function == "consume":
        return [{"name": replacement, "pending": pending} for pending in PENDING]
    # Not with an exception set. The frame comes first.
    return [{"name": replacement}, {"name": NULL}]


class BadFrames(unittest.TestCase):
    """What is no frame that an eval-frame function was given: it is as it was, and nothing is owned."""

    def test_every_state(self):
        checked = []

        def check(situation):
            if situation.label == "entered":
                return
            replacement = object()
            cases = [(situation.address, ("'frame'", "already started")), (0, ("'frame'", "NULL"))]
            if shim := shim_frame(sys._getframe()):
                cases.append((shim, ("'frame'", "shim frame")))
            for address, words in cases:
                for function in FRAME_FUNCTIONS:
                    for given in allowed(function, replacement):
                        before = situation.counts(), sys.getrefcount(replacement)
                        status, got, error = ask(function, address, **given)
                        where = (situation.label, function, words)
                        self.assertEqual((status, type(error)), (-1, ValueError), where)
                        for word in words:
                            self.assertIn(word, error.args[0], where)
                        # Of evaluate_in_place: it answers NULL.
                        self.assertEqual(got, (None,) if function == "evaluate_in_place" else ("not written",), where)
                        del error, got
                        self.assertEqual((situation.counts(), sys.getrefcount(replacement)), before, where)
                        checked.append(where)

        situations.everything_once(check)
        self.assertGreater(len(checked), 100)


class Value:
    pass


def functions():
    """None of them makes a cell or a function: where there is no memory for those, CPython 3.11 to 3.13 leak their
    arguments, or crash, by themselves."""
    free = [Value()]

    def plain(x, *args, k=1, **kwargs):
        return x

    def closure(x, *args, k=None):
        return x, free

    def generator(x, *args, k=None):
        yield x, free

    return plain, closure, generator


def everything(*args, **kwargs):
    return args, kwargs


def raises(*args, **kwargs):
    raise KeyError("its own")


def with_free_variable():
    other = None
    return lambda *args, k: other


MODULE = compile("x = 1", "module", "exec")
# What is wrong, the replacement, the exception and its words. () is NULL.
BAD_REPLACEMENTS = (
    ("NULL", (), ValueError, ("'replacement'", "NULL")),
    *(
        (f"{type(other)}", other, TypeError, ("'replacement'", "code object or callable"))
        for other in (None, 7, "text", NoStr(), types.SimpleNamespace())
    ),
    ("code without parameters", (lambda: None).__code__, TypeError, ("argument",)),
    ("a callable without parameters", lambda: None, TypeError, ("argument",)),
    ("another free variable", with_free_variable().__code__, ValueError, ('free variable "other"',)),
    ("a module's code", MODULE, ValueError, ("CO_OPTIMIZED",)),
    ("what raises", raises, KeyError, ("its own",)),
    ("code that raises", raises.__code__, KeyError, ("its own",)),
)


class FrameTest(unittest.TestCase):
    def setUp(self):
        self.value = Value()
        self.drained = []

    def act(self, function, of, replacement=None, pending=None, first=0, last=0):
        """As _faults.act()."""
        value = self.value
        return _faults.act(function, replacement, pending, first, last, of.__code__, lambda: of(value, value, k=value))

    def counts(self, of, *others):
        return counts((self.value, of, of.__code__, *(of.__closure__ or ()), *others))


class BadReplacements(FrameTest):
    def test_every_replacement(self):
        for of in functions():
            for wrong, replacement, error_type, words in BAD_REPLACEMENTS:
                where = (of.__name__, wrong)

                def once():
                    _, error, answer, raised = self.act("evaluate_in_place", of, replacement)
                    self.assertIs(error, raised, where)
                    self.assertEqual((type(error), answer), (error_type, NotImplemented), where)
                    for word in words:
                        self.assertIn(word, error.args[0], where)

                once()
                gc.collect()
                before = self.counts(of, replacement)
                if not FREE_THREADED:
                    self.assertLess(kept(once, 100), 90, where)
                self.assertEqual(self.counts(of, replacement), before, where)
                # The function is as it was, too.
                of(self.value, k=None)

    def test_good_ones(self):
        """The same way, with nothing wrong."""
        for of in functions():
            wanted = ((self.value, self.value), {"k": self.value})
            self.assertEqual(self.act("evaluate_in_place", of, everything)[1:], (None, wanted, None))
            for pending in PENDING:
                self.assertEqual(self.act("consume", of, pending=pending)[1:], (pending, None, None))


class OutOfMemory(FrameTest):
    """MemoryError, or the usual answer; the frame is gone, and nothing is kept."""

    def drain(self):
        # The next ones are not from a free list.
        self.drained.append([(self,), (self, self), (self, self, self), {}, {"k": self}])

    def check(self, function, of, usual, replacement=None, pending=None):
        where = (function, of.__name__, replacement)
        self.act(function, of, replacement, pending)
        gc.collect()
        before = self.counts(of, replacement, pending)
        failures = 0
        for persistent in (False, True):
            for number in range(1, 400):
                self.drain()
                asked, error, answer, raised = self.act(
                    function, of, replacement, pending, number, SSIZE_MAX if persistent else number
                )
                if answer is NotImplemented:
                    self.assertEqual((type(error), type(raised)), (MemoryError, MemoryError), (*where, number))
                    failures += 1
                else:
                    self.assertTrue(usual(answer), (*where, number, answer))
                    self.assertIs(error, pending, (*where, number))
                    self.assertIsNone(raised)
                if asked < number:
                    break
            else:
                self.fail(f"{where}: no end of allocations")
            del error, answer, raised
        gc.collect()
        self.assertEqual(self.counts(of, replacement, pending), before, where)

        def once():
            for at in range(1, number):
                self.act(function, of, replacement, pending, at, at)
                self.act(function, of, replacement, pending, at, SSIZE_MAX)

        if not FREE_THREADED:
            self.assertLess(kept(once, 50), 45, where)
        return failures

    def test_every_allocation(self):
        # As many as free lists hold, and more.
        held = [[(each,), (each, each), (each, each, each), {}] for each in range(3000)]
        failures = 0
        for of in functions():
            for pending in PENDING:
                self.assertEqual(self.check("consume", of, lambda answer: answer is None, pending=pending), 0)
            answer = ((self.value, self.value), {"k": self.value})
            failures += self.check("evaluate_in_place", of, answer.__eq__, everything)
            kind = type(of(self.value))
            failures += self.check("evaluate_in_place", of, lambda found: type(found) is kind, of.__code__.replace())
        self.assertEqual(len(held), 3000)
        self.assertGreater(failures, 20)
        support.figures["no memory in hooks"] = {"failed allocations": failures}

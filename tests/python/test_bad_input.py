"""Every bad argument and every allocation that fails, of every function: the right exception, and nothing is owned."""

import gc
import os
import re
import sys
import unittest

import _cases
import _faults
import _oracle
import situations
import support
from support import VERSION, run_scenario

SSIZE_MAX = sys.maxsize
SSIZE_MIN = -sys.maxsize - 1
QUESTIONS = _faults.questions()
NULL = object()


class NoStr:
    """Compares and hashes like a name, but is none."""

    def __eq__(self, other):
        raise AssertionError("compared")

    def __hash__(self):
        raise AssertionError("hashed")


def ask(function, frame, index=0, flags=0, capacity=32, name="plain", result=True, pending=None):
    names = () if name is NULL else (name,)
    return _faults.ask(function, frame, index, flags, capacity, result, pending, *names)


def takes(parameter):
    return [function for function, (_, parameters, _) in QUESTIONS.items() if parameter in parameters.split()]


def nothing(function, capacity=32):
    """What `result` holds after a failure: not written, where there is none; get_locals leaves it alone."""
    shape = QUESTIONS[function][0]
    return {
        "number": ("not written",),
        "line": ("not written",),
        "borrowed": (None,),
        "frame": (None,),
        "object": (None,),
        "result": (None,),
        "results": ("not written",) * max(capacity, 0),
        "arguments": (None,) * 3,
    }[shape]


def shim_frame(frame):
    """The address of one of the interpreter's own frames below `frame`, or 0."""
    address = _cases.address(frame)
    while address and _oracle.is_python_frame(address):
        address = _oracle.previous(address)
    return address


def not_str():
    return (None, 1, b"plain", ("plain",), NoStr(), type)


def bad_arguments(address, count, shim):
    """(function, what is wrong, keyword arguments, exception, words of its text, result if not as usual)."""
    for function in takes("frame"):
        yield function, "frame is NULL", {"frame": 0}, ValueError, ("'frame'", "NULL"), None
        # It is on the way to the next one.
        if shim and function != "previous":
            yield function, "shim frame", {"frame": shim}, ValueError, ("'frame'", "shim frame"), None
    for function in takes("index"):
        for index in (-1, count, count + 1, 1 << 31, 1 << 32, SSIZE_MAX, SSIZE_MIN):
            words = (f"slot index {index} is", f"[0, {count})")
            yield function, f"index {index}", {"index": index}, IndexError, words, None
    for function in takes("flags"):
        for flags in (4, 5, 7, 8, 1 << 16, 1 << 31, 0xFFFFFFFF):
            yield function, f"flags {flags:#x}", {"flags": flags}, ValueError, ("'flags'", f"{flags:#x}"), None
    for function in takes("result"):
        results = ("not written",) * (32 if QUESTIONS[function][0] == "results" else 1)
        yield function, "result is NULL", {"result": False}, ValueError, ("'result'", "NULL"), results
    for function in takes("arguments"):
        words = ("'arguments'", "NULL")
        yield function, "arguments is NULL", {"result": False}, ValueError, words, ("not written",) * 3
        yield function, "started frame", {}, ValueError, ("'frame'", "already started"), None
    for function in takes("capacity"):
        for capacity in (*range(count), -1, SSIZE_MIN):
            words = ("'capacity'", f"is {capacity},", f"{count} slots")
            yield function, f"capacity {capacity}", {"capacity": capacity}, ValueError, words, None
    for parameter in ("frame_object", "generator"):
        for function in takes(parameter):
            yield function, "NULL", {"name": NULL}, ValueError, (f"'{parameter}'", "NULL"), None
            for other in not_str():
                yield function, f"{type(other)}", {"name": other}, TypeError, (f"'{parameter}'",), None
    for function in takes("name"):
        yield function, "name is NULL", {"name": NULL}, ValueError, ("'name'", "NULL"), None
        for name in not_str():
            yield function, f"name is {type(name)}", {"name": name}, TypeError, ("'name'", "str"), None
        # Of such a name, indexes() answers none.
        if function != "indexes":
            for name in ("", "no such", "Plain", "plain\0", "\ud800", "\U0001f40d"):
                yield function, f"name {name!a}", {"name": name}, KeyError, ("'name'",), None


class BadArguments(unittest.TestCase):
    def check_all(self, situation):
        address = situation.address
        count = _cases.count(address)
        shim = shim_frame(sys._getframe())
        self.shims += bool(shim)
        for function, wrong, arguments, error_type, words, result in bad_arguments(address, count, shim):
            if wrong == "started frame" and situation.label == "entered":
                continue
            for pending in (None, ZeroDivisionError("pending")):
                before = situation.counts()
                given = {"frame": address, "name": situation.name, **arguments}
                if wrong == "name is <class 'type'>":
                    given["name"] = int
                status, got, error = ask(function, pending=pending, **given)
                where = (situation.label, function, wrong)
                self.assertEqual((status, type(error)), (-1, error_type), where)
                capacity = arguments.get("capacity", 32)
                self.assertEqual(got, nothing(function, capacity) if result is None else result, where)
                for word in words:
                    self.assertIn(word, error.args[0], where)
                del error, got
                after = situation.counts()
                self.assertEqual(before, after, where)
                self.checked += 1

    def test_every_function(self):
        self.checked = self.shims = 0
        situations.everything_once(self.check_all)
        support.figures["bad arguments"] = {"calls": self.checked}
        self.assertGreater(self.checked, 2000)
        # There are such frames from 3.12 on.
        self.assertEqual(self.shims > 0, VERSION >= (3, 12))

    def test_the_table_is_complete(self):
        """Every function of the header that can fail is in the table."""
        with open(os.path.join(support.toolchain.include, "localsplus.h"), encoding="utf-8") as file:
            declared = re.findall(r"^LOCALSPLUS_API [^;(]*\blocalsplus_(\w+)\(([^;]*)\);", file.read(), re.MULTILINE)
        cannot_fail = {"abi_version", "provider", "arguments_clear"}
        # Those that act are asked in test_hook_input.py.
        table = QUESTIONS | _faults.actions()
        self.assertEqual({name for name, _ in declared} - cannot_fail, set(table))
        for name, parameters in declared:
            if name in table:
                names = [each.split()[-1].lstrip("*") for each in parameters.split(",")]
                expected = [] if names == ["void"] else names
                self.assertEqual(sorted(table[name][1].split()), sorted(expected), name)

    def test_good_arguments(self):
        """The same table, with nothing wrong: pending exceptions stay, and everything answers."""

        def check(situation):
            for function in QUESTIONS:
                count = _cases.count(situation.address)
                pending = ZeroDivisionError("pending")
                arguments = {"capacity": count, "name": situation.name, "pending": pending}
                if not count and "index" in QUESTIONS[function][1].split():
                    continue
                status, _, error = ask(function, situation.address, **arguments)
                # Such a generator has let go of its function, to which these belong.
                is_finished = situation.label in ("finished generator", "exhausted generator", "closed coroutine")
                fails = is_finished and function in ("globals", "builtins")
                # They take something else.
                fails = fails or function in ("frame_of_object", "frame_of_generator")
                fails = fails or function == "arguments_get" and situation.label != "entered"
                # A namespace's names have no slot.
                fails = fails or function == "index" and situation.label == "class body"
                if function == "line":
                    self.assertGreaterEqual(status, -1)
                elif function == "lasti":
                    self.assertNotEqual(status, -1)
                elif not fails:
                    self.assertGreaterEqual(status, 0, (situation.label, function, error))
                self.assertIs(error is pending, not fails, (situation.label, function, error))

        situations.everything_once(check)


class OutOfMemory(unittest.TestCase):
    def check_all(self, situation):
        count = _cases.count(situation.address)
        address, name = situation.address, situation.name

        def ask(function, first, last, drain=True):
            if drain:
                # The next ones are not from a free list.
                self.used.append([(address,), (address, name), {}, {name: address}])
            return _faults.without_memory(function, address, 0, 0, count, first, last, name)

        for function, (_, _, allocates) in QUESTIONS.items():
            where = (situation.label, function)
            _, usual = ask(function, 0, 0)
            if not allocates and not isinstance(usual, type):
                # Not even one: with no memory at all, it answers the same.
                self.assertEqual(ask(function, 1, SSIZE_MAX), (0, usual), where)
                continue
            before = situation.counts()
            for persistent in (False, True):
                failures = 0
                for number in range(1, 100):
                    asked, outcome = ask(function, number, SSIZE_MAX if persistent else number)
                    if outcome is MemoryError:
                        failures += 1
                    else:
                        # What was to be raised or answered anyway, if it does without.
                        self.assertEqual(outcome, usual, (*where, number))
                    if asked < number:
                        break
                else:
                    self.fail(f"{where}: no end of allocations")
                self.failures[function] = self.failures.get(function, 0) + failures
            self.assertEqual(situation.counts(), before, where)
            gc.collect()

            def kept():
                blocks = sys.getallocatedblocks()
                for _ in range(100):
                    for at in range(1, number):
                        ask(function, at, at, drain=False)
                        ask(function, at, SSIZE_MAX, drain=False)
                return sys.getallocatedblocks() - blocks

            # Free lists take up some, once.
            self.assertLess(min(kept(), kept()), 90, where)

    def test_every_allocation(self):
        self.failures = {}
        # As many as free lists hold, and more.
        drained = [[(address,), (address, address), {}] for address in range(3000)]
        self.used = []
        situations.everything_once(self.check_all)
        self.assertEqual(len(drained), 3000)
        support.figures["no memory"] = {"failed allocations": sum(self.failures.values())}
        for function, (_, _, allocates) in QUESTIONS.items():
            if allocates:
                self.assertGreater(self.failures[function], 0, function)

    def test_with_the_interpreters_own_means(self):
        try:
            import _testcapi
        except ImportError:
            self.skipTest("this interpreter has no _testcapi")
        self.assertTrue(hasattr(_testcapi, "set_nomemory"))
        run_scenario("no_memory", script="fault_scenarios.py")

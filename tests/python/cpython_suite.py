"""Runs one of CPython's own test modules some times, under an evaluator or none, and prints what came of it as JSON.

    python tests/python/cpython_suite.py MODULE ROUNDS none|pass:FOLDER|cpp:FOLDER|rust:LIBRARY

The evaluator replaces every function, generators and coroutines included, by an equal copy of itself ("pass": it
only passes every frame on). Run by test_cpython_suite.py.
"""

import contextlib
import gc
import io
import json
import sys
import types
import unittest

import _oracle


def copying(choice):
    """A context manager in which every function is replaced."""
    kind, _, place = choice.partition(":")
    if kind == "none":
        return contextlib.nullcontext
    if kind in ("cpp", "pass"):
        sys.path.insert(0, place)
        import evaluator

        compile_with, enable, disable = evaluator.compile_with, evaluator.enable, evaluator.disable
    else:
        import ctypes

        library = ctypes.PyDLL(place)
        functions = library.evaluator_compile_with, library.evaluator_enable, library.evaluator_disable
        for function in functions:
            function.restype = ctypes.py_object
        library.evaluator_compile_with.argtypes = [ctypes.py_object]
        compile_with, enable, disable = functions

    @contextlib.contextmanager
    def manager():
        # A method descriptor: no Python function is called to make the copy.
        compile_with(None if kind == "pass" else types.CodeType.replace)
        enable()
        try:
            yield
        finally:
            disable()
            compile_with(None)

    return manager


class Result(unittest.TestResult):
    """The outcome of every test, by name."""

    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def note(self, test, outcome):
        self.outcomes.setdefault(test.id(), []).append(outcome)

    def addSuccess(self, test):
        self.note(test, "ok")

    def addError(self, test, error):
        self.note(test, "error: " + self._exc_info_to_string(error, test)[-2000:])

    def addFailure(self, test, error):
        self.note(test, "failure: " + self._exc_info_to_string(error, test)[-2000:])

    def addSkip(self, test, reason):
        self.note(test, "skipped")

    def addExpectedFailure(self, test, error):
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        self.note(test, "unexpected success")

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addError(subtest, error)


def total_references():
    return sys.gettotalrefcount() if hasattr(sys, "gettotalrefcount") else 0


def main():
    name, rounds, choice = sys.argv[1:]
    # Copies of code are code objects, which some builds would never free.
    _oracle.suppress_immortalization()
    import test.support

    test.support.use_resources = []
    manager = copying(choice)
    report = []
    for _ in range(int(rounds)):
        result = Result()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            with manager():
                unittest.defaultTestLoader.loadTestsFromName("test." + name).run(result)
        outcomes = result.outcomes
        del result
        for _ in range(3):
            gc.collect()
        report.append({"outcomes": outcomes, "blocks": sys.getallocatedblocks(), "references": total_references()})
    # Each round's own report is on top of it; the same for all evaluators.
    print(json.dumps(report))


if __name__ == "__main__":
    main()

"""Runs one module of CPython's own tests some times, alone or under eval-frame functions.

    cpython_tests.py MODULE ROUNDS WAY REPORT.json

WAY is
    alone   nothing installed
    idle    a hook that only evaluates
    read    a hook that reads every slot of every frame at its entry, and compares it with the oracle (_compare.c)
    pass:FOLDER, cpp:FOLDER, rust:LIBRARY
            the evaluators in examples/, which replace every function by an equal copy of itself ("pass" only passes
            every frame on)

REPORT.json gets what became of each test in each round, and the figures.
"""

import contextlib
import ctypes
import faulthandler
import gc
import json
import os
import sys
import time
import types
import unittest

import _compare
import _oracle


class Outcomes(unittest.TestResult):
    """What became of each test, in the first line; in those after it, why. Subtests count to their test."""

    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def note(self, test, outcome, error=None):
        if error is not None:
            outcome += "\n" + self._exc_info_to_string(error, test)[-2000:]
        # The same id several times is a parametrised test: the outcomes in their order.
        self.outcomes.setdefault(test.id(), []).append(outcome)

    def stopTest(self, test):
        """A test of sys.monitoring that fails leaves its tool behind, and each one after it would fail for that."""
        super().stopTest(test)
        for tool in range(6) if hasattr(sys, "monitoring") else ():
            if sys.monitoring.get_tool(tool) is not None:
                sys.monitoring.set_events(tool, 0)
                sys.monitoring.free_tool_id(tool)

    def addSuccess(self, test):
        self.note(test, "passed")

    def addFailure(self, test, err):
        self.note(test, "failed", err)

    def addError(self, test, err):
        self.note(test, f"error: {err[0].__name__}", err)

    def addSkip(self, test, reason):
        self.note(test, "skipped")

    def addExpectedFailure(self, test, err):
        self.note(test, "failed as expected")

    def addUnexpectedSuccess(self, test):
        self.note(test, "passed unexpectedly")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note(test, "failed in a subtest", err)


@contextlib.contextmanager
def hooked(reading):
    _compare.install(reading)
    try:
        yield
    finally:
        _compare.remove()


def copying(kind, place):
    """A context manager in which every function is replaced."""
    if kind == "rust":
        library = ctypes.PyDLL(place)
        functions = library.evaluator_compile_with, library.evaluator_enable, library.evaluator_disable
        for function in functions:
            function.restype = ctypes.py_object
        library.evaluator_compile_with.argtypes = [ctypes.py_object]
        compile_with, enable, disable = functions
    else:
        sys.path.insert(0, place)
        import evaluator

        compile_with, enable, disable = evaluator.compile_with, evaluator.enable, evaluator.disable

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


def manager_of(way):
    kind, _, place = way.partition(":")
    if kind == "alone":
        return contextlib.nullcontext
    return copying(kind, place) if place else lambda: hooked(kind == "read")


def run_once(module, manager):
    outcomes = Outcomes()
    with manager():
        try:
            unittest.defaultTestLoader.loadTestsFromName(f"test.{module}").run(outcomes)
        except unittest.SkipTest as reason:
            outcomes.outcomes["the whole module"] = [f"skipped: {reason}"]
    return outcomes.outcomes


def total_references():
    return sys.gettotalrefcount() if hasattr(sys, "gettotalrefcount") else 0


def main():
    module, rounds, way, path = sys.argv[1:]
    faulthandler.enable()
    # Copies of code are code objects, which some builds would never free.
    _oracle.suppress_immortalization()
    from test import support

    # As regrtest does: nothing large, nothing from the network.
    support.use_resources = []
    support.verbose = False
    started = time.monotonic()
    manager = manager_of(way)
    # Each round's own outcomes are kept on top of what it keeps; the same for all ways.
    report = {"rounds": []}
    for _ in range(int(rounds)):
        outcomes = run_once(module, manager)
        for _ in range(3):
            gc.collect()
        report["rounds"].append(
            {"outcomes": outcomes, "blocks": sys.getallocatedblocks(), "references": total_references()}
        )
    report["counts"], report["mismatches"] = _compare.counts(), _compare.take_mismatches()
    report["seconds"] = round(time.monotonic() - started, 1)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file)
        file.flush()
    # Threads and processes that a test left behind are not waited for.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

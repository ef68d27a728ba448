"""Runs one module of CPython's own tests, alone or under a hook that reads every frame.

    cpython_tests.py MODULE {alone,idle,read} OUTCOMES.json

alone: no hook. idle: a hook that only evaluates. read: a hook that reads every slot of every frame at its entry, and
compares it with the oracle (_compare.c). OUTCOMES.json gets what became of each test, and the figures.
"""

import faulthandler
import json
import os
import sys
import time
import unittest

import _compare


class Outcomes(unittest.TestResult):
    """What became of each test. Subtests count to their test."""

    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def note(self, test, outcome):
        # The same id several times is a parametrised test: the outcomes in their order.
        self.outcomes.setdefault(test.id(), []).append(outcome)

    def addSuccess(self, test):
        self.note(test, "passed")

    def addFailure(self, test, err):
        self.note(test, "failed")

    def addError(self, test, err):
        self.note(test, f"error: {err[0].__name__}")

    def addSkip(self, test, reason):
        self.note(test, "skipped")

    def addExpectedFailure(self, test, err):
        self.note(test, "failed as expected")

    def addUnexpectedSuccess(self, test):
        self.note(test, "passed unexpectedly")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note(test, "failed in a subtest")


def main():
    module, way, report = sys.argv[1:]
    faulthandler.enable()
    from test import support

    # As regrtest does: nothing large, nothing from the network.
    support.use_resources = []
    support.verbose = False
    started = time.monotonic()
    # Doctests print, and tests of output must not find ours.
    outcomes = Outcomes()
    try:
        suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{module}")
    except unittest.SkipTest as reason:
        outcomes.outcomes["the whole module"] = [f"skipped: {reason}"]
        suite = unittest.TestSuite()
    if way != "alone":
        _compare.install(way == "read")
    try:
        suite.run(outcomes)
    finally:
        if way != "alone":
            _compare.remove()
    counts = _compare.counts()
    with open(report, "w", encoding="utf-8") as file:
        json.dump(
            {
                "outcomes": outcomes.outcomes,
                "counts": counts,
                "mismatches": _compare.take_mismatches(),
                "seconds": round(time.monotonic() - started, 1),
            },
            file,
        )
        file.flush()
    # Threads and processes that a test left behind are not waited for.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

"""Runs of CPython's own tests (cpython_tests.py), each in a process of its own."""

import importlib.util
import json
import os
import subprocess
import tempfile

import support
from support import HERE, VERSION, python

LONGEST_MODULE = 900

MISSING = f"there is no test package in this interpreter (Debian has it in libpython{VERSION[0]}.{VERSION[1]}-testsuite)"


def is_there(module):
    try:
        return importlib.util.find_spec(f"test.{module}") is not None
    except ImportError:
        return False


class Run:
    """One run of a module: what became of its tests in each round, and the figures."""

    def __init__(self, module, way, rounds=1):
        report = os.path.join(support.toolchain.build_dir, f"cpython-{module}-{way.partition(':')[0]}.json")
        if os.path.exists(report):
            os.unlink(report)
        self.output, self.rounds, self.counts, self.mismatches = "", None, {}, []
        try:
            # They write into the current folder.
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                arguments = [os.path.join(HERE, "cpython_tests.py"), module, str(rounds), way, os.path.abspath(report)]
                self.output = python(*arguments, timeout=LONGEST_MODULE, cwd=folder).stdout
        except subprocess.TimeoutExpired:
            self.output = f"not finished after {LONGEST_MODULE} seconds"
        # Without a report the process crashed: that is what became of all tests.
        if os.path.exists(report):
            with open(report, encoding="utf-8") as file:
                result = json.load(file)
            self.rounds, self.counts, self.mismatches = result["rounds"], result["counts"], result["mismatches"]

    @property
    def outcomes(self):
        """Of the first round; None if the process crashed."""
        return self.rounds and self.rounds[0]["outcomes"]

    def of(self, test):
        if self.outcomes is None:
            return "crashed"
        return verdicts(self.outcomes[test]) if test in self.outcomes else None


def verdicts(outcomes):
    """Without the tracebacks."""
    return [outcome.partition("\n")[0] for outcome in outcomes]

"""Every function is replaced by an equal copy of itself, by the evaluators in examples/, and nobody can tell."""

import asyncio
import dataclasses
import json
import os
import re
import sys
import threading
import unittest

import support
from consumers import REPOSITORY, build_crate, build_extension
from cpython import MISSING, Run, is_there, verdicts
from cpython_tests import manager_of
from support import VERSION

# Some seconds each.
MODULES = (
    *("test_generators", "test_coroutines", "test_listcomps", "test_scope", "test_functools"),
    *("test_dataclasses", "test_enum", "test_re", "test_json"),
)
ROUNDS = 2

# The one thing that a copy cannot be is the same object: "g.gi_code is f.__code__" is tried there.
TOLD_APART = {("test_generators", "test.test_generators.__test__.syntax")}

# Under any eval-frame function, 3.13 nests Python functions in C, where some builds allow less depth: RecursionError.
TOO_DEEP = {("test_functools", "test.test_functools.TestLRUPy.test_lru_recursion")} if (3, 13) <= VERSION < (3, 14) else set()

KEPT = {"blocks": 500, "references": 1000}

choices = {}


def setUpModule():
    build_extension("evaluator", os.path.join(REPOSITORY, "examples", "evaluator", "evaluator.cpp"), "c++17")
    choices["C++"] = "cpp:" + support.toolchain.build_dir
    choices["Rust"] = "rust:" + build_crate("examples/evaluator_rs")


class CPythonSuite(unittest.TestCase):
    """CPython's own tests: the same results as without, and no more memory from round to round."""

    def run_module(self, module, way, rounds=ROUNDS):
        run = Run(module, way, rounds)
        self.assertIsNotNone(run.rounds, run.output[-4000:])
        return run.rounds

    def compare(self, module):
        if not is_there(module):
            self.skipTest(MISSING)
        wanted = self.run_module(module, "alone")
        self.assertTrue(wanted[0]["outcomes"], "the module has tests")
        (passed,) = self.run_module(module, "pass:" + support.toolchain.build_dir, rounds=1)
        self.compare_round(module, "passed on", wanted[0]["outcomes"], passed["outcomes"])
        for language, choice in choices.items():
            found = self.run_module(module, choice)
            for without, copied in zip(wanted, found):
                self.compare_round(module, language, without["outcomes"], copied["outcomes"])
            for what, most in KEPT.items():
                without, copied = (rounds[-1][what] - rounds[-2][what] for rounds in (wanted, found))
                self.assertLess(copied - without, most, f"{language}: more {what} from round to round")

    def compare_round(self, module, language, without, copied):
        self.assertEqual(set(without), set(copied), language)
        for test in without:
            ours, theirs = verdicts(copied[test]), verdicts(without[test])
            why = "".join(copied[test])
            if (module, test) in TOLD_APART and language != "passed on":
                failed = re.findall(r"Failed example:\s+(.*)", why)
                self.assertEqual(set(failed), {"g.gi_code is f.__code__"}, test)
                self.assertEqual(theirs, ["passed"])
            elif (module, test) in TOO_DEEP and ours != theirs:
                self.assertIn("RecursionError", why, (language, test))
            else:
                self.assertEqual(ours, theirs, (language, test, copied[test]))


for module in MODULES:
    setattr(CPythonSuite, module, lambda self, module=module: self.compare(module))


class Copies(unittest.TestCase):
    """The same in this process, on every interpreter."""

    def each(self):
        for language, choice in choices.items():
            with self.subTest(language=language), manager_of(choice)():
                yield

    def test_it_is_done(self):
        def code():
            return sys._getframe().f_code

        def generator():
            yield sys._getframe().f_code

        for _ in self.each():
            first, (second,) = code(), generator()
            self.assertIsNot(first, code.__code__)
            self.assertIsNot(second, generator.__code__)
            self.assertEqual((first, second), (code.__code__, generator.__code__))
            self.assertIs(code(), first, "once")
        self.assertIs(code(), code.__code__)

    def test_standard_library(self):
        @dataclasses.dataclass
        class Point:
            x: int
            y: list = dataclasses.field(default_factory=list)

        async def main():
            async def child(n):
                await asyncio.sleep(0)
                return n

            return sum(await asyncio.gather(*(child(n) for n in range(20))))

        def work():
            re.purge()
            return (
                json.loads(json.dumps({"a": [1, 2.5, None], "b": {"c": "d"}}, indent=1)),
                re.sub(r"(\w)(\d+)", r"\2\1", "a1 b22 c333"),
                Point(1) == Point(1, []),
                asyncio.run(main()),
            )

        wanted = work()
        for _ in self.each():
            for _ in range(3):
                self.assertEqual(work(), wanted)

    def test_threads(self):
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        for _ in self.each():
            answers = []
            threads = [threading.Thread(target=lambda: answers.append(fib(12))) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(answers, [144] * 6)

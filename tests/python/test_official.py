"""The interpreter's own function, played by stand-ins: used if it is what it should be, else refused with a reason."""

import os
import re
import unittest

import support
from support import SHIMS, VERSION, run_scenario

ADOPTED = ("THREE_ARGUMENTS", "WITH_NAMES")
REJECTED = (
    "TWO_ARGUMENTS",
    "ALWAYS_ZERO",
    "OFF_BY_ONE",
    "RESULT_NOT_WRITTEN",
    "WRONG_FREE",
    "ANY_INDEX",
    "LEAKED_REFERENCE",
    "BORROWED_REFERENCE",
    "NO_EXCEPTION",
    "KEEPS_RESULT",
)

SYMBOL = "PyUnstable_InterpreterFrame_GetLocal"


def standin(behaviour):
    """The path of the shared library, built at its first use."""
    name = f"standin_{behaviour.lower()}.so"
    sources = [os.path.join(SHIMS, "official_standin.c"), support.toolchain.oracle_object]
    return support.toolchain.shared_object(name, sources, [f"-DSTANDIN=STANDIN_{behaviour}"])


@unittest.skipIf(VERSION >= (3, 16), "this interpreter exports the function itself")
class StandIns(unittest.TestCase):
    def test_adopted(self):
        for behaviour in ADOPTED:
            with self.subTest(behaviour):
                run_scenario("standin_adopted", standin(behaviour))

    def test_adopted_when_forced(self):
        run_scenario("standin_adopted", standin("THREE_ARGUMENTS"), env={"LOCALSPLUS_PROVIDER": "official"})

    def test_set_aside_when_the_layout_is_forced(self):
        for behaviour in ("THREE_ARGUMENTS", "TWO_ARGUMENTS"):
            with self.subTest(behaviour):
                run_scenario("standin_set_aside", standin(behaviour), env={"LOCALSPLUS_PROVIDER": "layout"})

    def test_semantics(self):
        """What the last section of docs/SEMANTICS.md says."""
        output = run_scenario("standin_semantics", standin("THREE_ARGUMENTS"))
        found = dict(re.findall(r"^\[(.+)\]\n([^\n]*)\n", output, re.MULTILINE))
        wanted = {"R5, example 1": "entry: a=99"}
        if VERSION >= (3, 12):
            wanted["R4, example 2"] = "k=- k=10 t=<function outer.<locals>.t>"
        self.assertEqual(found, wanted, output)

    def check_rejected(self, behaviour):
        path = standin(behaviour)
        output = run_scenario("standin_rejected", path)
        provider = re.search(r"^provider: (layout [^(]+) \((.+)\)$", output, re.MULTILINE)
        self.assertIsNotNone(provider, output)
        reason = provider.group(2)
        print(f"[{reason}] ", end="", flush=True)
        # With nothing to fall back on, the same reason is the refusal; only addresses differ between processes.
        words = re.split(r"0x[0-9a-f]+", reason)
        run_scenario("standin_refused", path, *words, env={"LOCALSPLUS_PROVIDER": "official"})


def add_test(behaviour):
    def test(self):
        self.check_rejected(behaviour)

    test.__name__ = f"test_rejected_{behaviour.lower()}"
    setattr(StandIns, test.__name__, test)


for each in REJECTED:
    add_test(each)


class ForcedProvider(unittest.TestCase):
    @unittest.skipIf(VERSION >= (3, 16), "no layout for this version")
    def test_layout(self):
        provider = run_scenario("print_provider")
        self.assertEqual(run_scenario("print_provider", env={"LOCALSPLUS_PROVIDER": "layout"}), provider)

    @unittest.skipIf(VERSION >= (3, 16), "this interpreter exports the function itself")
    def test_official_where_it_is_missing(self):
        run_scenario("refused", SYMBOL, env={"LOCALSPLUS_PROVIDER": "official"})

    def test_misspelt(self):
        for value in ("offical", "Layout", "layout ", "3.14"):
            with self.subTest(value):
                run_scenario("refused", "LOCALSPLUS_PROVIDER", value, env={"LOCALSPLUS_PROVIDER": value})

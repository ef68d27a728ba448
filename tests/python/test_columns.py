"""Each column of this interpreter's row wrong, one at a time (tests/wrong_rows): no frame is read through such a row."""

import ctypes
import json
import os
import re
import sysconfig
import unittest

import support
from consumers import REPOSITORY, build_crate
from support import VERSION, run_scenario

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

# What no run-time check sees. tests/headers.rs compares it with the headers.
UNSEEN = {
    # Only consuming a frame would tell.
    "hook_owns_frame",
    # Only a frame in the middle of its prologue would.
    *("code.co_firsttraceable", "opcode.make_cell", "opcode.copy_free_vars", "opcode.extended_arg"),
    # It only spares following the links of the whole stack, on 3.13.
    "code.co_stacksize",
    # Counts of objects that are not immortal are the same.
    "immortality",
}
if VERSION < (3, 13):
    # Nothing is read through these; instruction_kind only spares looking through the stack.
    UNSEEN |= {"frame.size", "code.size", "object.ob_size", "frame.instruction_kind"}
if VERSION < (3, 15):
    # A generator is only for a moment in the state between "finished" and "cleared".
    UNSEEN |= {"generator.finished"}

ABSENT = set()
if VERSION >= (3, 13):
    ABSENT |= {"thread.cframe"}
if VERSION < (3, 14) or not FREE_THREADED:
    ABSENT |= {"frame.tlbc_index", "code.co_tlbc"}
if FREE_THREADED:
    ABSENT |= {"object.ob_refcnt"}

# What is read or written there may end the process, or be an exception each time, before it can be refused.
CRASHES = {"object.ob_refcnt"}
if VERSION < (3, 13):
    CRASHES |= {"frame.previous", "thread.cframe", "tuple_ob_item", "code.co_localsplusnames"}


@unittest.skipIf(VERSION >= (3, 16), "no table for this version")
class Columns(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        path = build_crate("tests/wrong_rows", profile="dev")
        cls.library = ctypes.PyDLL(path)
        cls.library.wrong_rows_forgotten.restype = ctypes.c_char_p
        cls.path = path
        cls.outcomes = cls.outcomes_of()

    @classmethod
    def outcomes_of(cls, *only):
        output = run_scenario("wrong_rows", cls.path, *only, script="fault_scenarios.py")
        return json.loads(output.splitlines()[-1])

    def test_each_column(self):
        self.assertEqual(self.outcomes.pop("none"), "accepted")
        refused = 0
        for column, outcome in self.outcomes.items():
            with self.subTest(column):
                if column in UNSEEN | ABSENT:
                    self.assertEqual(outcome, "accepted")
                elif not (column in CRASHES and re.match("ended|localsplus was interrupted", outcome)):
                    self.assertRegex(outcome, r"^layout 3\.\d+.* does not fit: .*expected .*found ")
                    refused += 1
        support.figures["wrong columns"] = {"injected": len(self.outcomes), "refused": refused}
        self.assertGreater(refused, 25)

    def test_instruction_anywhere(self):
        """Where it is said to be depends on the addresses of the process: in every other one, 3.11's debug build would
        end in PyCode_Addr2Line."""
        for _ in range(8):
            outcomes = self.outcomes_of("frame.instruction")
            self.assertEqual(set(outcomes), {"frame.instruction", "none"})
            self.assertRegex(outcomes["frame.instruction"], r" does not fit: .*expected .*found ")

    def test_none_is_forgotten(self):
        self.assertIsNone(self.library.wrong_rows_forgotten())
        self.assertLessEqual(UNSEEN | ABSENT | CRASHES, set(self.outcomes))

    def test_the_unseen_are_documented(self):
        with open(os.path.join(REPOSITORY, "docs", "RELIABILITY.md"), encoding="utf-8") as file:
            text = file.read()
        for column in UNSEEN:
            self.assertIn(f"`{column}`", text)

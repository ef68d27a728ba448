"""Interpreters that differ from the tables, one fault at a time: each is refused, in words that name it, unless the
answers are right all the same."""

import json
import os
import re
import sysconfig
import tempfile
import types
import unittest

import support
from support import DEBUG, TESTS_C, VERSION, run_scenario

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))

# What a build without them can do without, or what only other builds or versions export.
OPTIONAL = {
    "Py_Version",  # the text tells as well
    "PyUnstable_Module_SetGIL",
    "_Py_NegativeRefcount",
    "_Py_stackref_get_object",
    "_PyInterpreterState_IsSpecializationEnabled",
    "_PyInterpreterState_SetEvalFrameAllowSpecialization",
    "PyUnstable_InterpreterFrame_GetLocal",
    "PyDict_GetItemRef",
    "PyUnstable_InterpreterFrame_GetCode",
    "PyUnstable_InterpreterFrame_GetLasti",
    "PyUnstable_InterpreterFrame_GetLine",
    # Without them, a map of names is made each time.
    "PyUnstable_Eval_RequestCodeExtraIndex",
    "PyUnstable_Code_GetExtra",
    "PyUnstable_Code_SetExtra",
}

REQUIRED = {
    "PyBaseObject_Type",
    "PyFrame_Type",
    "PyCode_Type",
    "PyGen_Type",
    "PyFunction_Type",
    "PyCell_Type",
    "PyTuple_Type",
    "PyCoro_Type",
    "PyAsyncGen_Type",
    "PyCell_Get",
    "PyCode_Addr2Line",
    "_Py_Dealloc",
    "PyInterpreterState_Get",
    "_PyInterpreterState_GetEvalFrameFunc",
    "_PyInterpreterState_SetEvalFrameFunc",
    "_PyEval_EvalFrameDefault",
    "Py_CompileString",
    "PyThreadState_EnterTracing",
    "PyThreadState_LeaveTracing",
}

# By these, objects are told that hold frames.
NAMES = {
    "PyFrame_Type": "frame",
    "PyGen_Type": "generator",
    "PyCoro_Type": "coroutine",
    "PyAsyncGen_Type": "async_generator",
}

# Where the words of _Py_DebugOffsets are that say the same as a table.
WORDS = {
    13: [0, 8, 16, 184, *range(224, 280, 8), 328, 336, 344, 352, 360, 408, 416, 528],
    14: [0, 8, 16, 208, *range(248, 304, 8), 312, 368, 376, 384, 400, 408, 456, 464, 608, 680, 688],
    15: [0, 8, 16, 208, *range(312, 368, 8), 376, 432, 440, 448, 464, 472, 552, 560, 704, 808, 816],
}
FREE_THREADED_WORDS = {13: [], 14: [304, 392], 15: [368, 456]}

TYPES = {
    "PyBaseObject_Type": (object, "object"),
    "PyFrame_Type": (types.FrameType, "types.FrameType"),
    "PyCode_Type": (types.CodeType, "types.CodeType"),
    "PyGen_Type": (types.GeneratorType, "types.GeneratorType"),
    "PyFunction_Type": (types.FunctionType, "types.FunctionType"),
    "PyLong_Type": (int, None),
}

OLDEST, NEWEST = 11, max(WORDS)
SUPPORTED = (f"it needs CPython 3.{OLDEST} to 3.{NEWEST}", "PyUnstable_InterpreterFrame_GetLocal")
ACCEPTED = None


def expected(fault):
    """The words of the refusal, or ACCEPTED."""
    kind, name, *rest = re.split("[ ;]", fault)
    return {"missing": missing, "null": missing, "value": version, "word": word, "alias": alias, "lie": lie}[kind](
        name, *rest
    )


def missing(name):
    if name == "_PyRuntime":
        return ("_PyRuntime is not exported",)
    if name == "PyUnstable_Module_SetGIL" and FREE_THREADED:
        return ("object.__basicsize__: expected 16, found 32",)
    if name in OPTIONAL:
        return ACCEPTED
    return (name, "not exported|found nothing")


def version(name, text, *with_debug_offsets):
    number = int(text, 16)
    if number > 0xFFFFFFFF:
        return (f"Py_Version is {number:#x}",)
    major, minor, level = number >> 24, number >> 16 & 0xFF, number & 0xF0
    if major != 3 or not OLDEST <= minor <= NEWEST or FREE_THREADED and minor < 13:
        return (f"CPython {major}.{minor}.{number >> 8 & 0xFF}", *SUPPORTED)
    if level < 0xC0:
        return ("a pre-release may have another layout than its final release", *SUPPORTED)
    return (f"CPython 3.{minor}.", f"layout 3.{minor}", "does not fit: ", "expected ", "found ")


def word(name, offset, flip):
    minor = VERSION[1]
    if int(offset) not in WORDS[minor] + FREE_THREADED_WORDS[minor] * FREE_THREADED:
        return ACCEPTED
    return (f"layout 3.{minor}", "does not fit: ", r"_Py_DebugOffsets|\w+\.\w+: ", "expected ", "found ")


def alias(name, other):
    if name == "PyUnstable_Module_SetGIL":
        if FREE_THREADED:
            return ACCEPTED
        found = "32" if VERSION < (3, 13) and object.__basicsize__ == 32 else "16"
        return SUPPORTED if VERSION < (3, 13) else (f"object.__basicsize__: expected 32, found {found}",)
    if name == "_Py_stackref_get_object":
        return ("Py_STACKREF_DEBUG", "use one without")
    if name == "_Py_NegativeRefcount":
        return ACCEPTED
    if name in NAMES:
        return (rf"{name} is the type '\w+', not '{NAMES[name]}'$",)
    canary = "canary frame before it starts, slot 3 .free.: expected 1, .*, found 0, result NULL"
    if name == "PyCell_Type":
        return (canary,)
    if name == "PyTuple_Type":
        # A tuple is one of those.
        return ACCEPTED if other == "PyBaseObject_Type" else (canary,)
    (right, label), (wrong, _) = TYPES[name], TYPES[other]
    if right.__basicsize__ != wrong.__basicsize__:
        return (rf"{label}.__basicsize__: expected \d+, found {wrong.__basicsize__}",)
    return {
        "PyFunction_Type": ("canary frame ",),
        "PyCode_Type": ("canary frames seen",),
    }[name]


def lie(name, behaviour):
    if name == "PyCell_Get":
        found = {
            "null": "found 0, result NULL",
            "same": "found 1, result 0x",
            "number": "found 1, result 0x1$",
            "borrowed": "expected 1 new reference, found 0 references",
            "leaked": "expected 1 new reference, found 2 references",
        }
        return ("canary frame before it starts, slot 3 .free.: ", found[behaviour])
    if name.startswith("PyUnstable_InterpreterFrame_"):
        return (rf"layout 3\.\d+.* does not fit: {name}: expected ", "found ")
    # No verdict: the next call tries again, and fails again.
    return {
        "_PyInterpreterState_SetEvalFrameFunc": ("another eval-frame function was installed meanwhile",),
        "Py_CompileString": ("was interrupted",),
    }[name]


@unittest.skipIf(VERSION >= (3, 16), "no table for this version")
class FaultyInterpreters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        source = os.path.join(TESTS_C, "dlsym_standin.c")
        standin = support.toolchain.shared_object("dlsym_standin.so", [source, "-ldl"])
        with tempfile.TemporaryDirectory() as folder:
            environment = {"LD_PRELOAD": standin}
            output = run_scenario(
                "faulty_interpreters",
                os.path.join(folder, "asked"),
                script="fault_scenarios.py",
                env=environment,
                timeout=300,
            )
        everything = json.loads(output.splitlines()[-1])
        cls.names, cls.outcomes = set(everything["names"]), everything["outcomes"]

    def test_each_fault(self):
        provider = self.outcomes.pop("")
        refused = 0
        for fault, (what, text) in self.outcomes.items():
            with self.subTest(fault):
                words = expected(fault)
                if words is ACCEPTED:
                    self.assertEqual([what, text], provider)
                    continue
                self.assertEqual(what, "refused", text)
                for each in words:
                    self.assertRegex(text, each)
                refused += 1
        support.figures["faults"] = {"injected": len(self.outcomes), "refused": refused}

    def test_every_symbol_is_in_the_tables(self):
        """What the library looks up is required or not: whoever adds a symbol says which."""
        versions = {"_PyRuntime"} if VERSION >= (3, 13) else set()
        unknown = self.names - REQUIRED - OPTIONAL - versions
        self.assertEqual(unknown, set())
        self.assertLessEqual(REQUIRED | versions, self.names)

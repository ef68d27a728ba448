"""The program `localsplus doctor` on this interpreter, as it is and doctored: stand-ins are scripts that run this
interpreter after a few lines of Python that change it."""

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import unittest

import _cases
import run
import support
from consumers import REPOSITORY
from support import DEBUG, VERSION
from test_official import standin

TESTS = 18

# The frame type says that frames are 8 bytes longer. tp_basicsize comes after the header, ob_size and tp_name.
OTHER_SIZE = """
import ctypes, types
ctypes.c_ssize_t.from_address(id(types.FrameType) + object.__basicsize__ + 16).value += 8
"""

# _Py_DebugOffsets says that localsplus is 8 bytes further on.
OTHER_OFFSET = """
import ctypes
position = {position}
ctypes.c_uint64.from_address(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime")) + position).value += 8
"""

# Where interpreter_frame.localsplus stands.
LOCALSPLUS_POSITION = {13: 256, 14: 280, 15: 344}

# Does something when the library compiles what it runs.
WHEN_COMPILED = """
import os, signal, sys, time
def hook(event, arguments):
    if event == "compile" and arguments[1] == {filename!r}:
        {action}
sys.addaudithook(hook)
"""

# The self-test's program expects another value.
OTHER_VALUE = """
import builtins
compile_ = builtins.compile
def compile(source, filename, mode):
    if filename == "<localsplus self-test>":
        source = source.replace('"boxed": TWO', '"boxed": ONE')
    return compile_(source, filename, mode)
builtins.compile = compile
"""

# This interpreter exports the official function.
OFFICIAL = """
import importlib.machinery, importlib.util, os, sys
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
loader = importlib.machinery.ExtensionFileLoader("official_standin", {path!r})
spec = importlib.util.spec_from_file_location("official_standin", {path!r}, loader=loader)
loader.exec_module(importlib.util.module_from_spec(spec))
sys.setdlopenflags(os.RTLD_NOW)
"""


def doctored(name, lines):
    """A program that is this interpreter after having run `lines`."""
    prelude = os.path.join(support.toolchain.build_dir, f"{name}.py")
    with open(prelude, "w", encoding="utf-8") as file:
        file.write(lines)
    path = os.path.join(support.toolchain.build_dir, name)
    start = f"import sys; script = sys.argv.pop(1); exec(open({prelude!r}).read(), {{}}); exec(script)"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(start)} "$2" "$3"\n')
    os.chmod(path, 0o755)
    return path


def doctor(*arguments, env=()):
    command = [support.toolchain.program, "doctor", "--library", support.toolchain.library, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "LOCALSPLUS_PROVIDER"}
    return subprocess.run(command, env={**environment, **dict(env)}, capture_output=True, text=True, timeout=300)


def examine(python, *options, env=()):
    """The report on one interpreter, and the exit status."""
    process = doctor("--json", *options, python, env=env)
    try:
        document = json.loads(process.stdout)
    except json.JSONDecodeError:
        raise AssertionError(process.stdout + process.stderr) from None
    (report,) = document["interpreters"]
    assert document["works"] == report["works"] == (process.returncode == 0), document
    return report, process.returncode


class AsItIs(unittest.TestCase):
    def test_report(self):
        report, status = examine(sys.executable)
        self.assertEqual((report["verdict"], status), ("works", 0), report)
        self.assertEqual(report["implementation"], "CPython")
        self.assertEqual(report["version"], platform.python_version())
        self.assertEqual(report["build"], run.describe_build())
        self.assertEqual(report["provider"], _cases.provider())
        self.assertEqual(report["abi"], _cases.abi_version())
        self.assertEqual("JIT on" in report["modes"], hasattr(sys, "_jit") and sys._jit.is_enabled())

    @unittest.skipIf(VERSION >= (3, 16), "no layout for this version")
    def test_checks(self):
        report, _ = examine(sys.executable)
        self.assertEqual(report["layout"], report["provider"].removeprefix("layout "))
        found = {check["name"]: check["found"] for check in report["checks"] if check["agrees"]}
        self.assertEqual(len(found), len(report["checks"]))
        self.assertEqual(found["object.__basicsize__"], str(object.__basicsize__))
        self.assertEqual("interpreter_frame.localsplus" in found, VERSION >= (3, 13))

    def test_self_test(self):
        report, _ = examine(sys.executable)
        self.assertEqual(len(report["self_test"]), TESTS)
        self.assertEqual([test for test in report["self_test"] if not test["agrees"]], [])

    def test_text(self):
        process = doctor(sys.executable)
        self.assertEqual((process.returncode, process.stderr), (0, ""), process.stdout)
        self.assertIn(f"self-test on live frames: {TESTS} of {TESTS} agree", process.stdout)
        size = object.__basicsize__
        if VERSION < (3, 16):
            self.assertRegex(process.stdout, rf"ok object\.__basicsize__ +expected {size}, found {size}\n")
        self.assertRegex(process.stdout, rf'\n  WORKS: .* "{_cases.provider()}"\n')

    def test_the_environment_is_the_users(self):
        report, status = examine(sys.executable, env={"LOCALSPLUS_PROVIDER": "offical"})
        self.assertEqual((report["verdict"], status), ("refused", 1))
        self.assertIn("LOCALSPLUS_PROVIDER=offical", report["modes"])
        self.assertIn("LOCALSPLUS_PROVIDER=offical", report["refusal"])

    def test_the_program_needs_no_python(self):
        output = subprocess.run(["nm", "-D", support.toolchain.program], capture_output=True, text=True, check=True)
        self.assertIn("execv", output.stdout)
        self.assertNotIn(" Py", output.stdout)
        output = subprocess.run(["readelf", "-d", support.toolchain.program], capture_output=True, text=True, check=True)
        self.assertNotIn("python", output.stdout)


@unittest.skipIf(VERSION >= (3, 16), "no layout for this version")
class Doctored(unittest.TestCase):
    def refused(self, name, lines, field, expected):
        report, status = examine(doctored(name, lines))
        print(f"[{report['text']}] ", end="", flush=True)
        self.assertEqual((report["verdict"], report["provider"], status), ("refused", None, 1))
        self.assertEqual([check["name"] for check in report["checks"] if not check["agrees"]], [field])
        for words in (field, f"expected {expected}", f"found {expected + 8}"):
            self.assertIn(words, report["text"])
        self.assertEqual(report["self_test"], [])

    def test_other_size(self):
        size = type(sys._getframe()).__basicsize__
        self.refused("other_size", OTHER_SIZE, "types.FrameType.__basicsize__", size)

    @unittest.skipIf(VERSION < (3, 13), "_Py_DebugOffsets came with 3.13")
    def test_other_offset(self):
        lines = OTHER_OFFSET.format(position=LOCALSPLUS_POSITION[VERSION[1]])
        self.refused("other_offset", lines, "interpreter_frame.localsplus", 72 if VERSION < (3, 14) else 80)

    def test_other_value(self):
        report, status = examine(doctored("other_value", OTHER_VALUE))
        self.assertEqual((report["verdict"], status), ("wrong", 1))
        wrong = {test["name"] for test in report["self_test"] if not test["agrees"]}
        self.assertEqual(wrong, {"cell and free variables, before the frame starts", "cell and free variables"})
        self.assertIn("boxed: expected 0x", report["text"])

    def check_stage(self, filename, stage):
        name = filename.strip("<>").replace(" ", "_")
        action = "os.kill(os.getpid(), signal.SIGKILL)"
        report, status = examine(doctored(f"crash_{name}", WHEN_COMPILED.format(filename=filename, action=action)))
        self.assertEqual((report["verdict"], status), ("crashed", 1))
        self.assertIn("signal: 9", report["text"])
        self.assertIn(stage, report["text"])
        self.assertEqual([check for check in report["checks"] if not check["agrees"]], [])
        action = "time.sleep(1000)"
        lines = WHEN_COMPILED.format(filename=filename, action=action)
        report, status = examine(doctored(f"hang_{name}", lines), "--timeout", "8" if DEBUG else "4")
        self.assertEqual((report["verdict"], status), ("timed-out", 1))
        self.assertIn(stage, report["text"])

    def test_crash_and_hang_while_proving(self):
        self.check_stage("<localsplus canary>", "while the provider was proved")

    def test_crash_and_hang_in_the_self_test(self):
        self.check_stage("<localsplus self-test>", "in the self-test")

    def test_official(self):
        report, status = examine(doctored("with_official", OFFICIAL.format(path=standin("WITH_NAMES"))))
        self.assertEqual((report["verdict"], report["provider"], status), ("works", "official", 0), report)

    def test_official_rejected(self):
        python = doctored("with_draft", OFFICIAL.format(path=standin("TWO_ARGUMENTS")))
        report, status = examine(python)
        self.assertEqual((report["verdict"], status), ("works", 0), report)
        self.assertRegex(report["provider"], r"^layout .+ \(.+expected .+, found .+\)$")
        report, status = examine(python, env={"LOCALSPLUS_PROVIDER": "official"})
        self.assertEqual((report["verdict"], status), ("refused", 1), report)


def page_blocks():
    with open(os.path.join(REPOSITORY, "docs", "DOCTOR.md"), encoding="utf-8") as file:
        text = file.read()
    return dict(re.findall(r"^<!-- name: (\w+) -->\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def saying(name, *records):
    """An interpreter that says this of itself, in the words of one that is not at hand."""
    path = os.path.join(support.toolchain.build_dir, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\ncat <<'END'\n")
        file.writelines("\t".join(("localsplus-doctor", *record)) + "\n" for record in records)
        file.write("END\n")
    os.chmod(path, 0o755)
    return path


def masked(text):
    """Without what differs from machine to machine."""
    lines = [line for line in text.strip().split("\n")[1:] if not line.startswith("  executable ")]
    return re.sub(r"3\.11\.\d+|, \w+-\w+$|(?<=localsplus )\d\.\d\.\d|, (?:beside the program|given)$", "", "\n".join(lines), flags=re.M)


@unittest.skipIf(VERSION[:2] != (3, 11) or run.describe_build() != "release", "docs/DOCTOR.md shows 3.11, release")
class Page(unittest.TestCase):
    """docs/DOCTOR.md shows what is printed."""

    SELF = [("build", "release"), ("bits", "64"), ("platform", "linux-x86_64")]

    def test_blocks(self):
        crash = WHEN_COMPILED.format(filename="<localsplus self-test>", action="os.kill(os.getpid(), signal.SIGKILL)")
        unloadable = "the library does not load in it: liblocalsplus.so: undefined symbol: PyObject_Vectorcall"
        no_ctypes = "it has no ctypes to load a library with: module 'ctypes' has no attribute 'PyDLL'"
        shown = {
            "works": sys.executable,
            "refused": doctored("page_refused", OTHER_SIZE),
            "crashed": doctored("page_crashed", crash),
            "nothing": "/no/such/python",
            # What 3.10.13 and PyPy 7.3.11 said.
            "old": saying(
                "page_old",
                *(("implementation", "CPython"), ("version", "3.10.13"), ("number", str(0x30A))),
                *(*self.SELF, ("loading",), ("unloadable", unloadable)),
            ),
            "pypy": saying(
                "page_pypy",
                *(("implementation", "PyPy"), ("version", "3.9.16"), ("number", str(0x309))),
                *(*self.SELF, ("unloadable", no_ctypes)),
            ),
        }
        blocks = page_blocks()
        self.assertEqual(set(blocks), set(shown))
        for name, python in shown.items():
            with self.subTest(name):
                process = doctor(python)
                self.assertEqual((process.returncode, process.stderr), (int(name != "works"), ""))
                self.assertEqual(masked(process.stdout), masked(blocks[name]))

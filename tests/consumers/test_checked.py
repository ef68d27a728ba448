"""The C and C++ clients under AddressSanitizer, UndefinedBehaviorSanitizer and valgrind: the modules of the case suite
that run on every interpreter, built and run once more with those."""

import os
import re
import shutil
import unittest

from workspace import HEADERS, REPOSITORY, cargo_version, folder, interpreter, prefix, run

CLIENTS = ("test_evaluator", "test_frame_locals_mapping", "test_compat", "test_boundary.Header")
RUNNER = REPOSITORY / "tests/python/run.py"
SITUATIONS = REPOSITORY / "tests/python/situations.py"
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"

# A client that reads one element too far, to see the sanitizers at work.
BAD = """\
#include <localsplus.h>
static PyObject *bad(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject **values = PyMem_RawMalloc(sizeof(PyObject *));
    values[0] = Py_None;
    PyObject *found = values[WHERE];
    int shifted = 1 << BITS;
    PyMem_RawFree(values);
    return Py_BuildValue("Oi", found == NULL ? Py_None : Py_None, shifted);
}
static PyMethodDef methods[] = {{"bad", bad, METH_NOARGS, 0}, {0, 0, 0, 0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "bad", 0, -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_bad(void) { return PyModule_Create(&module); }
"""


def library():
    return prefix() / f"lib/liblocalsplus.so.1.{cargo_version()}"


def suite(python, build, *tests):
    return (
        *("-B", RUNNER, "--library", library(), "--include", prefix() / "include", "--build-dir", build),
        *python.includes("--python-include"),
        *(tests or CLIENTS),
    )


class Sanitizers(unittest.TestCase):
    def environment(self):
        runtimes = [run("gcc", f"-print-file-name=lib{name}.so").strip() for name in ("asan", "ubsan")]
        for runtime in runtimes:
            self.assertTrue(os.path.isabs(runtime), f"gcc has no {runtime}; on Debian: apt-get install libgcc-12-dev")
        return {
            # The interpreter is not instrumented, so that the runtime must come first.
            "LD_PRELOAD": " ".join(map(os.path.realpath, runtimes)),
            # Interpreters leak what they need until the end of the process.
            "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            # Every object is an allocation of its own.
            "PYTHONMALLOC": "malloc",
        }

    def test_clients(self):
        for name in ("3.11", "3.13t", "3.15"):
            python = interpreter(name)
            with self.subTest(name):
                environment = {**self.environment(), "CC": f"gcc {SANITIZERS}", "CXX": f"g++ {SANITIZERS}"}
                if "free-threaded" in name or name.endswith("t"):
                    del environment["PYTHONMALLOC"]  # it has one allocator only
                output = python.python(*suite(python, folder("sanitized")), **environment)
                self.assertRegex(output, r"\n[1-9]\d* passed, 0 failed")
                self.assertNotRegex(output, "ERROR: AddressSanitizer|runtime error:")

    def test_they_would_say_so(self):
        python = interpreter("3.11")
        for where, bits, complaint in ((1, 1, "heap-buffer-overflow"), (0, 40, "shift exponent 40 is too large")):
            made = folder("bad")
            (made / "bad.c").write_text(BAD.replace("WHERE", str(where)).replace("BITS", str(bits)), encoding="utf-8")
            run("gcc", *SANITIZERS.split(), "-w", "-shared", "-fPIC", "-I", HEADERS, *python.includes(), made / "bad.c",
                "-o", made / "bad.so")
            output = python.python("-c", "import bad; bad.bad()", fails=True, PYTHONPATH=made, **self.environment())
            self.assertIn(complaint, output)


class Valgrind(unittest.TestCase):
    """pyenv's interpreters are not quiet under valgrind themselves (values that the kernel filled in count as
    uninitialised), so what counts is invalid memory anywhere, and anything at all that our code does."""

    OURS = re.compile(
        r"_faults\.c|_cases\.c|evaluator\.cpp|mapping\.[ch]pp|compat_module\.c|range_module\.cpp|consumer\w*\.c|liblocalsplus|localsplus\.hpp"
    )

    def errors(self, python, *arguments, **environment):
        self.log = log = folder("valgrind") / "log"
        # Without its debug information, which valgrind cannot read, the library's frames are named by its file.
        valgrind = ("valgrind", "--num-callers=30", f"--log-file={log}", "--leak-check=full", "--show-leak-kinds=definite")
        output = run(*valgrind, python.executable, *arguments, PYTHONMALLOC="malloc", **python.env, **environment)
        text = re.sub(r"^==\d+== ?", "", log.read_text(encoding="utf-8"), flags=re.MULTILINE)
        self.assertIn("ERROR SUMMARY", text)
        return output, [block for block in text.split("\n\n") if re.search(r"^   (at|by) 0x", block, re.MULTILINE)]

    def ours(self, block):
        """Whether our code did it: the innermost frame that is not an allocator's."""
        frames = re.findall(r"^   (?:at|by) 0x\w+: (.*)$", block.split("Address 0x")[0], re.MULTILINE)
        frames = [frame for frame in frames if not re.search(r"vg_replace_malloc|vgpreload|obmalloc", frame)]
        return bool(frames) and bool(self.OURS.search(frames[0]))

    def check(self, blocks):
        invalid = [block for block in blocks if re.match(r"\s*(Invalid|Mismatched|Source and destination|Jump)", block)]
        self.assertEqual(invalid, [])
        self.assertEqual([block for block in blocks if self.ours(block)], [])

    def test_clients(self):
        self.assertIsNotNone(shutil.which("valgrind"), "on Debian: apt-get install valgrind")
        for name in ("3.11", "3.13"):
            python = interpreter(name)
            with self.subTest(name):
                # Built before, so that valgrind sees no compiler.
                output, blocks = self.errors(python, *suite(python, folder("for-valgrind")))
                self.assertRegex(output, r"\n[1-9]\d* passed, 0 failed")
                self.check(blocks)

    def lost(self, python, build, rounds):
        """How many blocks are definitely lost when everything has been asked `rounds` times in every situation."""
        paths = os.pathsep.join(map(str, [SITUATIONS.parent, build]))
        output, blocks = self.errors(python, "-B", SITUATIONS, str(rounds), PYTHONPATH=paths)
        self.assertRegex(output, r"\A\d{4,} questions\n\Z")
        self.check(blocks)
        with open(self.log, encoding="utf-8") as file:
            text = file.read()
        if "no leaks are possible" in text:
            return 0
        return int(re.search(r"definitely lost: [\d,]+ bytes in ([\d,]+) blocks", text).group(1).replace(",", ""))

    def test_frames_in_every_state(self):
        """Finished generators, cleared frames, those of tracebacks, what finalisers see: nothing invalid is read, and
        asking more often loses no more. (Interpreters lose some by themselves, and one more or less by chance.)"""
        for name in ("3.11", "3.12", "3.13"):
            python = interpreter(name)
            with self.subTest(name):
                build = folder("situations")
                python.python(*suite(python, build, "test_references.References.test_function_by_function"))
                self.assertLess(self.lost(python, build, 12) - self.lost(python, build, 2), 10)

    def test_it_would_say_so(self):
        python = interpreter("3.11")
        made = folder("bad")
        (made / "consumer_bad.c").write_text(BAD.replace("WHERE", "1").replace("BITS", "1"), encoding="utf-8")
        run("gcc", "-g", "-O0", "-w", "-shared", "-fPIC", "-I", HEADERS, *python.includes(), made / "consumer_bad.c", "-o",
            made / "bad.so")
        _, blocks = self.errors(python, "-c", "import bad; bad.bad()", PYTHONPATH=made)
        with self.assertRaisesRegex(AssertionError, "Invalid read of size 8"):
            self.check(blocks)
        self.assertTrue([block for block in blocks if self.ours(block)])

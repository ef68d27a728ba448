"""The headers under every compiler and standard, their macros, and the binary interface they stand for."""

import ctypes
import os
import re
import shutil
import unittest

from workspace import (
    BLOCKS,
    HEADERS,
    REPOSITORY,
    cargo_archive,
    cargo_version,
    declared_functions,
    exported,
    folder,
    interpreter,
    interpreters,
    prefix,
    run,
    tool,
)

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
C_STANDARDS = ("c11", "c17")
CPP_STANDARDS = ("c++17", "c++20", "c++23")
COMPILERS = (("gcc", "g++"), ("clang", "clang++"))

# Each file includes the headers twice, in both orders, and is linked with another that does.
C_SOURCE = """\
#include <localsplus_compat.h>
#include <localsplus.h>
#include <localsplus.h>
#include <localsplus_compat.h>

typedef struct _PyInterpreterFrame frame_t;
int uses_@@(frame_t *frame, PyObject **result);

int
uses_@@(frame_t *frame, PyObject **result)
{
    PyObject *code = PyUnstable_InterpreterFrame_GetCode(frame);
    if (code == NULL) {
        return -1;
    }
    PyObject *names = PyUnstable_Code_GetLocalPlusNames((PyCodeObject *)code);
    Py_DECREF(code);
    Py_XDECREF(names);
    if (PyUnstable_InterpreterFrame_GetLasti(frame) > PyUnstable_InterpreterFrame_GetLine(frame)) {
        return localsplus_get_slot(frame, 0, LOCALSPLUS_HIDDEN | LOCALSPLUS_RAW_CELL, result);
    }
    return PyUnstable_InterpreterFrame_GetLocal(frame, localsplus_count(frame) - 1, result);
}
"""
CPP_SOURCE = """\
#include <localsplus.hpp>
#include <localsplus_compat.h>
#include <localsplus.hpp>
#include <localsplus.h>

#include <algorithm>

Py_ssize_t uses_@@_too(struct _PyInterpreterFrame *frame);

Py_ssize_t uses_@@_too(struct _PyInterpreterFrame *frame)
{
    localsplus::init();
    auto slots = localsplus::frame(frame).slots();
    return std::count_if(slots.begin(), slots.end(), [](localsplus::slot slot) {
        return slot.kind().is_argument() && slot.value() && slot.name();
    });
}
"""
DEFAULT_WARNINGS_TOO = BLOCKS["compat.c"], BLOCKS["refusal.c"]


def compilers():
    """((C compiler, C++ compiler), ...), all that the project promises."""
    return [(tool(*versions(c)), tool(*versions(cpp))) for c, cpp in COMPILERS]


def versions(name):
    return [name, *(f"{name}-{version}" for version in range(25, 13, -1))]


class Compiling(unittest.TestCase):
    def compile(self, compiler, standard, source, python, *options, warnings=STRICT):
        made = folder("compile")
        suffix = "cpp" if standard.startswith("c++") else "c"
        file = made / f"source.{suffix}"
        file.write_text(source, encoding="utf-8")
        # Ours with -I, so that every warning counts; Python's headers are not ours.
        includes = ["-I", HEADERS, *python.includes()]
        if os.path.basename(compiler).startswith("g"):
            includes.append("-fno-canonical-system-headers")
        command = [compiler, f"-std={standard}", *warnings, "-fPIC", *includes, *options, "-c", file, "-o", made / "o.o"]
        self.assertEqual(run(*command), "", "not a word")
        return made / "o.o"


class Compile(Compiling):
    def test_every_compiler_standard_and_version(self):
        for c, cpp in compilers():
            for name, python in interpreters().items():
                for standard in C_STANDARDS + CPP_STANDARDS:
                    is_cpp = standard.startswith("c++")
                    # Every combination once, and every version with the least standard of each language.
                    if name not in ("3.11", "3.15") and standard not in ("c11", "c++17"):
                        continue
                    with self.subTest(compiler=cpp if is_cpp else c, standard=standard, python=name):
                        self.compile(cpp if is_cpp else c, standard, C_SOURCE.replace("@@", "it"), python)
                        if is_cpp:
                            self.compile(cpp, standard, CPP_SOURCE.replace("@@", "it"), python)

    def test_two_files(self):
        """Nothing is defined twice when two files that include everything are linked, C and C++."""
        python = interpreter("3.11")
        for c, cpp in compilers():
            objects = [
                self.compile(compiler, standard, source.replace("@@", name), python)
                for name in ("one", "two")
                for compiler, standard, source in ((c, "c11", C_SOURCE), (cpp, "c++17", CPP_SOURCE))
            ]
            run(cpp, "-shared", *objects, "-o", folder("two-files") / "both.so", "-Wl,-z,defs", "-L", prefix() / "lib",
                "-llocalsplus", "-Wl,--unresolved-symbols=ignore-all")

    def test_documented_code(self):
        for c, cpp in compilers():
            for source in DEFAULT_WARNINGS_TOO:
                self.compile(c, "c11", source, interpreter("3.11"), warnings=("-Wall", "-Wextra", "-Werror"))
            self.compile(cpp, "c++17", BLOCKS["hook.cpp"], interpreter("3.13"), warnings=("-Wall", "-Wextra", "-Werror"))

    def test_a_warning_would_be_seen(self):
        for c, _ in compilers():
            source = "#include <localsplus.h>\nint narrow(long value);\nint narrow(long value) { return value; }\n"
            with self.assertRaisesRegex(AssertionError, "conversion"):
                self.compile(c, "c11", source, interpreter("3.11"))

    def test_limited_api(self):
        for c, _ in compilers():
            source = "#define Py_LIMITED_API 0x030B0000\n#include <localsplus.h>\nint unused;\n"
            self.compile(c, "c11", source, interpreter("3.11"))
            with self.assertRaisesRegex(AssertionError, "not in the limited API: use localsplus.h"):
                self.compile(c, "c11", source.replace("localsplus.h", "localsplus_compat.h"), interpreter("3.11"))

    def test_without_exceptions(self):
        for _, cpp in compilers():
            source = "#include <localsplus.hpp>\nint unused;\n"
            with self.assertRaisesRegex(AssertionError, "throws exceptions; include localsplus.h instead"):
                self.compile(cpp, "c++17", source, interpreter("3.11"), "-fno-exceptions")

    def test_only_public_headers(self):
        for header in ("localsplus.h", "localsplus.hpp", "localsplus_compat.h"):
            text = (HEADERS / header).read_text(encoding="utf-8")
            included = set(re.findall(r"^\s*#\s*include\s+(\S+)", text, re.MULTILINE))
            self.assertTrue(included)
            self.assertFalse([name for name in included if "internal" in name or "pycore" in name], header)
            self.assertNotRegex(text, "define Py_BUILD_CORE")


class Compat(Compiling):
    """A CPython that has the official functions: the compat header adds nothing, the calls are CPython's own."""

    OFFICIAL = """
#ifndef OFFICIAL
#define OFFICIAL
#ifdef __cplusplus
extern "C" {
#endif
struct _PyInterpreterFrame;
PyAPI_FUNC(int) PyUnstable_InterpreterFrame_GetLocal(struct _PyInterpreterFrame *frame, Py_ssize_t index, PyObject **result);
PyAPI_FUNC(PyObject *) PyUnstable_Code_GetLocalPlusNames(PyCodeObject *co);
#ifdef __cplusplus
}
#endif
#endif
"""

    def future(self, hexversion):
        """3.15's headers, made to say they are that version, with the official declarations in their place."""
        python = interpreter("3.15")
        made = folder("future")
        shutil.copytree(python.include_dirs[0], made / "python")
        for name in ("pyframe.h", "code.h"):
            header = made / "python/cpython" / name
            header.write_text(header.read_text(encoding="utf-8") + (self.OFFICIAL if name == "code.h" else ""))
        patch = made / "python/patchlevel.h"
        text = re.sub(r"#define PY_MINOR_VERSION\s+15", "#define PY_MINOR_VERSION 16", patch.read_text(encoding="utf-8"))
        text = re.sub(r"#define PY_VERSION_HEX (?:.*\\\n)*.*", f"#define PY_VERSION_HEX {hexversion}", text)
        patch.write_text(text, encoding="utf-8")
        future = type(python)("3.16", {"executable": "", "env": {}, "include_dirs": [made / "python", *python.include_dirs[1:]]})
        return future

    def undefined(self, python, compiler, standard):
        file = self.compile(compiler, standard, C_SOURCE.replace("@@", "it"), python)
        return set(re.findall(r"UND (\w+)$", run("readelf", "-sW", file), re.MULTILINE))

    def test_adds_nothing(self):
        for pair in compilers():
            for compiler, standard in zip(pair, ("c11", "c++17")):
                undefined = self.undefined(self.future("0x031000A2"), compiler, standard)
                wanted = {
                    *("PyUnstable_InterpreterFrame_GetLocal", "PyUnstable_Code_GetLocalPlusNames"),
                    *(f"PyUnstable_InterpreterFrame_Get{name}" for name in ("Code", "Lasti", "Line")),
                }
                self.assertEqual({name for name in undefined if name.startswith("PyUnstable")}, wanted)
                self.assertEqual(
                    {name for name in undefined if name.startswith("localsplus")},
                    {"localsplus_count", "localsplus_get_slot"},
                )

    def test_would_clash(self):
        """The first alpha of 3.16 lacks the functions; a header that declares them all the same shows itself."""
        with self.assertRaisesRegex(AssertionError, "PyUnstable_InterpreterFrame_GetLocal"):
            self.undefined(self.future("0x031000A1"), compilers()[0][0], "c11")

    def test_what_each_version_lacks(self):
        for name, lacking in (("3.11", {"Code", "Lasti", "Line", "Local"}), ("3.12", {"Local"}), ("3.15", {"Local"})):
            undefined = self.undefined(interpreter(name), compilers()[0][0], "c11")
            for function in ("Code", "Lasti", "Line", "Local"):
                official = f"PyUnstable_InterpreterFrame_Get{function}" in undefined
                self.assertEqual(official, function not in lacking, (name, function))


class Declarations(Compiling):
    """LOCALSPLUS_API: what a module that uses it exports and expects."""

    SOURCE = "#include <localsplus.h>\nint uses(void);\nint uses(void) { return localsplus_abi_version(); }\n"

    def visibility(self, *options):
        file = self.compile("gcc", "c11", self.SOURCE, interpreter("3.11"), *options)
        (line,) = re.findall(r".*\blocalsplus_abi_version$", run("readelf", "-sW", file), re.MULTILINE)
        return line.split()[5]

    def test_visibility(self):
        self.assertEqual(self.visibility("-DLOCALSPLUS_STATIC"), "HIDDEN")
        for options in ((), ("-DLOCALSPLUS_EXPORT",)):
            self.assertEqual(self.visibility(*options, "-fvisibility=hidden"), "DEFAULT", options)
        self.assertEqual(self.visibility("-DLOCALSPLUS_API=", "-DLOCALSPLUS_STATIC"), "DEFAULT", "the user's own")

    def test_linked_into_a_module(self):
        installed = prefix() / "lib/liblocalsplus.a"
        for option, archive, handed_on in (
            ("-DLOCALSPLUS_STATIC", installed, set()),
            ("-DLOCALSPLUS_EXPORT", installed, set()),
            ("-DLOCALSPLUS_STATIC", cargo_archive(), declared_functions() - {"localsplus_abi_version"}),
            ("-DLOCALSPLUS_EXPORT", cargo_archive(), declared_functions()),
        ):
            file = self.compile("gcc", "c11", self.SOURCE, interpreter("3.11"), option)
            module = folder("module") / "module.so"
            # With default visibility everywhere else.
            run("gcc", "-shared", file, archive, "-o", module, "-lgcc_s")
            self.assertEqual(exported(module) & declared_functions(), handed_on, (option, archive))

    def test_windows_declarations(self):
        """Preprocessed only: what a compiler for Windows would see."""
        for options, wanted in (
            ((), "__declspec(dllimport) int localsplus_init"),
            (("-DLOCALSPLUS_EXPORT",), "__declspec(dllexport) int localsplus_init"),
            (("-DLOCALSPLUS_STATIC",), "\n int localsplus_init"),
        ):
            fake = folder("windows")
            (fake / "Python.h").write_text("", encoding="utf-8")
            output = run("gcc", "-E", "-P", "-D_WIN32", "-U__GNUC__", *options, "-I", fake, HEADERS / "localsplus.h")
            self.assertIn(wanted.strip(), output)
            if options == ("-DLOCALSPLUS_STATIC",):
                self.assertNotIn("declspec", output)


class Versions(unittest.TestCase):
    def macros(self):
        fake = folder("macros")
        (fake / "Python.h").write_text("", encoding="utf-8")
        output = run("gcc", "-E", "-dM", "-I", fake, HEADERS / "localsplus.h")
        return dict(re.findall(r"^#define (LOCALSPLUS_\w+) (.+)$", output, re.MULTILINE))

    def test_version_macros(self):
        macros = self.macros()
        parts = [macros[f"LOCALSPLUS_VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(".".join(parts), cargo_version())
        self.assertEqual(macros["LOCALSPLUS_VERSION_STRING"], f'"{cargo_version()}"')
        # What people copy from the documentation.
        text = (REPOSITORY / "docs/CPP.md").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"localsplus-(\d\S*?)\.tar", text)), {cargo_version()})

    def test_abi(self):
        header = (HEADERS / "localsplus.h").read_text(encoding="utf-8")
        declared = {
            re.sub(r"\s+", " ", prototype) for prototype in re.findall(r"^LOCALSPLUS_API ([^;]+);", header, re.MULTILINE)
        }
        macros = self.macros()
        own = ("LOCALSPLUS_VERSION_", "LOCALSPLUS_API", "LOCALSPLUS_H")
        constants = {
            f"{name} {value}"
            for name, value in macros.items()
            if not name.startswith(own) or name in ("LOCALSPLUS_HIDDEN",)
        }
        version = macros["LOCALSPLUS_ABI_VERSION"]
        lines = (REPOSITORY / f"tests/c/abi-{version}.txt").read_text(encoding="utf-8").splitlines()
        recorded = {line for line in lines if not line.startswith("#")}
        self.assertEqual(declared | constants, recorded, "an addition belongs into this file, a change into the next one")
        functions = {re.search(r"(localsplus_\w+)\(", line)[1] for line in recorded if "(" in line}
        self.assertEqual(declared_functions(), functions)
        library = prefix() / "lib/liblocalsplus.so"
        self.assertEqual(exported(library), functions)
        # Needs no interpreter: the library's undefined symbols are resolved when they are called.
        loaded = ctypes.CDLL(str(library), mode=os.RTLD_LAZY)
        self.assertEqual(str(loaded.localsplus_abi_version()), version)
        self.assertTrue((prefix() / f"lib/liblocalsplus.so.{version}").exists(), "the SONAME has the ABI version")

    def test_every_function_says_since_when(self):
        header = (HEADERS / "localsplus.h").read_text(encoding="utf-8")
        comments = re.findall(r"/\*(?:(?!\*/).)*\*/\nLOCALSPLUS_API [^;]*?(localsplus_\w+)\(", header, re.DOTALL)
        self.assertEqual(set(comments), declared_functions(), "a function without a comment")
        dated = re.findall(r"/\*(?:(?!\*/).)*Since \d+\.\d+\. \*/\nLOCALSPLUS_API [^;]*?(localsplus_\w+)\(", header, re.DOTALL)
        self.assertEqual(set(dated), declared_functions())

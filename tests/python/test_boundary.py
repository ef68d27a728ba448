"""The C boundary: header, exported symbols, bad arguments, and how the library gets into a process."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import unittest

import _cases
import support
from support import FLAGS, NO_VALUE, TESTS_C

SSIZE_MAX = sys.maxsize
SSIZE_MIN = -sys.maxsize - 1


def call(function, frame, index=0, flags=0, capacity=32, null_result=False, pending=None):
    return _cases.call(function, frame, index, flags, capacity, null_result, pending)


def example():
    """A frame with three slots: a value, a captured argument, an unset variable."""

    def t(plain, captured):
        return sys._getframe(), lambda: captured
        unset = None

    return t("plain", "captured")[0]


class BadInput(unittest.TestCase):
    """X3: every row of the table of errors."""

    def refused(self, answer, error_type, *words, result=NO_VALUE):
        status, got, error = answer
        self.assertEqual((status, type(error)), (-1, error_type), error)
        self.assertEqual(got, result)
        for word in words:
            self.assertRegex(str(error), rf"(?<![\w-]){re.escape(word)}(?!\w)")

    def test_index_out_of_range(self):
        frame = example()
        for index in (-1, 3, 1000, SSIZE_MAX, SSIZE_MIN):
            for function in ("get_local", "get_slot"):
                with self.subTest(function=function, index=index):
                    self.refused(call(function, frame, index), IndexError, str(index), "3")
            with self.subTest(function="kind", index=index):
                self.refused(call("kind", frame, index), IndexError, str(index), "3", result="not written")

    def test_index_out_of_range_without_slots(self):
        frame = (lambda: sys._getframe())()
        self.refused(call("get_local", frame, 0), IndexError, "0")

    def test_frame_is_null(self):
        for function in ("get_local", "get_slot", "names"):
            self.refused(call(function, 0), ValueError, "frame")
        for function in ("count", "kind"):
            self.refused(call(function, 0), ValueError, "frame", result="not written")
        self.refused(call("get_locals", 0, capacity=2), ValueError, "frame", result=["not written"] * 2)

    def test_result_is_null(self):
        frame = example()
        for function in ("get_local", "get_slot"):
            self.refused(call(function, frame, null_result=True), ValueError, "result", result="not written")
        answer = call("get_locals", frame, null_result=True, capacity=3)
        self.refused(answer, ValueError, "result", result=["not written"] * 3)

    def test_capacity(self):
        frame = example()
        for capacity in (0, 1, 2):
            with self.subTest(capacity=capacity):
                answer = call("get_locals", frame, capacity=capacity)
                self.refused(answer, ValueError, "capacity", result=["not written"] * capacity)
        for capacity in (-1, SSIZE_MIN):
            with self.subTest(capacity=capacity):
                self.refused(call("get_locals", frame, capacity=capacity), ValueError, "capacity", result=[])
        self.assertEqual(call("get_locals", frame, capacity=3), (3, ["plain", "captured", NO_VALUE], None))
        filled = ["plain", "captured", NO_VALUE, "not written", "not written"]
        self.assertEqual(call("get_locals", frame, capacity=5), (3, filled, None))

    def test_capacity_without_slots(self):
        frame = (lambda: sys._getframe())()
        self.assertEqual(call("get_locals", frame, capacity=0), (0, [], None))

    def test_unknown_flag(self):
        frame = example()
        for flags in (4, 8, 7, 1 << 31, 0xFFFFFFFF):
            with self.subTest(flags=flags):
                self.refused(call("get_slot", frame, flags=flags), ValueError, "flags")
        for flags in FLAGS:
            self.assertEqual(call("get_slot", frame, flags=flags)[0], 1)

    def test_failure_owns_nothing(self):
        value = object()

        def t(value):
            return sys._getframe()

        frame = t(value)
        before = sys.getrefcount(value)
        for _ in range(100):
            call("get_locals", frame, capacity=0)
            call("get_local", frame, 99)
            call("get_slot", frame, flags=4)
        self.assertEqual(sys.getrefcount(value), before)

    def test_pending_exception_is_kept(self):
        frame = example()
        for function in ("get_local", "get_locals", "get_slot", "count", "kind", "names", "init", "provider"):
            for index in (0, 2):  # with and without a value
                with self.subTest(function=function, index=index):
                    pending = KeyError("pending")
                    status, _, error = call(function, frame, index, pending=pending)
                    self.assertGreaterEqual(status, 0)
                    self.assertIs(error, pending)

    def test_pending_exception_gives_way_to_an_error(self):
        status, _, error = call("get_local", 0, pending=KeyError("pending"))
        self.assertEqual((status, type(error)), (-1, ValueError))


class Header(unittest.TestCase):
    """X1: a C11 and a C++17 program, strictly compiled, each file including the header twice."""

    STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")

    def python_includes(self):
        # Only our header is held to these warnings, hence -isystem for Python's.
        options = [option for path in support.toolchain.python_includes for option in ("-isystem", path)]
        version = subprocess.run([*support.toolchain.compiler, "--version"], capture_output=True, text=True).stdout
        if "clang" not in version:
            # gcc would follow links between headers of debug and release builds.
            options.append("-fno-canonical-system-headers")
        return options

    def test_x1_consumers(self):
        toolchain = support.toolchain
        cxx = shlex.split(os.environ.get("CXX", "c++"))
        self.assertIsNotNone(shutil.which(cxx[0]), "no C++ compiler")
        objects = []
        for compiler, standard, names in (
            (toolchain.compiler, "c11", ("consumer_module.c", "consumer_c.c")),
            (cxx, "c++17", ("consumer_cpp.cpp", "consumer_cpp_too.cpp")),
        ):
            for name in names:
                objects.append(os.path.join(toolchain.build_dir, name + ".o"))
                command = [*compiler, f"-std={standard}", *self.STRICT, "-fPIC", "-I" + toolchain.include]
                command += [*self.python_includes(), "-c", os.path.join(TESTS_C, name), "-o", objects[-1]]
                process = subprocess.run(command, capture_output=True, text=True)
                self.assertEqual(process.returncode, 0, process.stderr)
        toolchain.extension("_consumer", [*objects, "-lstdc++"], link_library=True)

        import _consumer

        frame = example()
        address = _cases.address(frame)
        for language in ("c", "c++", "c++ too"):
            self.assertEqual(_consumer.versions(language), (_consumer.HEADER_ABI_VERSION,) * 2)
            self.assertEqual(_consumer.first_local(language, address), "plain")
            with self.assertRaises(ValueError):
                _consumer.first_local(language, 0)

    def test_header_includes_nothing_internal(self):
        with open(os.path.join(support.toolchain.include, "localsplus.h"), encoding="utf-8") as file:
            self.assertEqual(re.findall(r"^\s*#\s*include\s+(\S+)", file.read(), re.MULTILINE), ["<Python.h>"])

    def test_versions_agree(self):
        self.assertEqual(_cases.abi_version(), _cases.HEADER_ABI_VERSION)


def tool_output(*command):
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0:
        raise AssertionError(f"{command}: {process.stderr}")
    return process.stdout


class SharedLibrary(unittest.TestCase):
    """X2: what the shared library gives to and wants from a process."""

    API = {
        "abi_version",
        "init",
        "provider",
        "get_local",
        "get_locals",
        "get_slot",
        "count",
        "names",
        "kind",
        "code",
        "lasti",
        "index",
        "name_map",
        "indexes",
        "get_by_name",
        "dict",
        "arguments_get",
        "arguments_clear",
        "function",
        "globals",
        "builtins",
        "namespace",
        "closure",
        "line",
        "state",
        "is_generator",
        "frame_object",
        "parameter_count",
        "parameter",
        "previous",
        "current_frame",
        "frame_of_object",
        "frame_of_generator",
        "hook_install",
        "hook_remove",
        "consume",
        "evaluate_in_place",
    }

    # For the program `localsplus doctor`.
    NOT_API = {"localsplus_report"}

    def symbols(self, *options):
        lines = tool_output("nm", "-D", *options, support.toolchain.library).splitlines()
        return {line.split()[-1].split("@")[0] for line in lines if line}

    def test_x2_exports(self):
        exported = self.symbols("--defined-only")
        self.assertEqual(exported - self.NOT_API, {"localsplus_" + name for name in self.API})

    def test_x2_header_declares_what_is_exported(self):
        with open(os.path.join(support.toolchain.include, "localsplus.h"), encoding="utf-8") as file:
            declared = set(re.findall(r"\b(localsplus_\w+)\(", file.read()))
        self.assertEqual(declared, self.symbols("--defined-only") - self.NOT_API)

    def test_x2_needs_no_libpython(self):
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", tool_output("readelf", "-d", support.toolchain.library))
        self.assertTrue(needed)
        self.assertEqual([name for name in needed if "python" in name], [])

    def test_x2_undefined_symbols_are_exported_here(self):
        wanted = {name for name in self.symbols("--undefined-only") if re.match(r"_?Py", name)}
        self.assertTrue(wanted)
        self.assertEqual([name for name in sorted(wanted) if not _cases.has_symbol(name)], [])


def shared_libpython():
    """The libpython this interpreter runs from, or None if it is in the executable."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        found = re.search(r"\s(/\S*/libpython3\.\S+)$", file.read(), re.MULTILINE)
    return found and found.group(1)


class Loading(unittest.TestCase):
    """X4: a library loaded by a plugin that was itself loaded RTLD_LOCAL."""

    def test_x4_in_this_process(self):
        # Extension modules are such plugins.
        self.assertEqual(sys.getdlopenflags() & os.RTLD_GLOBAL, 0)
        self.assertFalse(_cases.has_symbol("localsplus_get_local"))
        self.assertIsNotNone(_cases.provider())

    @unittest.skipUnless(shared_libpython(), "this interpreter has no shared libpython to load")
    def test_x4_interpreter_in_a_plugin(self):
        toolchain = support.toolchain
        libpython = shared_libpython()
        host = toolchain.compile("host", [os.path.join(TESTS_C, "host.c"), "-ldl"])
        plugin = toolchain.shared_object(
            "plugin.so",
            [os.path.join(TESTS_C, "plugin.c"), libpython],
            ["-Wl,-rpath," + os.path.dirname(libpython)],
            link_library=True,
        )
        environment = {**os.environ, "PYTHONHOME": sys.base_prefix}
        process = subprocess.run([host, plugin], env=environment, capture_output=True, text=True)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        self.assertEqual(process.stdout, f"{_cases.provider()}\nfound 'value'\n")

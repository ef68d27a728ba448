"""Runs the case suite inside the interpreter that executes this file.

    python3.X tests/python/run.py --library target/release/liblocalsplus.so \\
        --include shims/include --build-dir DIR [--report FILE.json] [-k PATTERN] [TEST ...]

Needs a C compiler and the interpreter's headers (its internal ones for the
oracle). Generated programs need hypothesis besides: what is not installed is
skipped, and --packages names a folder that has it. TEST is a module, class or
method name as unittest takes it (test_entry.Entry.test_e1_generator_expression).
"""

import argparse
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SHIMS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "shims")

WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="the liblocalsplus.so to test")
    parser.add_argument("--program", help="the program localsplus (default: beside the library, where cargo puts it)")
    parser.add_argument("--include", required=True, help="directory of localsplus.h")
    parser.add_argument("--build-dir", required=True, help="where the test extensions are built")
    parser.add_argument("--report", help="write the outcome as JSON to this file")
    parser.add_argument("--python-include", action="append", metavar="DIR", help="directory of Python.h (repeatable)")
    parser.add_argument("--packages", metavar="DIR", help="folder of the Python packages that tests use (hypothesis)")
    parser.add_argument("--stress", action="store_true", help="the long forms of the tests that have one")
    parser.add_argument("--seed", type=int, help="for the tests that draw at random")
    parser.add_argument("-k", action="append", metavar="PATTERN", help="only tests whose name matches")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    return parser.parse_args()


def describe_build():
    words = []
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        words.append("free-threaded")
    if hasattr(sys, "gettotalrefcount"):
        words.append("debug")
    if hasattr(sys, "getobjects"):
        words.append("trace-refs")
    return " ".join(words) or "release"


def default_python_includes():
    include = sysconfig.get_path("include")
    # Debian's pyconfig.h is found relative to the parent directory.
    candidates = [include, sysconfig.get_path("platinclude"), os.path.dirname(include)]
    return list(dict.fromkeys(path for path in candidates if os.path.isdir(path)))


class Toolchain:
    """What is compiled for this interpreter, and with which command."""

    def __init__(self, library, program, include, build_dir, python_includes):
        self.library = os.path.abspath(library)
        self.program = os.path.abspath(program or os.path.join(os.path.dirname(self.library), "localsplus"))
        self.build_dir = os.path.abspath(build_dir)
        # -I and not -isystem: some distributions make the headers of a debug
        # build links to the release ones, and gcc resolves links of system
        # headers. The wrong pyconfig.h would follow.
        self.includes = ["-I" + os.path.abspath(path) for path in [include, SHIMS, *python_includes]]
        self.python_includes = [os.path.abspath(path) for path in python_includes]
        self.include = os.path.abspath(include)
        self.compiler = shlex.split(os.environ.get("CC", "cc"))
        os.makedirs(self.build_dir, exist_ok=True)

    def compile(self, name, options):
        output = os.path.join(self.build_dir, name)
        command = [*self.compiler, "-O2", "-g", "-fPIC", "-fvisibility=hidden", *WARNINGS, *self.includes, *options]
        run_compiler([*command, "-o", output])
        return output

    def shared_object(self, name, sources, options=(), link_library=False):
        library = [self.library, "-Wl,-rpath," + os.path.dirname(self.library)] if link_library else []
        return self.compile(name, ["-shared", *options, *sources, *library])

    def extension(self, name, sources, **kwargs):
        return self.shared_object(name + importlib.machinery.EXTENSION_SUFFIXES[0], sources, **kwargs)


def run_compiler(command):
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if process.returncode != 0:
        sys.exit(f"{shlex.join(command)}\n{process.stdout}compilation failed")


def build(toolchain):
    toolchain.oracle_object = toolchain.compile("oracle.o", ["-c", os.path.join(SHIMS, "oracle.c")])
    toolchain.extension("_oracle", [os.path.join(HERE, "_oracle.c"), toolchain.oracle_object])
    toolchain.extension("_questions", [os.path.join(HERE, "_questions.c")], link_library=True)
    toolchain.extension("_cases", [os.path.join(HERE, "_cases.c")], link_library=True)
    toolchain.extension("_names", [os.path.join(HERE, "_names.c")], link_library=True)
    toolchain.extension(
        "_compare", [os.path.join(HERE, "_compare.c"), toolchain.oracle_object], link_library=True
    )
    toolchain.extension("_faults", [os.path.join(HERE, "_faults.c")], link_library=True)


def check_extension(cases, library):
    """The extension must be built like the interpreter, and must have loaded the file under test."""
    expected = {
        "Py_DEBUG": int(hasattr(sys, "gettotalrefcount")),
        "Py_GIL_DISABLED": int(bool(sysconfig.get_config_var("Py_GIL_DISABLED"))),
    }
    for macro, value in expected.items():
        if getattr(cases, macro) != value:
            sys.exit(f"{macro}: the extension has {getattr(cases, macro)}, the interpreter {value}: wrong headers")
    loaded = cases.library_path()
    if loaded is None or not os.path.samefile(loaded, library):
        sys.exit(f"loaded {loaded} instead of {library}")


class Result(unittest.TextTestResult):
    """Counts tests, where a test with failing subtests has failed once."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passed = 0
        self.failed_tests = set()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.failed_tests.add(test.id())

    def addError(self, test, err):
        super().addError(test, err)
        self.failed_tests.add(test.id())

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.failed_tests.add(test.id())

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.failed_tests.add(test.id())


def load_tests(arguments):
    loader = unittest.TestLoader()
    if arguments.k:
        loader.testNamePatterns = [pattern if "*" in pattern else f"*{pattern}*" for pattern in arguments.k]
    if arguments.tests:
        return loader.loadTestsFromNames(arguments.tests)
    return loader.discover(HERE, top_level_dir=HERE)


def main():
    arguments = parse_arguments()
    started = time.monotonic()
    with open(arguments.library, "rb") as file:
        sha256 = hashlib.sha256(file.read()).hexdigest()
    toolchain = Toolchain(
        arguments.library,
        arguments.program,
        arguments.include,
        arguments.build_dir,
        arguments.python_include or default_python_includes(),
    )
    build(toolchain)

    sys.path[:0] = [toolchain.build_dir, HERE]
    if arguments.packages:
        sys.path.append(os.path.abspath(arguments.packages))
        if importlib.util.find_spec("hypothesis") is None:
            sys.exit(f"--packages {arguments.packages}: no hypothesis in it")
    import _cases
    import support

    check_extension(_cases, toolchain.library)
    support.toolchain = toolchain
    support.packages = arguments.packages and os.path.abspath(arguments.packages)
    support.stress = arguments.stress
    support.seed = arguments.seed

    print(f"library {toolchain.library}")
    print(f"sha256 {sha256}")
    print(f"interpreter {platform.python_version()} {describe_build()} ({sys.executable})")
    provider = _cases.provider()
    print(f"provider {provider}", flush=True)
    if provider is None:
        # Nothing could pass; the reason is all there is to learn.
        try:
            _cases.init()
        except RuntimeError as refusal:
            print(f"FAILED: {refusal}")
        passed, failed, skipped = 0, 1, []
    else:
        runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Result)
        result = runner.run(load_tests(arguments))
        passed, failed = result.passed, len(result.failed_tests)
        skipped = [{"test": test.id(), "reason": reason} for test, reason in result.skipped]
    for skip in skipped:
        print(f"SKIPPED {skip['test']}: {skip['reason']}")
    report = {
        "version": platform.python_version(),
        "build": describe_build(),
        "provider": provider,
        "library_sha256": sha256,
        "passed": passed,
        "failed": failed,
        "skipped": skipped,
        "figures": support.figures,
        "seconds": round(time.monotonic() - started, 1),
    }
    if arguments.report:
        with open(arguments.report, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
            file.write("\n")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    # An empty run (a misspelt pattern, say) proves nothing.
    return 1 if failed or not passed + len(skipped) else 0


if __name__ == "__main__":
    sys.exit(main())

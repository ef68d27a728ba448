"""Runs the consumer tests: what is published, and what C and C++ projects do with it, in folders outside the repository.

    python3 tests/consumers/run.py [--report FILE.json] [-k PATTERN] [TEST ...]

matrix/run calls this with the tools that it has provided. By itself it takes CMake, ninja and clang from PATH and
setuptools from the Python that runs it, and the interpreters that matrix/run --provide has brought.
"""

import argparse
import importlib.util
import json
import os
import shutil
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))


def result_class():
    """The one of the case suite: a test with failing subtests has failed once."""
    spec = importlib.util.spec_from_file_location("case_suite", HERE.parent / "python/run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", help="write the outcome as JSON to this file")
    parser.add_argument("-k", action="append", metavar="PATTERN", help="only tests whose name matches")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="a module, class or method")
    arguments = parser.parse_args()
    if not os.environ.get("LOCALSPLUS_CMAKES"):
        cmake = shutil.which("cmake")
        if cmake is None:
            sys.exit("cmake is not on PATH; matrix/run consumers brings its own")
        os.environ["LOCALSPLUS_CMAKES"] = cmake

    started = time.monotonic()
    loader = unittest.TestLoader()
    if arguments.k:
        loader.testNamePatterns = [pattern if "*" in pattern else f"*{pattern}*" for pattern in arguments.k]
    if arguments.tests:
        tests = loader.loadTestsFromNames(arguments.tests)
    else:
        tests = loader.discover(str(HERE), top_level_dir=str(HERE))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=result_class()).run(tests)
    skipped = [{"test": test.id(), "reason": reason} for test, reason in result.skipped]
    report = {
        "passed": result.passed,
        "failed": len(result.failed_tests),
        "skipped": skipped,
        "seconds": round(time.monotonic() - started, 1),
    }
    if arguments.report:
        Path(arguments.report).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"{report['passed']} passed, {report['failed']} failed, {len(skipped)} skipped")
    # An empty run (a misspelt pattern) proves nothing.
    return 1 if report["failed"] or not result.wasSuccessful() or result.testsRun == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

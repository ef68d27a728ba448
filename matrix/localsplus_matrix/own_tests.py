"""The matrix's own tests (matrix/test_*.py), as a line of the table."""

import re
import sys
import time

from . import command, progress
from .cache import LOGS, MATRIX
from .outcome import Outcome

_MODULES = [file.stem for file in sorted(MATRIX.glob("test_*.py"))]


def run() -> Outcome:
    outcome = Outcome("matrix")
    started = time.monotonic()
    progress.say("running the matrix's own tests")
    log = LOGS / "matrix-tests.log"
    try:
        command.run([sys.executable, "-B", "-m", "unittest", "-v", *_MODULES], log, cwd=MATRIX, timeout=900)
    except command.CommandFailed as failure:
        outcome.problem = str(failure)
    output = log.read_text(encoding="utf-8")
    for test, result in re.findall(
        r"^(\w+) \(.*?\)(?:\n.*?)?? \.\.\. (ok|FAIL|ERROR|skipped .*)$", output, re.MULTILINE
    ):
        if result == "ok":
            outcome.passed += 1
        elif result.startswith("skipped"):
            outcome.skipped.append((test, result.removeprefix("skipped ").strip("'\"")))
        else:
            outcome.failed += 1
    if outcome.problem is not None and outcome.failed == 0:
        outcome.failed = 1
    elif outcome.passed + outcome.failed == 0:
        outcome.fail("no test ran")
    outcome.seconds = time.monotonic() - started
    return outcome

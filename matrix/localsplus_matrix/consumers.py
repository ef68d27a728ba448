"""The tests of what consumers get and do (tests/consumers), as lines of the table. They use the interpreters provided before."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from . import apt, command, progress, tools
from .cache import CACHE, LOGS, REPOSITORY, read_json
from .outcome import Outcome

# The modules of tests/consumers, and what they are called in the table. The long ones first: several run at a time,
# each in folders of its own.
MODULES = {
    "test_ways_in": "C, C++ ways in",
    "test_checked": "C, C++ checked",
    "test_headers": "C, C++ headers",
    "test_benchmarks": "benchmarks",
    "test_linking": "C, C++ linking",
    "test_package": "package",
    "test_public_api": "public Rust API",
    "test_pages": "pages",
    "test_dependencies": "dependencies",
}
PROGRAMS = ("ld", "objcopy", "readelf", "pkg-config", "valgrind", "git")
_LONGEST = 1800.0


def lines() -> list[Callable[[], Outcome]]:
    try:
        environment = _environment()
    except (command.CommandFailed, apt.NotAvailable) as failure:
        failed = Outcome("C, C++", failed=1, problem=f"no tools for the tests of C and C++ consumers: {failure}")
        progress.block(failed.name, str(failed.problem))
        return [lambda: failed]
    return [partial(_run, module, name, environment) for module, name in MODULES.items()]


def _environment() -> dict[str, str]:
    oldest, newest = tools.cmakes()
    path = [str(tools.program("ninja").parent), str(tools.clang())]
    return {
        "LOCALSPLUS_CMAKES": f"{oldest}{os.pathsep}{newest}",
        "LOCALSPLUS_TOOLS_PATH": os.pathsep.join(path),
    }


def _run(module: str, name: str, environment: dict[str, str]) -> Outcome:
    outcome = Outcome(name)
    started = time.monotonic()
    progress.say(f"running {module}")
    report = CACHE / "consumers" / f"{module}.json"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    log = LOGS / f"consumers-{module}.log"
    python: Path = tools.program("python")
    try:
        command.run(
            [python, "-B", REPOSITORY / "tests/consumers/run.py", "--report", report, module],
            log,
            cwd=REPOSITORY,
            env=environment,
            doing=module,
            timeout=_LONGEST,
        )
    except command.CommandFailed as failure:
        outcome.problem = str(failure)
        if log.exists():
            progress.block(name, log.read_text(encoding="utf-8", errors="replace")[-20_000:])
    result = read_json(report)
    if result is None:
        outcome.fail("the test runner left no report")
    else:
        outcome.passed, outcome.failed = result["passed"], result["failed"]
        outcome.skipped = [(skip["test"], skip["reason"]) for skip in result["skipped"]]
        if outcome.problem is not None and outcome.failed == 0:
            outcome.failed = 1
    outcome.seconds = time.monotonic() - started
    return outcome

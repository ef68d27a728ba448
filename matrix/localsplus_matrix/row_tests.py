"""The tests of one row, run by tox with the row's interpreter."""

import re
import time
from pathlib import Path

from . import cargo, command, progress, tools
from .cache import CACHE, LOGS, MATRIX, REPOSITORY, read_json
from .outcome import Outcome
from .probe import Interpreter
from .rows import Row

_LONGEST = 1800.0
_LONGEST_STRESS = 6 * 3600.0


def run(row: Row, interpreter: Interpreter, library: Path, library_sha256: str, stress: bool) -> Outcome:
    outcome = Outcome(row.name, row.required, interpreter.version, interpreter.build, interpreter.source)
    started = time.monotonic()
    progress.say(f"{row.name}: running the tests on {interpreter.version}")
    report = cargo.target_folder() / "matrix" / row.name / "report.json"
    report.unlink(missing_ok=True)
    log = LOGS / f"row-{row.name}.log"
    problem = None
    try:
        command.run(
            _tox(row, interpreter, stress),
            log,
            cwd=REPOSITORY,
            env=_environment(interpreter, library),
            timeout=_LONGEST_STRESS if stress else _LONGEST,
            doing=row.name,
        )
    except command.CommandFailed as failure:
        problem = str(failure)
    _read(outcome, read_json(report), interpreter, library_sha256)
    if problem is None and outcome.failed and outcome.problem is None:
        problem = "the runner ended well, but reports failures or nothing"
    if problem is not None:
        output = log.read_text(encoding="utf-8", errors="replace")
        if outcome.failed == 0:
            outcome.fail(problem)
        elif outcome.problem is None:
            outcome.problem = f"{_culprits(output) or 'no report was written'} (output: {log})"
        progress.block(f"{row.name} (all of it: {log})", output[-8000:])
    outcome.seconds = time.monotonic() - started
    progress.say(
        f"{row.name}: {outcome.passed} passed, {outcome.failed} failed, {len(outcome.skipped)} skipped"
        f" in {progress.duration(outcome.seconds)}"
    )
    return outcome


def _culprits(output: str) -> str:
    """The tests that failed, or what kept the runner from running any."""
    # unittest's headings; what fails outside a test, in setUpClass for example, has one as well
    if failed := re.findall(r"^(?:FAIL|ERROR): (\S+)", output, re.MULTILINE):
        return ", ".join(failed)
    errors = re.findall(r"^\w+(?:Error|Exit): .+$", output, re.MULTILINE)
    return errors[-1] if errors else ""


def _tox(row: Row, interpreter: Interpreter, stress: bool) -> list[str | Path]:
    options = [argument for folder in interpreter.include_dirs for argument in ("--python-include", folder)]
    options += ["--packages", tools.row_packages(), *(["--stress"] if stress else [])]
    return [tools.program("tox"), "run", "--conf", MATRIX / "tox.toml", "-e", row.name, "--", *options]


def _environment(interpreter: Interpreter, library: Path) -> dict[str, str]:
    return {
        "LOCALSPLUS_MATRIX_PYTHON": interpreter.executable,
        "LOCALSPLUS_MATRIX_LIBRARY": str(library),
        "NO_COLOR": "1",
        # Otherwise virtualenv keeps its own cache in the user's home.
        "VIRTUALENV_OVERRIDE_APP_DATA": str(CACHE / "virtualenv"),
    }


def _read(outcome: Outcome, report: dict | None, interpreter: Interpreter, library_sha256: str) -> None:
    """Takes over what the runner reports, unless it tested something else than it was given."""
    if report is None:
        outcome.failed = 1
        return
    outcome.provider = report["provider"] or "refused"
    outcome.passed = report["passed"]
    outcome.failed = report["failed"]
    outcome.skipped = [(skip["test"], skip["reason"]) for skip in report["skipped"]]
    outcome.figures = report.get("figures", {})
    if interpreter.version not in report["version"]:
        outcome.fail(f"the tests ran on {report['version']}, not on {interpreter.version}")
    if report["library_sha256"] != library_sha256:
        outcome.fail(
            f"the tests loaded a library with SHA-256 {report['library_sha256']}, not the one built: {library_sha256}"
        )
    if outcome.passed + outcome.failed == 0:
        outcome.fail("the runner ran no test")

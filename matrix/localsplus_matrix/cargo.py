"""What is built and tested without the rows: the library itself, its Rust tests, and every pyo3 configuration."""

import hashlib
import os
import re
import time
from pathlib import Path

from . import command, progress
from .cache import LOGS, REPOSITORY, write_atomically
from .outcome import Outcome

# pyo3-ffi is told of an interpreter that need not exist. It has no free-threaded 3.13.
CONFIGURATIONS = {
    "3.11": "version=3.11\n",
    "3.12": "version=3.12\n",
    "3.13": "version=3.13\n",
    "3.14": "version=3.14\n",
    "3.15": "version=3.15\n",
    "3.16": "version=3.16\n",
    "3.14t": "version=3.14\nbuild_flags=Py_GIL_DISABLED\n",
    "3.15t": "version=3.15\nbuild_flags=Py_GIL_DISABLED\n",
    "abi3": "version=3.11\ntarget_abi=CPython-abi3-3.11\n",
}


class NoLibrary(Exception):
    """The library could not be built; the text has cargo's words."""


def target_folder() -> Path:
    return REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target")


def build_library() -> tuple[Path, str]:
    """The library that every row loads, and the SHA-256 that shows it is the same one in each of them.

    Beside it the program, which the rows test as well.
    """
    progress.say("building the library")
    try:
        command.run(
            ["cargo", "build", "--release", "--lib", "--bins"],
            LOGS / "cargo-build.log",
            cwd=REPOSITORY,
            # An extension module is not linked with libpython: one binary is for all versions.
            env={"PYO3_BUILD_EXTENSION_MODULE": "1"},
            doing="building the library",
        )
    except command.CommandFailed as failure:
        raise NoLibrary(f"the library does not build: {failure}") from None
    library = target_folder() / "release/liblocalsplus.so"
    if not library.is_file():
        raise NoLibrary(f"cargo built the library, but there is no {library}")
    return library, sha256(library)


def program() -> Path:
    return target_folder() / "release/localsplus"


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test() -> Outcome:
    outcome = Outcome("cargo test")
    started = time.monotonic()
    progress.say("running cargo test")
    log = LOGS / "cargo-test.log"
    try:
        command.run(["cargo", "test", "--no-fail-fast"], log, cwd=REPOSITORY, doing="cargo test", timeout=1800)
    except command.CommandFailed as failure:
        outcome.problem = str(failure)
    output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    for result in re.finditer(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", output, re.MULTILINE):
        outcome.passed += int(result[1])
        outcome.failed += int(result[2])
    for ignored in re.finditer(r"^test (.+) \.\.\. ignored(?:, (.+))?$", output, re.MULTILINE):
        outcome.skipped.append((ignored[1], ignored[2] or "ignored in the source"))
    if outcome.problem is not None and outcome.failed == 0:
        outcome.failed = 1  # it did not even get as far as a test
    elif outcome.passed + outcome.failed == 0:
        outcome.fail("cargo test ran no test")
    outcome.seconds = time.monotonic() - started
    return outcome


def check_configuration(name: str) -> Outcome:
    """The crate, its tests and examples compile against that version's pyo3, with no interpreter of it at hand."""
    outcome = Outcome(f"compile {name}", version=name.rstrip("t"), source="pyo3 configuration")
    started = time.monotonic()
    progress.say(f"compiling against the pyo3 configuration of {name}")
    folder = target_folder() / "matrix/configurations"
    file = folder / f"{name}.txt"
    log = LOGS / f"cargo-check-{name}.log"
    common = "implementation=CPython\nshared=true\npointer_width=64\n"
    if not file.exists() or file.read_text(encoding="utf-8") != common + CONFIGURATIONS[name]:
        write_atomically(file, common + CONFIGURATIONS[name])
    try:
        command.run(
            ["cargo", "check", "--all-targets", "--target-dir", folder / "target"],
            log,
            cwd=REPOSITORY,
            env={"PYO3_CONFIG_FILE": str(file)},
            doing=f"compiling against {name}",
            timeout=900,
        )
        outcome.passed = 1
    except command.CommandFailed as failure:
        errors = re.findall(r"^error.*", log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        outcome.fail("\n".join([*errors[:1], str(failure)]))
    outcome.seconds = time.monotonic() - started
    return outcome

"""Runs other programs: output into a log, a readable reason when they fail, none left behind when we are stopped."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from . import progress

# Programs we call -> the Debian package that has them, so that a missing one is named with its cure.
DEBIAN_PACKAGE = {
    "apt-get": "apt",
    "c++": "g++",
    "cargo": "rustup",
    "cc": "gcc",
    "dpkg-deb": "dpkg",
    "ld": "binutils",
    "make": "make",
    "objcopy": "binutils",
    "readelf": "binutils",
    "tar": "tar",
    "xz": "xz-utils",
}
HINT = {"cargo": "Rust 1.88 or later; before Debian 13, rustup comes from its own site"}

_running: set[subprocess.Popen] = set()
_running_lock = threading.Lock()


class CommandFailed(Exception):
    """A program that could not be run or that failed; the text says which one, why, and where its output is."""


def missing(*programs: str) -> str | None:
    """Names those of the programs that are not on PATH, with the Debian packages that bring them."""
    absent = [program for program in programs if shutil.which(program) is None]
    if not absent:
        return None
    packages = dict.fromkeys(DEBIAN_PACKAGE.get(program, program) for program in absent)
    verb = "is" if len(absent) == 1 else "are"
    hints = "".join(f" ({HINT[program]})" for program in absent if program in HINT)
    return f"{', '.join(absent)} {verb} not on PATH; on Debian: apt-get install {' '.join(packages)}{hints}"


def run(
    arguments: Sequence[str | Path],
    log: Path,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    doing: str | None = None,
    timeout: float | None = None,
) -> str:
    """Runs a program, returns its output. `doing` is repeated every half minute, so that a long step is not silent."""
    if (reason := missing(str(arguments[0]))) is not None:
        raise CommandFailed(reason)
    log.parent.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    with open(log, "w", encoding="utf-8", errors="replace") as output:
        output.write(f"$ {' '.join(map(str, arguments))}\n")
        output.flush()
        with (
            subprocess.Popen(
                [str(argument) for argument in arguments],
                cwd=cwd,
                env=None if env is None else {**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # A group of its own, so that what it started itself ends with it.
                start_new_session=True,
            ) as child,
            _watched(child, doing, timeout) as timed_out,
        ):
            for line in child.stdout:
                lines.append(line)
                output.write(line)
                output.flush()
                if on_line is not None:
                    on_line(line.rstrip("\n"))
    if timed_out.is_set():
        raise CommandFailed(f"{arguments[0]} did not end within {progress.duration(timeout)}; output: {log}")
    if child.returncode != 0:
        tail = "".join(lines[-15:]).strip()
        raise CommandFailed(f"{Path(str(arguments[0])).name} ended with {child.returncode} (all of it: {log})\n{tail}")
    return "".join(lines)


@contextlib.contextmanager
def _watched(child: subprocess.Popen, doing: str | None, timeout: float | None) -> Iterator[threading.Event]:
    """Waits for the child in the end, also after an exception, then having stopped it."""
    finished, timed_out = threading.Event(), threading.Event()
    started = time.monotonic()

    def watch() -> None:
        interval = 30.0 if timeout is None else min(30.0, timeout)
        while not finished.wait(interval):
            passed = time.monotonic() - started
            if timeout is not None and passed >= timeout:
                timed_out.set()
                _end(child, signal.SIGKILL)
                return
            if doing is not None:
                progress.say(f"{doing}: {progress.duration(passed)} so far")

    with _running_lock:
        _running.add(child)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield timed_out
        child.wait()
    except BaseException:
        _end(child, signal.SIGTERM)
        child.wait()
        raise
    finally:
        finished.set()
        with _running_lock:
            _running.discard(child)


def stop_all() -> None:
    """Ends the programs that worker threads are still waiting for, after an interruption."""
    with _running_lock:
        for child in _running:
            _end(child, signal.SIGTERM)


def _end(child: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)

"""Interpreters that are on the machine already: on PATH, below a pyenv root, below uv's folder.

`localsplus doctor` looks in the same places for the same names (src/bin/localsplus/interpreters.rs); a test compares.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from . import probe
from .rows import Row


def from_path(row: Row) -> probe.Interpreter:
    return _first(row, _on_path(row.command), f"{row.command} on PATH", f"no {row.command} on PATH")


def from_pyenv(row: Row) -> probe.Interpreter:
    root = _answer("pyenv", "root") or os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"
    pattern = re.compile(rf"{re.escape(row.version)}(\.\d+|\.?-dev)?t?(-debug)?")
    versions = [folder for folder in Path(root).glob("versions/*") if pattern.fullmatch(folder.name)]
    return _first(row, _commands(row, versions), "pyenv", f"pyenv has no {row.version}")


def from_uv(row: Row) -> probe.Interpreter:
    root = _answer("uv", "python", "dir") or Path.home() / ".local/share/uv/python"
    versions = list(Path(root).glob(f"cpython-{row.version}.*"))
    return _first(row, _commands(row, versions), "uv", f"uv has no {row.version}")


def _on_path(command: str) -> Iterator[Path]:
    for directory in os.get_exec_path():
        if (found := shutil.which(command, path=directory)) is not None:
            yield Path(found)


def _commands(row: Row, installations: list[Path]) -> Iterator[Path]:
    """The interpreters of those installations, highest patch release first."""

    def numbers(folder: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", folder.name)[:3]]

    for folder in sorted(installations, key=numbers, reverse=True):
        # pyenv and uv do not agree on the suffixes of a debug build; the interpreter is asked in the end.
        for command in dict.fromkeys((row.command, f"python{row.version}")):
            if (folder / "bin" / command).exists():
                yield folder / "bin" / command
                break


def _first(row: Row, candidates: Iterator[Path], where: str, nothing: str) -> probe.Interpreter:
    reasons = []
    for candidate in candidates:
        try:
            return probe.fit(row, candidate, where)
        except probe.Unusable as reason:
            reasons.append(str(reason))
    raise probe.Unusable("; ".join(reasons) or nothing)


def _answer(*command: str) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return answer.stdout.strip() or None if answer.returncode == 0 else None

"""Asks an interpreter what it is. Names and paths are never trusted: a shim, a symlink or a package may be anything."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .rows import Row

# Runs in the interpreter in question, so it is written for every Python 3.
_QUESTION = """
import json, platform, sys, sysconfig
import math, select  # extension modules: there are none if an installation is incomplete
variable = sysconfig.get_config_var
print(json.dumps({
    "implementation": sys.implementation.name,
    "version": platform.python_version(),
    "minor": "%d.%d" % sys.version_info[:2],
    "debug": hasattr(sys, "gettotalrefcount"),
    "free_threaded": bool(variable("Py_GIL_DISABLED")),
    "trace_refs": hasattr(sys, "getobjects"),
    "executable": sys.executable if sys.prefix == sys.base_prefix else getattr(sys, "_base_executable", sys.executable),
    "include": [sysconfig.get_path("include"), sysconfig.get_path("platinclude")],
    "bits": 64 if sys.maxsize > 2**32 else 32,
}))
"""


class Unusable(Exception):
    """This interpreter does not fit the row; the text says what was found and what is needed."""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter that fits a row: what interpreters.json says of it."""

    executable: str
    version: str
    build: str
    include_dirs: tuple[str, ...]
    source: str
    env: dict[str, str]

    def as_json(self) -> dict:
        return {
            "executable": self.executable,
            "env": self.env,
            "include_dirs": list(self.include_dirs),
            "cflags": [],
            "source": self.source,
            "version": self.version,
            "build": self.build,
        }

    @classmethod
    def from_json(cls, value: dict) -> "Interpreter":
        return cls(
            executable=value["executable"],
            version=value["version"],
            build=value["build"],
            include_dirs=tuple(value["include_dirs"]),
            source=value["source"],
            env=value["env"],
        )


def ask(executable: str | Path) -> dict:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # A pyenv shim follows .python-version files and PYENV_VERSION; asked from / it shows the user's global choice.
    try:
        answer = subprocess.run(
            [str(executable), "-I", "-c", _QUESTION],
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unusable(f"{executable} does not run: {error}") from None
    if answer.returncode != 0:
        lines = answer.stderr.strip().splitlines() or ["no output"]
        # A traceback says what is wrong in its last line, a pyenv shim or the loader in their first.
        raise Unusable(f"{executable} does not run: {lines[-1 if lines[0].startswith('Traceback') else 0]}")
    try:
        return json.loads(answer.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        raise Unusable(f"{executable} answered {answer.stdout!r} when asked for its version") from None


def build_of(answer: dict) -> str:
    if answer["trace_refs"]:
        return "trace-refs"
    words = [word for word, is_so in (("free-threaded", answer["free_threaded"]), ("debug", answer["debug"])) if is_so]
    return " ".join(words) or "release"


def fit(row: Row, executable: str | Path, source: str, include_dirs: tuple[Path, ...] | None = None) -> Interpreter:
    """The interpreter as one of that row, or Unusable. Without `include_dirs` it is asked for its headers."""
    answer = ask(executable)
    found = f"{answer['implementation']} {answer['version']} {build_of(answer)}"
    if answer["implementation"] != "cpython" or answer["minor"] != row.version or build_of(answer) != row.build:
        raise Unusable(f"{executable} is {found}; needed: cpython {row.version} {row.build}")
    if answer["bits"] != 64:
        raise Unusable(f"{executable} is a {answer['bits']}-bit program; needed: 64-bit")
    directories = include_dirs or tuple(dict.fromkeys(Path(directory) for directory in answer["include"]))
    # The tests compare the layouts with CPython's internal headers, so these are needed too.
    for header in ("Python.h", "internal/pycore_frame.h"):
        if not any((directory / header).is_file() for directory in directories):
            raise Unusable(f"{executable} ({found}) has no header {header} in {', '.join(map(str, directories))}")
    return Interpreter(
        executable=answer["executable"] if include_dirs is None else str(executable),
        version=answer["version"],
        build=row.build,
        include_dirs=tuple(map(str, directories)),
        source=source,
        env={},
    )

"""Asks the C compiler what an interpreter's headers say: values by shims/offsets.c, and definitions of structs."""

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import command
from .cache import LOGS, REPOSITORY
from .layouts import BUILDS

_MACROS = {"Gil": [], "FreeThreaded": ["-DPy_GIL_DISABLED=1"]}


class Unusable(Exception):
    """Nothing can be read from these headers; the text says why and what to do."""


@dataclass(frozen=True)
class Struct:
    """A struct as one build defines it."""

    header: str
    fields: tuple[str, ...]  # declarations without the semicolon


@dataclass(frozen=True)
class Headers:
    folder: Path
    version: str  # like 3.16.0a2
    values: dict[str, dict[str, int]]  # build -> name -> value
    texts: dict[str, str]  # build -> the headers, preprocessed

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])

    def struct(self, name: str, build: str) -> Struct:
        """The struct with that tag or typedef name."""
        text = self.texts[build]
        pattern = rf"\bstruct {name}\s*\{{([^{{}}]*)\}}|\bstruct\s*\w*\s*\{{([^{{}}]*)\}}\s*{name}\s*;"
        found = re.search(pattern, text)
        if found is None:
            return Struct("the headers", (f"not_found_in_the_headers {name}",))
        lines = re.findall(r'^# \d+ "([^"]+)"', text[: found.start()], re.MULTILINE)
        header = lines[-1].removeprefix(f"{self.folder}/") if lines else "the headers"
        body = re.sub(r"^#.*$", "", found[1] or found[2], flags=re.MULTILINE)
        return Struct(header, tuple(" ".join(field.split()) for field in body.split(";") if field.strip()))


def read(folder: Path) -> Headers:
    """What the headers in that folder say, of the default and of the free-threaded build."""
    for header in ("Python.h", "internal/pycore_frame.h"):
        if not (folder / header).is_file():
            raise Unusable(
                f"{folder} has no {header}: give the folder of an installed CPython that holds Python.h and internal/ "
                "(python3.X -c 'import sysconfig; print(sysconfig.get_path(\"include\"))'; on Debian: "
                "apt-get install python3.X-dev), or Include of a source tree that ./configure has been run in"
            )
    with tempfile.TemporaryDirectory() as scratch:
        values = {build: _values(folder, build, Path(scratch)) for build in _MACROS}
        texts = {build: _text(folder, build) for build in _MACROS}
    default = values["Gil"]
    for name, kind in (("free_threaded", "free-threaded"), ("debug", "debug"), ("trace_refs", "trace-refs")):
        if default[f"build.{name}"]:
            raise Unusable(f"{folder} has the headers of a {kind} build; give those of the default build")
    return Headers(folder, _version(default["python.version_hex"]), values, texts)


def _compiler(folder: Path, build: str) -> list[str | Path]:
    # A Debian package keeps pyconfig.h beside the folder, a source tree above it.
    search = [f"-I{folder}", f"-I{folder}/internal", "-idirafter", folder.parent]
    return [*os.environ.get("CC", "cc").split(), *search, *_MACROS[build]]


def _values(folder: Path, build: str, scratch: Path) -> dict[str, int]:
    program = scratch / f"offsets-{build}"
    log = LOGS / f"new-version-{build}.log"
    try:
        command.run([*_compiler(folder, build), REPOSITORY / "shims/offsets.c", "-o", program], log)
        output = command.run([program], LOGS / f"new-version-{build}-values.log")
    except command.CommandFailed as failure:
        errors = re.findall(r"^.*error: .*$", log.read_text(encoding="utf-8"), re.MULTILINE) if log.exists() else []
        reason = "\n".join(f"  {error}" for error in errors[:8]) or str(failure)
        raise Unusable(
            f"shims/offsets.c ({BUILDS[build]}) does not compile with the headers in {folder}:\n{reason}\n"
            "If CPython has renamed, moved or removed something, teach shims/offsets.c and shims/cpython_internals.h "
            f"the new name under an #if PY_VERSION_HEX, and run this again. The compiler's whole output: {log}"
        ) from None
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}


def _text(folder: Path, build: str) -> str:
    preprocess = [*_compiler(folder, build), "-E", REPOSITORY / "shims/cpython_internals.h"]
    return command.run(preprocess, LOGS / f"new-version-{build}-preprocessed.log")


def _version(number: int) -> str:
    major, minor, micro, release = number.to_bytes(4, "big")
    level = {0xA: "a", 0xB: "b", 0xC: "rc"}.get(release >> 4)
    return f"{major}.{minor}.{micro}{'' if level is None else f'{level}{release & 0xF}'}"

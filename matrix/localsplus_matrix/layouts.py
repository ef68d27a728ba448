"""The layouts that the library has, as the library itself tells them."""

import re
from dataclasses import dataclass
from pathlib import Path

from . import cargo, command
from .cache import LOGS

# What a build is called in Rust -> in the interpreters' own words.
BUILDS = {"Gil": "default build", "FreeThreaded": "free-threaded build"}


@dataclass(frozen=True)
class Layout:
    """One version's layout: the values of each build, and what its file has for successors to use."""

    minor: int
    values: dict[str, dict[str, int | None]]  # build -> name -> value; None: there is no such thing
    fields: dict[str, str]  # name -> the row's field, like .frame.owner
    source: str

    @property
    def version(self) -> str:
        return f"3.{self.minor}"

    @property
    def slot(self) -> tuple[str, str]:
        """How the file imports the codec of its slots, and what it calls it."""
        return (
            re.search(r"^use super::slot::(.+);$", self.source, re.MULTILINE)[1],
            re.search(r"^    type Slot = (\w+);$", self.source, re.MULTILINE)[1],
        )

    @property
    def changes_free_threaded(self) -> bool:
        """Whether the file has a function for what Py_GIL_DISABLED changes besides the object header."""
        return re.search(r"^pub\(super\).* (fn |.*::)free_threaded\b", self.source, re.MULTILINE) is not None


def read(repository: Path) -> dict[int, Layout]:
    """Every layout of the library in that folder, by minor version."""
    # A folder of its own, so that nothing that is being tested gets built anew.
    target = cargo.target_folder() / "matrix/new-version"
    output = command.run(
        ["cargo", "run", "--quiet", "--example", "layouts", "--target-dir", target],
        LOGS / "layouts.log",
        cwd=repository,
    )
    values: dict[int, dict[str, dict[str, int | None]]] = {}
    fields: dict[str, str] = {}
    for minor, build, name, field, value in re.findall(r"^(\d+) (\w+) (\S+) (\S+) (-|\d+)$", output, re.MULTILINE):
        values.setdefault(int(minor), {}).setdefault(build, {})[name] = None if value == "-" else int(value)
        if field != "-":
            fields[name] = field
    return {
        minor: Layout(minor, builds, fields, file(repository, minor).read_text(encoding="utf-8"))
        for minor, builds in values.items()
    }


def file(repository: Path, minor: int) -> Path:
    return repository / f"src/layout/v3_{minor}.rs"

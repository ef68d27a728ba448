"""Reads interpreters.toml, the one list of rows."""

import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

from .cache import MATRIX

FILE = MATRIX / "interpreters.toml"
BUILDS = ("release", "debug", "free-threaded", "free-threaded debug", "trace-refs")
_SOURCE = re.compile(r"path|pyenv|uv|(debian|source):[a-z]+")
_KEYS = {"name", "version", "build", "required", "sources", "of", "set_env"}


class BadRows(Exception):
    """interpreters.toml does not say what it should; the text names the row and the key."""


@dataclass(frozen=True)
class Row:
    name: str
    version: str
    build: str
    required: bool
    sources: tuple[str, ...]
    of: str | None = None
    set_env: dict[str, str] = field(default_factory=dict)

    @property
    def free_threaded(self) -> bool:
        return self.build.startswith("free-threaded")

    @property
    def debug(self) -> bool:
        return self.build.endswith("debug")

    @property
    def command(self) -> str:
        """The name CPython installs this build under."""
        return f"python{self.version}{'t' if self.free_threaded else ''}{'d' if self.debug else ''}"

    @property
    def interpreter(self) -> str:
        """The row whose interpreter this row runs: itself, but for a row that only sets an environment."""
        return self.of or self.name

    @property
    def cure(self) -> str:
        """What somebody can do to have this interpreter."""
        kind = {"release": "", "free-threaded": "t"}.get(self.build)
        ways = [f"put a {self.command} with its headers on PATH"]
        if kind is not None:
            ways.append(f"`pyenv install {self.version}{kind}`")
            ways.append(f"`uv python install {self.version}{kind}`")
        return " or ".join(ways)


def read(file: Path = FILE) -> dict[str, Row]:
    """Every row by its name, in the file's order."""
    rows: dict[str, Row] = {}
    for entry in tomllib.loads(file.read_text(encoding="utf-8"))["row"]:
        row = _row(entry, rows)
        if row.name in rows:
            raise BadRows(f"{file.name}: two rows are named {row.name}")
        rows[row.name] = row
    return rows


def _row(entry: dict, earlier: dict[str, Row]) -> Row:
    name = entry.get("name", "(a row without a name)")
    if unknown := sorted(entry.keys() - _KEYS):
        raise BadRows(f"row {name}: unknown key {unknown[0]}; known are {', '.join(sorted(_KEYS))}")
    try:
        if "of" in entry:
            if entry["of"] not in earlier:
                raise BadRows(f"row {name}: of = {entry['of']!r} names no earlier row")
            base = earlier[entry["of"]]
            return replace(
                base, name=entry["name"], required=entry["required"], of=base.name, set_env=entry.get("set_env", {})
            )
        row = Row(
            name=entry["name"],
            version=entry["version"],
            build=entry["build"],
            required=entry["required"],
            sources=tuple(entry["sources"]),
            set_env=entry.get("set_env", {}),
        )
    except KeyError as key:
        raise BadRows(f"row {name}: {key.args[0]} is missing") from None
    if row.build not in BUILDS:
        raise BadRows(f"row {name}: build = {row.build!r}; known are {', '.join(BUILDS)}")
    for source in row.sources:
        if not _SOURCE.fullmatch(source):
            raise BadRows(f"row {name}: unknown source {source!r}")
    return row


def require(rows: dict[str, Row], names: str) -> dict[str, Row]:
    """The rows with those of LOCALSPLUS_MATRIX_REQUIRE (comma-separated) made required."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in rows:
            raise BadRows(f"LOCALSPLUS_MATRIX_REQUIRE names {name!r}, which is no row; rows: {', '.join(rows)}")
    return {name: replace(row, required=row.required or name in wanted) for name, row in rows.items()}

"""Finds or makes the interpreter of every row, and keeps interpreters.json, the list of those that are there."""

from collections.abc import Iterable
from pathlib import Path

from . import apt, command, cpython_tests, debian_packages, installed, probe, progress, source_build
from .cache import CACHE, read_json, write_json
from .rows import Row

LIST = CACHE / "interpreters.json"


class Missing(Exception):
    """No source has this row's interpreter; the text has the reason of each, and what would provide it."""


def provide(rows: Iterable[Row], offline: bool) -> tuple[dict[str, probe.Interpreter], dict[str, str]]:
    """The interpreters by row, and the reasons by row where there is none."""
    found: dict[str, probe.Interpreter] = {}
    missing: dict[str, str] = {}
    # Cheap sources first, so that those who wait for a first interpreter are not kept by a compiler.
    for row in sorted(rows, key=_cost):
        if row.of is not None and (row.of in found or row.of in missing):
            if row.of in found:
                found[row.name] = found[row.of]
                _enlist(row, found[row.of])
            else:
                missing[row.name] = missing[row.of]
                _strike(row)
            continue
        try:
            found[row.name] = interpreter(row, offline)
            _enlist(row, found[row.name])
            cpython_tests.add(row, found[row.name], offline)
            progress.say(f"{row.name}: {found[row.name].version} {row.build}, {found[row.name].source}")
        except Missing as reason:
            missing[row.name] = str(reason)
            _strike(row)
            progress.shout(f"{row.name} ({'required' if row.required else 'optional'}) is not to be had: {reason}")
    return found, missing


def _cost(row: Row) -> tuple[bool, bool, bool]:
    remote = next((source for source in row.sources if ":" in source), "")
    return not row.required, remote.startswith("source:"), row.of is not None


def interpreter(row: Row, offline: bool) -> probe.Interpreter:
    """The interpreter of that row: an earlier run's if it is what it was, else from the first source that has it."""
    reasons = []
    if (earlier := recorded(row)) is not None:
        try:
            return probe.fit(row, earlier.executable, earlier.source, tuple(map(Path, earlier.include_dirs)))
        except probe.Unusable as reason:
            reasons.append(f"found by an earlier run, gone now: {reason}")
            progress.shout(f"{row.name}: {reasons[0]}")
    for source in row.sources:
        try:
            return from_source(source, row, offline)
        except (probe.Unusable, apt.NotAvailable, command.CommandFailed) as reason:
            reasons.append(f"{source}: {reason}")
    raise Missing(f"{'; '.join(reasons)}. What would provide it: {row.cure}")


def recorded(row: Row) -> probe.Interpreter | None:
    entry = (read_json(LIST) or {}).get(row.interpreter)
    return None if entry is None else probe.Interpreter.from_json(entry)


def from_source(source: str, row: Row, offline: bool) -> probe.Interpreter:
    kind, _, suite = source.partition(":")
    if kind in ("path", "pyenv", "uv"):
        return {"path": installed.from_path, "pyenv": installed.from_pyenv, "uv": installed.from_uv}[kind](row)
    if offline:
        raise probe.Unusable("not asked (--offline)")
    return {"debian": debian_packages.provide, "source": source_build.provide}[kind](row, suite)


def _enlist(row: Row, interpreter: probe.Interpreter) -> None:
    entries = read_json(LIST) or {}
    entry = interpreter.as_json()
    entry["env"] = dict(row.set_env)
    if entries.get(row.name) != entry:
        entries[row.name] = entry
        write_json(LIST, entries)


def _strike(row: Row) -> None:
    entries = read_json(LIST) or {}
    if entries.pop(row.name, None) is not None:
        write_json(LIST, entries)

"""CPython's own tests (the package `test`), for the interpreters that we unpacked or built: these come without it.

An interpreter that was on the machine is left as it is; where it has no tests, ours that run them are skipped.
"""

import shutil
from pathlib import Path

from . import apt, command, debian_packages, progress, source_build
from .cache import CACHE, folder_made_whole
from .probe import Interpreter
from .rows import Row


def add(row: Row, interpreter: Interpreter, offline: bool) -> None:
    """Puts them where that version looks for them, unless they are there."""
    executable = Path(interpreter.executable)
    try:
        if executable.is_relative_to(CACHE / "debian"):
            _add_package(row, executable.parents[2], offline)
        elif executable.is_relative_to(CACHE / "built"):
            _add_sources(row, interpreter.version, executable.parents[1], offline)
    except (apt.NotAvailable, command.CommandFailed, OSError) as reason:
        progress.shout(f"{row.name}: without CPython's own tests: {reason}")


def _add_package(row: Row, folder: Path, offline: bool) -> None:
    # The last file to appear, so that an interrupted run is repeated.
    stamp = folder / "has-cpython-tests"
    if stamp.exists():
        return
    name = f"libpython{row.version}-testsuite"
    _require_online(offline)
    wanted = f"{name}_{folder.name.partition('_')[2]}_all.deb"
    reasons = []
    for suite in _suites(row, "debian"):
        try:
            packages = apt.Suite(suite, "deb").packages([name])
        except apt.NotAvailable as reason:
            reasons.append(str(reason))
            continue
        for package in packages:
            if package.name == wanted:
                progress.say(f"{row.name}: unpacking CPython's own tests")
                debian_packages.unpack(package, folder)
                stamp.touch()
                return
        reasons.append(f"Debian {suite} has another version than {wanted}")
    raise apt.NotAvailable("; ".join(reasons))


def _add_sources(row: Row, version: str, prefix: Path, offline: bool) -> None:
    [library] = prefix.glob("lib/python3.*")
    if (library / "test").exists():
        return
    for suite in _suites(row, "source"):
        _require_online(offline)
        archive = apt.Suite(suite, "deb-src").source(f"python{row.version}")
        if version in archive.name:
            progress.say(f"{row.name}: copying CPython's own tests")
            with folder_made_whole(library / "test") as partial:
                shutil.copytree(source_build.unpack(archive, version) / "Lib/test", partial, dirs_exist_ok=True)
            return
    raise apt.NotAvailable(f"no suite has the sources of {version} any more")


def _suites(row: Row, kind: str) -> list[str]:
    return [source.partition(":")[2] for source in row.sources if source.startswith(f"{kind}:")]


def _require_online(offline: bool) -> None:
    if offline:
        raise apt.NotAvailable("not asked (--offline)")

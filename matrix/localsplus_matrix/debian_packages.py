"""An interpreter out of Debian's packages, unpacked into a folder and made to run there.

Newer Debian's interpreters need a newer C library than the machine has. Theirs is unpacked beside them, and they are
told to start with it and to look for their libraries there. Nothing that they start is affected.
"""

import shutil
import subprocess
from pathlib import Path

from . import apt, command, probe, progress, tools
from .cache import CACHE, LOGS, folder_made_whole
from .rows import Row

# Parts of the packages that a running interpreter never reads.
_NOT_NEEDED = ("./usr/share/*", "./usr/lib/debug/*", "./usr/lib/python3/*", "./etc/*")


def provide(row: Row, suite_name: str) -> probe.Interpreter:
    if row.free_threaded or row.build == "trace-refs":
        raise probe.Unusable(f"Debian has no packages of a {row.build} build")
    suite = apt.Suite(suite_name, "deb")
    names = [f"python{row.version}", f"libpython{row.version}", f"libpython{row.version}-dev"]
    if row.debug:
        names += [f"python{row.version}-dbg", f"libpython{row.version}-dbg"]
    packages = suite.packages(names)
    version = next(package.name.split("_")[1] for package in packages if package.name.startswith(names[0] + "_"))
    folder = CACHE / "debian" / f"{row.command}_{version}"
    executable = folder / "usr/bin" / row.command
    headers = folder / "usr/include"

    def fit() -> probe.Interpreter:
        # The debug build's own headers come first, the folder above them is where pyconfig.h redirects to. These have
        # to be -I folders: the debug headers are links to the release ones, which gcc follows for -isystem, and it
        # would then find the release pyconfig.h beside them.
        return probe.fit(row, executable, f"Debian {suite_name} {version}", (headers / row.command, headers))

    if executable.exists():
        try:
            return fit()
        except probe.Unusable as reason:
            # Files were deleted, or the folder was moved away from the paths written into the executable.
            progress.say(f"unpacking again: {reason}")
    progress.say(f"unpacking {row.command} {version} of Debian {suite_name}")
    with folder_made_whole(folder) as partial:
        for package in packages:
            if package.name.startswith(("python", "lib")) and not _only_for_compilers(package.name):
                unpack(package, partial)
        _make_runnable(partial, partial / executable.relative_to(folder), folder)
    return fit()


def _only_for_compilers(package: str) -> bool:
    name = package.partition("_")[0]
    return name.endswith(("-dev", "-dev-bin")) and not name.startswith("libpython")


def unpack(package: Path, folder: Path) -> None:
    """What a running interpreter reads of that package."""
    unpack = ["tar", "--extract", "--directory", folder, *(f"--exclude={pattern}" for pattern in _NOT_NEEDED)]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as archive:
        unpacked = subprocess.run(unpack, stdin=archive.stdout)
    if archive.returncode != 0 or unpacked.returncode != 0:
        package.unlink()  # a damaged download: the next try fetches it again
        raise apt.NotAvailable(f"{package.name} could not be unpacked; it was deleted, try again")


def _make_runnable(partial: Path, executable: Path, final: Path) -> None:
    """Links the executable to the C library beside it, under the names these files will have in the end."""
    multiarch = ("usr/lib/*-linux-gnu", "lib/*-linux-gnu")
    libraries = [folder.relative_to(partial) for pattern in multiarch for folder in partial.glob(pattern)]
    patchelf = tools.program("patchelf")
    log = LOGS / f"patchelf-{executable.name}.log"
    loader = Path(command.run([patchelf, "--print-interpreter", executable], log).split()[-1]).name
    # The loader's usual place is a link with an absolute target, which would lead back to the machine's own.
    for folder in libraries:
        if (partial / folder / loader).is_file():
            break
    else:
        raise probe.Unusable(f"no {loader} in Debian's C library; looked in {', '.join(map(str, libraries))}")
    # A copy, since pythonX.Y may be one of several hard links.
    copy = executable.with_name(executable.name + ".unpatched")
    shutil.copy2(executable, copy)
    search = ":".join(str(final / folder) for folder in libraries)
    command.run(
        [patchelf, "--set-interpreter", final / folder / loader, "--set-rpath", search, "--force-rpath", copy], log
    )
    copy.replace(executable)

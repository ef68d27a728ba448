"""An interpreter built from the source package of Debian, for the builds of CPython that Debian does not package.

Only the upstream archive is used, without Debian's patches. No profile-guided or link-time optimization: it would take
most of an hour, and changes no layout.
"""

import os
import shutil
import tarfile
from pathlib import Path

from . import apt, command, probe, progress
from .cache import CACHE, LOGS, folder_made_whole
from .rows import Row

_CONFIGURE = {
    "release": [],
    "debug": ["--with-pydebug"],
    "free-threaded": ["--disable-gil"],
    "free-threaded debug": ["--disable-gil", "--with-pydebug"],
    "trace-refs": ["--with-trace-refs"],
}


def provide(row: Row, suite_name: str) -> probe.Interpreter:
    archive = apt.Suite(suite_name, "deb-src").source(f"python{row.version}")
    version = archive.name.split("_")[1].split(".orig.")[0]
    name = f"{row.version}-{row.build.replace(' ', '-')}-{version}"
    prefix = CACHE / "built" / name
    executable = prefix / "bin" / row.command
    origin = f"built from Debian {suite_name}'s source of {version}"
    if executable.exists():
        try:
            return probe.fit(row, executable, origin)
        except probe.Unusable as reason:
            progress.say(f"building again: {reason}")
    if (reason := command.missing("cc", "make", "xz")) is not None:
        raise probe.Unusable(reason)
    _build(row, unpack(archive, version), CACHE / "build" / name, prefix)
    return probe.fit(row, executable, origin)


def unpack(archive: Path, version: str) -> Path:
    """The source; shared by every build of that version, which are made outside it."""
    source = CACHE / "sources" / version
    if not source.exists():
        progress.say(f"unpacking the source of {version}")
        with folder_made_whole(source) as partial, tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
    [top] = source.iterdir()
    return top


def _build(row: Row, source: Path, build: Path, prefix: Path) -> None:
    build.mkdir(parents=True, exist_ok=True)
    what = f"{row.command} ({row.build}) from source"
    # An interrupted build goes on where it was: make knows what is done, config.status is configure's last file.
    if not (build / "Makefile").exists():
        progress.say(f"configuring {what}")
        options = ["--without-ensurepip", "--disable-test-modules", *_CONFIGURE[row.build]]
        command.run(
            [source / "configure", f"--prefix={prefix}", *options],
            LOGS / f"configure-{build.name}.log",
            cwd=build,
            doing=f"configuring {what}",
        )
    jobs = f"-j{os.cpu_count() or 2}"
    progress.say(f"compiling {what}")
    command.run(["make", jobs], LOGS / f"make-{build.name}.log", cwd=build, doing=f"compiling {what}")
    progress.say(f"installing {what}")
    with folder_made_whole(prefix) as partial:
        staged = partial / "staged"
        install = ["make", "altbininstall", "inclinstall", "libinstall", "sharedinstall", f"DESTDIR={staged}"]
        command.run(install, LOGS / f"install-{build.name}.log", cwd=build, doing=f"installing {what}")
        for part in (staged / prefix.relative_to("/")).iterdir():
            part.rename(partial / part.name)
        shutil.rmtree(staged)
    shutil.rmtree(build)

"""Debian's package manager, pointed at a folder of our own.

It reads the machine's proxies and credentials and the address of its Debian mirror, and writes only below the cache
folder: neither the package sources, nor the lists, nor the installed packages of the system change.
"""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from . import command, progress
from .cache import CACHE, LOGS

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_LISTS_ARE_FRESH_FOR = 24 * 3600.0
_LISTS_ARE_SURELY_FRESH_FOR = 600.0

_CONFIGURATION = """\
Dir::State "{root}";
Dir::State::lists "{root}/lists";
Dir::State::status "{root}/status";
Dir::State::extended_states "{root}/extended_states";
Dir::Cache "{root}";
Dir::Cache::archives "{archives}";
Dir::Cache::pkgcache "{root}/pkgcache.bin";
Dir::Cache::srcpkgcache "{root}/srcpkgcache.bin";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{root}/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Log "{root}/log";
Acquire::Languages "none";
Acquire::Retries "3";
// A mirror may serve an index of some weeks ago; it is signed all the same.
Acquire::Check-Valid-Until "false";
APT::Install-Recommends "false";
// The folder belongs to whoever runs this, not to apt's own user.
APT::Sandbox::User "{user}";
// The machine's hooks after an update act on the machine.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""


class NotAvailable(Exception):
    """Debian has not got it for us; the text says why."""


class Suite:
    """The packages ("deb") or the sources ("deb-src") of one suite of Debian."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.root = CACHE / "apt" / f"{name}-{kind}"
        self.archives = CACHE / "apt" / "archives"
        self._log = LOGS / f"apt-{name}-{kind}.log"

    def packages(self, names: list[str]) -> list[Path]:
        """Those packages and everything they depend on, as files; downloads those that are not there yet."""
        install = ["install", "--yes", *names]
        wanted = list(self._downloads(install))
        if not all(_is_there(self.archives / name, size) for name, size in wanted):
            total = sum(size for _, size in wanted) / 1e6
            progress.say(f"Debian {self.name}: {len(wanted)} packages for {names[0]}, {total:.0f} MB in all")
            self._try(["--download-only", *install], f"downloading {names[0]} from Debian {self.name}")
        return [self.archives / name for name, _ in wanted]

    def source(self, name: str) -> Path:
        """The upstream source archive of that source package."""
        folder = CACHE / "sources" / self.name
        folder.mkdir(parents=True, exist_ok=True)
        fetch = ["source", "--download-only", "--only-source", name]
        wanted = [
            file for file, _ in self._downloads(fetch, cwd=folder) if ".orig.tar." in file and not file.endswith(".asc")
        ]
        if len(wanted) != 1:
            raise NotAvailable(
                f"Debian {self.name}: the source package {name} has {wanted or 'no'} .orig archives; expected one"
            )
        archive = folder / wanted[0]
        if not archive.is_file():
            # apt checks what it has downloaded and leaves a partial file under its final name when it is
            # interrupted, so it works in a folder that is not the one we look into.
            partial = folder / "partial"
            partial.mkdir(exist_ok=True)
            self._try(fetch, f"downloading the source of {name} from Debian {self.name}", cwd=partial)
            (partial / archive.name).rename(archive)
        return archive

    def _downloads(self, arguments: list[str], cwd: Path | None = None) -> Iterator[tuple[str, int]]:
        """Name and size of every file apt would download for this if it had none of them."""
        self._update(_LISTS_ARE_FRESH_FOR)
        nothing = self.root / "nothing"
        (nothing / "partial").mkdir(parents=True, exist_ok=True)
        try:
            output = self._apt(["--print-uris", "-o", f"Dir::Cache::archives={nothing}", *arguments], cwd=nothing)
        except command.CommandFailed as failure:
            raise NotAvailable(f"Debian {self.name}: {_complaint(str(failure))}") from None
        for line in output.splitlines():
            if match := re.fullmatch(r"'[^']+' (\S+) (\d+) \S*", line):
                yield match[1], int(match[2])

    def _try(self, arguments: list[str], doing: str, cwd: Path | None = None) -> None:
        """Downloads; if that fails once more, with new lists if a file may have left the mirror since."""
        try:
            self._apt(arguments, doing, cwd)
        except command.CommandFailed as first:
            progress.say(f"Debian {self.name}: {_complaint(str(first))}; once more")
            self._update(_LISTS_ARE_SURELY_FRESH_FOR)
            try:
                self._apt(arguments, doing, cwd)
            except command.CommandFailed as failure:
                raise NotAvailable(f"Debian {self.name}: {_complaint(str(failure))}") from None

    def _update(self, fresh_for: float) -> None:
        stamp = self.root / "updated"
        if stamp.exists() and time.time() - stamp.stat().st_mtime < fresh_for:
            return
        if (reason := command.missing("apt-get", "dpkg-deb", "tar")) is not None:
            raise NotAvailable(reason)
        if not KEYRING.exists():
            raise NotAvailable(f"{KEYRING} is not there; on Debian: apt-get install debian-archive-keyring")
        mirrors = _debian_mirrors()
        if not mirrors:
            raise NotAvailable("this machine's apt names no Debian mirror")
        failure = None
        for mirror in mirrors:
            self._configure(mirror)
            try:
                # Without --error-on=any apt calls an update that fetched nothing a success.
                self._apt(["update", "--error-on=any"], f"reading the package lists of Debian {self.name}")
            except command.CommandFailed as error:
                failure = error
                continue
            stamp.touch()
            return
        raise NotAvailable(f"Debian {self.name} ({self.kind}): {_complaint(str(failure))}")

    def _configure(self, mirror: str) -> None:
        for folder in (self.root / "lists" / "partial", self.root / "sources", self.archives / "partial"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.root / "status").touch()  # no package is installed here: apt then names every dependency
        (self.root / "sources" / "debian.sources").write_text(
            f"Types: {self.kind}\nURIs: {mirror}\nSuites: {self.name}\nComponents: main\n"
            f"Targets: {'Packages' if self.kind == 'deb' else 'Sources'}\nSigned-By: {KEYRING}\n",
            encoding="utf-8",
        )
        owner = Path(self.root).owner()
        (self.root / "apt.conf").write_text(
            _CONFIGURATION.format(root=self.root, archives=self.archives, user=owner), encoding="utf-8"
        )

    def _apt(self, arguments: list[str], doing: str | None = None, cwd: Path | None = None) -> str:
        def show(line: str) -> None:
            # "Get:3 MIRROR SUITE/main amd64 NAME amd64 VERSION [SIZE]"
            if match := re.fullmatch(r"Get:\d+ \S+ (.*) (\[[\d.,]+ [kMG]?B\])", line):
                progress.say(f"  downloading {match[1]} {match[2]}")

        # -c is read after the machine's own configuration, so that it prevails; APT_CONFIG would be read before it.
        apt = ["apt-get", "-c", self.root / "apt.conf", "-q", *arguments]
        return command.run(apt, self._log, cwd=cwd, on_line=show, doing=doing, env={"LC_ALL": "C.UTF-8"})


def _is_there(file: Path, size: int) -> bool:
    return file.is_file() and file.stat().st_size == size


def _debian_mirrors() -> list[str]:
    """The archives that this machine takes its own Debian from, as its apt knows them."""
    if not shutil.which("apt-get"):
        return []
    output = command.run(["apt-get", "update", "--print-uris"], LOGS / "apt-mirrors.log")
    suites: dict[str, list[str]] = {}
    for match in re.finditer(r"^'(\S+?)/dists/(\S+?)/InRelease'", output, re.MULTILINE):
        suites.setdefault(match[1], []).append(match[2])
    own = codename()
    # Other vendors name their suites after Debian's too; only Debian's own archive has its updates suite besides.
    return sorted(
        (mirror for mirror, names in suites.items() if own in names),
        key=lambda mirror: f"{own}-updates" not in suites[mirror],
    )


def codename() -> str:
    fields = dict(
        line.split("=", 1) for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines() if "=" in line
    )
    return fields.get("VERSION_CODENAME", "").strip('"')


def _complaint(text: str) -> str:
    """What apt complained about, without the address it tried."""
    for line in text.splitlines():
        if line.startswith("E: "):
            # The first complaint is enough: the others are of other files of the same package.
            return " ".join(re.sub(r"\w+://\S*/|\[IP: [^]]*\]", "", line.removeprefix("E: ")).split())
    return text

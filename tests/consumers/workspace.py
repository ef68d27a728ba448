"""What the consumer tests share: folders outside the repository, the sources as a user gets them, interpreters, tools,
and the blocks of the pages."""

import atexit
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
HEADERS = REPOSITORY / "shims/include"

# Where everything is built: outside the repository, whose .cargo/config.toml no user of the library has.
ROOT = Path(tempfile.mkdtemp(prefix="localsplus-consumers-"))
if not os.environ.get("LOCALSPLUS_KEEP"):
    atexit.register(shutil.rmtree, ROOT, ignore_errors=True)


class Failed(AssertionError):
    """A command that should have succeeded; the text has its output."""


def environment(**changes):
    """The environment of a user who knows nothing of this repository's."""
    ours = ("PYO3_", "CARGO_TARGET_DIR", "CARGO_BUILD_", "LOCALSPLUS_", "PYTHON", "CFLAGS", "CXXFLAGS", "LDFLAGS", "DESTDIR")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    clean["PATH"] = os.pathsep.join(filter(None, [os.environ.get("LOCALSPLUS_TOOLS_PATH"), clean["PATH"]]))
    # The crates were fetched before: from then on a build needs no network.
    clean["CARGO_NET_OFFLINE"] = "true"
    clean |= {name: str(value) for name, value in changes.items() if value is not None}
    return clean


def run(*command, cwd=None, fails=False, **changes):
    """Runs a program and answers what it printed."""
    process = subprocess.run(
        [str(word) for word in command],
        cwd=cwd or ROOT,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if (process.returncode != 0) != fails:
        wanted = "should have failed" if fails else f"ended with {process.returncode}"
        raise Failed(f"{shlex.join(map(str, command))} {wanted}\n{process.stdout[-8000:]}")
    return process.stdout


def folder(name):
    """A new, empty folder."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=ROOT))


@functools.cache
def archive():
    """The package that `cargo publish` would upload, as the working tree has it."""
    run("cargo", "fetch", "--locked", cwd=REPOSITORY, CARGO_NET_OFFLINE="false")
    made = folder("archive")
    run("cargo", "package", "--no-verify", "--allow-dirty", "--target-dir", made, cwd=REPOSITORY)
    name = f"localsplus-{cargo_version()}"
    # A crate is a tar.gz, and CMake's FetchContent wants to see that.
    return (made / f"package/{name}.crate").rename(ROOT / f"{name}.tar.gz")


@functools.cache
def sources():
    """What is in it: what users have, and nothing else of the repository."""
    run("tar", "-xzf", archive())
    return (ROOT / f"localsplus-{cargo_version()}").rename(ROOT / "localsplus")


def vendored(project):
    """The sources as third_party/localsplus of a project: a copy, as a user has it."""
    shutil.copytree(sources(), project / "third_party/localsplus")


@functools.cache
def prefix():
    """Where localsplus is installed, in release form, by the commands of docs/CPP.md."""
    project = folder("install")
    vendored(project)
    shell(BLOCKS["install"], project, PREFIX=ROOT / "prefix")
    return ROOT / "prefix"


def cargo_archive():
    """What cargo made before packaging/relink had its turn."""
    (found,) = ROOT.glob("install-*/build-localsplus/cargo/release/liblocalsplus.a") if prefix() else ()
    return found


def shell(script, cwd, **changes):
    """Runs the lines of a block."""
    return run("sh", "-ec", script, cwd=cwd, **changes)


def blocks(page):
    """The blocks of a page that have a name."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    return dict(re.findall(r"^<!-- name: ([^\n]+) -->\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


BLOCKS = blocks("docs/CPP.md")
RUST_BLOCKS = blocks("docs/RUST.md")


class Interpreter:
    def __init__(self, name, entry):
        self.name = name
        self.executable = entry["executable"]
        self.env = entry["env"]
        self.include_dirs = entry["include_dirs"]

    def includes(self, option="-isystem"):
        return [word for path in self.include_dirs for word in (option, path)]

    def python(self, *arguments, **keywords):
        return run(self.executable, *arguments, **{**self.env, **keywords})


@functools.cache
def interpreters():
    """Those that matrix/run has provided, by the names of its rows; or the one that runs this."""
    try:
        recorded = json.loads((REPOSITORY / "matrix/.cache/interpreters.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        recorded = {}
    found = {name: Interpreter(name, entry) for name, entry in recorded.items() if Path(entry["executable"]).exists()}
    return found


def interpreter(name):
    found = interpreters().get(name)
    if found is None:
        raise AssertionError(f"no interpreter {name}: matrix/run --provide {name} brings it")
    return found


def plain_interpreters():
    """One release build of each version: those whose build tools find their headers without being told."""
    return [interpreter(name) for name in ("3.11", "3.12", "3.13")]


@functools.cache
def path_with_python():
    """A folder with a python3 that is the matrix's 3.11: the one the shell blocks mean."""
    place = ROOT / "bin"
    place.mkdir()
    (place / "python3").symlink_to(interpreter("3.11").executable)
    return f"{place}{os.pathsep}{environment()['PATH']}"


@functools.cache
def tool(*names):
    """The first of these programs that is there."""
    for name in names:
        if found := shutil.which(name, path=environment()["PATH"]):
            return found
    raise AssertionError(f"{names[0]} is not there; matrix/run consumers brings it")


def cmakes():
    """The oldest CMake that is supported, and one of today."""
    return [Path(path) for path in os.environ["LOCALSPLUS_CMAKES"].split(os.pathsep)]


class Symbol:
    def __init__(self, line):
        _, _, _, self.type, self.binding, self.visibility, self.section, self.name = line.split()[:8]
        self.name = self.name.split("@")[0]
        self.defined = self.section != "UND"
        self.visible = self.binding != "LOCAL"


def symbols(file, dynamic=False):
    """The named symbols of an object file, archive or shared object. (nm would load a linker plugin.)"""
    output = run("readelf", "--wide", "--dyn-syms" if dynamic else "--syms", file)
    lines = [line for line in output.splitlines() if re.match(r"\s*\d+: ", line) and len(line.split()) >= 8]
    return [symbol for symbol in map(Symbol, lines) if symbol.type not in ("SECTION", "FILE")]


def exported(file):
    return {symbol.name for symbol in symbols(file, dynamic=True) if symbol.defined and symbol.visible}


def dynamic_section(file):
    """The entries of the dynamic section: [(tag, value), ...]"""
    return re.findall(r"^ 0x\w+ \((\w+)\)\s+(.*)$", run("readelf", "--wide", "--dynamic", file), re.MULTILINE)


def needed(file):
    return {re.search(r"\[(.*)\]", value)[1] for tag, value in dynamic_section(file) if tag == "NEEDED"}


def section_sizes(file):
    """Sections by name, with their sizes."""
    lines = re.findall(r"^\s*\[\s*\d+\] (\S+)\s+\w+\s+\w+\s+\w+\s+(\w+)", run("readelf", "-WS", file), re.MULTILINE)
    return {name: int(size, 16) for name, size in lines}


def declared_functions():
    header = (HEADERS / "localsplus.h").read_text(encoding="utf-8")
    return set(re.findall(r"^LOCALSPLUS_API .*?(localsplus_\w+)\(", header, re.MULTILINE))


def cargo_version():
    return re.search(r'^version = "(.+)"$', (REPOSITORY / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]


if sys.version_info < (3, 11):
    sys.exit("the consumer tests need Python 3.11 or later")

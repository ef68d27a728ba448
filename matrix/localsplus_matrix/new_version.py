"""The command line of matrix/new-version."""

import argparse
import re
import sys
from pathlib import Path

from . import command, draft, headers, layouts
from .cache import REPOSITORY


def main() -> int:
    arguments = _arguments()
    try:
        return _run(arguments.version, arguments.include_dir)
    except (command.CommandFailed, headers.Unusable) as reason:
        raise SystemExit(f"matrix/new-version: {reason}") from None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="matrix/new-version",
        description="Compares the headers of a CPython version with the layout of that version, or, if there is none "
        "yet, with the newest one. The differences go to stderr, the draft of the new version's src/layout/v3_X.rs to "
        "stdout. What comes then: matrix/ADDING_A_VERSION.md.",
        epilog="Ends with 1 if nothing could be read, or if headers differ from a layout that is there.",
    )
    parser.add_argument("version", type=_version, metavar="3.X", help="the version that the headers are of")
    parser.add_argument(
        "include_dir", type=Path, metavar="INCLUDE_DIR", help="the folder of Python.h, of a default release build"
    )
    return parser.parse_args()


def _version(text: str) -> int:
    if (version := re.fullmatch(r"3\.(\d+)", text)) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no version like 3.16")
    return int(version[1])


def _run(minor: int, folder: Path) -> int:
    new = headers.read(folder.absolute())
    if new.minor != minor:
        raise headers.Unusable(f"{folder} has the headers of CPython {new.version}, not of 3.{minor}")
    _say("asking the library for its layouts, which builds it first")
    known = layouts.read(REPOSITORY)
    is_known = minor in known
    old = known[minor] if is_known else known[max(known)]
    if minor < old.minor:
        raise headers.Unusable(f"the newest layout is that of {old.version}; older versions are not drafted")
    changes = draft.changes(old, new)
    own = layouts.file(REPOSITORY, old.minor).relative_to(REPOSITORY)
    _say(f"CPython {new.version} against the layout of {old.version} ({own}):")
    for change in changes:
        _say(f"  {change}")
    if not changes:
        _say("  nothing has changed")
    if is_known:
        return 1 if changes else 0
    if not re.fullmatch(r"[\d.]+(rc\d+)?", new.version):
        _say(f"{new.version} is an alpha or beta, which is refused at run time: draft again from a release candidate.")
    print(draft.draft(old, new), end="")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)

"""The git-ignored folder that everything is provided into, and how a run leaves it usable when it is interrupted."""

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MATRIX = Path(__file__).resolve().parent.parent
REPOSITORY = MATRIX.parent
CACHE = MATRIX / ".cache"
LOGS = CACHE / "logs"


def write_atomically(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would hide the file from other users
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """The file's value, or None if there is none or it is damaged (then it is made again)."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


@contextlib.contextmanager
def folder_made_whole(final: Path) -> Iterator[Path]:
    """A folder to fill, which gets its final name only once the block has ended without an exception.

    What an interrupted run left behind is thrown away: it is never taken for a finished folder.
    """
    partial = final.with_name(f".partial-{final.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)


@contextlib.contextmanager
def only_run() -> Iterator[None]:
    """Two runs would unpack into the same folders: the second one waits for nothing and says so."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"another matrix/run is using {CACHE.relative_to(REPOSITORY)}; wait for it to end"
            ) from None
        yield

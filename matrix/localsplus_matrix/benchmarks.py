"""The C benchmark on one row, with its figures as it prints them."""

import subprocess
from pathlib import Path

from . import cargo, progress
from .cache import REPOSITORY
from .probe import Interpreter
from .rows import Row


def run(row: Row, interpreter: Interpreter, library: Path) -> bool:
    progress.say(f"{row.name}: timing localsplus beside its peers on {interpreter.version}")
    command = [interpreter.executable, REPOSITORY / "benches/run.py", "--library", library]
    command += ["--build-dir", cargo.target_folder() / "bench" / row.name]
    for folder in interpreter.include_dirs:
        command += ["--python-include", folder]
    # Nothing else runs meanwhile, and the table is what was asked for.
    return subprocess.run(command, check=False).returncode == 0


def is_for(row: Row) -> bool:
    """Debug builds are not what anybody waits for, and free-threaded ones count references by other rules."""
    return row.build == "release" and not row.set_env

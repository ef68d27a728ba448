"""Lines that say what is going on, and how long it has been going on."""

import sys
import threading
import time

_started = time.monotonic()
_one_line_at_a_time = threading.Lock()


def elapsed() -> float:
    return time.monotonic() - _started


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:d}:{rest:02d}"


def say(text: str) -> None:
    with _one_line_at_a_time:
        print(f"[{duration(elapsed()):>5}] {text}", flush=True)


def shout(text: str) -> None:
    """A line nobody should miss: a row that is not run."""
    with _one_line_at_a_time:
        print(f"[{duration(elapsed()):>5}] !!! {text}", flush=True)


def block(title: str, text: str) -> None:
    """The output of something that failed, kept together."""
    with _one_line_at_a_time:
        print(f"---- {title}\n{text.rstrip()}\n---- end of {title}", flush=True)
        sys.stdout.flush()

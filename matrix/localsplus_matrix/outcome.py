"""What came out of one line of the table, and the table."""

import time
from collections import Counter
from dataclasses import dataclass, field

from . import progress
from .cache import MATRIX, write_atomically, write_json


@dataclass
class Outcome:
    name: str
    required: bool = True
    version: str = ""
    build: str = ""
    source: str = ""
    provider: str = ""
    passed: int = 0
    failed: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)  # test, reason
    figures: dict[str, dict] = field(default_factory=dict)  # what long tests have to tell, by test
    seconds: float = 0.0
    problem: str | None = None  # what went wrong besides the cases that are counted
    missing: bool = False

    @classmethod
    def of_missing(cls, name: str, required: bool, version: str, build: str, reason: str) -> "Outcome":
        """An interpreter that is not there: a failure of a required row, a skipped case of an optional one."""
        outcome = cls(name, required, version, build, missing=True)
        if required:
            outcome.fail(reason)
        else:
            outcome.skipped.append(("the whole row", reason))
        return outcome

    def fail(self, problem: str) -> None:
        self.failed += 1
        self.problem = problem if self.problem is None else f"{self.problem}; {problem}"

    @property
    def verdict(self) -> str:
        if self.missing:
            return "MISSING" if self.required else "missing"
        return "FAILED" if self.failed else "ok"


_HEADINGS = ("row", "version", "build", "source", "provider", "passed", "failed", "skipped", "time", "")


def _cells(outcome: Outcome) -> tuple[str, ...]:
    return (
        outcome.name,
        outcome.version,
        outcome.build,
        outcome.source,
        outcome.provider,
        str(outcome.passed),
        str(outcome.failed),
        str(len(outcome.skipped)),
        progress.duration(outcome.seconds),
        outcome.verdict,
    )


def table(outcomes: list[Outcome]) -> str:
    """The table, in Markdown that also reads well on a terminal."""
    lines = [_HEADINGS, *map(_cells, outcomes)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    drawn = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
        for cells in lines
    ]
    drawn.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(drawn)


def notes(outcomes: list[Outcome]) -> str:
    """What went wrong, why cases were skipped, and figures, as a Markdown list."""
    lines = []
    skipped: dict[str, list[str]] = {}  # reason: the rows, with the number of cases if it is not 1
    for outcome in outcomes:
        if outcome.problem is not None:
            lines.append(f"- FAILED {outcome.name}: {outcome.problem.splitlines()[0]}")
        for reason, count in Counter(reason for _, reason in outcome.skipped).items():
            skipped.setdefault(reason, []).append(outcome.name if count == 1 else f"{outcome.name} ({count} cases)")
    lines += [f"- skipped: {reason}: {', '.join(names)}" for reason, names in skipped.items()]
    for outcome in outcomes:
        for test, figures in outcome.figures.items():
            told = ", ".join(f"{name} {figure}" for name, figure in figures.items())
            lines.append(f"- {outcome.name}: {test}: {told}")
    return "\n".join(lines)


def totals(outcomes: list[Outcome]) -> str:
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    skipped = sum(len(outcome.skipped) for outcome in outcomes)
    return f"{passed} passed, {failed} failed, {skipped} skipped"


def write(outcomes: list[Outcome], library_sha256: str | None) -> None:
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    write_json(
        MATRIX / "report.json",
        {
            "made": made,
            "seconds": round(progress.elapsed(), 1),
            "library_sha256": library_sha256,
            "totals": totals(outcomes),
            "rows": [
                {
                    "name": outcome.name,
                    "required": outcome.required,
                    "verdict": outcome.verdict,
                    "version": outcome.version,
                    "build": outcome.build,
                    "source": outcome.source,
                    "provider": outcome.provider,
                    "passed": outcome.passed,
                    "failed": outcome.failed,
                    "skipped": [{"test": test, "reason": reason} for test, reason in outcome.skipped],
                    "problem": outcome.problem,
                    "figures": outcome.figures,
                    "seconds": round(outcome.seconds, 1),
                }
                for outcome in outcomes
            ],
        },
    )
    text = f"# localsplus on every interpreter\n\nMade {made}, in {progress.duration(progress.elapsed())}.\n\n"
    write_atomically(MATRIX / "report.md", f"{text}{table(outcomes)}\n\n{notes(outcomes)}\n\n{totals(outcomes)}\n")

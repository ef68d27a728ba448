"""Generates programs (programs.py), and checks localsplus on every frame of each (observed.py).

    differential.py --examples 2000 --seed 1 [--isolated] [--report FILE.json] [--current FILE.py]

Prints a failing program as a test, made as small as hypothesis can. With --isolated each program runs in a process of
its own, so that one that crashes the interpreter is made small, too.
"""

import argparse
import faulthandler
import json
import os
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import hypothesis
from hypothesis import strategies

import _compare
import observed
import programs

# Bytes of a tape. From here on, programs are of all sizes up to some sixty lines.
SHORTEST, LONGEST = 60, 500


class Failed(Exception):
    """localsplus is wrong about this program."""

    def __init__(self, source, complaint):
        super().__init__(complaint)
        self.source = source
        self.complaint = complaint

    def as_test(self, seed):
        body = "".join(f"            {line}\n" for line in self.source.splitlines())
        return (
            f"\n{self.complaint}\n\nAs a test, for test_generated.py (found with --seed {seed}):\n\n"
            f'    def test_found(self):\n        self.check(\n            r"""\n{body}            """\n        )\n'
        )


class Checker:
    def __init__(self, arguments):
        self.isolated = arguments.isolated
        self.programs = self.lines = self.entries = 0
        self.current = arguments.current and open(arguments.current, "w", encoding="utf-8")

    def __call__(self, source):
        self.programs += 1
        self.lines += source.count("\n")
        if self.current:
            # So that a program that crashes the interpreter is known.
            self.current.seek(0)
            self.current.truncate()
            self.current.write(source)
            self.current.flush()
        if self.isolated:
            status = exit_status(source)
            if status != 0:
                raise Failed(source, f"exit status {status}")
            return
        try:
            self.entries += observed.check(source)
        except (Exception, observed.Mismatch) as error:
            raise Failed(source, f"{type(error).__name__}: {error}") from None

    def smallest(self, failure):
        """What hypothesis leaves, with every block left out, or its body put in its place, that can be."""
        changed = True
        while changed:
            changed = False
            lines = failure.source.splitlines()
            for start in range(len(lines)):
                for smaller in smaller_by_block(lines, start):
                    if size_of(smaller) < size_of(lines) and (found := self.still_fails(smaller)) is not None:
                        failure, changed = found, True
                        break
                if changed:
                    break
        return failure

    def still_fails(self, lines):
        source = "\n".join(lines) + "\n"
        try:
            compile(source, observed.FILE, "exec")
        except SyntaxError:
            return None
        try:
            self(source)
        except Failed as failure:
            return failure
        return None


def smaller_by_block(lines, start):
    """The lines without the block that begins there, with `pass` instead, and with its body instead."""
    indent = indent_of(lines[start])
    end = start + 1
    while end < len(lines) and indent_of(lines[end]) > indent:
        end += 1
    yield lines[:start] + lines[end:]
    yield [*lines[:start], " " * indent + "pass", *lines[end:]]
    if end > start + 1:
        yield [*lines[:start], *(line[4:] for line in lines[start + 1 : end]), *lines[end:]]


def size_of(lines):
    return len(lines), sum(map(len, lines))


def indent_of(line):
    return len(line) - len(line.lstrip())


def exit_status(source):
    """How a process ends that checks this program."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            faulthandler.disable()
            observed.check(source)
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--isolated", action="store_true", help="each program in a process of its own")
    parser.add_argument("--report", help="where the figures go, as JSON")
    parser.add_argument("--current", help="where the program goes before it runs")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    observed.prepare()
    check = Checker(arguments)
    started = time.monotonic()

    @hypothesis.seed(arguments.seed)
    @hypothesis.settings(
        max_examples=arguments.examples,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @hypothesis.given(strategies.binary(min_size=SHORTEST, max_size=LONGEST).map(programs.program))
    def run(source):
        check(source)

    failure = None
    with warnings.catch_warnings():
        # Coroutines that are never awaited, and the like.
        warnings.simplefilter("ignore")
        try:
            run()
        except Failed as error:
            failure = check.smallest(error)
        except hypothesis.errors.FlakyFailure as group:
            [failure, *_] = (error for error in group.exceptions if isinstance(error, Failed))
            failure.complaint += "\n(not every time)"
    if check.current:
        check.current.close()
    counts = _compare.counts()
    figures = {
        "seed": arguments.seed,
        "programs": check.programs,
        "lines": check.lines,
        "frames": counts["frames"],
        "values": counts["values"],
        "values also in f_locals": counts["f_locals"],
        "entries as constructed": check.entries,
        "seconds": round(time.monotonic() - started, 1),
    }
    if arguments.report:
        with open(arguments.report, "w", encoding="utf-8") as file:
            json.dump(figures, file)
    print(", ".join(f"{name}: {value}" for name, value in figures.items()), flush=True)
    if failure is not None:
        print(failure.as_test(arguments.seed))
    return failure is not None


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main())

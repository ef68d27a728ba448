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
    """The program that a tape stands for is one that localsplus is wrong about."""

    def __init__(self, tape, complaint):
        super().__init__(complaint)
        self.tape = tape
        self.complaint = complaint

    def as_test(self, seed):
        body = "".join(f"            {line}\n" for line in programs.program(self.tape).splitlines())
        return (
            f"\n{self.complaint}\n\nAs a test, for test_generated.py (found with --seed {seed}):\n\n"
            f'    def test_found(self):\n        self.check(r"""\n{body}        """)\n'
        )


class Checker:
    def __init__(self, arguments):
        self.isolated = arguments.isolated
        self.programs = self.lines = self.entries = 0
        self.current = arguments.current and open(arguments.current, "w", encoding="utf-8")

    def __call__(self, tape):
        source = programs.program(tape)
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
                raise Failed(tape, f"exit status {status}")
            return
        try:
            self.entries += observed.check(source)
        except (Exception, observed.Mismatch) as error:
            raise Failed(tape, f"{type(error).__name__}: {error}") from None

    def fails(self, tape):
        try:
            self(tape)
        except Failed as failure:
            return failure
        return None

    def smallest(self, failure):
        """The failure with whatever of its tape left out that can be: hypothesis keeps tapes at their shortest."""
        size = len(failure.tape)
        while size:
            start = 0
            while start < len(failure.tape):
                tape = failure.tape
                for shorter in (tape[:start] + tape[start + size :], tape[:start] + bytes(size) + tape[start + size :]):
                    if shorter != tape and len(shorter) <= len(tape) and (smaller := self.fails(shorter)):
                        failure = smaller
                        break
                else:
                    start += size
                    continue
                if len(failure.tape) == len(tape):
                    start += size
            size //= 2
        return failure


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
    @hypothesis.given(strategies.binary(min_size=SHORTEST, max_size=LONGEST))
    def run(tape):
        check(tape)

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

"""The command line of matrix/run."""

import argparse
import os
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from . import apt, benchmarks, cache, cargo, command, consumers, outcome, own_tests, probe, progress, provide, row_tests, rows, tools
from .outcome import Outcome
from .rows import Row

# Lines of the table that are no interpreters, by the name one can ask for them on the command line. All but the last
# want cargo's folder for themselves, one after the other.
_IN_ORDER: dict[str, Callable[[], Iterable[Outcome]]] = {
    "matrix": lambda: [own_tests.run()],
    "cargo-test": lambda: [cargo.test()],
    "compile": lambda: map(cargo.check_configuration, cargo.CONFIGURATIONS),
}
_OTHER_LINES = (*_IN_ORDER, "consumers")


def main() -> int:
    arguments = _arguments()
    try:
        all_rows = rows.require(rows.read(), os.environ.get("LOCALSPLUS_MATRIX_REQUIRE", ""))
    except rows.BadRows as error:
        raise SystemExit(f"matrix/run: {error}") from None
    if unknown := [name for name in arguments.rows if name not in all_rows and name not in _OTHER_LINES]:
        raise SystemExit(
            f"matrix/run: no row {unknown[0]}; rows: {', '.join(all_rows)}; others: {', '.join(_OTHER_LINES)}"
        )
    chosen = [row for row in all_rows.values() if not arguments.rows or row.name in arguments.rows]
    others = [name for name in _OTHER_LINES if not arguments.rows or name in arguments.rows]
    if arguments.list:
        # A reader that has seen enough (head) ends it, as any list.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        _list(chosen, others)
        return 0
    # A CI that stops us stops what we started, too.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with cache.only_run():
        try:
            return _run(chosen, others, arguments)
        except KeyboardInterrupt:
            command.stop_all()
            progress.shout("interrupted; the next run goes on from here")
            return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="matrix/run",
        description="Provides every interpreter localsplus supports into matrix/.cache, and runs its tests on each.",
        epilog="LOCALSPLUS_MATRIX_REQUIRE=3.14t,... makes those rows required ones.",
    )
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"only these rows, or {', '.join(_OTHER_LINES)}; all of them by default"
    )
    parser.add_argument("--list", action="store_true", help="show the rows, and the interpreters that are there")
    parser.add_argument("--provide", action="store_true", help="provide the interpreters, run nothing")
    parser.add_argument(
        "--offline", action="store_true", help="use the interpreters that are there, download and build none"
    )
    parser.add_argument(
        "--bench", action="store_true", help="time localsplus beside its peers on the release rows, run no tests"
    )
    parser.add_argument(
        "--stress", action="store_true", help="run the long forms of the tests that have one (an hour and more a row)"
    )
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), metavar="N", help="lines tested at a time (%(default)s)"
    )
    return parser.parse_args()


def _list(chosen: list[Row], others: list[str]) -> None:
    if chosen:
        print(f"{'row':14} {'CPython':24} without it  the interpreter")
    for row in chosen:
        without = "fails" if row.required else "skips"
        print(f"{row.name:14} {row.version} {row.build:19} {without:11} {_whereabouts(row)}")
    if others:
        print("tests that are not of one interpreter:", *others)


def _whereabouts(row: Row) -> str:
    if (found := provide.recorded(row)) is not None:
        return f"{found.version}, {found.source}" if os.path.exists(found.executable) else f"GONE: {found.executable}"
    reasons = []
    for source in row.sources:
        if ":" in source:
            return f"not there yet; would try {', '.join(name for name in row.sources if ':' in name)}"
        try:
            found = provide.from_source(source, row, offline=True)
            return f"{found.version}, {found.source}"
        except probe.Unusable as reason:
            reasons.append(str(reason))
    return f"not there: {'; '.join(reasons)}"


def _needed(others: list[str], arguments: argparse.Namespace) -> tuple[str, ...]:
    """The programs that nothing brings: they are named before anything is downloaded or built."""
    if arguments.provide:
        return ("cc",)
    more = consumers.PROGRAMS if "consumers" in others and not arguments.bench else ()
    return tuple(dict.fromkeys(("cargo", "cc", "c++", "readelf", *more)))


def _run(chosen: list[Row], others: list[str], arguments: argparse.Namespace) -> int:
    outcomes: list[Outcome] = []
    sha256 = None
    if (reason := command.missing(*_needed(others, arguments)) or tools.make()) is not None:
        outcomes.append(_failed("tools", reason))
        return _end(outcomes, sha256)
    found, missing = provide.provide(chosen, arguments.offline)
    try:
        # Before the rows run, since several of them would want it at once.
        tools.row_packages()
    except (command.CommandFailed, apt.NotAvailable) as failure:
        outcomes.append(_failed("packages", str(failure)))
        return _end(outcomes, sha256)
    if arguments.provide:
        return 1 if any(row.required and row.name in missing for row in chosen) else 0
    try:
        library, sha256 = cargo.build_library()
    except cargo.NoLibrary as error:
        outcomes.append(_failed("library", str(error)))
        return _end(outcomes, sha256)
    if arguments.bench:
        timed = [row for row in chosen if benchmarks.is_for(row) and row.name in found]
        failed = [row.name for row in timed if not benchmarks.run(row, found[row.name], library)]
        if failed or not timed:
            progress.shout(f"no figures for {', '.join(failed) or 'any row: choose release builds'}")
        return 1 if failed or not timed else 0
    for name in _IN_ORDER:
        for result in _IN_ORDER[name]() if name in others else ():
            outcomes.append(result)
            if result.problem is not None:
                progress.block(result.name, result.problem)

    def row_line(row: Row) -> Outcome:
        if row.name in missing:
            return Outcome.of_missing(row.name, row.required, row.version, row.build, missing[row.name])
        return row_tests.run(row, found[row.name], library, sha256, arguments.stress)

    lines = consumers.lines() if "consumers" in others else []
    lines += [partial(row_line, row) for row in chosen]
    with ThreadPoolExecutor(arguments.jobs) as workers:
        try:
            outcomes += workers.map(lambda line: line(), lines)
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            command.stop_all()
            raise
    if cargo.sha256(library) != sha256:
        outcomes.append(_failed("library", f"{library} was built anew while the rows ran"))
    return _end(outcomes, sha256)


def _failed(name: str, problem: str) -> Outcome:
    progress.block(name, problem)
    return Outcome(name, failed=1, problem=problem)


def _end(outcomes: list[Outcome], sha256: str | None) -> int:
    outcome.write(outcomes, sha256)
    print(f"\n{outcome.table(outcomes)}\n\n{outcome.notes(outcomes)}\n\nin {progress.duration(progress.elapsed())}")
    print(outcome.totals(outcomes), flush=True)
    return 1 if any(line.failed for line in outcomes) else 0

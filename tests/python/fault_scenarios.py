"""Interpreters that are not what they should be, and memory that is not there: scenarios that need a process of their
own. fault_scenarios.py NAME [ARGUMENT ...] runs the function of that name."""

import json
import os
import sys
import traceback

import _cases

VERSION = sys.version_info[:3]


def no_memory():
    """_testcapi.set_nomemory() makes every allocation fail from some number on."""
    import _faults
    import _testcapi
    import situations

    questions = _faults.questions()
    failures = {}
    # As many as free lists hold, and more.
    used = [[(number,), (number, number), {}] for number in range(3000)]

    def check(situation):
        count = _cases.count(situation.address)
        before = situation.counts()
        for function, (_, _, allocates) in questions.items():
            if not allocates:
                continue
            arguments = (function, situation.address, 0, 0, count, situation.name)
            _faults.quietly(*arguments)
            usual = _faults.outcome()
            for start in range(100):
                # The next ones are not from a free list.
                used.append([[(start,), (start, n), {}, {function: start}] for n in range(20)])
                _testcapi.set_nomemory(start)
                try:
                    # What set_nomemory() was called with is in a free list again.
                    held = (start,)
                    _faults.quietly(*arguments)
                except MemoryError:
                    # For the call itself.
                    pass
                finally:
                    _testcapi.remove_mem_hooks()
                held = None
                outcome = _faults.outcome()
                if outcome is None:
                    continue
                if outcome[1] is not MemoryError:
                    assert outcome == usual, (situation.label, function, start, outcome)
                    break
                assert outcome[0] == -1, (situation.label, function, start)
                failures[function] = failures.get(function, 0) + 1
            else:
                raise AssertionError(f"{situation.label}, {function}: no end of allocations")
        assert situation.counts() == before, situation.label

    situations.everything_once(check)
    assert set(failures) == {name for name, (_, _, allocates) in questions.items() if allocates}, failures
    print(failures)


def main():
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)


if __name__ == "__main__":
    main()

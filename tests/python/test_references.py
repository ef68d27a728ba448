"""References: whatever is asked about a frame, in whatever state it is, every count is afterwards what it was."""

import gc
import sys
import unittest

import _faults
import situations
import support
from support import DEBUG, run_scenario


def reads():
    return 100_000_000 if support.stress else 1_000_000


class References(unittest.TestCase):
    def times(self):
        """How often everything must be asked for that many reads."""
        if not hasattr(References, "once"):
            References.once = 0

            def count(situation):
                References.once += sum(situation.ask())

            situations.everything_once(count)
        return reads() // References.once + 1

    def test_every_count_is_what_it_was(self):
        times = self.times()
        asked = {}

        def check(situation):
            situation.objects += situations.IMMORTAL
            situation.ask()
            before = situation.counts()
            tally = situation.ask(times)
            self.assertEqual(situation.counts(), before, situation.label)
            asked[situation.label] = asked.get(situation.label, 0) + sum(tally)

        situations.everything_once(check)
        total = sum(asked.values())
        self.assertGreaterEqual(total, reads())
        self.assertGreaterEqual(len(asked), 19, sorted(asked))
        support.figures["references"] = {"answers": total, "states": len(asked)}

    def test_immortal_objects(self):
        """In a process of its own: once such a count is lower, taking a reference makes good for dropping it."""
        run_scenario("immortal_objects", script="fault_scenarios.py")

    def test_function_by_function(self):
        """So that what one gives too little is not what another takes too much."""

        def check(situation):
            situation.objects += situations.IMMORTAL
            for function in _faults.questions():
                situation.ask(1, function)
                before = situation.counts()
                situation.ask(100, function)
                self.assertEqual(situation.counts(), before, (situation.label, function))

        situations.everything_once(check)

    @unittest.skipUnless(DEBUG, "sys.gettotalrefcount() exists on debug builds only")
    def test_total_reference_count(self):
        times = self.times() // 10 + 100

        def check(situation):
            situation.ask(10)
            before = sys.gettotalrefcount()
            situation.ask(times)
            grown = sys.gettotalrefcount() - before
            self.assertLess(abs(grown), 50, situation.label)

        situations.everything_once(check)

    def test_no_memory_is_kept(self):
        def check(situation):
            situation.ask(10)
            blocks = sys.getallocatedblocks()
            situation.ask(1000)
            # Free lists take up some.
            self.assertLess(abs(sys.getallocatedblocks() - blocks), 300, situation.label)

        gc.collect()
        gc.disable()
        try:
            situations.everything_once(check)
        finally:
            gc.enable()

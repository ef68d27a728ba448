"""CPython's own tests under a hook that reads every slot of every frame: see cpython_tests.py.

Each module runs alone, under a hook that only evaluates, and under the reading hook. A test must do under the last what
it does alone; where any hook at all changes it, since it counts calls or events for example, what it does under the
idle one.
"""

import re
import unittest

import support
from cpython import MISSING, Run, is_there

# Half a minute of processor time on a debug build.
SHORT = """
    test_generators test_coroutines test_asyncgen test_genexps test_scope test_listcomps test_dictcomps test_setcomps
    test_named_expressions test_with test_super test_patma test_type_params test_extcall test_keywordonlyarg
    test_positional_only_arg test_except_star test_contextlib test_dataclasses test_sys_settrace test_sys_setprofile
    test_monitoring test_yield_from test_pep380
""".split()
LONG = """
    test_abc test_argparse test_ast test_asyncio.test_locks test_asyncio.test_queues test_asyncio.test_tasks test_bdb
    test_builtin test_call test_class test_code test_collections test_compile test_context test_contextlib_async
    test_copy test_decorators test_defaultdict test_deque test_descr test_dis test_enum test_exception_group
    test_exception_variations test_exceptions test_frame test_fstring test_funcattrs test_functools test_gc test_global
    test_grammar test_heapq test_inspect test_json test_metaclass test_opcache test_ordered_dict test_pdb test_pickle
    test_profile test_property test_raise test_re test_statistics test_string test_symtable test_sys test_thread
    test_threading test_threading_local test_trace test_traceback test_type_aliases test_type_annotations test_typing
    test_unpack_ex test_userdict test_weakref test_concurrent_futures.test_thread_pool test_free_threading
""".split()

WAYS = ("alone", "idle", "read")

# What any eval-frame function changes, as it does on every version; a test more is a failure. Python calls Python
# through C then, and specialises no such call.
CHANGED_BY_ANY_HOOK = {
    # The return of the C function that switched the events on is an event, too; before 3.14, so is what ends a
    # generator.
    "test_monitoring": (
        r"\.(MonitoringCountTest\.test_c_return_count"
        r"|MonitoringEventsTest\.test_(caught|just_call|just_pass|nested_call)"
        r"|SimulateProfileTest\.test_(balanced|frame_stack)"
        r"|TestLoadSuperAttr\.test_(attr|method_call|method_call_error|vs_other_type_call)"
        r"|TestManyEvents\.test_(c_call|simple|try_except)"
        r"|ExceptionMonitoringTest\.test_implicit_stop_iteration)$"
    ),
    "test_sys_settrace": r"\.test_20_async_for_loop$",
    # Which instructions are specialised.
    "test_dis": r"\.test_loop_quicken$",
    "test_opcache": r"\.(TestRacesDoNotCrash|TestSpecializer)\.",
    # How deep a recursion may go, and how its traceback is shortened.
    "test_call": r"\.TestRecursion\.test_super_deep$",
    "test_functools": r"\.TestLRUPy\.test_lru_recursion$",
    "test_traceback": r"\.test_recursive_traceback_(python|cpython_internal)$",
}


class Comparison:
    """A module's tests, alone and while they are read."""

    def __init__(self, module):
        self.runs = {way: Run(module, way) for way in ("alone", "read")}
        self.by_any_hook, self.unsteady = [], []
        self.by_reading = self.different("alone", "read")
        if self.by_reading:
            self.runs["idle"] = Run(module, "idle")
            outcome = self.runs["idle"].of
            self.by_any_hook = [test for test in self.by_reading if outcome(test) == self.runs["read"].of(test)]
            self.by_reading = [test for test in self.by_reading if test not in self.by_any_hook]
        if self.by_reading:
            # Tests of threads and of time are not the same each time: only what is changed by reading twice, and does
            # not change by itself, counts.
            again = {way: Run(module, way) for way in WAYS}
            for test in self.by_reading[:]:
                without = {str(runs[way].of(test)) for runs in (self.runs, again) for way in ("alone", "idle")}
                if str(again["read"].of(test)) in without or str(self.runs["read"].of(test)) in without:
                    self.by_reading.remove(test)
                    self.unsteady.append(test)

    def different(self, one, other):
        one, other = self.runs[one], self.runs[other]
        if one.outcomes is None or other.outcomes is None:
            return ["(the process)"] if one.outcomes is not other.outcomes else []
        return [test for test in sorted({*one.outcomes, *other.outcomes}) if one.of(test) != other.of(test)]


class CPythonsOwnTests(unittest.TestCase):
    def test_modules(self):
        if not is_there("test_generators"):
            self.skipTest(MISSING)
        modules = [module for module in (SHORT + LONG if support.stress else SHORT) if is_there(module)]
        totals = {"modules": 0, "tests": 0, "frames": 0, "values": 0, "changed by any hook": 0, "unsteady": 0}
        problems = []
        for module in modules:
            compared = Comparison(module)
            alone, read = compared.runs["alone"], compared.runs["read"]
            if alone.outcomes is None:
                print(f"\n{module}: does not run here, hook or no hook: {alone.output.strip()[-200:]}", flush=True)
                continue
            totals["modules"] += 1
            totals["tests"] += len(alone.outcomes)
            totals["frames"] += read.counts.get("frames", 0)
            totals["values"] += read.counts.get("values", 0)
            totals["changed by any hook"] += len(compared.by_any_hook)
            totals["unsteady"] += len(compared.unsteady)
            for tests, why in ((compared.by_any_hook, "changed by any hook"), (compared.unsteady, "unsteady")):
                if tests:
                    print(f"\n{module}: {why}: {', '.join(tests)}", end="", flush=True)
            expected = re.compile(CHANGED_BY_ANY_HOOK.get(module, "$^"))
            for test in compared.by_any_hook:
                if not expected.search(test):
                    problems.append(f"{test} of {module}, which is not in CHANGED_BY_ANY_HOOK: {read.of(test)}")
            problems += [f"{module}: {mismatch}" for mismatch in read.mismatches]
            for test in compared.by_reading:
                problems.append(f"{test} of {module}: {alone.of(test)} alone, {read.of(test)} with reading")
                problems.append(read.output[-3000:])
        support.figures["CPython's own tests"] = totals
        print("\n" + ", ".join(f"{name}: {figure}" for name, figure in totals.items()), end=" ", flush=True)
        self.assertEqual(problems, [], "\n".join(problems))
        self.assertGreater(totals["modules"], 20)
        self.assertGreater(totals["frames"], 200_000)

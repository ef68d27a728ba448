"""The first call chooses the provider, wherever in a program it happens. Each case is a process of its own."""

import unittest

from support import VERSION, run_scenario

SCENARIOS = (
    "first_call_in_a_hook",
    "first_call_with_an_exception_pending",
    "first_init_with_an_exception_pending",
    "first_call_from_many_threads",
    "first_call_from_a_thread_while_others_run",
    "first_call_in_a_trace_function",
    "first_call_in_a_profile_function",
    "first_call_in_a_subinterpreter",
    "first_call_in_subinterpreters_at_once",
    "first_call_at_exit",
    "first_call_in_a_finaliser",
    "first_call_at_the_recursion_limit",
    "nested_call_from_an_audit_hook",
    "nested_call_from_a_collection",
    "nested_call_from_a_profile_function",
    "nested_call_from_a_trace_function",
    "interrupted_by_an_audit_hook",
    "interrupted_by_a_signal",
    "interrupted_by_another_hook",
    "what_python_code_may_replace",
    "first_call_in_a_deep_deallocation",
    "process_that_ends_meanwhile",
    "process_that_forks_meanwhile",
    "hook_of_another_library_is_kept",
    "hook_of_another_library_during_the_choice",
    "choosing_changes_nothing_else",
    "choosing_leaks_nothing",
)


class FirstUse(unittest.TestCase):
    @unittest.skipIf(VERSION < (3, 12), "sys.monitoring came with 3.12")
    def test_nested_call_from_monitoring(self):
        run_scenario("nested_call_from_monitoring")

    @unittest.skipIf(VERSION < (3, 15), "allowing specialisation came with 3.15")
    def test_specialisation_setting_is_kept(self):
        run_scenario("specialisation_setting_is_kept")

    def test_process_that_ends_while_another_thread_waits(self):
        run_scenario("process_that_ends_meanwhile", "waiting")


def add_test(scenario):
    def test(self):
        run_scenario(scenario)

    test.__name__ = f"test_{scenario}"
    setattr(FirstUse, test.__name__, test)


for each in SCENARIOS:
    add_test(each)

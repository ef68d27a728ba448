"""Threads, forks, subinterpreters, and the end of the interpreter. Each case is a process of its own."""

import json
import unittest

import support
from support import run_scenario


def run(name, *arguments, **kwargs):
    rounds = {"LOCALSPLUS_ROUNDS": "50" if support.stress else "1"}
    timeout = 3600 if support.stress else 300
    return run_scenario(name, *arguments, script="concurrency.py", env=rounds, timeout=timeout, **kwargs)


class Threads(unittest.TestCase):
    def test_readers_and_writers(self):
        output = run("readers_and_writers")
        support.figures["threads"] = json.loads(output)

    def test_generators(self):
        run("generators_in_threads")


class Fork(unittest.TestCase):
    def test_after_init(self):
        run("fork_after_init")


class Interpreters(unittest.TestCase):
    def test_init_in_one_use_in_another(self):
        for first in ("main", "subinterpreter", "gone"):
            with self.subTest(first):
                run("init_in_one_use_in_another", first)

    def test_they_share_no_object(self):
        run("interpreters_share_no_object")

    def test_they_come_and_go(self):
        run("interpreters_come_and_go")


class End(unittest.TestCase):
    def test_at_exit(self):
        self.assertEqual(run("at_exit"), "first\nlast\n")

    def test_finalisers(self):
        output = run("finaliser_at_exit", "after")
        self.assertEqual(sorted(output.splitlines()), ["cycle finalised", "module finalised", "sys finalised"])
        output = run("finaliser_at_exit", "before")
        self.assertEqual(sorted(line.split()[0] for line in output.splitlines()), ["cycle", "module", "sys"])

    def test_daemon_threads(self):
        for when in ("after", "before") * (20 if support.stress else 2):
            with self.subTest(when):
                self.assertEqual(run("daemon_threads_at_exit", when), "sys finalised\n")

    def test_daemon_thread_releases_arguments(self):
        run("daemon_thread_releases_arguments_at_exit")

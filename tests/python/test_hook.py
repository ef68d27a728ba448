"""localsplus_hook_install and localsplus_hook_remove: chains, threads, interpreters, the end of the process."""

import gc
import os
import subprocess
import sys
import sysconfig
import threading
import unittest

import support
from support import VERSION

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
# As many as there is room for.
ROOM = 64

hooks = None


def setUpModule():
    global hooks
    toolchain = support.toolchain
    toolchain.extension("_hooks", [os.path.join(support.HERE, "_hooks.c")], link_library=True)
    import _hooks as hooks


def call():
    return "called"


class HookTest(unittest.TestCase):
    def setUp(self):
        self.assertEqual(hooks.installed(), "default")
        hooks.watch(call.__code__)
        self.addCleanup(self.check_that_nothing_is_left)

    def check_that_nothing_is_left(self):
        # Whatever it is, the next test shall not suffer from it.
        installed = hooks.installed()
        hooks.swap(None)
        self.assertEqual(installed, "default")

    def order(self):
        """Calls `call`: which hooks saw that, in which order."""
        self.assertEqual(call(), "called")
        return hooks.order()


class Installing(HookTest):
    def test_once(self):
        self.assertIs(hooks.install(0), True)
        self.assertIs(hooks.install(0), False)
        self.assertEqual([call() for _ in range(10)], ["called"] * 10)
        self.assertEqual(hooks.calls(0), 10)
        self.assertIs(hooks.remove(0), True)
        self.assertIs(hooks.remove(0), False)
        call()
        self.assertEqual(hooks.calls(0), 10)

    def test_never_installed(self):
        self.assertIs(hooks.remove(200), False)

    def test_warm_caller(self):
        """A call that the interpreter has specialised before is seen, and after the removal is not."""

        def caller():
            return call()

        for _ in range(100):
            caller()
        hooks.install(0)
        for _ in range(100):
            caller()
        hooks.remove(0)
        for _ in range(100):
            caller()
        self.assertEqual(hooks.calls(0), 100)

    def test_on_and_off_takes_no_room(self):
        for _ in range(1000):
            hooks.install(0)
            hooks.remove(0)

    def test_no_room(self):
        self.addCleanup(lambda: [hooks.remove(number) for number in range(ROOM)])
        with self.assertRaisesRegex(RuntimeError, f"{ROOM} hooks are installed"):
            for number in range(ROOM + 1):
                hooks.install(number)
        call()
        self.assertEqual({hooks.calls(number) for number in range(20, 40)}, {1})
        for number in range(ROOM):
            hooks.remove(number)
        # Removed ones make room for others.
        for number in range(ROOM, 250):
            self.assertIs(hooks.install(number), True)
            call()
            self.assertIs(hooks.remove(number), True)
            self.assertEqual(hooks.calls(number), 1)

    def test_a_hook_that_fails(self):
        hooks.fail(True)
        try:
            with self.assertRaisesRegex(ZeroDivisionError, "from the hook"):
                call()
        finally:
            hooks.fail(False)
        self.assertEqual(call(), "called")

    def test_installed_and_removed_in_a_hooked_frame(self):
        def inside():
            hooks.remove(0)
            call()
            hooks.install(1)
            return call()

        hooks.install(0)
        self.assertEqual(inside(), "called")
        self.assertEqual((hooks.calls(0), hooks.calls(1)), (0, 1))
        hooks.remove(1)


@unittest.skipIf(FREE_THREADED, "the order is not noted on free-threaded builds")
class Chains(HookTest):
    def test_last_in_first_called(self):
        hooks.install(0)
        hooks.install(1)
        self.assertEqual(self.order(), "ba")
        hooks.remove(1)
        self.assertEqual(self.order(), "a")
        hooks.remove(0)
        self.assertEqual(self.order(), "")

    def test_removed_from_below(self):
        for number in range(3):
            hooks.install(number)
        hooks.remove(1)
        self.assertEqual(self.order(), "ca")
        hooks.remove(0)
        self.assertEqual(self.order(), "c")
        # Those below it went with it.
        hooks.remove(2)
        self.assertEqual(hooks.installed(), "default")

    def test_installed_again_while_another_is_on_top(self):
        hooks.install(0)
        hooks.install(1)
        hooks.remove(0)
        self.assertEqual(self.order(), "b")
        # It takes its old place: nothing would ever clear that away otherwise.
        self.assertIs(hooks.install(0), True)
        self.assertEqual(self.order(), "ba")
        hooks.remove(1)
        self.assertEqual(self.order(), "a")
        hooks.remove(0)

    def test_the_chain_does_not_grow(self):
        hooks.install(0)
        for _ in range(10 * ROOM):
            for one, other in ((1, 0), (0, 1)):
                self.assertIs(hooks.install(one), True)
                self.assertIs(hooks.remove(other), True)
        hooks.remove(0)

    def test_a_foreign_hook_on_top(self):
        hooks.install(0)
        hooks.foreign(True)
        self.assertEqual(self.order(), "Fa")
        hooks.remove(0)
        self.assertEqual((hooks.installed(), self.order()), ("foreign", "F"))
        # It puts back what it found, which passes everything on.
        hooks.foreign(False)
        self.assertEqual((hooks.installed(), self.order()), ("other", ""))
        # Which is cleared away when there is an occasion.
        hooks.install(1)
        self.assertEqual(self.order(), "b")
        hooks.remove(1)
        self.assertEqual(hooks.installed(), "default")

    def test_installed_again_over_a_foreign_hook(self):
        hooks.install(0)
        hooks.foreign(True)
        hooks.remove(0)
        hooks.install(0)
        self.assertEqual(self.order(), "aF")
        hooks.remove(0)
        self.assertEqual((hooks.installed(), self.order()), ("foreign", "F"))
        hooks.foreign(False)
        hooks.install(0)
        self.assertEqual(self.order(), "a")
        hooks.remove(0)

    def test_over_a_foreign_hook(self):
        hooks.foreign(True)
        hooks.install(0)
        self.assertEqual(self.order(), "aF")
        hooks.remove(0)
        self.assertEqual((hooks.installed(), self.order()), ("foreign", "F"))
        hooks.foreign(False)

    def test_a_foreign_hook_puts_back_what_was_below_it(self):
        hooks.foreign(True)
        hooks.install(0)
        hooks.foreign(False)
        self.assertEqual((hooks.installed(), self.order()), ("default", ""))
        self.assertIs(hooks.install(0), True, "it was gone")
        self.assertEqual(self.order(), "a")
        self.assertIs(hooks.install(0), False)
        hooks.remove(0)
        self.assertEqual(hooks.installed(), "default")

    def test_put_away_for_a_moment(self):
        hooks.install(0)
        installed = hooks.swap(None)
        self.assertIs(hooks.install(1), True)
        self.assertEqual(self.order(), "b")
        hooks.remove(1)
        hooks.swap(installed)
        self.assertEqual(self.order(), "a")
        hooks.remove(0)

    def test_put_away_takes_no_room(self):
        for number in range(3 * ROOM):
            hooks.foreign(True)
            self.assertIs(hooks.install(number % 2), True)
            hooks.foreign(False)
            if number % 3:
                self.assertIs(hooks.remove(number % 2), True)
        for number in range(2):
            hooks.remove(number)


@unittest.skipIf(VERSION < (3, 15), "this setting came with 3.15")
class Specialization(HookTest):
    def test_kept(self):
        for allowed in (True, False):
            hooks.foreign(True)
            hooks.allow_specialization(allowed)
            hooks.install(0)
            self.assertIs(hooks.specializes(), allowed, "under ours")
            hooks.remove(0)
            self.assertIs(hooks.specializes(), allowed, "put back")
            hooks.foreign(False)

    def test_over_the_default(self):
        hooks.install(0)
        self.assertIs(hooks.specializes(), False, "as CPython has it for any eval-frame function")
        hooks.remove(0)
        self.assertIs(hooks.specializes(), True)

    def test_nothing_is_missed(self):
        def caller():
            return call()

        for allowed in (True, False):
            hooks.install(0)
            hooks.watch(call.__code__)
            hooks.allow_specialization(allowed)
            for _ in range(1000):
                caller()
            hooks.remove(0)
            self.assertEqual(hooks.calls(0), 1000, allowed)


class Threads(HookTest):
    def test_removed_while_another_thread_is_inside(self):
        inside, go_on = threading.Event(), threading.Event()
        answers = []

        def deep(n):
            if n:
                return deep(n - 1) + 1
            inside.set()
            go_on.wait(60)
            return 0

        hooks.install(0)
        thread = threading.Thread(target=lambda: answers.append(deep(50)))
        thread.start()
        self.assertTrue(inside.wait(60))
        hooks.remove(0)
        gc.collect()
        go_on.set()
        thread.join()
        self.assertEqual(answers, [50])

    def test_installed_and_removed_by_many(self):
        threads, rounds = 6, 300
        barrier = threading.Barrier(threads)
        failures = []

        def work(number):
            barrier.wait()
            try:
                for _ in range(rounds):
                    if not hooks.install(number) or call() != "called" or not hooks.remove(number):
                        failures.append(number)
            except Exception as error:
                failures.append(error)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        finally:
            sys.setswitchinterval(interval)
        self.assertEqual(failures, [])
        for number in range(threads):
            self.assertGreaterEqual(hooks.calls(number), rounds)
        # Some may have been removed from below others.
        hooks.install(0)
        hooks.remove(0)


def subinterpreters():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            return __import__(name)
        except ImportError:
            pass
    return None


IN_A_SUBINTERPRETER = """
import sys
sys.path[:] = {path!r}
import _hooks as hooks
def call():
    return "called"
class AtTheEnd:
    def __del__(self, call=call):
        assert call() == "called"
sys.at_the_end = AtTheEnd()
assert hooks.installed() == "default", hooks.installed()
assert hooks.install({number}) is True
assert hooks.install({number}) is False
assert call() == "called"
assert hooks.installed() == "other"
if {remove}:
    assert hooks.remove({number}) is True
    assert hooks.installed() == "default"
"""


@unittest.skipIf(subinterpreters() is None, "this interpreter has no module for subinterpreters")
class Subinterpreters(HookTest):
    def run_one(self, number, remove):
        module = subinterpreters()
        # With a GIL of its own from 3.12 on.
        interpreter = module.create()
        source = IN_A_SUBINTERPRETER.format(path=sys.path, number=number, remove=remove)
        try:
            failure = module.run_string(interpreter, source)
            self.assertIsNone(failure)
        finally:
            module.destroy(interpreter)

    def test_hooks_of_their_own(self):
        hooks.install(0)
        try:
            self.run_one(0, remove=True)
            self.run_one(0, remove=False)
            call()
            self.assertEqual(hooks.calls(0), 1)
        finally:
            hooks.remove(0)

    def test_ended_ones_leave_nothing(self):
        for number in range(2 * ROOM + 10):
            self.run_one(number, remove=number % 2 == 0)
        self.assertIs(hooks.install(0), True)
        hooks.remove(0)


class Collections(unittest.TestCase):
    """What is allocated for the first hook starts a collection, and a finaliser that installs another one."""

    SOURCE = """
import sys
sys.path[:] = {path!r}
import gc
import _hooks as hooks
class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        hooks.install(1)
gc.collect()
gc.disable()
Cycle()
# None is free to be used again: whatever is made is allocated.
dicts = [{{}} for _ in range(1000)]
gc.set_threshold(1)
gc.enable()
hooks.install(0)
gc.disable()
gc.collect()
print(hooks.remove(1), hooks.remove(0), hooks.installed())
"""

    def test_first_hook(self):
        source = self.SOURCE.format(path=sys.path)
        process = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=30)
        self.assertEqual((process.stdout, process.stderr), ("True True default\n", ""))


class TheEnd(unittest.TestCase):
    """The process ends with hooks in place."""

    SOURCE = """
import sys
sys.path[:] = {path!r}
import _hooks as hooks
import os, threading, time
def call():
    return "called"
class AtTheEnd:
    def __del__(self, call=call, write=os.write):
        assert call() == "called"
        write(1, b"at the end")
sys.at_the_end = AtTheEnd()
hooks.install(0)
hooks.install(1)
hooks.foreign({foreign})
{more}
print(call(), flush=True)
"""
    DAEMON = """
def loop():
    while True:
        call()
for _ in range(3):
    threading.Thread(target=loop, daemon=True).start()
time.sleep(0.05)
"""

    def run_script(self, foreign=False, more=""):
        if not foreign:
            source = self.SOURCE.replace("hooks.foreign({foreign})", "")
        else:
            source = self.SOURCE
        source = source.format(path=sys.path, foreign=foreign, more=more)
        process = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
        self.assertEqual((process.returncode, process.stderr), (0, ""))
        return process.stdout

    def test_with_hooks_installed(self):
        self.assertEqual(self.run_script(), "called\nat the end")

    def test_with_a_foreign_hook_on_top(self):
        self.assertEqual(self.run_script(foreign=True), "called\nat the end")

    def test_while_other_threads_run(self):
        for _ in range(3):
            self.assertTrue(self.run_script(more=self.DAEMON).startswith("called\n"))

    def test_forked(self):
        more = "import os\nif os.fork() == 0:\n    hooks.remove(1); hooks.remove(0)\n    assert hooks.installed() == 'default'\n    os._exit(0)\nassert os.wait()[1] == 0"
        self.assertEqual(self.run_script(more=more), "called\nat the end")

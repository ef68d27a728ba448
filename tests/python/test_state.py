"""Where a read happens: under shim frames, in trace functions, threads, subinterpreters and JIT code."""

import sys
import threading
import unittest

import _cases
import _oracle
from support import VERSION, hooked, look, looked, monitoring, read, run_scenario, tracing

FRAME_OWNED_BY_FRAME_OBJECT = 2


def chain(address):
    """The addresses of all frames below, shims included."""
    while address:
        yield address
        address = _oracle.previous(address)


class Shims(unittest.TestCase):
    def test_s1_every_frame_of_the_chain(self):
        shims, python_frames = [], []

        def walk():
            for address in chain(_cases.address(sys._getframe())):
                if _oracle.is_python_frame(address):
                    python_frames.append(address)
                    _cases.snapshot(address)
                    continue
                shims.append(_oracle.owner(address))
                for function in ("get_local", "get_locals", "get_slot", "count", "kind", "names"):
                    status, result, error = _cases.call(function, address, 0, 0, 1, False, None)
                    self.assertEqual((function, status, type(error)), (function, -1, ValueError))

        # sorted() calls the key function from C.
        sorted([1], key=lambda v: walk())
        self.assertGreater(len(python_frames), 3)
        self.assertEqual(len(shims) > 0, VERSION >= (3, 12))
        for owner in shims:
            self.assertGreater(owner, FRAME_OWNED_BY_FRAME_OBJECT)

    def test_s1_caller_through_c(self):
        def t(values):
            return sorted(values, key=lambda v: look() or -v)

        self.assertEqual(t([1, 2]), [2, 1])
        self.assertEqual([slots.present() for slots in looked()], [{"v": 1}, {"v": 2}])

    def test_frames_further_down_the_stack(self):
        def inner():
            return read(sys._getframe(1)), read(sys._getframe(2))

        def middle(m, call):
            return call()

        def outer(o, call, through):
            return through("middle", call)

        of_middle, of_outer = outer("outer", inner, middle)
        self.assertEqual(of_middle.present(), {"m": "middle", "call": inner})
        self.assertEqual(of_outer.present(), {"o": "outer", "call": inner, "through": middle})


class Callbacks(unittest.TestCase):
    """The frame that an event is about, read inside the callback."""

    def traced(self, free):
        def t(a):
            b = a + 1
            c = lambda: b
            return b, free, c

        return t

    def check(self, seen):
        first, last = seen[0], seen[-1]
        self.assertEqual(first.present(), {"a": 1, "free": "free"})
        self.assertEqual(
            {name: value for name, value in last.present().items() if name != "c"}, {"a": 1, "b": 2, "free": "free"}
        )

    def test_s2_settrace(self):
        def trace(frame, event, argument):
            if frame.f_code is t.__code__:
                seen.append(read(frame))
                return trace

        t = self.traced("free")
        seen = []
        with tracing(trace):
            t(1)
        # call, three lines, return
        self.assertEqual(len(seen), 5)
        self.check(seen)

    def test_s2_setprofile(self):
        def profile(frame, event, argument):
            if frame.f_code is t.__code__:
                seen.append(read(frame))

        t = self.traced("free")
        seen = []
        sys.setprofile(profile)
        try:
            t(1)
        finally:
            sys.setprofile(None)
        self.assertEqual(len(seen), 2)
        self.check(seen)

    @unittest.skipIf(VERSION < (3, 12), "sys.monitoring came with 3.12")
    def test_s2_monitoring(self):
        def callback(code, *arguments):
            if code is t.__code__:
                seen.append(read(sys._getframe(2)))

        t = self.traced("free")
        seen = []
        with monitoring(callback, "PY_START", "LINE", "PY_RETURN"):
            t(1)
        self.assertEqual(len(seen), 5)
        self.check(seen)

    def test_hook_and_trace_function_together(self):
        def trace(frame, event, argument):
            if frame.f_code is t.__code__:
                seen.append(read(frame))
                return trace

        t = self.traced("free")
        seen = []
        with tracing(trace), hooked("t") as entered:
            t(1)
        self.assertEqual(entered[0].present(), {"a": 1, "free": "free"})
        self.check(seen)


class Elsewhere(unittest.TestCase):
    def test_s3_jit(self):
        is_available = getattr(getattr(sys, "_jit", None), "is_available", lambda: False)
        if not is_available():
            self.skipTest("this interpreter has no JIT")
        run_scenario("hot_loops", env={"PYTHON_JIT": "1"})

    def test_hot_loops(self):
        # The same without a JIT: specialised instructions.
        run_scenario("hot_loops", env={"PYTHON_JIT": "0"})

    def test_s4_subinterpreters(self):
        run_scenario("subinterpreters")

    def test_threads_read_their_own_frames(self):
        def worker(number):
            mine = [number]
            names = _cases.names(sys._getframe())
            for _ in range(1000):
                if _cases.caller_local(names.index("number")) is not number:
                    wrong.append("number")
                if _cases.caller_local(names.index("mine")) is not mine:
                    wrong.append("mine")

        wrong = []
        threads = [threading.Thread(target=worker, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_s5_shared_cell_in_a_race(self):
        run_scenario("shared_cell_in_a_race", timeout=300)

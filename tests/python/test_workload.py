"""localsplus against the oracle, slot by slot, on every frame of a real program."""

import sys
import unittest

import _cases
import _oracle
import workload
from support import NO_VALUE, VERSION, Slots, compare_functions, compare_with_oracle, monitoring, tracing


class Workload(unittest.TestCase):
    def setUp(self):
        self.frames = self.values = 0
        # Imports happen here and not under a hook.
        workload.run()

    def compare(self, address, snapshot):
        slots = Slots(snapshot)
        compare_functions(slots)
        compare_with_oracle(slots, address)
        self.frames += 1
        self.values += sum(value is not NO_VALUE for value in slots.singly)

    def check_numbers(self, frames):
        print(f"{self.frames} frames, {self.values} values ", end="", flush=True)
        self.assertGreater(self.frames, frames)
        self.assertGreater(self.values, 2 * frames)

    def test_every_entry(self):
        def on_entry(code_name, throwflag, address, snapshot):
            self.compare(address, snapshot)

        _cases.install_hook(None, on_entry)
        try:
            workload.run()
        finally:
            _cases.remove_hook()
        self.check_numbers(1500)

    def trace(self, frame, event, argument):
        address = _cases.address(frame)
        self.compare(address, _cases.snapshot(address))
        return self.trace

    def test_every_line(self):
        with tracing(self.trace):
            workload.run()
        self.check_numbers(20_000)

    def test_every_instruction(self):
        def on_instruction(code, offset):
            self.trace(sys._getframe(1), "opcode", None)

        def trace(frame, event, argument):
            frame.f_trace_opcodes = True
            self.trace(frame, event, argument)
            return trace

        # 3.12.1 sends no opcode events to trace functions.
        events = monitoring(on_instruction, "INSTRUCTION") if VERSION >= (3, 12) else tracing(trace)
        with events:
            workload.closures()
            workload.comprehensions()
            workload.generators()
            workload.exceptions()
        self.check_numbers(1500)

    def test_all_frames_below_every_call(self):
        """The whole stack at each call: frames suspended in the middle of an expression."""

        def profile(frame, event, argument):
            if event != "call":
                return
            address = _cases.address(frame)
            while address:
                if _oracle.is_python_frame(address):
                    self.compare(address, _cases.snapshot(address))
                address = _oracle.previous(address)

        sys.setprofile(profile)
        try:
            workload.closures()
            workload.generators()
            workload.coroutines()
        finally:
            sys.setprofile(None)
        self.check_numbers(5000)

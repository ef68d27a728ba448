"""One call site for 3.11 to 3.16: CPython's own names through localsplus_compat.h, and localsplus.hpp."""

import os
import sys
import unittest

import _cases
from consumers import build_extension
from support import OBJECTS, TESTS_C, hooked, questions, read, read_generator

_compat = _range = None


def setUpModule():
    global _compat, _range
    build_extension("_compat", os.path.join(TESTS_C, "compat_module.c"), "c11")
    build_extension("_range", os.path.join(TESTS_C, "range_module.cpp"), "c++17")
    import _compat
    import _range


def missing(value):
    return NotImplemented if value is _cases.NO_VALUE else value


class Frames:
    """Frames in every state, each as an address, with what read() says of it."""

    def frames(self):
        free = "free"

        def plain(a, b=2, *args, k=3, **kwargs):
            c = a
            del c
            inner = lambda: (b, free)
            return sys._getframe(), inner

        frame, _ = plain(1)
        yield "finished, in its frame object", read(frame), frame

        def generator(a):
            captured = a
            yield lambda: (captured, free)

        suspended = generator("a")
        yield "generator that has not started", read_generator(suspended), suspended
        next(suspended)
        yield "suspended", read_generator(suspended), suspended
        list(suspended)
        yield "finished generator", read_generator(suspended), suspended
        frame = sys._getframe()
        yield "running", read(frame), frame


class OfficialNames(Frames, unittest.TestCase):
    def test_values_are_those_of_the_native_api(self):
        for state, slots, _ in self.frames():
            for index in range(slots.count):
                official, native = _compat.get_local(slots.address, index)
                self.assertIs(official, native, (state, index))
                self.assertIs(official, missing(slots.singly[index]), (state, index))

    def test_names(self):
        for state, slots, owner in self.frames():
            official, native = _compat.code(slots.address)
            self.assertIs(official, native, state)
            names = _compat.names(official)
            self.assertEqual((type(names), names), (tuple, slots.names), state)

    def test_index_out_of_range(self):
        frame = sys._getframe()
        for index in (-1, _cases.count(_cases.address(frame))):
            with self.assertRaisesRegex(IndexError, str(index)):
                _compat.get_local(_cases.address(frame), index)

    def test_code_and_position(self):
        for state, slots, owner in self.frames():
            frame = owner if hasattr(owner, "f_code") else owner.gi_frame
            official, native = _compat.code(slots.address)
            self.assertIs(official, native, state)
            lasti, native_lasti, line = _compat.position(slots.address)
            self.assertEqual(lasti, native_lasti, state)
            if frame is not None and frame is not sys._getframe():
                self.assertIs(official, frame.f_code, state)
                self.assertEqual((lasti, line), (frame.f_lasti, frame.f_lineno), state)

    def test_position_of_a_running_frame(self):
        def callee():
            frame = sys._getframe(1)
            lasti, native, line = _compat.position(_cases.address(frame))
            return lasti == native == frame.f_lasti, line - frame.f_code.co_firstlineno

        def caller():
            first = callee()
            second = callee()
            return first, second

        self.assertEqual(caller(), ((True, 1), (True, 2)))

    def test_position_in_a_hook(self):
        seen = []

        def at_entry(address):
            official, native = _compat.code(address)
            seen.append((official is native, *_compat.position(address)))

        def t(a):
            return lambda: a

        with hooked("t", at_entry=at_entry):
            t(1)
        if sys.version_info >= (3, 13):
            before_the_first = 0
            # MAKE_CELL comes first here. It belongs to no line.
            line = next(line for start, _, line in t.__code__.co_lines() if start == 0)
            line = -1 if line is None else line
        else:
            before_the_first, line = -2, t.__code__.co_firstlineno
        self.assertEqual(seen, [(True, before_the_first, before_the_first, line)])

    def test_bad_frames(self):
        for function in (_compat.native_position, _compat.native_code):
            with self.assertRaisesRegex(ValueError, "frame"):
                function(0)


class Range(Frames, unittest.TestCase):
    """localsplus.hpp."""

    def test_slots(self):
        for state, slots, _ in self.frames():
            snapshot = _range.snapshot(slots.address)
            everything = slots.flagged[_cases.HIDDEN | _cases.RAW_CELL]
            expected = zip(range(slots.count), slots.names, slots.kinds, slots.singly, everything)
            for found, (index, name, kind, value, raw) in zip(snapshot, expected, strict=True):
                self.assertEqual(found[:3], (index, name, kind), state)
                self.assertIs(found[3], missing(value), (state, name))
                self.assertIs(found[4], missing(raw), (state, name))
            for found, value in zip(_range.locals(slots.address), slots.singly, strict=True):
                self.assertIs(found, missing(value), state)

    def test_about(self):
        for state, slots, _ in self.frames():
            count, size, names, code, lasti = _range.about(slots.address)
            self.assertEqual((count, size, names), (slots.count, slots.count, slots.names), state)
            self.assertIs(code, _compat.native_code(slots.address))
            self.assertEqual(lasti, _compat.native_position(slots.address))

    def test_by_name(self):
        for state, slots, _ in self.frames():
            names = tuple(dict.fromkeys(slots.names))
            found, everything = _range.by_name(slots.address, names)
            values = dict(zip(names, (value for _, _, value in found), strict=True))
            for name, (index, indexes, value) in zip(names, found):
                self.assertEqual(indexes, slots.indexes(name), state)
                self.assertIn(index, indexes, state)
                self.assertIs(value, missing(slots.flagged[_cases.HIDDEN][index]), (state, name))
            self.assertLessEqual(
                {(name, id(value)) for name, value in values.items() if value is not NotImplemented},
                {(name, id(value)) for name, value in everything.items()},
                state,
            )
            with self.assertRaises(KeyError):
                _range.by_name(slots.address, ("nowhere",))

    def test_arguments(self):
        def f(a, *args, k, **kwargs):
            pass

        values = [object() for _ in range(4)]
        counts = [sys.getrefcount(each) for each in values]
        passed = []

        def callable(*args, **kwargs):
            passed.append((args, kwargs))

        with hooked("f", at_entry=lambda address: _range.call(address, callable)):
            f(values[0], values[1], k=values[2], z=values[3])
        self.assertEqual(passed, [((values[0], values[1]), {"k": values[2], "z": values[3]})])
        passed.clear()
        self.assertEqual([sys.getrefcount(each) for each in values], counts)
        with self.assertRaisesRegex(ValueError, "started"):
            _range.call(_cases.address(sys._getframe()), callable)

    def test_questions(self):
        for state, slots, frame in self.frames():
            self.check_questions(slots.address, state)

        def g():
            yield _range.way_to(0, generator), _range.way_to(0, None)

        generator = g()
        address = _range.way_to(0, generator)
        self.check_questions(address, "generator")
        self.assertEqual(next(generator), (address, address))
        generator.close()
        self.check_questions(address, "finished generator")
        self.assertEqual(_range.way_to(0, sys._getframe()), _cases.address(sys._getframe()))
        with self.assertRaisesRegex(TypeError, "generator"):
            _range.way_to(0, 1)

    def check_questions(self, address, state):
        expected, found = questions(address), _range.questions(address)
        self.assertEqual(found.keys(), expected.keys())
        for name, answer in expected.items():
            same = found[name] is answer if name in OBJECTS else found[name] == answer
            self.assertTrue(same, (state, name, found[name], answer))

    def test_frame_without_slots(self):
        def look():
            address = _cases.address(sys._getframe(1))
            return _range.snapshot(address), _range.locals(address)

        self.assertEqual(eval("look()", {"look": look}), ([], []))

    def test_errors_are_python_exceptions(self):
        address = _cases.address(sys._getframe())
        with self.assertRaises(IndexError):
            _range.get_local(address, 1000)
        for function in (_range.snapshot, _range.locals, _range.about, _range.questions):
            with self.assertRaisesRegex(ValueError, "frame"):
                function(0)

    def test_references(self):
        class Value:
            pass

        value = Value()

        def t(argument):
            copy = argument
            return sys._getframe()

        frame = t(value)
        address = _cases.address(frame)
        before = sys.getrefcount(value)
        for _ in range(100):
            _range.snapshot(address)
            _range.locals(address)
            _range.about(address)
            _range.questions(address)
            _compat.get_local(address, 0)
            _compat.code(address)
            _compat.position(address)
        self.assertEqual(sys.getrefcount(value), before)

"""Slots by name, in frames in every state: against the oracle, and against frame.f_locals and locals()."""

import enum
import gc
import inspect
import sys
import sysconfig
import unittest

import _cases
import _names
import _oracle
import workload
from support import DEBUG, HIDDEN, INLINED_COMPREHENSIONS, NO_VALUE, VERSION, hooked, monitoring, read_generator, tracing

# gh-128396: frame.f_locals itself crashes on cells in inlined comprehensions.
F_LOCALS_CRASHES = (3, 13, 0) <= VERSION < (3, 13, 3)
# Before 3.13, the value of the last slot of a name is what f_locals has, whatever the code uses.
FIRST_COUNTS = VERSION >= (3, 13)


def items(mapping):
    return [(name, id(value)) for name, value in mapping.items()]


def compare_with_oracle(address, namespace=None):
    """What localsplus answers about each name, and everything at once; from what the oracle answers by index."""
    count, names, kinds, flagged = _oracle.snapshot(address, NO_VALUE)
    values = flagged[HIDDEN]
    found = {}
    for name in dict.fromkeys(names):
        indexes = [index for index in range(count) if names[index] == name]
        used = next((index for index in indexes if values[index] is not NO_VALUE), indexes[0])
        # Also by a str that is not the same object.
        for each in (name, (name + "_")[:-1]):
            assert _names.indexes(address, each) == tuple(indexes), name
            assert _names.index(address, each) == used, name
            value = _names.get_by_name(address, each, NO_VALUE)
            if values[used] is NO_VALUE and namespace is not None:
                assert value is namespace.get(name, NO_VALUE), name
            else:
                assert value is values[used], name
        if values[used] is not NO_VALUE:
            found[name] = values[used]
    assert list(_names.name_map(address).items()) == list({name: names.index(name) for name in reversed(names)}.items())
    everything = _names.dict(address)
    assert type(everything) is dict
    if namespace is None:
        assert items(everything) == items(found), (everything, found)
    else:
        # What is in cells of a class body is the interpreter's own business.
        hidden = {name: found[name] for name, kind in zip(names, kinds) if kind & _cases.KIND_HIDDEN and name in found}
        assert items(everything) == items({**namespace, **hidden}), (everything, namespace, hidden)
    return everything


def compare_with_f_locals(frame, everything):
    _, names, kinds, _ = _oracle.snapshot(_cases.address(frame), NO_VALUE)
    if F_LOCALS_CRASHES and any(kind & _cases.KIND_CELL for kind in kinds):
        return
    is_optimized = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    # The cells and free variables of a class body: CPython shows them at some times and not at others.
    own = _cases.KIND_CELL | _cases.KIND_FREE
    own = {name for name, kind in zip(names, kinds) if kind & own and not is_optimized}
    f_locals = {name: value for name, value in dict(frame.f_locals).items() if name not in own}
    everything = {name: value for name, value in everything.items() if name not in own}
    if not FIRST_COUNTS:
        twice = {name for name in names if names.count(name) > 1}
        f_locals, everything = ({n: v for n, v in d.items() if n not in twice} for d in (f_locals, everything))
        assert dict(items(f_locals)) == dict(items(everything)), (f_locals, everything)
    elif is_optimized:
        assert items(f_locals) == items(everything), (f_locals, everything)
    elif any(kind & _cases.KIND_HIDDEN and name in f_locals for name, kind in zip(names, kinds)):
        # There, f_locals has no namespace any more.
        assert set(items(f_locals)) <= set(items(everything)), (f_locals, everything)
    else:
        assert items(f_locals) == items(everything), (f_locals, everything)


def namespace_of(frame):
    """The namespace of a module or class body, without anything added or removed."""
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return None
    namespace = _oracle.namespace(_cases.address(frame))
    assert namespace is not None
    return namespace


def compare(frame):
    everything = compare_with_oracle(_cases.address(frame), namespace_of(frame))
    compare_with_f_locals(frame, everything)
    return everything


_compared = []


def look():
    """Compares its caller's frame."""
    _compared.append(compare(sys._getframe(1)))


def looked():
    seen = _compared[:]
    _compared.clear()
    return seen


class Functions(unittest.TestCase):
    def setUp(self):
        _compared.clear()

    def test_every_kind_of_slot(self):
        def outer():
            free = 1
            empty_cell = None

            def f(a, captured, *args, k=2, **kwargs):
                look()
                local = free
                inner = lambda: (captured, late)
                look()
                late = empty_cell
                del local
                look()

            return f

        outer()(10, 20, 30, z=40)
        first, second, third = looked()
        self.assertEqual(first, {"a": 10, "captured": 20, "k": 2, "args": (30,), "kwargs": {"z": 40}, "free": 1, "empty_cell": None})
        self.assertEqual(second.keys() - first.keys(), {"local", "inner"})
        self.assertEqual(third.keys() - first.keys(), {"late", "inner"})

    def test_nothing(self):
        (lambda: look())()
        self.assertEqual(looked(), [{}])

    def test_before_it_starts(self):
        def outer():
            free = 1

            def f(a, captured, *args):
                local = lambda: (captured, free, unset)
                unset = 1

            return f

        found = []
        with hooked("f", at_entry=lambda address: found.append(compare_with_oracle(address))):
            outer()(1, 2, 3)
        self.assertEqual(found, [{"a": 1, "captured": 2, "args": (3,), "free": 1}])

    def test_generators(self):
        def g(a):
            free = a
            x = yield lambda: free
            y = yield 2

        async def c(a):
            pass

        made = g(1)

        def now(generator):
            return compare_with_oracle(_oracle.frame_of_generator(generator))

        self.assertEqual(now(made), {"a": 1})
        next(made)
        self.assertEqual(now(made), {"a": 1, "free": 1})
        made.send(5)
        self.assertEqual(now(made), {"a": 1, "x": 5, "free": 1})
        self.assertEqual(compare(made.gi_frame), {"a": 1, "x": 5, "free": 1})
        frame = made.gi_frame
        made.close()
        compare_with_oracle(_cases.address(frame))
        other = g(1)
        list(other)
        self.assertEqual(now(other), {})
        coroutine = c(4)
        self.assertEqual(now(coroutine), {"a": 4})
        coroutine.close()
        self.assertEqual(now(coroutine), {})

    def test_frame_object_that_survives(self):
        def f(a):
            b = lambda: a
            return sys._getframe()

        frame = f(1)
        self.assertEqual(compare(frame).keys(), {"a", "b"})
        frame.clear()
        self.assertEqual(compare(frame), {})

    def test_no_frame_object_is_made(self):
        def g(a):
            yield

        made = g(1)
        address = _oracle.frame_of_generator(made)
        _names.names_repeatedly(address, "a", 3)
        self.assertEqual(_oracle.frame_obj(address), 0)

    def test_type_parameters(self):
        if VERSION < (3, 12):
            self.skipTest("no such syntax before 3.12")
        space = {"look": look}
        exec("def f[T](a: T = look()) -> look():\n    look()\n    return T\nf(1)\nclass K[T]:\n    x: T\n    look()\n    def m(self, y: T): return T, look()\nK().m(1)\n", space)
        found = looked()
        self.assertIn("T", found[-1])

    def test_many_slots(self):
        names = [f"v{i}" for i in range(300)]
        space = {"look": look}
        exec("def f():\n " + "\n ".join(f"{name} = {i}" for i, name in enumerate(names)) + "\n look()\n", space)
        space["f"]()
        self.assertEqual(looked(), [dict(zip(names, range(300)))])

    def test_names_beyond_ascii(self):
        def f(é, 名前):
            ß = 1
            look()

        f(1, 2)
        self.assertEqual(looked(), [{"é": 1, "名前": 2, "ß": 1}])

    def test_str_subclass(self):
        class Name(str):
            __hash__ = __eq__ = None

        def f(a):
            frame = _cases.address(sys._getframe())
            return _names.index(frame, Name("a")), _names.get_by_name(frame, Name("a"), NO_VALUE)

        self.assertEqual(f(5), (0, 5))

        def ask(name):
            return _names.get_by_name(_cases.address(sys._getframe(1)), Name(name), NO_VALUE)

        space = {"ask": ask}
        exec("x = 1\ny = ask('x')\n", space)
        self.assertEqual(space["y"], 1)
        with self.assertRaises(KeyError):
            exec("ask('nowhere')", {"ask": ask})


class Comprehensions(unittest.TestCase):
    """Two slots of one name (3.12 and later; before, a comprehension has a frame of its own)."""

    def setUp(self):
        _compared.clear()

    def check(self, inside, *after):
        found = looked()
        for seen, expected in zip(found, (inside, *after), strict=True):
            for name, value in expected.items():
                self.assertEqual(seen.get(name, NO_VALUE), value, name)

    def test_f3_nonlocal(self):
        def o():
            key = 1

            def t():
                nonlocal key
                key = 2
                [look() for key in [7]]
                look()

            return t

        o()()
        self.check({"key": 7}, {"key": 2})

    def test_f4_free(self):
        def o():
            k = 10

            def t():
                k
                look()
                [look() for k in [0]]
                look()

            return t

        o()()
        self.check({"k": 10}, {"k": 0}, {"k": 10})

    def test_f4_indexes(self):
        def o():
            k = 10

            def t():
                k
                frame = _cases.address(sys._getframe())
                ask = _names.index, _names.indexes
                inside = [[each(frame, "k") for each in ask] for k in [0]]
                return inside, [each(frame, "k") for each in ask]

            return t

        ((local, both),), (free, again) = o()()
        if not INLINED_COMPREHENSIONS:
            self.assertEqual(both, (free,))
            return
        self.assertEqual(both, again)
        self.assertEqual(both, (local, free))

    def test_f5_captured(self):
        def o():
            k = 10

            def t():
                k
                [(look(), lambda: k) for k in [0]]
                look()

            return t

        o()()
        self.check({"k": 0}, {"k": 0 if INLINED_COMPREHENSIONS else 10})

    def test_c4_cell(self):
        def t():
            h = lambda: k
            k = 1
            [look() for k in [0]]
            look()

        t()
        self.check({"k": 0}, {"k": 1})

    def test_nested(self):
        def o():
            x = "free"

            def t(y):
                x
                [[look() for x in [y]] for y in "ab"]
                look()

            return t

        o()("argument")
        self.check({"x": "a"}, {"x": "b"}, {"x": "free", "y": "argument"})

    def test_value_is_none_or_missing(self):
        def o():
            x = None

            def t():
                x
                [look() for x in [None]]
                look()
                return lambda: unset

            unset = 1
            del unset
            return t

        o()()
        self.check({"x": None}, {"x": None})


class ClassBodiesAndModules(unittest.TestCase):
    def setUp(self):
        _compared.clear()

    def test_class_body(self):
        def o():
            x = 5

            class K:
                look()
                y = x
                look()

                def method(self):
                    return super()

        o()
        first, second = looked()
        self.assertEqual(second["y"], 5)
        self.assertNotIn("x", second)
        self.assertEqual(second["__module__"], __name__)

    def test_comprehension_in_a_class_body(self):
        x = 5

        class K:
            y = x
            [look() for i in [0]]
            look()

        inside, after = looked()
        self.assertEqual(inside["i"], 0)
        self.assertEqual("y" in inside, INLINED_COMPREHENSIONS)
        self.assertNotIn("i", after)

    def test_hidden_and_in_the_namespace(self):
        class K:
            i = "namespace"
            look()
            [look() for i in ["hidden"]]
            look()

        self.assertEqual([found["i"] for found in looked()], ["namespace", "hidden", "namespace"])

    def test_comprehension_in_a_module(self):
        space = {"look": look, "foo": None}
        exec("look()\n[look() for foo in [0]]\nlook()\nbar = 1\nlook()\n", space)
        found = looked()
        self.assertEqual([each["foo"] for each in found], [None, 0, None, None])
        self.assertEqual(found[-1]["bar"], 1)

    def test_exec_with_two_namespaces(self):
        exec("x = 1\nlook()\n[look() for q in [5]]\nlook()", {"look": look}, {"l": 1})
        first, inside, last = looked()
        self.assertEqual((first, last), ({"l": 1, "x": 1},) * 2)
        self.assertEqual(inside["q"], 5)

    def test_namespace_by_name(self):
        found = []

        def ask(name):
            found.append(_names.get_by_name(_cases.address(sys._getframe(1)), name, NO_VALUE))

        class K:
            a = 1
            ask("a")
            with self.assertRaises(KeyError):
                ask("nowhere")
            with self.assertRaises(KeyError):
                # It has no slot.
                _names.index(_cases.address(sys._getframe()), "a")

        self.assertEqual(found, [1])

    def test_the_copy_is_a_copy(self):
        space = {}
        exec("import sys, _cases, _names\nmade = _names.dict(_cases.address(sys._getframe()))\n", space)
        self.assertIsNot(space["made"], space)
        space["made"]["new"] = 1
        self.assertNotIn("new", space)

    def test_dict_subclass(self):
        class Namespace(dict):
            def refuse(self, *args):
                raise AssertionError("Python code runs")

        class Meta(type):
            @classmethod
            def __prepare__(cls, name, bases):
                return Namespace()

            def __new__(cls, name, bases, namespace):
                return dict(namespace)

        class K(metaclass=Meta):
            a = 1
            look()

        self.assertEqual(looked()[0]["a"], 1)

        class Colour(enum.Enum):
            RED = 1
            look()

        self.assertEqual(looked()[0]["RED"], 1)

    def test_a_key_that_raises(self):
        class Key:
            def __hash__(self):
                return hash("x")

            def __eq__(self, other):
                raise KeyboardInterrupt("from the key")

        def ask(question):
            address = _cases.address(sys._getframe(1))
            with self.assertRaisesRegex(KeyboardInterrupt, "from the key"):
                question(address)

        space = {"ask": ask, "names": _names}
        exec("ask(lambda address: names.get_by_name(address, 'x', None))", space, {Key(): 1})
        if INLINED_COMPREHENSIONS:
            exec("[ask(names.dict) for x in [1]]", space, {Key(): 1})

    def test_no_dict(self):
        class Mapping:
            def __init__(self):
                self.inner = {}

            def __getitem__(self, name):
                return self.inner[name]

            def __setitem__(self, name, value):
                self.inner[name] = value

        class Meta(type):
            @classmethod
            def __prepare__(cls, name, bases):
                return Mapping()

            def __new__(cls, name, bases, namespace):
                return None

        frame = lambda: _cases.address(sys._getframe(1))

        class K(metaclass=Meta):
            for ask in (lambda at: _names.dict(at), lambda at: _names.get_by_name(at, "a", None)):
                with self.assertRaisesRegex(ValueError, "namespace that is not a dict"):
                    ask(frame())


class Refused(unittest.TestCase):
    def address(self):
        def f(a):
            return sys._getframe()

        self.frame = f(1)
        return _cases.address(self.frame)

    def test_no_such_name(self):
        address = self.address()
        for name, shown in (("b", '"b"'), ("", '""'), ("名", '"名"'), ("\ud800", "udc80|ud800"), ("nul\0", "nul")):
            for ask in (_names.index, lambda *args: _names.get_by_name(*args, NO_VALUE)):
                with self.assertRaises(KeyError) as caught:
                    ask(address, name)
                self.assertRegex(caught.exception.args[0], f"'name' is .*({shown}).*no such name")
            self.assertEqual(_names.indexes(address, name), ())

    def test_closed_over_but_not_used(self):
        def o():
            x = 1

            def t():
                return sys._getframe()

            return t, lambda: x

        frame = o()[0]()
        with self.assertRaises(KeyError):
            _names.index(_cases.address(frame), "x")

    def test_no_str(self):
        address = self.address()
        for name in (None, 1, b"a", ["a"]):
            for ask in (_names.index, _names.indexes, lambda *args: _names.get_by_name(*args, NO_VALUE)):
                with self.assertRaisesRegex(TypeError, "'name' must be a str"):
                    ask(address, name)

    def test_null(self):
        address = self.address()
        for function, words in (("index", "'name'"), ("indexes", "'name'"), ("get_by_name", "'name'"), ("result", "'result'")):
            with self.assertRaisesRegex(ValueError, f"{words} must not be NULL"):
                _names.null(function, address)
        for ask in (_names.index, _names.indexes, lambda *args: _names.get_by_name(*args, NO_VALUE), lambda at, _: _names.dict(at)):
            with self.assertRaisesRegex(ValueError, "'frame' must not be NULL"):
                ask(0, "a")

    def test_shim_frame(self):
        address = _oracle.new_frame(None, 3)
        for ask in (_names.index, _names.indexes, lambda *args: _names.get_by_name(*args, NO_VALUE), lambda at, _: _names.dict(at)):
            with self.assertRaisesRegex(ValueError, "shim frame"):
                ask(address, "a")
        _oracle.free_frame(address)

    def test_pending_exception(self):
        self.assertTrue(_names.names_with_pending(self.address(), "a"))
        self.assertTrue(_names.names_with_pending(self.address(), "".join(["a"])))


class Lifetime(unittest.TestCase):
    def frame(self, *values):
        def f(a, b, c):
            return sys._getframe(), lambda: c

        frame, self.kept = f(*values)
        return frame

    def test_references(self):
        values = [object(), object(), object()]
        frame = self.frame(*values)
        names = ["a", " c"[1:], "not interned"[:0] + "b"]
        for name in names:
            _names.names_repeatedly(_cases.address(frame), name, 1)

        def counts():
            return [sys.getrefcount(each) for each in values]

        before = counts()
        for name in names:
            _names.names_repeatedly(_cases.address(frame), name, 20_000)
        self.assertEqual(counts(), before)
        held = [_names.dict(_cases.address(frame)) for _ in range(100)]
        self.assertEqual([now - then for now, then in zip(counts(), before)], [100] * 3)
        del held

    @unittest.skipUnless(DEBUG, "sys.gettotalrefcount() exists on debug builds only")
    def test_total_reference_count(self):
        def o():
            x = 1

            def t():
                x
                return [sys._getframe() for x in [1]][0]

            return t

        frames = [self.frame([], {}, ()), o()()]
        for frame, name in zip(frames, ("a", "x")):
            for each in (name, (name + "_")[:-1]):
                _names.names_repeatedly(_cases.address(frame), each, 10)
                before = sys.gettotalrefcount()
                _names.names_repeatedly(_cases.address(frame), each, 10_000)
                self.assertLess(abs(sys.gettotalrefcount() - before), 100)

    def test_out_of_memory(self):
        values = [[], {}, set()]
        space = {}
        exec("import sys\ndef g(" + ", ".join(f"p{i}" for i in range(100)) + "): return sys._getframe()\n", space)
        frames = [(self.frame(*values), "a", values), (space["g"](*range(100)), "p50", [])]
        for frame, name, values in frames:
            address = _cases.address(frame)
            _names.names_repeatedly(address, name, 1)
            before = [sys.getrefcount(each) for each in values]
            failures = 0
            for good in range(100):
                try:
                    if _names.without_memory("names", address, good, name):
                        break
                except MemoryError:
                    failures += 1
            self.assertLess(good, 99)
            # A small dict may need no memory that was not at hand.
            self.assertTrue(failures or values)
            self.assertEqual([sys.getrefcount(each) for each in values], before)
            gc.collect()
            blocks = sys.getallocatedblocks()
            for _ in range(500):
                for at in range(failures):
                    try:
                        _names.without_memory("names", address, at, name)
                    except MemoryError:
                        pass
            self.assertLess(abs(sys.getallocatedblocks() - blocks), 50)


@unittest.skipIf(sysconfig.get_config_var("Py_GIL_DISABLED"), "free-threaded builds keep no map")
@unittest.skipIf(VERSION < (3, 12), "3.11 keeps no map, since interpreters share code objects")
class NameMap(unittest.TestCase):
    """Its contents are compared with the names wherever names are."""

    def test_it_is_kept_with_the_code_object(self):
        maps = []

        def make():
            def function(a, b=1):
                return a, b, make

            return function

        functions = [make(), make()]
        with hooked("function", at_entry=lambda address: maps.append(_names.name_map(address))):
            for function in functions * 2:
                function(0)
            functions[0].__code__ = functions[0].__code__.replace(co_consts=(None, None))
            functions[0](0)
        self.assertEqual([dict(each) for each in maps], [{"a": 0, "b": 1, "make": 2}] * 5)
        self.assertEqual(len({id(each) for each in maps}), 2)
        self.assertEqual(len({id(each) for each in maps[:4]}), 1)
        with self.assertRaises(TypeError):
            maps[0]["c"] = 3

    def test_it_goes_with_the_code_object(self):
        def once():
            namespace = {}
            exec("def function(a): pass", namespace)
            with hooked("function", at_entry=lambda address: _names.name_map(address)):
                namespace["function"](0)

        once()
        gc.collect()
        blocks = sys.getallocatedblocks()
        for _ in range(300):
            once()
        gc.collect()
        self.assertLess(abs(sys.getallocatedblocks() - blocks), 100)

    def test_without_memory(self):
        def function(a, b):
            return _cases.address(sys._getframe())

        def at_entry(address):
            for good in range(100):
                try:
                    if _names.without_memory("name_map", address, good, ""):
                        break
                except MemoryError:
                    pass
            self.assertLess(good, 99)

        with hooked("function", at_entry=at_entry):
            function(1, 2)


class Program(unittest.TestCase):
    """Every frame of a real program."""

    def setUp(self):
        self.frames = 0
        workload.run()

    def trace(self, frame, event, argument):
        compare_with_f_locals(frame, compare_with_oracle(_cases.address(frame), namespace_of(frame)))
        self.frames += 1
        return self.trace

    def test_every_line_of_the_odd_ones(self):
        with tracing(self.trace):
            workload.closures()
            workload.comprehensions()
            workload.generators()
            workload.exceptions()
        self.assertGreater(self.frames, 200)

    def test_every_entry(self):
        def at_entry(name, throwflag, address, snapshot):
            compare_with_oracle(address, _oracle.namespace(address))
            self.frames += 1

        _cases.install_hook(None, at_entry)
        try:
            workload.run()
        finally:
            _cases.remove_hook()
        self.assertGreater(self.frames, 1500)


if __name__ == "__main__":
    unittest.main()

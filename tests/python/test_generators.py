"""Generators, coroutines and async generators: frames that live inside another object."""

import gc
import unittest

import _oracle
from support import VERSION, hooked, look, looked, read, read_generator

# gh-125723: these versions drop the locals of a generator that is closed or
# deleted without telling the frame object, which keeps pointing at them.
LOCALS_LOST_WITH_GENERATOR = (3, 13, 0) <= VERSION <= (3, 13, 5)


def finish_by_exhaustion(generator):
    for _ in generator:
        pass


def finish_by_closing(generator):
    generator.close()


def finish_by_exception(generator):
    try:
        generator.throw(KeyError)
    except KeyError:
        pass


class Generators(unittest.TestCase):
    def test_g1_states_of_a_generator(self):
        def g(a):
            b = a + 1
            yield b
            c = 3
            yield c

        generator = g(1)
        self.assertEqual(read_generator(generator).present(), {"a": 1})
        next(generator)
        self.assertEqual(read_generator(generator).present(), {"a": 1, "b": 2})
        next(generator)
        self.assertEqual(read_generator(generator).present(), {"a": 1, "b": 2, "c": 3})

    def test_g1_frame_object_outlives_the_generator(self):
        def g(a):
            b = a + 1
            yield b
            c = 3
            yield c

        def close(holder):
            holder[0].close()

        def delete(holder):
            holder.clear()

        for finish in (close, delete):
            with self.subTest(finish=finish.__name__):
                holder = [g(1)]
                next(holder[0])
                next(holder[0])
                frame = holder[0].gi_frame
                self.assertEqual(read(frame).present(), {"a": 1, "b": 2, "c": 3})
                finish(holder)
                if LOCALS_LOST_WITH_GENERATOR:
                    self.assertEqual(read(frame).present(), {})
                else:
                    self.assertEqual(read(frame).present(), {"a": 1, "b": 2, "c": 3})

    def test_g2_closure_in_a_generator(self):
        def o():
            z = 5

            def g(a):
                yield a, z
                yield a, z

            return g

        with hooked("g") as seen:
            generator = o()(1)
            self.assertEqual(read_generator(generator).present(), {"a": 1, "z": 5})
            for value in generator:
                self.assertEqual(value, (1, 5))
                self.assertEqual(read_generator(generator).present(), {"a": 1, "z": 5})
        # The call that makes the generator, and three resumptions.
        self.assertEqual([slots.present() for slots in seen], [{"a": 1, "z": 5}] * 4)
        self.assertEqual([slots.state.prologue_ran for slots in seen], [False, True, True, True])

    def test_g3_coroutine_and_async_generator(self):
        z = 3

        async def async_generator(a):
            yield a, z

        async def coroutine(a):
            return a

        created = async_generator(1)
        self.assertEqual(read_generator(created).present(), {"a": 1, "z": 3})
        created = coroutine(4)
        self.assertEqual(read_generator(created).present(), {"a": 4})
        created.close()

    def test_g3_suspended_in_await(self):
        class Pause:
            def __await__(self):
                yield

        async def inner(pause):
            await pause()

        async def outer(awaited):
            w = 2
            await awaited
            return w

        awaited = inner(Pause)
        coroutine = outer(awaited)
        coroutine.send(None)
        self.assertEqual(read_generator(coroutine).present(), {"awaited": awaited, "w": 2})
        self.assertEqual(read_generator(awaited).present(), {"pause": Pause})
        coroutine.close()

    def test_g4_finished_generator(self):
        def g(a):
            b = object()
            yield a
            yield b, captured

        captured = object()
        for finish in (finish_by_exhaustion, finish_by_closing, finish_by_exception):
            with self.subTest(finish=finish.__name__):
                generator = g(object())
                next(generator)
                finish(generator)
                address = _oracle.frame_of_generator(generator)
                self.assertTrue(_oracle.generator_finished(address))
                slots = read(address)
                self.assertEqual(slots.present(), {})
                # What the frame is can still be told.
                self.assertEqual(slots.names, ("a", "b", "captured"))
                self.assertEqual(len(slots.kinds), 3)

    def test_g4_stack_field_of_a_finished_generator(self):
        def g(a):
            yield a

        generator = g([])
        finish_by_exhaustion(generator)
        slots = read_generator(generator)
        # On 3.11 and 3.12 it still covers the slot, and on every version the slot
        # still holds the pointer to what it once owned.
        self.assertEqual(slots.state.stack_depth > 0, VERSION < (3, 13))
        self.assertFalse(slots.state.is_empty(0))
        self.assertEqual(slots.present(), {})

    def test_g4_never_started_generator_closed(self):
        def g(a):
            yield a

        generator = g(object())
        generator.close()
        self.assertEqual(read_generator(generator).present(), {})

    def test_g5_collection_while_suspended(self):
        def g(a):
            b = [a]
            b.append(b)
            yield b
            yield b

        generator = g(1)
        next(generator)
        before = read_generator(generator)
        gc.collect()
        after = read_generator(generator)
        self.assertEqual(before.present().keys(), {"a", "b"})
        for name, value in before.present().items():
            self.assertIs(after.value(name), value)

    def test_running_generator(self):
        def g(a):
            look()
            yield a

        list(g(1))
        (slots,) = looked()
        self.assertEqual(slots.present(), {"a": 1})

    def test_yield_from(self):
        def inner(x):
            yield x

        def outer(delegate):
            yield from delegate

        delegate = inner(2)
        generator = outer(delegate)
        self.assertEqual(next(generator), 2)
        self.assertEqual(read_generator(generator).present(), {"delegate": delegate})
        self.assertEqual(read_generator(delegate).present(), {"x": 2})

"""Frames in every state, with every kind of slot, handed to a check while they are in it.

As a program (situations.py ROUNDS) it asks everything about each of them, for valgrind: nothing that it does once a
round may be lost.
"""

import sys
import types

import _cases
import _faults
import _oracle
from _cases import NO_VALUE

VERSION = sys.version_info[:3]


class Mortal:
    pass


OURS = (Mortal, types.CellType)


class Situation:
    """A frame, where it is, a name to ask for, and the objects whose references are counted."""

    def __init__(self, label, address, name, objects=()):
        self.label, self.address, self.name = label, address, name
        # What names() and code() hand out belongs to the code object.
        self.of_code = [_cases.names(address) or label, _faults.ask("code", address, 0, 0, 0, True, None)[1][0][0]]
        self.objects = [*objects, *self.of_code]

    def ask(self, times=1, *function):
        return _faults.ask_everything(self.address, self.name, times, *function)

    def counts(self):
        """The reference counts of those objects that nobody else takes references to meanwhile."""
        # Before 3.12, None and its like are counted, and everybody uses them.
        counted = [*OURS, *map(id, self.of_code)]
        return [
            sys.getrefcount(each)
            for each in self.objects
            if VERSION >= (3, 12) or type(each) in counted or id(each) in counted
        ]

    def values(self):
        return dict(zip(_cases.names(self.address), _cases.get_locals(self.address)))


def everything_once(check):
    """Calls check(situation) in each situation."""
    for each in SITUATIONS:
        each(check)


def here(check, label, name, objects, depth=1):
    check(Situation(label, _cases.address(sys._getframe(depth)), name, objects))


# Values of all sorts: immortal on some versions, counted on others.
IMMORTAL = (None, True, 1, (), "")


def running(check):
    mortal, boxed, free = Mortal(), Mortal(), Mortal()

    def t(plain, captured, none, true, small, empty, interned):
        inner = lambda: (captured, late)
        unset_later = free
        del unset_later
        here(check, "running", "captured", (mortal, boxed, free, *inner.__closure__, *t.__closure__))
        late = 1

    t(mortal, boxed, *IMMORTAL)


def entered(check):
    mortal, boxed, free = Mortal(), types.CellType(Mortal()), None

    def t(plain, captured, none, *further, keyword, **others):
        return lambda: (captured, free)

    def on_entry(name, throwflag, address, snapshot):
        del snapshot
        check(Situation("entered", address, "keyword", (mortal, boxed, boxed.cell_contents, *t.__closure__)))

    _cases.install_hook(frozenset({"t"}), on_entry)
    try:
        t(mortal, boxed, None, mortal, 1, keyword=mortal, other=None)
    finally:
        _cases.remove_hook()


def two_slots_of_one_name(check):
    """From 3.12 on, in an inlined comprehension; what the first slot has there is thrown away to learn that it has."""

    def o(k):
        def t():
            k
            # The comprehension's own variable is an object that nobody counts.
            [here(check, "two slots of one name", "k", (k, *t.__closure__)) for k in IMMORTAL]
            [here(check, "two slots of one name", "k", (k,)) for k in [mortal]]
            here(check, "one of two slots", "k", (mortal, *t.__closure__))

        return t

    mortal = Mortal()
    o(mortal)()


def class_body(check):
    mortal = Mortal()

    class C:
        attribute = mortal
        nothing = None
        here(check, "class body", "attribute", (mortal,))
        [here(check, "comprehension in a class body", "each", (mortal, each)) for each in (mortal, None)]


def executed(check):
    mortal = Mortal()
    namespace = {"here": here, "check": check, "mortal": mortal}
    source = "local = mortal\n[here(check, 'exec', 'each', (mortal,)) for each in (mortal, None)]\n"
    exec(source, namespace, {"other": mortal})


def generator(check):
    def g(plain, captured):
        local = plain
        yield lambda: (captured, free)
        yield local

    mortal, free = Mortal(), Mortal()
    made = g(mortal, None)
    objects = (mortal, free, *g.__closure__)

    def now(label):
        check(Situation(label, _oracle.frame_of_generator(made), "plain", objects))

    now("created generator")
    next(made)
    now("suspended generator")
    made.close()
    now("finished generator")

    exhausted = g(mortal, None)
    list(exhausted)
    check(Situation("exhausted generator", _oracle.frame_of_generator(exhausted), "plain", objects))

    # Its frame object survives it.
    other = g(mortal, None)
    next(other)
    frame = other.gi_frame
    other.close()
    del other
    check(Situation("frame that survived its generator", _cases.address(frame), "plain", objects))


async def _coroutine(plain):
    await _suspend()


@types.coroutine
def _suspend():
    yield


def coroutine(check):
    mortal = Mortal()
    made = _coroutine(mortal)
    made.send(None)
    check(Situation("suspended coroutine", _oracle.frame_of_generator(made), "plain", (mortal,)))
    made.close()
    check(Situation("closed coroutine", _oracle.frame_of_generator(made), "plain", (mortal,)))


def traceback_frames(check):
    def deeper(plain, captured):
        raise LookupError(lambda: captured)

    def t(plain):
        deeper(plain, None)

    mortal = Mortal()
    try:
        t(mortal)
    except LookupError as error:
        traceback = error.__traceback__.tb_next
    for frame in (traceback.tb_frame, traceback.tb_next.tb_frame):
        check(Situation("frame of a traceback", _cases.address(frame), "plain", (mortal, None)))
        frame.clear()
        check(Situation("cleared frame", _cases.address(frame), "plain", (mortal, None)))


def from_a_finaliser(check):
    """Frames as a finaliser sees them that runs because of what they do: the one that it was called from, and those
    whose objects somebody holds while they are emptied."""

    class Watching:
        def __init__(self, frame=None):
            self.frame = frame

        def __del__(self):
            # An exception in here would go no further.
            try:
                here(check, "finaliser's own frame", "self", ())
                # What called it, or called what called it.
                here(right, "caller of a finaliser", "kept", (), 2)
                if self.frame is not None:
                    right(Situation("frame whose object is emptied", _cases.address(self.frame), "kept"))
            except Exception as error:
                wrong.append(error)

    def right(situation):
        seen.append(situation.label)
        value = situation.values()["kept"]
        is_emptied = situation.label == "frame whose object is emptied"
        assert value is mortal or is_emptied and value is NO_VALUE, (situation.label, value)
        check(situation)

    mortal = Mortal()
    seen, wrong = [], []

    def deleted(kept):
        watching = Watching()
        del watching

    def left(kept):
        watching = Watching()
        return kept

    def raised(kept):
        watching = Watching()
        raise LookupError

    def resumed(kept):
        watching = Watching()
        yield kept

    def cleared(kept):
        watching = Watching(sys._getframe())
        return sys._getframe()

    def call(kept):
        deleted(kept)
        left(kept)
        try:
            raised(kept)
        except LookupError:
            pass
        list(resumed(kept))
        suspended = resumed(kept)
        next(suspended)
        suspended.close()
        suspended = resumed(kept)
        next(suspended)
        del suspended
        cleared(kept).clear()

    call(mortal)
    if wrong:
        raise wrong[0]
    assert len(seen) == 8, seen


SITUATIONS = (
    running,
    entered,
    two_slots_of_one_name,
    class_body,
    executed,
    generator,
    coroutine,
    traceback_frames,
    from_a_finaliser,
)


def main():
    rounds = int(sys.argv[1])
    asked = 0

    def check(situation):
        nonlocal asked
        answers, failures = situation.ask()
        asked += answers + failures
        # Touches every value.
        for value in situation.values().values():
            value is NO_VALUE or type(value)

    for _ in range(rounds):
        everything_once(check)
    print(asked, "questions")


if __name__ == "__main__":
    main()

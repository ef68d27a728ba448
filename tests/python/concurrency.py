"""Threads, processes and interpreters: scenarios that need a process of their own.

concurrency.py NAME [ARGUMENT ...] runs the function of that name; a scenario fails by an exception or an exit status.
LOCALSPLUS_ROUNDS says how often.
"""

import atexit
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
import warnings

import _cases
import _faults
import scenarios
from scenarios import import_interpreters

VERSION = sys.version_info[:3]
ROUNDS = int(os.environ.get("LOCALSPLUS_ROUNDS", "1"))
HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()


def run_threads(*targets):
    threads = [threading.Thread(target=each) for each in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Wrong(list):
    """What went wrong in threads, whose exceptions nobody sees."""

    def guard(self, function):
        def guarded(*arguments):
            try:
                function(*arguments)
            except BaseException as error:
                self.append(error)

        return guarded

    def check(self):
        if self:
            raise self[0]


class Fresh:
    __slots__ = ("each",)

    def __init__(self, each):
        self.each = each


def readers_and_writers():
    """Threads read all of their own frames' slots while others rebind the cells that they share and collect."""
    stored = [[number] for number in range(16)]
    identities = {id(each) for each in stored}
    stop = threading.Event()
    wrong = Wrong()
    answers = []

    def o():
        shared = stored[0]
        other = Fresh(shared)

        @wrong.guard
        def write():
            nonlocal shared, other
            while not stop.is_set():
                for each in stored:
                    shared = each
                    # Nobody else has it: it is gone as soon as the next one comes.
                    other = Fresh(each)
            shared = other = None

        @wrong.guard
        def read():
            def t(plain, captured, rounds=200 * ROUNDS):
                frame = _cases.address(sys._getframe())
                names = _cases.names(frame)
                own = lambda: captured
                count = 0
                for _ in range(rounds):
                    values = dict(zip(names, _cases.get_locals(frame)))
                    assert id(values["shared"]) in identities and id(values["other"].each) in identities, values
                    assert values["plain"] is plain and values["captured"] is captured is mine, values
                    status, (by_name,), _ = _faults.ask("get_by_name", frame, 0, 0, 0, True, None, "shared")
                    assert status == 1 and id(by_name[0]) in identities, by_name
                    (everything,) = _faults.ask("dict", frame, 0, 0, 0, True, None)[1]
                    assert everything[0]["plain"] is plain and id(everything[0]["other"].each) in identities
                    # They come and go while the cells' contents are on their way out.
                    values = by_name = everything = None
                    count += sum(_faults.ask_everything(frame, "shared", 5))
                answers.append(count)
                return own, shared, other

            mine = [threading.get_ident()]
            t(mine, mine)

        @wrong.guard
        def collect():
            while not stop.is_set():
                gc.collect()
                time.sleep(0.001)

        return write, read, collect

    sys.setswitchinterval(1e-6)
    before = [sys.getrefcount(each) for each in stored]
    write, read, collect = o()
    others = [threading.Thread(target=each) for each in (write, write, collect)]
    for thread in others:
        thread.start()
    run_threads(*[read] * NREADERS)
    stop.set()
    for thread in others:
        thread.join()
    wrong.check()
    assert len(answers) == NREADERS
    gc.collect()
    assert [sys.getrefcount(each) for each in stored] == before
    print(json.dumps({"threads": NREADERS, "answers": sum(answers)}))


# More than there are processors, so that they are stopped in the middle.
NREADERS = 8


def generators_in_threads():
    """Each thread makes, runs, reads and drops generators; the collector of another finds them in all states."""
    import _oracle

    wrong = Wrong()
    free = object()

    def g(a):
        inner = lambda: (a, free)
        yield inner
        yield a

    def h(other, a):
        yield lambda: (other, a)
        yield free

    @wrong.guard
    def work():
        for number in range(150 * ROUNDS):
            # One comes to lie where another was.
            if number % 3:
                generator = g(number)
                expected = {"a": number, "free": free}
            else:
                generator = h(None, number)
                expected = {"a": number, "other": None, "free": free}
            address = _oracle.frame_of_generator(generator)
            for _ in range(2):
                values = dict(zip(_cases.names(address), _cases.get_locals(address)))
                assert expected.items() <= values.items(), (expected, values)
                _faults.ask_everything(address, "a", 2)
                next(generator)
            # A cycle, for the collector.
            holder = [generator]
            holder.append(holder)
            if number % 2:
                generator.close()
                assert set(_cases.get_locals(address)) == {_cases.NO_VALUE}

    sys.setswitchinterval(1e-6)
    gc.set_threshold(5)
    run_threads(*[work] * NREADERS)
    wrong.check()


# ---- fork ---------------------------------------------------------------------------------------


def in_child(check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(60)
        right = False
        try:
            right = check()
        finally:
            os._exit(0 if right else 1)
    return child


def wait_for(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def fork_after_init():
    """A child, and a child of it, answer as their parent does; also when it forked in the middle of other threads'
    reads."""

    def child():
        frame = sys._getframe()
        _faults.ask_everything(_cases.address(frame), "frame", 100)
        return _cases.provider() == provider and scenarios.answers_of_this_frame()

    def parent():
        wait_for(in_child(child))
        return child()

    provider = _cases.provider()
    wait_for(in_child(parent))
    assert child()

    stop = threading.Event()
    wrong = Wrong()

    @wrong.guard
    def read():
        while not stop.is_set():
            _faults.ask_everything(_cases.address(sys._getframe()), "stop", 10)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5 * ROUNDS):
            wait_for(in_child(child))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    wrong.check()


# ---- interpreters -------------------------------------------------------------------------------


READING = """
import sys
import _cases
import _faults

def o(free):
    def t(plain, captured):
        frame = _cases.address(sys._getframe())
        for _ in range({rounds}):
            values = dict(zip(_cases.names(frame), _cases.get_locals(frame)))
            assert values["plain"] is plain and values["captured"] is captured and values["free"] is free
            del values
            _faults.ask_everything(frame, "captured", 3)
        return lambda: captured
    return t

o(object())(object(), object())
"""


def run_in(interpreters, interpreter, source):
    # Newer versions answer the exception, older ones raise it.
    failure = interpreters.run_string(interpreter, source)
    assert failure is None, failure


def create(interpreters):
    """With a GIL of its own, where that is possible."""
    return interpreters.create()


def has_own_gil(interpreters, interpreter):
    """Whether the main interpreter gets on while that one does not let go of its GIL."""
    if VERSION < (3, 12):
        return False
    source = "import _cases, time\nend = time.monotonic() + 0.3\nwhile time.monotonic() < end: pass"
    thread = threading.Thread(target=interpreters.run_string, args=(interpreter, source))
    sys.setswitchinterval(1000)
    thread.start()
    steps = 0
    while thread.is_alive():
        time.sleep(0.01)
        steps += 1
    thread.join()
    sys.setswitchinterval(0.005)
    return steps > 3


def init_in_one_use_in_another(first):
    """The first call is one interpreter's; the others find the provider chosen."""
    interpreters = import_interpreters()
    one, another = create(interpreters), create(interpreters)
    source = READING.format(rounds=20)
    if first == "main":
        assert scenarios.answers_of_this_frame()
    run_in(interpreters, one, source)
    if first == "gone":
        interpreters.destroy(one)
        one = None
    run_in(interpreters, another, source)
    assert scenarios.answers_of_this_frame()
    for each in (one, another):
        if each is not None:
            interpreters.destroy(each)
    assert scenarios.answers_of_this_frame()


NAME_MAP = """
import os
import sys
import _cases
import _faults

def address_of_map(code):
    frame = _cases.new_frame_object(code, {})
    (kept,) = _faults.ask("name_map", _cases.address(frame), 0, 0, 0, True, None)[1]
    held.append(kept)
    return id(kept[0])

# Frozen ones: on 3.11 all interpreters run the same code objects.
codes = (os.path.join.__code__, sys.modules["_frozen_importlib"]._find_and_load.__code__)
held = []
maps = [address_of_map(code) for code in codes]
"""


def interpreters_share_no_object():
    """What is kept with a code object is one interpreter's."""
    interpreters = import_interpreters()
    mine = {}
    exec(NAME_MAP, mine)
    for _ in range(2):
        other = create(interpreters)
        run_in(interpreters, other, f"{NAME_MAP}\nassert not set(maps) & {set(mine['maps'])}, maps\n")
        interpreters.destroy(other)
        again = {}
        exec(NAME_MAP, again)
        assert [dict(kept[0]) for kept in again["held"]] == [dict(kept[0]) for kept in mine["held"]]


def interpreters_come_and_go():
    """Some threads' interpreters are made, read and torn down while others go on reading in theirs."""
    interpreters = import_interpreters()
    wrong = Wrong()

    @wrong.guard
    def stay():
        mine = create(interpreters)
        run_in(interpreters, mine, READING.format(rounds=600 * ROUNDS))
        interpreters.destroy(mine)

    @wrong.guard
    def come_and_go():
        for _ in range(4 * ROUNDS):
            mine = create(interpreters)
            run_in(interpreters, mine, READING.format(rounds=10))
            interpreters.destroy(mine)

    @wrong.guard
    def main_interpreter():
        for _ in range(100 * ROUNDS):
            assert scenarios.answers_of_this_frame()

    sys.setswitchinterval(1e-6)
    first = create(interpreters)
    own_gil = has_own_gil(interpreters, first)
    interpreters.destroy(first)
    assert own_gil or VERSION < (3, 12), "subinterpreters share the GIL"
    run_threads(stay, stay, come_and_go, come_and_go, main_interpreter)
    wrong.check()
    assert scenarios.answers_of_this_frame()


# ---- the end of the process ---------------------------------------------------------------------


def check_or_exit():
    """Where an exception would not change the exit status."""
    frame = _cases.address(sys._getframe())
    try:
        assert scenarios.answers_of_this_frame()
        _faults.ask_everything(frame, "frame", 10)
    except BaseException:
        os._exit(66)


def at_exit():
    """Before and after whatever a first read may have registered there."""

    def read(label):
        check_or_exit()
        print(label)

    atexit.register(read, "last")
    assert scenarios.answers_of_this_frame()
    atexit.register(read, "first")


class Last:
    """Reads when it goes, with what is left then: modules are being emptied."""

    # What is raised where it is too late for the first call.
    may_fail = ()

    def __init__(self, label):
        self.label = label

    def __del__(
        self,
        ask=_faults.ask_everything,
        address=_cases.address,
        get_locals=_cases.get_locals,
        getframe=sys._getframe,
        write=os.write,
        leave=os._exit,
    ):
        label = self.label
        try:
            frame = address(getframe())
            values = get_locals(frame)
            ask(frame, "label", 10)
            write(1, f"{label} finalised\n".encode())
            if label not in values:
                leave(65)
        except self.may_fail as error:
            if "was interrupted" not in error.args[0]:
                leave(67)
            write(1, f"{label} too late\n".encode())
        except BaseException:
            leave(66)


def finaliser_at_exit(when):
    """What is kept by a module, by `sys` and by a cycle goes at different moments of the end. When `sys` is being
    emptied, it is too late for the first call."""
    if when == "after":
        assert scenarios.answers_of_this_frame()
    else:
        Last.may_fail = RuntimeError
    globals()["kept_by_the_module"] = Last("module")
    sys.kept = Last("sys")
    cycle = [Last("cycle")]
    cycle.append(cycle)
    threading.kept = cycle


def daemon_threads_at_exit(when):
    """The interpreter ends under threads that read; what they drop last may want the GIL back. After they have gone, in
    the middle of a read, the main thread can still read."""

    def o():
        shared = [1]

        def read():
            frame = _cases.address(sys._getframe())
            while True:
                _faults.ask_everything(frame, "shared", 20)
                _cases.get_locals(frame)
                reading.set()
            shared

        return read

    if when == "after":
        assert scenarios.answers_of_this_frame()
    reading = threading.Event()
    sys.setswitchinterval(1e-6)
    for _ in range(6):
        threading.Thread(target=o(), daemon=True).start()
    assert reading.wait(30)
    time.sleep(0.05)
    # For who waits for what they held.
    faulthandler.dump_traceback_later(60, exit=True)
    sys.kept = Last("sys")


def daemon_thread_releases_arguments_at_exit():
    """localsplus_arguments_clear() drops the last reference to an object whose finaliser waits: when the interpreter
    ends meanwhile, older versions end the thread right there."""
    inside = threading.Event()

    class Slow:
        def __del__(self, sleep=time.sleep, inside=inside):
            inside.set()
            sleep(0.5)

    def t(argument):
        pass

    def hold():
        _cases.install_hook(frozenset({"t"}), lambda name, flag, address, snapshot: taken.append(_faults.take(address)))
        t(Slow())
        _cases.remove_hook()
        _faults.clear(taken.pop())

    class Kept:
        def __del__(self, sleep=time.sleep):
            sleep(1.2)

    taken = []
    threading.Thread(target=hold, daemon=True).start()
    assert inside.wait(10)
    sys.keeps_the_process_ending = Kept()


def main():
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)


if __name__ == "__main__":
    main()

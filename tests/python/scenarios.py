"""Situations that need a process of their own: scenarios.py NAME [ARGUMENT ...] runs the function of that name.

A scenario fails by an exception. These are plain functions and not unittests, because most are about the first call
into localsplus, which a test runner has no part in.
"""

import atexit
import gc
import os
import signal
import sys
import threading
import time
import warnings
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location

import _cases
import _oracle

VERSION = sys.version_info[:3]
NO_VALUE = _cases.NO_VALUE
RUNTIME_ERROR = (-1, RuntimeError)


def answers_of_this_frame():
    """Whether localsplus reads a frame as it should: a local, a captured argument, a free and an unset variable."""

    def o(free):
        def t(plain, captured):
            frame = sys._getframe()
            values = dict(zip(_cases.names(frame), _cases.get_locals(frame)))
            return values, (lambda: captured), free
            unset = None

        return t

    plain, captured, free = object(), object(), object()
    values = o(free)(plain, captured)[0]
    del values["frame"], values["values"]
    return values == {"plain": plain, "captured": captured, "free": free, "unset": NO_VALUE}


def outcome(function, frame=0, pending=None):
    status, _, error = _cases.call(function, frame, 0, 0, 32, False, pending)
    return status, error


# ---- where the first call may happen -------------------------------------------------


def first_call_in_a_hook():
    def o():
        free = "free"

        def t(a):
            return a, free

        return t

    _cases.install_hook(frozenset({"t"}))
    o()("a")
    ((name, throwflag, address, snapshot),) = _cases.remove_hook()
    count, names, kinds, singly, together, flagged = snapshot
    assert dict(zip(names, singly)) == {"a": "a", "free": "free"}, snapshot
    assert _cases.installed_hook() == "default"
    assert answers_of_this_frame()


def first_call_with_an_exception_pending():
    pending = KeyError("pending")
    status, error = outcome("get_locals", sys._getframe(), pending)
    assert (status, error) == (_cases.count(sys._getframe()), pending), (status, error)


def first_init_with_an_exception_pending():
    pending = KeyError("pending")
    assert outcome("init", pending=pending) == (0, pending)
    assert answers_of_this_frame()


def first_call_from_many_threads():
    def first():
        barrier.wait()
        status, error = outcome("get_locals", sys._getframe())
        results.append((status, error, _cases.provider(), answers_of_this_frame()))

    sys.setswitchinterval(1e-6)
    barrier = threading.Barrier(16)
    results = []
    threads = [threading.Thread(target=first) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = (first.__code__.co_nlocals + len(first.__code__.co_freevars), None, _cases.provider(), True)
    assert results == [expected] * 16, results


def first_call_from_a_thread_while_others_run():
    def spin():
        while not done.is_set():
            sum(range(100))

    sys.setswitchinterval(1e-6)
    done = threading.Event()
    spinning = [threading.Thread(target=spin) for _ in range(4)]
    for thread in spinning:
        thread.start()
    try:
        results = []
        first = threading.Thread(target=lambda: results.append(answers_of_this_frame()))
        first.start()
        first.join()
    finally:
        done.set()
    for thread in spinning:
        thread.join()
    assert results == [True]


def first_call_in_a_trace_function():
    def t(a):
        return a

    def trace(frame, event, argument):
        if frame.f_code is t.__code__:
            seen.append(_cases.get_locals(frame))

    seen = []
    sys.settrace(trace)
    t("a")
    sys.settrace(None)
    assert seen == [("a",)], seen
    assert answers_of_this_frame()


def first_call_in_a_profile_function():
    def t(a):
        return a

    def profile(frame, event, argument):
        if frame.f_code is t.__code__:
            seen.append(_cases.get_locals(frame))

    seen = []
    sys.setprofile(profile)
    t("a")
    sys.setprofile(None)
    assert seen == [("a",), ("a",)], seen


def first_call_in_a_subinterpreter():
    run_in_subinterpreters(rounds=1)
    assert answers_of_this_frame()


def first_call_in_subinterpreters_at_once():
    def run(interpreter):
        results.append(interpreters.run_string(interpreter, SUBINTERPRETER))

    interpreters = import_interpreters()
    several = [interpreters.create() for _ in range(4)]
    results = []
    threads = [threading.Thread(target=run, args=(each,)) for each in several]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in several:
        interpreters.destroy(each)
    assert results == [None] * 4, results
    assert answers_of_this_frame()


def first_call_at_exit():
    def at_exit():
        # An exception in here would not change the exit status.
        if not answers_of_this_frame():
            os._exit(1)

    atexit.register(at_exit)


def first_call_in_a_finaliser():
    class C:
        def __del__(self):
            results.append(answers_of_this_frame())

    results = []
    C()
    assert results == [True]


def first_call_at_the_recursion_limit():
    """Whatever comes of a call that has no room left, the next one works."""

    def deeper():
        try:
            deeper()
        except RecursionError:
            outcomes.append(outcome("init"))
            raise

    outcomes = []
    try:
        deeper()
    except RecursionError:
        pass
    for status, error in outcomes:
        # RecursionError is a RuntimeError: what comes of making one at this depth.
        assert (status, error) == (0, None) or status == -1 and isinstance(error, RuntimeError), (status, error)
    assert answers_of_this_frame()


# ---- calls while the provider is being chosen ----------------------------------------


def nested_calls(install, remove, always_seen=False):
    """Asks localsplus from every event that the choice provokes: each nested call is refused, the outer one works.

    Whether trace functions see anything of the choice is up to localsplus.
    """

    def on_event(*arguments):
        if asking:
            return
        asking.append(True)
        for function in ("get_local", "get_locals", "get_slot", "count", "kind", "names", "init"):
            status, error = outcome(function, own_frame)
            nested.append((function, status, type(error)))
        asking.clear()

    own_frame = sys._getframe()
    asking, nested = [], []
    install(on_event)
    status, error = outcome("init")
    remove()
    assert (status, error) == (0, None), (status, error)
    refused = [status for function, status, error in nested if error is RuntimeError]
    assert refused or not always_seen, nested
    assert set(refused) <= {-1}
    for function, status, error in nested:
        # Events before and after the choice get answers.
        assert error in (RuntimeError, type(None)), (function, status, error)
    assert answers_of_this_frame()
    print(len(refused), "of", len(nested), "nested calls refused")


def nested_call_from_an_audit_hook():
    events = []
    sys.addaudithook(lambda event, arguments: events and events[0]())
    # Compiling the canary is such an event.
    nested_calls(events.append, events.clear, always_seen=True)


def nested_call_from_a_collection():
    def install(on_event):
        callbacks.append(lambda phase, info: on_event())
        gc.callbacks.extend(callbacks)
        gc.set_threshold(1)

    def remove():
        gc.callbacks.clear()
        gc.set_threshold(*threshold)

    callbacks = []
    threshold = gc.get_threshold()
    nested_calls(install, remove)


def nested_call_from_a_profile_function():
    nested_calls(sys.setprofile, lambda: sys.setprofile(None))


def nested_call_from_a_trace_function():
    nested_calls(lambda on_event: sys.settrace(lambda *arguments: on_event()), lambda: sys.settrace(None))


def nested_call_from_monitoring():
    monitoring = sys.monitoring
    tool = monitoring.PROFILER_ID

    def install(on_event):
        monitoring.use_tool_id(tool, "nested")
        monitoring.register_callback(tool, monitoring.events.PY_START, on_event)
        monitoring.set_events(tool, monitoring.events.PY_START)

    def remove():
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)

    nested_calls(install, remove)


def at_the_canary(action):
    """Calls `action` once, when the first call has begun to choose: compiling the canary is an audit event."""

    def audit(event, arguments):
        if armed and event == "compile":
            armed.clear()
            action()

    armed = [True]
    sys.addaudithook(audit)


def interrupted_by_an_audit_hook():
    """An exception in the middle of the choice is no verdict on the interpreter: the next call chooses again."""

    def forbid():
        raise error

    error = ValueError("compiling\0is forbidden")
    at_the_canary(forbid)
    status, raised = outcome("init", pending=KeyError("pending"))
    assert (status, raised) == (-1, error), (status, raised)
    assert outcome("init") == (0, None)
    assert answers_of_this_frame()


def interrupted_by_a_signal():
    """Where no exception can be raised, that of a signal handler comes later, but it comes."""

    class Timeout(BaseException):
        pass

    def handler(number, frame):
        raise Timeout

    signal.signal(signal.SIGUSR1, handler)
    at_the_canary(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        provider = _cases.provider()
        for _ in range(1000):
            pass
    except Timeout:
        pass
    else:
        raise AssertionError(f"the signal got lost; provider: {provider}")
    assert answers_of_this_frame()


def interrupted_by_another_hook():
    """Another library's eval-frame function, installed while the canary runs, does not pass our frames on."""
    at_the_canary(_cases.install_counter)
    status, error = outcome("init")
    assert (status, type(error)) == RUNTIME_ERROR and "meanwhile" in str(error), (status, error)
    assert _cases.installed_hook() == "counter"
    assert outcome("init") == (0, None)
    assert _cases.installed_hook() == "counter"
    _cases.remove_counter()
    assert answers_of_this_frame()


def what_python_code_may_replace():
    """What other code has done to `sys` is no verdict on the interpreter."""
    kept = sys.getrefcount, sys.implementation
    sys.getobjects = None
    sys.getrefcount = lambda each: 1
    status, error = outcome("init")
    assert (status, type(error)) == RUNTIME_ERROR and "sys.getrefcount" in str(error), (status, error)
    sys.getrefcount = kept[0]
    del sys.implementation
    status, error = outcome("init")
    assert (status, type(error)) == RUNTIME_ERROR and "sys.implementation" in str(error), (status, error)
    sys.implementation = kept[1]
    assert outcome("init") == (0, None)
    assert answers_of_this_frame()


def first_call_in_a_deep_deallocation():
    """Deallocations that deep are put off, so that a reference may be given back late."""

    class C:
        def __del__(self):
            outcomes.append(outcome("init"))

    outcomes = []
    nested = C()
    for _ in range(49):
        nested = (nested,)
    del nested
    assert outcomes == [(0, None)], outcomes
    assert answers_of_this_frame()


def process_that_ends_meanwhile(*waiting):
    """The interpreter ends a daemon thread that is choosing, or waiting for one that is."""
    inside = threading.Event()

    def linger():
        inside.set()
        time.sleep(0.6)

    class Kept:
        def __del__(self, sleep=time.sleep):
            sleep(1.5)

    at_the_canary(linger)
    threading.Thread(target=outcome, args=("init",), daemon=True).start()
    inside.wait()
    if waiting:
        threading.Thread(target=outcome, args=("init",), daemon=True).start()
        time.sleep(0.1)
    sys.keeps_the_process_ending = Kept()


def process_that_forks_meanwhile():
    """The child does not have the thread that was choosing."""
    inside, forked = threading.Event(), threading.Event()

    def linger():
        inside.set()
        forked.wait()

    at_the_canary(linger)
    chooser = threading.Thread(target=outcome, args=("init",))
    chooser.start()
    inside.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        right = outcome("init") == (0, None) and answers_of_this_frame() and _cases.installed_hook() == "default"
        os._exit(0 if right else 1)
    forked.set()
    chooser.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert answers_of_this_frame()


def specialisation_setting_is_kept():
    """Setting an eval-frame function makes 3.15 forget that the previous one allowed specialisation."""
    import ctypes

    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    interpreter = ctypes.c_void_p(api.PyInterpreterState_Get())
    allow = api._PyInterpreterState_SetEvalFrameAllowSpecialization
    is_allowed = api._PyInterpreterState_IsSpecializationEnabled
    _cases.install_counter()
    # The counter asks localsplus about every frame: the next one makes it choose.
    allow(interpreter, 1)
    assert outcome("init") == (0, None)
    assert is_allowed(interpreter) == 1
    allow(interpreter, 0)
    assert is_allowed(interpreter) == 0
    _cases.remove_counter()


# ---- what the choice leaves behind ---------------------------------------------------


def hook_of_another_library_is_kept():
    def t():
        pass

    _cases.install_counter()
    assert outcome("init") == (0, None)
    assert _cases.installed_hook() == "counter"
    before = _cases.remove_counter()
    assert before["other"] == 0, before

    _cases.install_counter()
    t()
    t()
    after = _cases.remove_counter()
    assert (after["frames"], after["answered"]) == (2, 2), after


def hook_of_another_library_during_the_choice():
    """The first call is the one that the other library's hook makes."""

    def t():
        pass

    _cases.install_counter()
    t()
    assert _cases.installed_hook() == "counter"
    counted = _cases.remove_counter()
    assert counted["answered"] >= 1 and counted["other"] == 0, counted
    assert answers_of_this_frame()


def choosing_changes_nothing_else():
    def trace(frame, event, argument):
        events.append(("trace", frame.f_code.co_name))

    def profile(frame, event, argument):
        events.append(("profile", frame.f_code.co_name))

    def t():
        pass

    def state():
        return (
            sys.gettrace(),
            sys.getprofile(),
            gc.isenabled(),
            gc.get_threshold(),
            sys.getrecursionlimit(),
            sys.getswitchinterval(),
            sorted(sys.modules),
            list(sys.path),
            list(sys.meta_path),
            sys.exc_info(),
            _cases.installed_hook(),
            threading.active_count(),
        )

    events = []
    sys.settrace(trace)
    sys.setprofile(profile)
    before = state()
    assert outcome("init") == (0, None)
    after = state()
    t()
    sys.settrace(None)
    sys.setprofile(None)
    assert before == after, [(one, other) for one, other in zip(before, after) if one != other]
    # They are not only set but called.
    assert ("trace", "t") in events and ("profile", "t") in events, events


def choosing_leaks_nothing():
    def total():
        return sys.gettotalrefcount() if hasattr(sys, "gettotalrefcount") else 0

    def objects():
        gc.collect()
        kinds = {}
        # No comprehension: on 3.11 it would be a new function in what it counts.
        for each in gc.get_objects():
            kinds[id(each)] = type(each).__name__
        return kinds

    objects()
    before = objects()
    references, blocks = total(), sys.getallocatedblocks()
    status = _cases.init()
    gc.collect()
    references, blocks = total() - references, sys.getallocatedblocks() - blocks
    left = objects()
    left = [kind for address, kind in left.items() if address not in before]
    assert status == 0
    print("objects", left, "blocks", blocks, "references", references)
    assert not {"frame", "function", "code", "cell", "module", "generator", "type"} & set(left), left
    # The names in the canary's source may stay interned.
    assert blocks < 60, blocks
    assert references < 200, references


# ---- refusals ------------------------------------------------------------------------


def refused(*words):
    """Everything answers -1 with a RuntimeError that has these words in it, each time; provider() is None."""
    for _ in range(2):
        for function in ("init", "get_local", "get_locals", "get_slot", "count", "kind", "names"):
            status, error = outcome(function, sys._getframe())
            assert (status, type(error)) == RUNTIME_ERROR, (function, status, error)
            for word in words:
                assert word in str(error), (word, str(error))
        assert _cases.provider() is None
        assert outcome("provider") == (-1, None)
    print(outcome("init")[1])


def print_provider():
    print(_cases.provider())
    assert answers_of_this_frame()


# ---- an interpreter that exports the official function -------------------------------


def load_standin(path):
    """Loads a stand-in for PyUnstable_InterpreterFrame_GetLocal as if the interpreter exported it."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
    try:
        loader = ExtensionFileLoader("official_standin", path)
        standin = module_from_spec(spec_from_file_location("official_standin", path, loader=loader))
        loader.exec_module(standin)
    finally:
        sys.setdlopenflags(flags)
    assert _cases.has_symbol("PyUnstable_InterpreterFrame_GetLocal")
    return standin


def standin_adopted(path):
    standin = load_standin(path)
    assert _cases.provider() == "official", _cases.provider()
    assert answers_of_this_frame()

    compared = 0
    has_names = _cases.has_symbol("PyUnstable_Code_GetLocalPlusNames")

    def compare(address):
        nonlocal compared
        count, names, kinds, flagged = _oracle.snapshot(address, NO_VALUE)
        assert (_cases.count(address), _cases.names(address)) == (count, names)
        if has_names and count:
            assert _cases.names(address) is not names, "the interpreter's function was not asked for the names"
        together = _cases.get_locals(address)
        for index in range(count):
            found, value = standin.get_local(address, index)
            expected = value if found else NO_VALUE
            assert _cases.get_local(address, index) is expected, names[index]
            assert together[index] is expected, names[index]
            # The interpreter's function knows neither kinds nor flags; this version's layout does.
            assert _cases.kind(address, index) == kinds[index]
            for flags in range(1, 4):
                assert _cases.get_slot(address, index, flags) is flagged[flags][index], (names[index], flags)
            compared += 1
        for index in (-1, count):
            status, result, error = _cases.call("get_local", address, index, 0, 0, False, None)
            assert (status, result, type(error)) == (-1, NO_VALUE, IndexError), (status, result, error)

    def on_entry(name, throwflag, address, snapshot):
        compare(address)

    def trace(frame, event, argument):
        compare(_cases.address(frame))
        return trace

    import workload

    _cases.install_hook(None, on_entry)
    workload.run()
    _cases.remove_hook()
    sys.settrace(trace)
    workload.run()
    sys.settrace(None)
    assert compared > 1000, compared

    # Where the interpreter's function must not be asked, and where it differs from localsplus.
    address = _cases.address(sys._getframe())
    while address:
        if not _oracle.is_python_frame(address):
            status, error = outcome("get_local", address)
            assert (status, type(error)) == (-1, ValueError), (status, error)
        address = _oracle.previous(address)
    assert outcome("get_local", 0)[0] == -1
    generator = (x for x in [1])
    next(generator)
    generator.close()
    assert set(_cases.get_locals(_oracle.frame_of_generator(generator))) == {NO_VALUE}

    frame = sys._getframe()
    values = [frame, standin, compare]
    before = [sys.getrefcount(each) for each in values]
    _cases.read_repeatedly(frame, 1000)
    assert [sys.getrefcount(each) for each in values] == before
    print(compared, "slots compared")


def standin_rejected(path):
    load_standin(path)
    provider = _cases.provider()
    assert provider.startswith(f"layout {VERSION[0]}.{VERSION[1]}"), provider
    assert answers_of_this_frame()
    print("provider:", provider)


def standin_refused(path, *words):
    load_standin(path)
    refused(*words)


def standin_semantics(path):
    """Prints the programs of docs/SEMANTICS.md that print something else than the page says, and what."""
    load_standin(path)
    assert _cases.provider() == "official", _cases.provider()
    import support
    import test_semantics

    # The oracle keeps to the rules.
    support.compare_with_oracle = support.compare_functions = lambda *arguments: None
    for example in test_semantics.examples():
        # Whose closure has no cell, which the official function does not look at.
        if example.rule != "R12":
            printed = test_semantics.run(example)
            if printed != example.expected():
                print(f"[{example.name}]\n{printed}", end="")


def standin_set_aside(path):
    load_standin(path)
    provider = _cases.provider()
    assert provider.startswith(f"layout {VERSION[0]}.{VERSION[1]}") and "(" not in provider, provider
    assert answers_of_this_frame()


# ---- hot code, subinterpreters, threads ----------------------------------------------


def hot_loops():
    """Values stay right when the loop around the read is specialised, traced and compiled."""
    read = _cases.caller_local

    def o(rounds):
        free = [rounds]

        def t():
            index = dict(zip(_cases.names(sys._getframe()), range(100)))
            captured = 0

            def bump():
                nonlocal captured
                captured += 1

            for number in range(rounds):
                mine = [number]
                bump()
                assert read(index["number"]) is number
                assert read(index["mine"]) is mine
                assert read(index["captured"]) is captured
                assert read(index["free"]) is free
                if number % 2:
                    sometimes = number
                    assert read(index["sometimes"]) is sometimes
                    del sometimes
                assert read(index["sometimes"]) is NO_VALUE

        return t

    t = o(30_000)
    t()
    if os.environ.get("PYTHON_JIT") == "1":
        assert sys._jit.is_enabled()
        assert has_executor(t.__code__), "nothing was compiled"


def has_executor(code):
    import _opcode

    for offset in range(0, len(code.co_code), 2):
        try:
            if _opcode.get_executor(code, offset) is not None:
                return True
        except ValueError:  # no executor at this instruction
            pass
    return False


def reading_does_not_allocate():
    """Neither the interpreter's allocators nor malloc() are called, in any state of a frame."""

    def t(plain, captured):
        counted.append(_cases.allocations_while_reading(sys._getframe()))
        return lambda: captured

    def on_entry(name, throwflag, address, snapshot):
        counted.append(_cases.allocations_while_reading(address))

    def g(captured):
        yield lambda: (captured, counted)

    counted = []
    t("plain", "captured")
    _cases.install_hook(frozenset({"t", "g"}), on_entry)
    t("plain", "captured")
    generator = g("captured")
    next(generator)
    _cases.remove_hook()
    counted.append(_cases.allocations_while_reading(_oracle.frame_of_generator(generator)))
    assert counted == [(0, 0)] * 6, counted


SUBINTERPRETER = """
import signal
import sys
import _cases

def o(free):
    def t(plain, captured):
        frame = sys._getframe()
        values = dict(zip(_cases.names(frame), _cases.get_locals(frame)))
        assert values["plain"] is plain
        assert values["captured"] is captured
        assert values["free"] is free
        assert values["values"] is _cases.NO_VALUE
        return lambda: captured
    return t

o(object())(object(), object())
"""


def import_interpreters():
    try:
        import _interpreters as interpreters
    except ImportError:
        import _xxsubinterpreters as interpreters
    return interpreters


def run_in_subinterpreters(rounds):
    interpreters = import_interpreters()
    both = [interpreters.create() for _ in range(2)]
    try:
        for _ in range(rounds):
            for interpreter in both:
                # Newer versions answer the exception, older ones raise it.
                failure = interpreters.run_string(interpreter, SUBINTERPRETER)
                assert failure is None, failure
    finally:
        for interpreter in both:
            interpreters.destroy(interpreter)


def subinterpreters():
    assert answers_of_this_frame()
    run_in_subinterpreters(rounds=10)
    assert answers_of_this_frame()


def shared_cell_in_a_race():
    """Threads that read a closure variable of their own frames while another thread rebinds it."""
    stored = [object() for _ in range(8)]
    identities = {id(each) for each in stored}
    stop = threading.Event()
    wrong = []

    def o():
        shared = stored[0]

        def write():
            nonlocal shared
            while not stop.is_set():
                for each in stored:
                    shared = each
            shared = None

        def run(read=_cases.caller_local, rounds=50_000):
            index = _cases.names(sys._getframe()).index("shared")
            for _ in range(rounds):
                if id(read(index)) not in identities:
                    wrong.append(1)
            return shared

        return write, run

    sys.setswitchinterval(1e-5)
    before = [sys.getrefcount(each) for each in stored]
    write, run = o()
    writer = threading.Thread(target=write)
    readers = [threading.Thread(target=run) for _ in range(4)]
    for thread in (writer, *readers):
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    writer.join()
    assert not wrong, len(wrong)
    assert [sys.getrefcount(each) for each in stored] == before


def main():
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)


if __name__ == "__main__":
    main()

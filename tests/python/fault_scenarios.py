"""Interpreters that are not what they should be, memory that is not there, counts from the start: scenarios that need a process of their
own. fault_scenarios.py NAME [ARGUMENT ...] runs the function of that name."""

import faulthandler
import json
import os
import re
import sys
import traceback

import _cases
import _faults

VERSION = sys.version_info[:3]


def immortal_objects():
    """From 3.12 on, nobody counts None and its like: their counts stay what they were when the process began."""
    import situations

    def counts():
        return [sys.getrefcount(each) for each in situations.IMMORTAL]

    def t(*many):
        pass

    def on_entry(name, throwflag, address, snapshot):
        del snapshot
        for each in situations.IMMORTAL:
            first = sys.getrefcount(each)
            # All arguments are this one. On 3.12 and 3.13, whoever takes a reference makes good for one dropped too many.
            _faults.ask_everything(address, "many", 1, "arguments_get")
            lost.append(first - sys.getrefcount(each))

    # Before it is counted: the first time keeps some things, constants of new code among them.
    situations.everything_once(lambda situation: situation.ask())
    before = counts()
    asked = []
    situations.everything_once(lambda situation: asked.append(situation.ask()))
    after = counts()
    assert len(asked) > 20
    lost = []
    for each in situations.IMMORTAL:
        _cases.install_hook(frozenset({"t"}), on_entry)
        t(*[each] * 10_000)
        _cases.remove_hook()
    assert len(lost) == len(before) ** 2 and max(map(abs, lost)) <= (0 if VERSION >= (3, 12) else 50), lost
    if VERSION >= (3, 12):
        assert after == before, (before, after)
    else:
        # None comes and goes by the dozen with whatever the interpreter does.
        assert max(abs(now - then) for now, then in zip(after, before)) < 200, (before, after)


def no_memory():
    """_testcapi.set_nomemory() makes every allocation fail from some number on."""
    import _testcapi
    import situations

    questions = _faults.questions()
    failures = {}
    # As many as free lists hold, and more.
    used = [[(number,), (number, number), {}] for number in range(3000)]

    def check(situation):
        count = _cases.count(situation.address)
        before = situation.counts()
        for function, (_, _, allocates) in questions.items():
            if not allocates:
                continue
            arguments = (function, situation.address, 0, 0, count, situation.name)
            _faults.quietly(*arguments)
            usual = _faults.outcome()
            for start in range(100):
                # The next ones are not from a free list.
                used.append([[(start,), (start, n), {}, {function: start}] for n in range(20)])
                _testcapi.set_nomemory(start)
                try:
                    # What set_nomemory() was called with is in a free list again.
                    held = (start,)
                    _faults.quietly(*arguments)
                except MemoryError:
                    # For the call itself.
                    pass
                finally:
                    _testcapi.remove_mem_hooks()
                held = None
                outcome = _faults.outcome()
                if outcome is None:
                    continue
                if outcome[1] is not MemoryError:
                    assert outcome == usual, (situation.label, function, start, outcome)
                    break
                assert outcome[0] == -1, (situation.label, function, start)
                failures[function] = failures.get(function, 0) + 1
            else:
                raise AssertionError(f"{situation.label}, {function}: no end of allocations")
        assert situation.counts() == before, situation.label

    situations.everything_once(check)
    assert set(failures) == {name for name, (_, _, allocates) in questions.items() if allocates}, failures
    print(failures)


def no_memory_for_hooks():
    """The first hook of an interpreter, each of its allocations failing in turn."""
    assert "scenarios" not in sys.modules, "it chooses a provider, which makes the interpreter's dict"
    failures = 0
    for persistent in (False, True):
        for number in range(1, 100):

            def first_hook():
                # As many as free lists hold, and more.
                used = [{} for _ in range(3000)]
                last = sys.maxsize if persistent else number
                _, outcome = _faults.without_memory("hook_install", 0, 0, 0, 0, number, last, "data")
                if outcome is MemoryError:
                    for function, status in (("hook_remove", 0), ("hook_install", 1)):
                        assert _faults.ask(function, 0, 0, 0, 0, True, None, "data")[::2] == (status, None), function
                assert _faults.ask("hook_remove", 0, 0, 0, 0, True, None, "data")[::2] == (1, None)
                return str(outcome) if len(used) == 3000 else None

            outcome = in_a_child({}, first_hook)
            if outcome == "1":
                break
            assert outcome == str(MemoryError), (number, outcome)
            failures += 1
        else:
            raise AssertionError("no end of allocations")
    assert failures >= (6 if VERSION >= (3, 12) else 4), failures


# ---- interpreters that are not what they should be -----------------------------------


def in_a_child(environment, report):
    """What report() answers in a child process with these variables, or how that process ended."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.environ.update(environment)
            os.write(writer, json.dumps(report()).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(text) if status == 0 else ["ended", f"with exit status {status}"]


def chosen():
    """["provider", its name] if it answers as it should; ["refused", the reason] if everything says so, twice."""
    import scenarios

    provider = _cases.provider()
    if provider is not None:
        assert scenarios.answers_of_this_frame(), provider

        class Body:
            # What needs functions that are looked up later.
            local = provider
            frame = _cases.address(sys._getframe())
            assert _faults.ask("get_by_name", frame, 0, 0, 0, True, None, "local")[:2] == (1, ((provider,),))
            _faults.ask_everything(frame, "local", 2)

        return ["provider", provider]
    frame = _cases.address(sys._getframe())
    reasons = set()
    for _ in range(2):
        for function in [*_faults.questions(), "consume", "evaluate_in_place"]:
            status, got, error = _faults.ask(function, frame, 0, 0, 32, True, None, "frame")
            assert status == -1, (function, status)
            assert type(error) is RuntimeError, (function, error)
            reasons.add(str(error))
        hooks_without_a_provider()
    assert _cases.provider() is None
    (reason,) = reasons
    return ["refused", reason]


# Without these there are no hooks.
EVALUATION = (
    *("PyInterpreterState_Get", "_PyInterpreterState_GetEvalFrameFunc", "_PyInterpreterState_SetEvalFrameFunc"),
    *("_PyEval_EvalFrameDefault", "PyThreadState_EnterTracing", "PyThreadState_LeaveTracing"),
)


def hooks_without_a_provider():
    """A hook needs nothing but the functions of PEP 523."""
    kind, name = os.environ["LOCALSPLUS_FAULT"].split()[:2]
    # Then the hook is not there, and is installed each time.
    installs_nothing = kind == "lie" and name == "_PyInterpreterState_SetEvalFrameFunc"
    for function, usual in (("hook_install", 1), ("hook_install", 0), ("hook_remove", 1), ("hook_remove", 0)):
        status, _, error = _faults.ask(function, 0, 0, 0, 0, True, None, "data")
        if kind in ("missing", "null") and name in EVALUATION:
            assert status == -1 and type(error) is RuntimeError, (function, status, error)
            assert str(error).endswith(f"{name} is not exported"), error
        elif not (installs_nothing and function == "hook_install" and status == 1):
            assert (status, error) == (usual, None), (function, status, error)


def asked_for(path):
    """The names that choosing a provider and asking for names looks up."""
    environment = {"LOCALSPLUS_ASKED": path}
    outcome = in_a_child(environment, chosen)
    assert outcome[0] == "provider", outcome
    with open(path, encoding="utf-8") as file:
        names = dict.fromkeys(file.read().split())
    return [name for name in names if re.match("_?Py(?!Init_|ModExport_)", name)], outcome[1]


def faulty_interpreters(path):
    """Prints what becomes of each fault."""
    names, provider = asked_for(path)
    outcomes = {"": ["provider", provider]}
    for fault in faults(names):
        assert fault not in outcomes, fault
        outcomes[fault] = in_a_child({"LOCALSPLUS_FAULT": fault}, chosen)
    assert in_a_child({}, chosen) == ["provider", provider]
    print(json.dumps({"names": names, "outcomes": outcomes}))


def faults(names):
    for name in names:
        yield f"missing {name}"
        yield f"null {name}"
    # Another version, by its own word and by its debug offsets.
    here = sys.hexversion
    others = [0, 0x02070FF0, 0x030A0DF0, 0x03100000 | here & 0xFF, 0x04000000 | here & 0xFFFFFF, 0xFFFFFFFF, 0x1_030B07F0]
    others += [here & ~0xFF0000 | minor << 16 for minor in range(11, 17) if minor != VERSION[1]]
    others += [here & ~0xFF | level for level in (0x00, 0xA1, 0xB4)]
    for version in dict.fromkeys(others):
        yield f"value Py_Version {version:x}"
        if VERSION >= (3, 13):
            yield f"value Py_Version {version:x};word _PyRuntime 8 {version ^ here:x}"
    if VERSION >= (3, 13):
        for offset in range(0, 1024, 8):
            yield f"word _PyRuntime {offset} 8"
    # Other types, of the same size or not.
    for name in names:
        if name.endswith("_Type"):
            for other in ("PyBaseObject_Type", "PyGen_Type", "PyLong_Type"):
                if other != name:
                    yield f"alias {name} {other}"
    # A build that says it is another one.
    for name in ("PyUnstable_Module_SetGIL", "_Py_stackref_get_object", "_Py_NegativeRefcount"):
        yield f"alias {name} Py_IncRef"
    # Functions of another meaning or signature.
    for lie in ("null", "same", "number", "borrowed", "leaked"):
        yield f"lie PyCell_Get {lie}"
    for lie in ("null", "same", "number"):
        yield f"lie PyUnstable_InterpreterFrame_GetCode {lie}"
    for name in ("GetLasti", "GetLine"):
        yield f"lie PyUnstable_InterpreterFrame_{name} number"
    for name in ("_PyInterpreterState_SetEvalFrameFunc", "Py_CompileString"):
        yield f"lie {name} null"


def wrong_rows(path, only=None):
    """What becomes of each column that is wrong, or of that one, and of none."""
    import ctypes

    library = ctypes.PyDLL(path)
    for function in (library.wrong_rows_name, library.wrong_rows_refuse):
        function.argtypes, function.restype = [ctypes.c_size_t], ctypes.c_char_p
    columns, outcomes = [], {}
    while (name := library.wrong_rows_name(len(columns))) is not None:
        columns.append(name.decode())
    for number, name in enumerate([*columns, "none"]):
        if name not in (only or name, "none"):
            continue

        def refusal():
            # No trace of a crash that is looked for.
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            reason = library.wrong_rows_refuse(number)
            return ["accepted" if reason is None else reason.decode()]

        outcomes[name] = " ".join(in_a_child({}, refusal))
    print(json.dumps(outcomes))


def main():
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)


if __name__ == "__main__":
    main()

"""What the test modules share: frames to read, two readers, and the words the expected values are written in.

The readers are localsplus (through the extension _cases) and the oracle, which is compiled from this interpreter's
own headers. Every read() and every frame an eval-frame hook sees is compared between the two, slot by slot and by
identity, in addition to whatever the test expects.
"""

import contextlib
import os
import subprocess
import sys

import _cases
import _oracle
import _questions
from _cases import HIDDEN, NO_VALUE, RAW_CELL

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS_C = os.path.join(os.path.dirname(HERE), "c")
SHIMS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "shims")

VERSION = sys.version_info[:3]
DEBUG = hasattr(sys, "gettotalrefcount")
# PEP 709: from 3.12 on comprehensions run in the frame of the function around them.
INLINED_COMPREHENSIONS = VERSION >= (3, 12)

FLAGS = (0, HIDDEN, RAW_CELL, HIDDEN | RAW_CELL)

# Set by run.py: the compiler and the files under test; a folder of packages; whether the long forms run; the seed.
toolchain = None
packages = None
stress = False
seed = None

# What tests have to tell besides having passed, by test: for run.py's report.
figures = {}


class Slots:
    """What localsplus answered about one frame."""

    def __init__(self, snapshot, state=None):
        self.count, self.names, self.kinds, self.singly, self.together, self.flagged = snapshot
        self.state = state
        self.code_name = self.throwflag = self.address = None

    def present(self, flags=0):
        """The slots that have a value, by name. Everything else answered "no value"."""
        found = [(name, value) for name, value in zip(self.names, self.flagged[flags]) if value is not NO_VALUE]
        by_name = dict(found)
        assert len(by_name) == len(found), f"two slots of one name have values: {found}"
        return by_name

    def indexes(self, name):
        return [index for index, each in enumerate(self.names) if each == name]

    def index(self, name):
        """The index of the only slot of that name; LookupError if there is none."""
        (found,) = self.indexes(name) or [None]
        if found is None:
            raise LookupError(name)
        return found

    def value(self, name, flags=0):
        return self.flagged[flags][self.index(name)]

    def kind(self, name):
        return self.kinds[self.index(name)]

    def of_kind(self, name, kind, flags=0):
        """The value of the slot of that name and kind: a name can be local and free at once."""
        (found,) = [index for index in self.indexes(name) if self.kinds[index] & kind]
        return self.flagged[flags][found]


class FrameState:
    """The fields of a frame, as the interpreter's headers see them. Objects are addresses."""

    def __init__(self, address):
        fields = _oracle.state(address)
        (
            self.owner,
            self.executable,
            self.function,
            self.frame_obj,
            self.previous,
            self.instr_index,
            self.stack_depth,
            self.bits,
        ) = self.fields = fields
        self.prologue_ran = _oracle.prologue_ran(address)
        self.generator_finished = _oracle.generator_finished(address)

    def is_empty(self, index):
        return self.bits[index] == _oracle.null_bits()


def compare_with_oracle(slots, address):
    count, names, kinds, flagged = _oracle.snapshot(address, NO_VALUE)
    assert (slots.count, slots.names) == (count, names), (slots.count, slots.names, count, names)
    if slots.kinds and slots.kinds[0] is None:
        # Only the official function answers here: no kinds, no flags.
        assert VERSION >= (3, 16), "no kinds"
        return
    assert slots.kinds == kinds, (names, slots.kinds, kinds)
    for flags in FLAGS:
        for index, (ours, theirs) in enumerate(zip(slots.flagged[flags], flagged[flags])):
            assert ours is theirs, f"{names[index]} ({kinds[index]:#x}), flags {flags}: {ours!r} is not {theirs!r}"


OBJECTS = ("function", "globals", "builtins", "namespace", "closure", "frame_object")
BELONG_TO_FUNCTION = ("globals", "builtins")


def questions(address):
    """Everything localsplus tells about a frame besides its slots; None for "none"."""
    answers = {}
    for name in OBJECTS + ("line", "lasti", "state", "is_generator", "previous"):
        try:
            answers[name] = getattr(_questions, name)(address)
        except ValueError:
            # Only if the frame has let go of its function.
            assert name in BELONG_TO_FUNCTION and answers["function"] is None, name
            answers[name] = None
    count = _questions.parameter_count(address)
    answers["parameters"] = [_questions.parameter(address, index) for index in range(_cases.count(address))]
    assert all(answers["parameters"][:count]) and not any(answers["parameters"][count:]), answers["parameters"]
    return answers


def compare_questions_with_oracle(address):
    try:
        ours = questions(address)
    except RuntimeError:
        assert VERSION >= (3, 16), "no layout"
        return
    theirs = _oracle.questions(address)
    if theirs["line"] == -1:
        theirs["line"] = None
    if theirs["state"] == _questions.FINISHED or theirs["state"] == _questions.CLEARED:
        # Where it leads is a matter of the frame object.
        frame_object = theirs["frame_object"]
        back = frame_object and frame_object.f_back
        theirs["previous"] = back and _oracle.frame_of(back)
    for name, expected in theirs.items():
        answer = ours[name]
        same = answer is expected if name in OBJECTS else answer == expected
        assert same, f"{name}: {answer!r}, expected {expected!r}"


def compare_functions(slots):
    """get_local, get_locals and get_slot without flags must be one answer."""
    for name, one, another, third in zip(slots.names, slots.singly, slots.together, slots.flagged[0]):
        assert one is another, f"{name}: get_local {one!r}, get_locals {another!r}"
        assert third is None or one is third, f"{name}: get_local {one!r}, get_slot {third!r}"


def read(frame):
    """Everything localsplus tells about a frame object or frame address, checked."""
    slots = read_slots(frame)
    compare_questions_with_oracle(slots.address)
    return slots


def read_slots(frame):
    """The same of the slots alone: of a hand-made frame, which has little else."""
    address = _cases.address(frame)
    before = FrameState(address)
    slots = Slots(_cases.snapshot(address), before)
    after = FrameState(address)
    assert before.fields == after.fields, "reading changed the frame"
    compare_functions(slots)
    compare_with_oracle(slots, address)
    slots.address = address
    return slots


def read_generator(generator):
    """read() of a generator's, coroutine's or async generator's frame, without making a frame object."""
    return read(_oracle.frame_of_generator(generator))


_looked = []


def look():
    """Reads its caller's frame. Called as a global, so that it adds no slot to the function under test."""
    _looked.append(read(sys._getframe(1)))


def looked():
    """The frames look() has read since the last call."""
    seen = _looked[:]
    _looked.clear()
    return seen


@contextlib.contextmanager
def hooked(*names, at_entry=None):
    """Collects the frames of functions called `names` (of all, without any) as an eval-frame hook sees them, before
    they run.

    at_entry(address) is called for each of them, still before it runs.
    """
    seen = []

    def on_entry(code_name, throwflag, address, snapshot):
        slots = Slots(snapshot, FrameState(address))
        slots.code_name, slots.throwflag, slots.address = code_name, throwflag, address
        compare_functions(slots)
        compare_with_oracle(slots, address)
        compare_questions_with_oracle(address)
        seen.append(slots)
        if at_entry is not None:
            at_entry(address)

    _cases.install_hook(frozenset(names) or None, on_entry)
    try:
        yield seen
    except BaseException:
        with contextlib.suppress(Exception):
            _cases.remove_hook()
        raise
    else:
        _cases.remove_hook()


@contextlib.contextmanager
def monitoring(callback, *event_names):
    """Calls callback(code, ...) for these events of sys.monitoring (3.12 and later)."""
    tool = sys.monitoring.DEBUGGER_ID
    events = [getattr(sys.monitoring.events, name) for name in event_names]
    failures = []

    def guarded(*arguments):
        # Raised from here, an exception would also hit the code that removes the callback.
        if not failures:
            try:
                callback(*arguments)
            except Exception as error:
                failures.append(error)

    sys.monitoring.use_tool_id(tool, "localsplus")
    try:
        for event in events:
            sys.monitoring.register_callback(tool, event, guarded)
        sys.monitoring.set_events(tool, sum(events))
        yield
    finally:
        sys.monitoring.set_events(tool, 0)
        for event in events:
            sys.monitoring.register_callback(tool, event, None)
        sys.monitoring.free_tool_id(tool)
    if failures:
        raise failures[0]


@contextlib.contextmanager
def tracing(trace):
    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(previous)


def python(*arguments, env=(), timeout=120, cwd=None):
    """Runs this interpreter on `arguments`, with the test modules importable."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LOCALSPLUS_PROVIDER", "PYTHONOPTIMIZE")
    }
    environment.update(env)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, toolchain.build_dir, packages]))
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        cwd=cwd,
    )


def run_scenario(name, *arguments, script="scenarios.py", **kwargs):
    """Runs a function of scenarios.py in a process of its own: its output, or AssertionError with it."""
    process = python(os.path.join(HERE, script), name, *arguments, **kwargs)
    assert process.returncode == 0, f"{name}: exit status {process.returncode}\n{process.stdout}"
    return process.stdout

"""Runs a program of programs.py, and reads its frames at every occasion.

A program runs three times: alone; under an eval-frame hook, reading itself with look(); and under a trace function
and sys.monitoring. Each reading is compared with

- the oracle, every question about every slot (in _compare.c);
- what the program was called with: parameters, contents of the closure, and nothing else, at entry (call());
- frame.f_locals and locals(), where the interpreter's own answer is right (f_locals_is_right() in _compare.c);
- "no value" in every slot of what has finished or was cleared;

and the program must do the same each time (Run.transcript): a reading that changes anything shows there.
"""

import sys
import types
import warnings

import _compare

FILE = "<program>"
VERSION = sys.version_info[:3]
CO_GENERATORS = 0x20 | 0x80 | 0x200
# gh-125723: f_locals of a generator's frame reads freed memory once the generator is gone.
F_LOCALS_OF_DEAD_GENERATORS = not (3, 13, 0) <= VERSION <= (3, 13, 5)

# gh-128396, see _compare.c.
LOCALS_CRASHES = (3, 13, 0) <= VERSION < (3, 13, 3)

# After each event 3.12 writes the mapping of the locals back into the slots, also where two slots have one name.
TRACING_CHANGES_PROGRAMS = VERSION[:2] == (3, 12)

# f_trace_opcodes does not work on 3.12.1; from 3.12 on monitoring tells instructions.
MONITORING = VERSION >= (3, 12)
TOOL = 3


class Mismatch(BaseException):
    """localsplus answered something else than one of the sources above. Programs catch Exception, and not this."""


class Error(Exception):
    """What programs raise."""


class V:
    """A value like no other: compared by identity."""

    def __init__(self, number):
        self.number = number

    def __call__(self, *args, **kwargs):
        return self

    def __await__(self):
        yield self
        return self


class manager:
    def __init__(self, value):
        self.value = value

    def __enter__(self):
        return self.value

    def __exit__(self, kind, value, traceback):
        return kind is Error

    async def __aenter__(self):
        return await V(0)

    async def __aexit__(self, kind, value, traceback):
        await V(0)
        return kind is Error


async def suspend(value):
    await V(0)
    return value


def same(function):
    return function


def drive_from(value):
    yield value
    return value


def describe(value, depth=0):
    """A value by what it is rather than where."""
    if isinstance(value, V):
        return f"V({value.number})"
    if value is None or isinstance(value, (bool, int, str)):
        # A number may be an id().
        return repr(value) if not isinstance(value, int) or abs(value) < 1000 else "int"
    if isinstance(value, (tuple, list)) and depth < 4:
        return [type(value).__name__, *(describe(each, depth + 1) for each in value)]
    if isinstance(value, types.CellType):
        return ["cell", describe(value.cell_contents, depth + 1)] if depth < 4 else "cell"
    return type(value).__name__


def slot_names(code):
    """The names of the slots in their order, from what Python code may know."""
    plain_cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return [*code.co_varnames, *plain_cells, *code.co_freevars]


def bind(function, args, kwargs):
    """What each parameter is to be at entry: {name: value}, with the parts of *args and **kwargs as they come."""
    code = function.__code__
    count = code.co_argcount
    names = code.co_varnames
    positional, keyword_only = names[:count], names[count : count + code.co_kwonlyargcount]
    bound = dict(zip(positional, args))
    rest = dict(kwargs)
    for name in (*positional[code.co_posonlyargcount :], *keyword_only):
        if name in rest:
            bound[name] = rest.pop(name)
    defaults = function.__defaults__ or ()
    for name, value in (*zip(positional[count - len(defaults) :], defaults), *(function.__kwdefaults__ or {}).items()):
        bound.setdefault(name, value)
    stars = names[count + code.co_kwonlyargcount :]
    has_star = bool(code.co_flags & 4)
    if has_star:
        bound[stars[0]] = ("*", args[count:])
    if code.co_flags & 8:
        bound[stars[has_star]] = ("**", rest)
    return bound


def is_same(value, expected):
    """Whether a slot's value is what bind() says: new tuples and dicts by what is in them."""
    if type(expected) is tuple and expected and expected[0] == "*":
        return type(value) is tuple and list(map(id, value)) == list(map(id, expected[1]))
    if type(expected) is tuple and expected and expected[0] == "**":
        pairs = [(name, id(each)) for name, each in expected[1].items()]
        return type(value) is dict and [(name, id(each)) for name, each in value.items()] == pairs
    return value is expected


class Run:
    """One run of a program, and the words it is written in."""

    def __init__(self, hooked=False, looking=False):
        self.hooked = hooked
        self.looking = looking
        self.transcript = []
        self.kept = []
        self.budgets = {}
        self.entries_checked = 0
        self.calls = 0
        self.globals = {
            "__name__": "program",
            "V": V,
            "Error": Error,
            "cell": types.CellType,
            "manager": manager,
            "suspend": suspend,
            "same": same,
            "drive_from": drive_from,
            "yes": bool,
            "look": _compare.look if looking else lambda *mapping: None,
            "keep": self.keep,
            "call": self.call,
            "drive": self.drive,
            "deeper": self.deeper,
        }
        if LOCALS_CRASHES:
            self.globals["locals"] = dict

    # ---- the words

    def deeper(self, number):
        """A few times true at each place, and not for ever."""
        self.budgets[number] = self.budgets.get(number, 0) + 1
        return self.budgets[number] <= 2

    def keep(self):
        if self.looking and len(self.kept) < 50:
            self.kept.append(sys._getframe(1))

    def call(self, function, *args, **kwargs):
        self.calls += 1
        if self.calls > 300:
            return None
        inner, all_args = function, args
        if isinstance(function, types.MethodType):
            inner, all_args = function.__func__, (function.__self__, *args)
        entries = []
        if self.hooked and isinstance(inner, types.FunctionType):
            expected = bind(inner, all_args, kwargs)
            free = [contents(cell) for cell in inner.__closure__ or ()]
            _compare.expect(inner.__code__, entries)
        result = None
        try:
            result = function(*args, **kwargs)
            self.transcript.append(describe(result))
        except Exception as error:
            self.caught(error)
        if entries:
            self.check_entry(inner.__code__, expected, free, entries[0])
        return result

    def caught(self, error):
        self.transcript.append(type(error).__name__)
        traceback = error.__traceback__
        while self.looking and traceback is not None:
            _compare.frame(traceback.tb_frame, "traceback", True)
            traceback = traceback.tb_next

    def check_entry(self, code, parameters, free, entry):
        names = slot_names(code)
        first_free = len(names) - len(free)
        if len(entry) != len(names):
            raise Mismatch(f"{code.co_name} has {len(entry)} slots; expected {names}")
        for index, (name, slot) in enumerate(zip(names, entry)):
            if index < len(parameters):
                wanted = (parameters[name],)
            elif index >= first_free:
                wanted = free[index - first_free]
            else:
                wanted = ()
            if len(slot) != len(wanted) or not all(map(is_same, slot, wanted)):
                raise Mismatch(f"at the entry of {code.co_name}, slot {index} ({name}) is {slot}; expected {wanted}")
        self.entries_checked += 1

    # ---- generators, coroutines, async generators

    def drive(self, generator, plan):
        if isinstance(generator, types.AsyncGeneratorType):
            steps = {
                "n": lambda: generator.__anext__(),
                "s": lambda: generator.asend(V(-1)),
                "t": lambda: generator.athrow(Error()),
                "c": lambda: generator.aclose(),
            }
        elif isinstance(generator, (types.GeneratorType, types.CoroutineType)):
            steps = {
                "n": lambda: generator.send(None),
                "s": lambda: generator.send(V(-1)),
                "t": lambda: generator.throw(Error()),
                "c": lambda: generator.close(),
            }
        else:
            return generator
        frame_object = None
        self.observe(generator, "created", frame_object)
        for letter in plan:
            if letter == "f":
                frame_object = self.frame_object(generator)
            elif letter == "g":
                self.observe(generator, "suspended", frame_object)
            else:
                try:
                    step = steps[letter]()
                    if isinstance(generator, types.AsyncGeneratorType):
                        step = self.finish(step, generator, frame_object)
                    self.transcript.append(describe(step))
                except StopIteration as stop:
                    self.transcript.append(["stop", describe(stop.value)])
                except (Exception, GeneratorExit) as error:
                    self.caught(error)
            self.observe(generator, "suspended", frame_object)
        return generator

    def finish(self, awaitable, generator, frame_object):
        """Awaits, without a loop. The async generator is suspended in an await of its own meanwhile."""
        iterator = awaitable.__await__()
        for _ in range(20):
            try:
                iterator.send(None)
            except StopIteration as stop:
                return stop.value
            self.observe(generator, "suspended", frame_object)
        return None

    @staticmethod
    def frame_object(generator):
        return getattr(generator, {"g": "gi_frame", "c": "cr_frame", "a": "ag_frame"}[type(generator).__name__[0]])

    def observe(self, generator, where, frame_object):
        if not self.looking:
            return
        values = _compare.generator(generator, where)
        now = self.frame_object(generator) if frame_object is not None else None
        if now is not None:
            _compare.frame(now, where, True)
            if now is not frame_object:
                raise Mismatch(f"another frame object while {where}")
        elif self.has_finished(generator) and any(values):
            raise Mismatch(f"finished generator {generator.__name__} has values: {values}")

    @staticmethod
    def has_finished(generator):
        prefix = {"g": "gi", "c": "cr", "a": "ag"}[type(generator).__name__[0]]
        return getattr(generator, f"{prefix}_frame") is None

    # ---- afterwards

    def finish_kept(self):
        for frame in self.kept:
            is_generator = frame.f_code.co_flags & CO_GENERATORS
            _compare.frame(frame, "kept", not is_generator or F_LOCALS_OF_DEAD_GENERATORS)
        for frame in self.kept:
            try:
                frame.clear()
            except RuntimeError:
                continue  # it runs, or cannot be cleared while it is suspended
            values = _compare.frame(frame, "cleared", False)
            # A generator that does not want to be closed keeps its values.
            if any(values) and not frame.f_code.co_flags & CO_GENERATORS:
                raise Mismatch(f"{frame.f_code.co_name} has values after clear()")
        self.kept.clear()

    def run(self, code):
        try:
            exec(code, self.globals)
        except Exception as error:
            self.caught(error)
        self.finish_kept()


def contents(cell):
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def all_codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from all_codes(constant)


def observe_plain(run, code):
    run.run(code)


def observe_hooked(run, code):
    _compare.install(True, Run.run.__code__)
    try:
        run.run(code)
    finally:
        _compare.remove()


def observe_traced(run, code):
    codes = list(all_codes(code)) if MONITORING else []
    for each in codes:
        sys.monitoring.set_local_events(TOOL, each, sum(monitored()))
    sys.settrace(_compare.trace)
    try:
        run.run(code)
    finally:
        sys.settrace(None)
        for each in codes:
            sys.monitoring.set_local_events(TOOL, each, 0)


def monitored():
    events = sys.monitoring.events
    return [events.PY_START, events.PY_RESUME, events.PY_RETURN, events.PY_YIELD, events.INSTRUCTION]


def prepare():
    """Once in a process."""
    # What programs do in finalisers and leave behind is theirs.
    sys.unraisablehook = lambda unraisable: None
    # If localsplus refuses this interpreter, no program is to blame.
    _compare.install(False)
    _compare.remove()
    _compare.set_program_file(FILE)
    if MONITORING:
        sys.monitoring.use_tool_id(TOOL, "localsplus")
        for event in monitored():
            sys.monitoring.register_callback(TOOL, event, _compare.monitor)


def check(source):
    """Runs the program in every way: how many entries were as constructed. Mismatch if localsplus was wrong once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(source, FILE, "exec", dont_inherit=True)
    _compare.take_mismatches()
    transcript, entries = None, 0
    for way, run in (
        (observe_plain, Run()),
        (observe_hooked, Run(hooked=True, looking=True)),
        (observe_traced, Run(looking=True)),
    ):
        way(run, code)
        if mismatches := _compare.take_mismatches():
            raise Mismatch("\n".join(mismatches))
        if transcript is None:
            transcript = run.transcript
        elif run.transcript != transcript and not (way is observe_traced and TRACING_CHANGES_PROGRAMS):
            raise Mismatch(f"{way.__name__} changed what the program does: {run.transcript}; alone: {transcript}")
        entries += run.entries_checked
    return entries

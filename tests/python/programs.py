"""Random Python programs, for localsplus to read while they run.

A program is made from a *tape*, a string of bytes: every decision takes the next byte, and an empty tape always
decides for the first and simplest choice. So any tape gives a valid program, and a tape that is shorter or smaller
gives a simpler one, which is what hypothesis shrinks by. One draw of bytes instead of a hundred of integers also makes
hypothesis twenty times as fast.

The words a program uses (V, look, call, drive, ...) are those of observed.py. Names come from a handful, so that
scopes shadow each other's all the time.
"""

import sys

TYPE_PARAMETERS = sys.version_info >= (3, 12)

NAMES = "abcd"
ASYNCHRONOUS = ("coroutine", "async generator")
MOST_LINES = 60
DEEPEST = 3


class Tape:
    def __init__(self, data):
        self.data = data
        self.position = 0

    def pick(self, number):
        """One of 0 ... number - 1; 0 at the end of the tape."""
        if self.position >= len(self.data):
            return 0
        byte = self.data[self.position]
        self.position += 1
        return byte * number >> 8

    def one_of(self, *choices):
        return choices[self.pick(len(choices))]

    def some_of(self, choices):
        byte = self.pick(1 << len(choices))
        return [choice for index, choice in enumerate(choices) if byte >> index & 1]


class Function:
    """A function that can be called from where it is visible."""

    def __init__(self, name, kind):
        self.name = name
        self.kind = kind  # plain, generator, coroutine, async generator
        self.positional_only, self.positional, self.keyword_only = [], [], []
        self.defaults = set()
        self.star = self.double_star = None
        self.is_running = True  # while its own body is written

    def parameters(self):
        stars = [name for name in (self.star, self.double_star) if name]
        return [*self.positional_only, *self.positional, *self.keyword_only, *stars]


class Scope:
    def __init__(self, kind, parent, function=None, own=()):
        self.kind = kind  # module, function, class, comprehension
        self.parent = parent
        self.function = function
        self.own = set(own)  # names that this scope may bind
        self.bound = set()  # names that have a value here, as far as one can tell
        self.assigned = set()
        self.needed = set()  # names that inner functions rely on
        self.nonlocals = set()
        self.functions = []

    def enclosing_functions(self):
        scope = self.parent
        while scope is not None:
            if scope.kind in ("function", "comprehension"):
                yield scope
            scope = scope.parent

    def readable(self):
        """Names that can be read, each with the scope that binds it."""
        found = {name: self for name in sorted(self.bound)}
        for scope in self.enclosing_functions():
            for name in sorted(scope.bound - scope.nonlocals):
                if name not in self.own:
                    found.setdefault(name, scope)
        return found

    def callable_functions(self):
        found, scope, is_own = [], self, True
        while scope is not None:
            if scope.kind != "class" or is_own:
                found += [each for each in scope.functions if each.name not in {other.name for other in found}]
            scope, is_own = scope.parent, False
        return found

    def host(self):
        """The scope whose frame, or whose walrus targets, a comprehension's are."""
        scope = self
        while scope.kind == "comprehension":
            scope = scope.parent
        return scope


class Writer:
    def __init__(self, data):
        self.tape = Tape(data)
        self.lines = []
        self.number = 0
        self.depth = 0
        self.in_iterable = 0  # of a comprehension, where := is an error
        self.cannot_leave = 0  # except* blocks, where return is an error, and finally blocks

    def fresh(self):
        self.number += 1
        return self.number

    def emit(self, indent, text):
        self.lines.append("    " * indent + text)

    def is_full(self):
        return len(self.lines) >= MOST_LINES

    # ---- expressions

    def value(self):
        return f"V({self.fresh()})"

    def expression(self, scope, depth=0):
        choices = [self.value, lambda: self.read(scope)]
        if depth < 2:
            choices += [
                lambda: self.tape.one_of("None", "7", "'text'", "True", "()"),
                lambda: f"cell({self.expression(scope, depth + 1)})",
                lambda: f"({self.expression(scope, depth + 1)}, {self.expression(scope, depth + 1)})",
                lambda: self.lambda_(scope, depth + 1),
                lambda: self.comprehension(scope, depth + 1),
                lambda: self.walrus(scope, depth + 1),
                lambda: self.conditional(scope, depth + 1),
                lambda: self.suspension(scope, depth + 1),
                lambda: self.direct_call(scope, depth + 1),
            ]
        return choices[self.tape.pick(len(choices))]()

    def read(self, scope):
        readable = scope.readable()
        if not readable:
            return self.value()
        name = self.tape.one_of(*readable)
        readable[name].needed.add(name)
        return name

    def lambda_(self, scope, depth):
        parameter = self.tape.one_of("p", *NAMES)
        default = self.expression(scope, depth)
        function = Function("<lambda>", "plain")
        inner = Scope("function", scope, function, own=[parameter])
        inner.bound.add(parameter)
        body = self.expression(inner, depth)
        look = self.tape.one_of("{}", "(look(), {})[1]", "(look(locals()), {})[1]").format(body)
        text = f"(lambda {parameter}={default}: {look})"
        return self.tape.one_of("{}", "{}()", "call({})").format(text)

    def walrus(self, scope, depth):
        host = scope.host()
        if host.kind != "function" or self.in_iterable:
            return self.expression(scope, depth)
        taken, inner = set(), scope
        while inner.kind == "comprehension":
            taken |= inner.own
            inner = inner.parent
        targets = sorted((host.own | host.nonlocals) - taken)
        if not targets:
            return self.expression(scope, depth)
        target = self.tape.one_of(*targets)
        value = self.expression(scope, depth)
        self.bind(host, target)
        return f"({target} := {value})"

    def conditional(self, scope, depth):
        first, second = self.expression(scope, depth), self.expression(scope, depth)
        return f"({first} if yes({self.tape.pick(2)}) else {second})"

    def suspension(self, scope, depth):
        """yield or await, where there may be one."""
        kind = scope.function.kind if scope.kind == "function" and scope.function else "plain"
        if scope.kind != "function" or scope.function.name == "<lambda>":
            kind = "plain"
        value = self.expression(scope, depth)
        if kind == "generator":
            return f"(yield {value})"
        if kind == "coroutine":
            return f"(await suspend({value}))"
        if kind == "async generator":
            return self.tape.one_of("(yield {})", "(await suspend({}))").format(value)
        return value

    def comprehension(self, scope, depth):
        count = 1 + self.tape.pick(4) // 3
        inner = scope
        clauses = []
        for index in range(count):
            name = self.tape.one_of(*NAMES, "_") if not is_fragile(scope) else "u"
            self.in_iterable += 1
            elements = ", ".join(self.expression(inner, depth + 1) for _ in range(1 + self.tape.pick(2)))
            self.in_iterable -= 1
            inner = Scope("comprehension", inner, scope.function, own=[name])
            inner.bound.add(name)
            clauses.append(f"for {name} in [{elements}]")
            if self.tape.pick(4) == 3:
                clauses.append(f"if yes({self.tape.pick(2)}) or {self.expression(inner, depth + 1)}")
        element = self.expression(inner, depth)
        forms = ["(look(), {})[1]", "{}", "(look(locals()), {})[1]"]
        # In a lambda, := would bind there, and not where it is counted on.
        forms += ["(lambda: {})"] if ":=" not in element else []
        element = self.tape.one_of(*forms).format(element)
        clauses = " ".join(clauses)
        return self.tape.one_of(
            f"[{element} {clauses}]",
            f"list({element} {clauses})",
            f"drive(({element} {clauses}), {self.plan()!r})",
            f"len({{type({element}) {clauses}}})",
            f"list({{type({name}): {element} {clauses}}}.values())",
        )

    def direct_call(self, scope, depth):
        functions = [each for each in scope.callable_functions() if each.kind == "plain" and not each.is_running]
        if not functions:
            return self.value()
        function = self.tape.one_of(*functions)
        return f"{function.name}({self.arguments(function, scope, depth)})"

    def arguments(self, function, scope, depth=1):
        texts = [self.expression(scope, depth) for _ in function.positional_only]
        by_keyword = False
        for name in function.positional:
            if name in function.defaults and self.tape.pick(2):
                by_keyword = True
                continue
            by_keyword = by_keyword or bool(self.tape.pick(3) == 2)
            texts.append(f"{name}={self.expression(scope, depth)}" if by_keyword else self.expression(scope, depth))
        if function.star and not by_keyword:
            texts += [self.expression(scope, depth) for _ in range(self.tape.pick(3))]
        for name in function.keyword_only:
            if name not in function.defaults or self.tape.pick(2):
                texts.append(f"{name}={self.expression(scope, depth)}")
        if function.double_star:
            texts += [f"{name}={self.expression(scope, depth)}" for name in self.tape.some_of(["k1", "k\u00e9"])]
        return ", ".join(texts)

    def plan(self):
        """What drive() does with a generator, a letter a step."""
        return "".join(self.tape.one_of("n", "n", "s", "f", "t", "g", "c") for _ in range(1 + self.tape.pick(5)))

    # ---- statements

    def bind(self, scope, name):
        scope.assigned.add(name)
        scope.bound.add(name)

    def target(self, scope):
        names = sorted(scope.own | scope.nonlocals)
        return self.tape.one_of(*names) if names else "z"

    def block(self, scope, indent, statements=None):
        statements = 1 + self.tape.pick(5) if statements is None else statements
        start = len(self.lines)
        for _ in range(statements):
            if self.is_full():
                break
            self.statement(scope, indent)
        if len(self.lines) == start:
            self.emit(indent, "look()")

    def statement(self, scope, indent):
        choices = [
            self.assign,
            self.look,
            self.evaluate,
            self.function,
            self.call,
            self.look,
            self.delete,
            self.if_,
            self.for_,
            self.while_,
            self.try_,
            self.with_,
            self.match_,
            self.class_,
            self.exec_,
            self.recursion,
            self.function,
            self.call,
            self.capture,
            self.asynchronous,
            self.leave,
        ]
        if scope.kind == "function" and scope.function.kind in ASYNCHRONOUS and self.tape.pick(3) == 2:
            return self.asynchronous(scope, indent)
        choices[self.tape.pick(len(choices))](scope, indent)

    def assign(self, scope, indent):
        value = self.expression(scope)
        target = self.target(scope)
        form = self.tape.one_of("{0} = {1}", "{0}: V = {1}", "[{0}, *_] = [{1}, 0]", "{0} = _ = {1}")
        if ":" in form and (target in scope.nonlocals or target not in scope.own):
            form = "{0} = {1}"
        self.emit(indent, form.format(target, value))
        self.bind(scope, target)

    def look(self, scope, indent):
        self.emit(indent, self.tape.one_of("look()", "look(locals())", "keep()", "look()"))

    def evaluate(self, scope, indent):
        self.emit(indent, self.expression(scope))

    def capture(self, scope, indent):
        """A comprehension whose variable is also one of this scope's, a free one by preference, and is captured."""
        readable = scope.readable()
        if not readable or is_fragile(scope):
            return self.assign(scope, indent)
        free = {name: owner for name, owner in readable.items() if owner is not scope}
        name = self.tape.one_of(*(free or readable))
        readable[name].needed.add(name)
        self.emit(indent, name)
        self.in_iterable += 1
        elements = f"{self.expression(scope, 1)}, {name}"
        self.in_iterable -= 1
        element = self.tape.one_of("(look(), lambda: {0})[1]", "(look(), {0})[1]", "(lambda: (look(), {0})[1])()")
        self.emit(indent, f"[{element.format(name)} for {name} in [{elements}]]")
        self.look(scope, indent)

    def delete(self, scope, indent):
        names = sorted(scope.bound & (scope.own | scope.nonlocals))
        if not names:
            return self.assign(scope, indent)
        name = self.tape.one_of(*names)
        self.emit(indent, f"del {name}")
        scope.assigned.add(name)
        scope.bound.discard(name)

    def branch(self, scope, indent, statements=None):
        """A block that may not run: what it binds is not counted on, what it deletes is."""
        before = set(scope.bound)
        self.block(scope, indent, statements or 1 + self.tape.pick(2))
        scope.bound &= before

    def if_(self, scope, indent):
        self.emit(indent, f"if yes({self.tape.pick(2)}):")
        self.branch(scope, indent + 1)
        if self.tape.pick(2):
            self.emit(indent, "else:")
            self.branch(scope, indent + 1)

    def for_(self, scope, indent):
        elements = ", ".join(self.expression(scope, 1) for _ in range(1 + self.tape.pick(2)))
        target = self.target(scope)
        self.emit(indent, f"for {target} in [{elements}]:")
        self.bind(scope, target)
        self.branch(scope, indent + 1)
        if self.tape.pick(4) == 3:
            self.emit(indent + 1, self.tape.one_of("break", "continue"))
            self.emit(indent, "else:")
            self.branch(scope, indent + 1, 1)

    def while_(self, scope, indent):
        self.emit(indent, f"while deeper({self.fresh()}):")
        self.branch(scope, indent + 1)

    def try_(self, scope, indent):
        before = set(scope.bound)
        self.emit(indent, "try:")
        self.branch(scope, indent + 1)
        if self.tape.pick(2):
            self.emit(indent + 1, "raise Error()")
        has_handler = self.tape.pick(4) != 3
        if has_handler:
            star = self.tape.one_of("", "", "*")
            target = self.target(scope)
            self.emit(indent, f"except{star} {self.tape.one_of('Error', 'Exception')} as {target}:")
            scope.bound = before & scope.bound | {target}
            scope.assigned.add(target)
            self.cannot_leave += bool(star)
            self.branch(scope, indent + 1)
            self.cannot_leave -= bool(star)
            scope.bound.discard(target)
            if self.tape.pick(4) == 3:
                self.emit(indent, "else:")
                self.branch(scope, indent + 1, 1)
        if not has_handler or self.tape.pick(3) == 2:
            self.emit(indent, "finally:")
            self.cannot_leave += 1
            self.branch(scope, indent + 1, 1)
            self.cannot_leave -= 1

    def with_(self, scope, indent):
        target = self.target(scope)
        self.emit(indent, f"with manager({self.expression(scope, 1)}) as {target}:")
        self.bind(scope, target)
        self.branch(scope, indent + 1)
        if self.tape.pick(3) == 2:
            self.emit(indent + 1, "raise Error()")

    def match_(self, scope, indent):
        self.emit(indent, f"match ({self.expression(scope, 1)}, {{'k': {self.expression(scope, 1)}}}):")
        first, second = self.target(scope), self.target(scope)
        patterns = [f"{first}"] if first == second else [f"({first}, {{'k': {second}}})", f"[V() as {first}, *{second}]"]
        patterns += [f"[_, {{**{first}}}]", f"({first}, _) if yes({self.tape.pick(2)})"]
        pattern = self.tape.one_of(*patterns)
        self.emit(indent + 1, f"case {pattern}:")
        self.branch(scope, indent + 2, 1)
        scope.assigned.add(first)
        if pattern != first and self.tape.pick(2):
            self.emit(indent + 1, "case _:")
            self.branch(scope, indent + 2, 1)

    def parameters(self, function, scope):
        """The text of a parameter list."""
        left = [*NAMES, "p", "q", "r", "s"]
        texts = []

        def take(names, default_allowed):
            name = left.pop(self.tape.pick(len(left)))
            names.append(name)
            if default_allowed and (default_allowed == "must" or self.tape.pick(2)):
                function.defaults.add(name)
                return f"{name}={self.expression(scope, 1)}"
            return name

        optional = True
        for names in (function.positional_only, function.positional):
            for _ in range(self.tape.pick(3)):
                text = take(names, optional)
                optional = "must" if function.defaults else True
                texts.append(text)
            if names is function.positional_only and names:
                texts.append("/")
        if self.tape.pick(3) == 2:
            function.star = left.pop(self.tape.pick(len(left)))
            texts.append(f"*{function.star}")
        keyword_only = [take(function.keyword_only, True) for _ in range(self.tape.pick(2))]
        if keyword_only and not function.star:
            texts.append("*")
        texts += keyword_only
        if self.tape.pick(3) == 2:
            function.double_star = left.pop(self.tape.pick(len(left)))
            texts.append(f"**{function.double_star}")
        return ", ".join(texts)

    def function(self, scope, indent, method_of=None, kind=None):
        if self.depth >= DEEPEST or self.is_full():
            return self.look(scope, indent)
        kinds = ["plain", "plain", "plain", "generator", "coroutine", "async generator"]
        function = Function(f"f{self.fresh()}", kind or self.tape.one_of(*kinds))
        parameters = self.parameters(function, scope)
        if method_of:
            parameters = f"self, {parameters}" if parameters else "self"
            if function.positional_only:
                function.positional_only.insert(0, "self")
            else:
                function.positional.insert(0, "self")
        type_parameters = "[T]" if TYPE_PARAMETERS and self.tape.pick(6) == 5 else ""
        own = set(function.parameters()) | set(self.tape.some_of(NAMES))
        inner = Scope("function", scope, function, own)
        inner.bound |= set(function.parameters())
        inner.assigned |= set(function.parameters())
        outside = {}
        for outer in inner.enclosing_functions():
            if outer.kind == "function":
                for name in sorted(outer.own - set(function.parameters())):
                    outside.setdefault(name, outer)
        if outside and self.tape.pick(2):
            inner.nonlocals = set(self.tape.some_of(sorted(outside)[:4]))
            inner.own -= inner.nonlocals
            for name in inner.nonlocals:
                outside[name].needed.add(name)
        word = "async def" if function.kind in ASYNCHRONOUS else "def"
        if indent and self.tape.pick(8) == 7:
            self.emit(indent, "@same")
        self.emit(indent, f"{word} {function.name}{type_parameters}({parameters}):")
        if inner.nonlocals:
            self.emit(indent + 1, f"nonlocal {', '.join(sorted(inner.nonlocals))}")
        if method_of and self.tape.pick(2):
            self.emit(indent + 1, self.tape.one_of("super().__hash__()", "__class__"))
        if type_parameters:
            self.emit(indent + 1, "T")
        self.depth += 1
        scope.functions.append(function)
        outside_of, self.cannot_leave = self.cannot_leave, 0
        self.block(inner, indent + 1)
        self.cannot_leave = outside_of
        self.depth -= 1
        function.is_running = False
        for name in sorted((inner.needed & inner.own) - inner.assigned):
            self.emit(indent + 1, f"{name} = {self.value()}")
        if function.kind in ("generator", "async generator"):
            self.emit(indent + 1, f"yield {self.read(inner)}")
        if self.tape.pick(2) and function.kind != "async generator":
            self.emit(indent + 1, f"return {self.read(inner)}")
        if method_of:
            return function
        if self.tape.pick(4) != 3:
            self.call_of(function, scope, indent)
        return function

    def call_of(self, function, scope, indent, name=None):
        if function.is_running:
            self.emit(indent, f"if deeper({self.fresh()}):")
            indent += 1
        comma_arguments = "".join(f", {text}" for text in [self.arguments(function, scope)] if text)
        name = name or function.name
        if function.kind == "plain":
            direct = f"{name}({comma_arguments.removeprefix(', ')})"
            self.emit(indent, self.tape.one_of(f"call({name}{comma_arguments})", direct))
        else:
            self.emit(indent, f"drive(call({name}{comma_arguments}), {self.plan()!r})")

    def call(self, scope, indent):
        functions = [each for each in scope.callable_functions() if not each.is_running]
        if not functions:
            return self.evaluate(scope, indent)
        self.call_of(self.tape.one_of(*functions), scope, indent)

    def recursion(self, scope, indent):
        functions = [each for each in scope.callable_functions() if each.is_running]
        if not functions:
            return self.function(scope, indent)
        self.call_of(self.tape.one_of(*functions), scope, indent)

    def class_(self, scope, indent):
        if self.depth >= DEEPEST or self.is_full():
            return self.look(scope, indent)
        name = f"K{self.fresh()}"
        type_parameters = "[T]" if TYPE_PARAMETERS and self.tape.pick(4) == 3 else ""
        self.emit(indent, f"class {name}{type_parameters}:")
        inner = Scope("class", scope, None, own=NAMES)
        self.depth += 1
        if type_parameters:
            self.emit(indent + 1, "t = T")
        self.block(inner, indent + 1, 1 + self.tape.pick(2))
        inner.functions.clear()
        # A name of a class body is not seen by its methods.
        method_scope = Scope("class", scope)
        method = None if self.is_full() else self.function(method_scope, indent + 1, method_of=name)
        self.depth -= 1
        if isinstance(method, Function):
            parameters = method.positional_only or method.positional
            parameters.remove("self")
            self.call_of(method, scope, indent, f"{name}().{method.name}")

    def exec_(self, scope, indent):
        name, value = self.tape.one_of(*NAMES), self.value()
        lines = [f"{name} = {value}", "look()", f"[look() for q in [{name}]]", f"[(lambda: q)() for q in [{name}]]"]
        source = "\n".join([lines[0], *self.tape.some_of(lines[1:])])
        namespace = self.tape.one_of(f"{{'l': {self.value()}}}", "locals()", "dict(locals())")
        self.emit(indent, f"exec({source!r}, globals(), {namespace})")

    def asynchronous(self, scope, indent):
        """await, async for and async with, in a coroutine or an async generator."""
        kind = scope.function.kind if scope.kind == "function" else "plain"
        if kind == "generator":
            return self.emit(indent, f"yield from drive_from({self.expression(scope, 1)})")
        if kind not in ASYNCHRONOUS:
            return self.call(scope, indent)
        target = self.target(scope)
        functions = [each for each in scope.callable_functions() if not each.is_running]
        wanted = self.tape.one_of("coroutine", "async generator", "async generator", None)
        fitting = [each for each in functions if each.kind == wanted]
        if wanted is None:
            self.emit(indent, f"async with manager({self.expression(scope, 1)}) as {target}:")
            self.bind(scope, target)
            return self.branch(scope, indent + 1, 1)
        if not fitting:
            return self.function(scope, indent, kind=wanted)
        each = self.tape.one_of(*fitting)
        if wanted == "coroutine":
            self.emit(indent, f"{target} = await {each.name}({self.arguments(each, scope)})")
            self.bind(scope, target)
        elif self.tape.pick(2):
            self.emit(indent, f"async for {target} in {each.name}({self.arguments(each, scope)}):")
            self.branch(scope, indent + 1, 1)
            scope.assigned.add(target)
        else:
            name = self.tape.one_of(*NAMES)
            element = self.tape.one_of("(look(), {})[1]", "(lambda: {})", "{}").format(name)
            self.in_iterable += 1
            iterable = f"{each.name}({self.arguments(each, scope)})"
            self.in_iterable -= 1
            self.emit(indent, f"{target} = [{element} async for {name} in {iterable}]")
            self.bind(scope, target)

    def leave(self, scope, indent):
        if scope.kind != "function" or self.cannot_leave:
            return self.look(scope, indent)
        self.emit(indent, f"if yes({self.tape.pick(2)}):")
        kind = scope.function.kind
        self.emit(indent + 1, "return" if kind == "async generator" else f"return {self.expression(scope, 1)}")

    def program(self):
        module = Scope("module", None)
        module.own = set(NAMES)
        # The module's names are globals: nothing reads them from inside.
        for _ in range(1 + self.tape.pick(2)):
            self.emit(0, f"def main{(number := self.fresh())}():")
            function = Function(f"main{number}", "plain")
            scope = Scope("function", module, function, NAMES)
            for name in NAMES[: self.tape.pick(len(NAMES) + 1)]:
                self.emit(1, f"{name} = {self.value()}")
                self.bind(scope, name)
            self.block(scope, 1, 2 + self.tape.pick(5))
            for name in sorted(scope.needed - scope.assigned):
                self.emit(1, f"{name} = {self.value()}")
            self.emit(0, f"call({function.name})")
            if self.is_full():
                break
        if self.tape.pick(3) == 2 and not self.is_full():
            self.block(module, 0, 2)
        return "\n".join(self.lines) + "\n"


def is_fragile(scope):
    """Every 3.13 crashes in a class body where a comprehension's captured variable has a free variable's name:

    def f(s):
        class K: s; [lambda: s for s in [1]]
    """
    return sys.version_info[:2] == (3, 13) and scope.host().kind == "class"


def program(tape):
    """The source of the program that this tape (bytes) stands for."""
    return Writer(tape).program()

"""A program with most shapes of frames, out of the standard library: what the readers are compared on."""

import argparse
import ast
import asyncio
import collections
import configparser
import contextlib
import dataclasses
import difflib
import enum
import functools
import html.parser
import inspect
import io
import json
import pprint
import re
import string
import textwrap
import tokenize


def closures():
    def accumulator(start):
        total = start

        def add(value=1, *args, scale=1, **kwargs):
            nonlocal total
            total += value * scale
            return [total + extra for extra in args]

        return add, lambda: total

    add, get = accumulator(1)
    for number in range(20):
        add(number, number, scale=2, unused=number)
    return get()


def comprehensions():
    rows = [[column * row for column in range(5)] for row in range(5)]
    by_sum = {sum(row): [value for value in row if value % 2] for row in rows}
    functions = [lambda: index for index in range(3)]
    return by_sum, {function() for function in functions}, max((key for key in by_sum), default=None)


def generators():
    def numbers(limit):
        state = {"limit": limit}
        for number in range(limit):
            received = yield number
            if received:
                state["received"] = received

    def chained():
        yield from numbers(3)
        yield from (number * 2 for number in numbers(3))

    running = numbers(5)
    next(running)
    running.send("hello")
    with contextlib.suppress(ValueError):
        running.throw(ValueError)
    return list(chained())


def classes():
    class Base:
        registry = {}

        def __init_subclass__(cls, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.registry[cls.__name__] = [name for name in vars(cls) if not name.startswith("_")]

    class Derived(Base):
        x = 1
        y = [value for value in range(3)]

        def method(self):
            return super().__init__, __class__

    @dataclasses.dataclass(order=True)
    class Point:
        x: int
        y: int = 0
        tags: list = dataclasses.field(default_factory=list)

    class Colour(enum.Enum):
        RED = 1
        GREEN = 2

    Derived().method()
    return sorted([Point(2), Point(1, 5)]), dataclasses.asdict(Point(3)), list(Colour), Base.registry


def exceptions():
    def fail(depth):
        if not depth:
            raise KeyError(depth)
        try:
            fail(depth - 1)
        except KeyError as error:
            raise ValueError(depth) from error
        except ValueError:
            raise

    with contextlib.suppress(ValueError):
        fail(5)


def coroutines():
    async def producer(queue):
        for number in range(5):
            await queue.put(number)
            await asyncio.sleep(0)
        await queue.put(None)

    async def ticks(limit):
        for number in range(limit):
            yield number

    async def consumer(queue):
        seen = []
        while (item := await queue.get()) is not None:
            seen.append(item)
        return seen + [tick async for tick in ticks(3)]

    async def main():
        queue = asyncio.Queue(2)
        _, seen = await asyncio.gather(producer(queue), consumer(queue))
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(seen.append, "left")
        return seen

    return asyncio.run(main())


def library():
    document = {"list": [1, 2.5, None, True, "text"], "nested": {"deep": [{}] * 3}}
    text = json.dumps(document, indent=1, sort_keys=True, cls=json.JSONEncoder)
    decoded = json.loads(text, object_hook=lambda each: collections.OrderedDict(each))

    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, default=1)
    parser.add_argument("names", nargs="*")
    parsed = parser.parse_args(["--number", "3", "a", "b"])

    tree = ast.parse("def f(x, *y, z=1):\n    return [x + i for i in y if i] or z\n")
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    source = ast.unparse(tree)

    signature = inspect.signature(functools.partial(textwrap.wrap, width=20))
    return decoded, parsed, names, source, str(signature), string.Template("$a").substitute(a=1)


def text():
    re.purge()
    pattern = re.compile(r"(?P<word>[a-z]+)|(?:\d{2,4}(?=\.))|[^\s\w]+?", re.IGNORECASE)
    words = pattern.findall("Some words, 1234. And more")

    configuration = configparser.ConfigParser()
    configuration.read_string("[section]\nkey = value\nother = %(key)s/more\n")

    class Tags(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.seen = []

        def handle_starttag(self, tag, attrs):
            self.seen.append((tag, attrs))

    tags = Tags()
    tags.feed("<p class='c'>text<br/><a href=x>link</a></p>")

    before = textwrap.dedent(inspect.getsource(comprehensions)).splitlines()
    after = [line.replace("row", "line") for line in before]
    difference = list(difflib.unified_diff(before, after, lineterm=""))
    tokens = [token.string for token in tokenize.generate_tokens(io.StringIO("\n".join(before)).readline)]
    return words, configuration["section"]["other"], tags.seen, difference, tokens, pprint.pformat([before, after])


def run():
    return (
        closures(),
        comprehensions(),
        generators(),
        classes(),
        exceptions(),
        coroutines(),
        library(),
        text(),
    )

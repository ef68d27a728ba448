"""docs/SEMANTICS.md: every example is run, and prints what the page says it prints on this version."""

import contextlib
import io
import os
import re
import sys
import types
import unittest

import _cases
from consumers import REPOSITORY
from support import HIDDEN, NO_VALUE, RAW_CELL, VERSION, FrameState, hooked, read

with open(os.path.join(REPOSITORY, "docs", "SEMANTICS.md"), encoding="utf-8") as file:
    PAGE = file.read()

# A heading, an example, or what it prints, in the order of the page.
PART = re.compile(
    r"^## (?:(?P<rule>R\d+):)?[^\n]*$"
    r"|^```python\n(?P<example>.*?)^```$"
    r"|^Prints(?: on (?P<versions>[^:\n]+))?:\n\n```text\n(?P<printed>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
RULES = [f"R{number}" for number in range(1, 13)]


def matches(versions):
    """Whether the running version is meant by "3.11", "3.12 and later", "3.13.0 to 3.13.5", or by nothing at all."""
    if versions is None:
        return True
    found = re.fullmatch(r"(3\.[\d.]+)(?: (and later)|(?: to (3\.[\d.]+)))?", versions)
    if found is None:
        raise AssertionError(f"docs/SEMANTICS.md: no version: {versions!r}")
    first = tuple(map(int, found[1].split(".")))
    if found[2]:
        return VERSION >= first
    last = tuple(map(int, (found[3] or found[1]).split(".")))
    return first <= VERSION and VERSION[: len(last)] <= last


class Example:
    def __init__(self, rule, number, source):
        self.name = f"{rule or 'no rule'}, example {number}"
        self.rule = rule
        self.source = source
        self.printed = []  # versions, text

    def expected(self):
        meant = [text for versions, text in self.printed if matches(versions)]
        assert len(meant) == 1, f"{self.name}: {len(meant)} answers for this version"
        return meant[0]


def examples():
    found, rule, number = [], None, 0
    for part in PART.finditer(PAGE):
        if part["example"] is not None:
            number += 1
            found.append(Example(rule, number, part["example"]))
        elif part["printed"] is not None:
            found[-1].printed.append((part["versions"], part["printed"]))
        else:
            rule, number = part["rule"], 0
    return found


def shown(value):
    """A value without its address."""
    if value is NO_VALUE:
        return "-"
    if isinstance(value, types.CellType):
        try:
            return f"<cell of {shown(value.cell_contents)}>"
        except ValueError:
            return "<empty cell>"
    return re.sub(r"( object)? at 0x[0-9a-fA-F]+", "", repr(value))


def show(slots, flags, title=""):
    words = [f"{name}={shown(value)}" for name, value in zip(slots.names, slots.flagged[flags])]
    print(title + " ".join(words or ["no slots"]))


# The functions that the page explains.


def look(flags=0):
    show(read(sys._getframe(1)), flags)


def look_at(frame):
    show(read(frame), 0)


def look_below():
    below = FrameState(_cases.address(sys._getframe(1))).previous
    try:
        _cases.count(below)
    except ValueError as error:
        print(error)
    else:
        look_at(below)


@contextlib.contextmanager
def entry(name):
    with hooked(name, at_entry=lambda address: show(read(address), 0, "entry: ")):
        yield


def run(example):
    output = io.StringIO()
    names = {
        "look": look,
        "look_at": look_at,
        "look_below": look_below,
        "entry": entry,
        "HIDDEN": HIDDEN,
        "RAW_CELL": RAW_CELL,
        "function_with_closure": _cases.function_with_closure,
    }
    with contextlib.redirect_stdout(output):
        exec(compile(example.source, f"<{example.name}>", "exec"), names)
    return output.getvalue()


class Semantics(unittest.TestCase):
    def test_examples_print_what_the_page_says(self):
        for example in examples():
            with self.subTest(example.name):
                self.assertEqual(run(example), example.expected())

    def test_every_block_is_an_example(self):
        """A block that the pattern above does not find would be a block that is not tested."""
        found = examples()
        blocks = re.findall(r"^```(\w*)$.*?^```$", PAGE, re.MULTILINE | re.DOTALL)
        self.assertEqual(blocks.count("python"), len(found))
        self.assertEqual(blocks.count("text"), sum(len(example.printed) for example in found))
        self.assertEqual(set(blocks), {"python", "text"})

    def test_every_rule_has_an_example(self):
        self.assertEqual(re.findall(r"^## (R\d+):", PAGE, re.MULTILINE), RULES)
        self.assertEqual({example.rule for example in examples()} - {None}, set(RULES))

    def test_versions(self):
        self.assertTrue(matches(None) and matches("3.11 and later"))
        self.assertTrue(matches(f"3.{VERSION[1]}") and matches(f"3.10 to 3.{VERSION[1]}"))
        self.assertFalse(matches("3.10") or matches("3.99 and later") or matches("3.1 to 3.10"))
        with self.assertRaisesRegex(AssertionError, "no version"):
            matches("all")

"""docs/PORTING.md: its blocks compile and work, and it speaks of functions that there are."""

import os
import re
import shutil
import sys
import unittest

import _cases
import support
from consumers import REPOSITORY, build_extension

EXAMPLE = os.path.join(REPOSITORY, "examples", "frame_locals_mapping", "frame_locals_mapping.hpp")


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


PAGE = read(REPOSITORY, "docs", "PORTING.md")
BLOCKS = dict(re.findall(r"^<!-- name: ([^\n]+) -->\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


class Blocks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = os.path.join(support.toolchain.build_dir, "porting")
        os.makedirs(folder, exist_ok=True)
        for name, text in BLOCKS.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        shutil.copy(EXAMPLE, folder)
        source = shutil.copy(os.path.join(support.TESTS_C, "porting_module.cpp"), folder)
        build_extension("porting", source, "c++17")
        global porting
        import porting

        # What C++ compiles need not be C.
        with open(os.path.join(folder, "where.c"), "w", encoding="utf-8") as file:
            file.write('#include "where.h"\nPyObject *call(struct _PyInterpreterFrame *frame);\n')
            file.write("PyObject *call(struct _PyInterpreterFrame *frame) { return where(frame); }\n")
        build_extension("porting_where", os.path.join(folder, "where.c"), "c11")

    def test_every_block_is_used(self):
        self.assertEqual(PAGE.count("\n```\n"), len(BLOCKS), "a block without a name is not tested")
        self.assertEqual(set(BLOCKS), {"is_int.hpp", "where.h"})

    def test_is_int(self):
        def f(number, text):
            address = _cases.address(sys._getframe())
            return (
                porting.is_int(address, 0),
                porting.is_int(address, 1),
                porting.is_int(address, 2),
                porting.is_int(address, 3),
                porting.is_int(address, 4),
            )
            unbound = number

        self.assertEqual(f(1, "1"), (True, False, True, False, False))
        with self.assertRaises(ValueError):
            porting.is_int(0, 0)

    def test_where(self):
        frame = sys._getframe()
        line = frame.f_lineno + 1
        self.assertEqual(porting.where(_cases.address(frame)), f"{frame.f_code.co_qualname}:{line}")
        with self.assertRaises(ValueError):
            porting.where(0)


class Text(unittest.TestCase):
    def test_functions(self):
        header = read(support.toolchain.include, "localsplus.h")
        declared = set(re.findall(r"^LOCALSPLUS_API [^;]*?(localsplus_\w+)\(", header, re.MULTILINE))
        missing = set(re.findall(r"`(localsplus_\w+)` †", PAGE))
        named = set(re.findall(r"`(localsplus_\w+)`(?! †)", PAGE))
        self.assertEqual(named - declared, set(), "these are not in the header: mark them with a dagger, or correct them")
        self.assertEqual(missing & declared, set(), "these are in the header now: take the dagger away")

    def test_flags(self):
        header = read(support.toolchain.include, "localsplus.h")
        for name in set(re.findall(r"`(LOCALSPLUS_\w+)`", PAGE)):
            self.assertRegex(header, rf"(?m)^#define {name}\b")

    def test_sources(self):
        tables, sources = PAGE.split("\n## Sources\n")
        listed = re.findall(r"^\| ([A-Z]\d) \|", sources, re.MULTILINE)
        cited = set()
        for line in tables.splitlines():
            cells = [cell.strip() for cell in line.split(" | ")]
            if len(cells) == 4 and re.fullmatch(r"([A-Z]\d ?)+", cells[2]):
                cited.update(cells[2].split())
            for group in re.findall(r"\[((?:[A-Z]\d ?)+)\]", line):
                cited.update(group.split())
        self.assertEqual(sorted(cited), sorted(listed))

    def test_lines_of_the_port(self):
        lines = [line for line in read(EXAMPLE).splitlines() if line.strip() and not line.strip().startswith("//")]
        conditions = [line for line in lines if re.match(r"\s*#\s*(if|elif)\b.*(IS_PYTHON_|PY_VERSION_HEX)", line)]
        internal = [line for line in lines if re.match(r"\s*#\s*include\s*[<\"].*internal/", line)]
        row = f"| `frame_locals_mapping.hpp` | {len(lines)} | {len(conditions)} | {len(internal)} |"
        self.assertIn(row, PAGE)

"""Has matrix/new-version draft layouts that are there already, and compares.

Run by matrix/run; by itself: python3 -m unittest discover matrix
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

from localsplus_matrix import cache, cargo, draft, layouts, new_version

TARGET = cargo.target_folder()
# Always the same folder, so that a second run compiles little.
COPY = TARGET / "matrix/new-version-copy"
TABLE = "src/layout/mod.rs"


def include_dir(row):
    listed = cache.read_json(cache.CACHE / "interpreters.json") or {}
    if row not in listed:
        raise AssertionError(f"no headers of CPython {row} at hand: run matrix/run --provide")
    return listed[row]["include_dirs"][0]


def copy_without(first):
    """A copy of this repository as it was before that minor version had a layout."""
    shutil.rmtree(COPY, ignore_errors=True)
    ignored = shutil.ignore_patterns(".git", ".cache", "__pycache__", "target", TARGET.name)
    shutil.copytree(cache.REPOSITORY, COPY, ignore=ignored)
    table = (COPY / TABLE).read_text(encoding="utf-8")
    for file in (COPY / "src/layout").glob("v3_*.rs"):
        if int(file.stem.removeprefix("v3_")) >= first:
            file.unlink()
            table = re.sub(rf"^.*\b{file.stem}\b.*\n", "", table, flags=re.MULTILINE)
    write_table(table)


def add_to_table(minor):
    table = (COPY / TABLE).read_text(encoding="utf-8")
    table = table.replace("pub mod v3_11;\n", f"pub mod v3_11;\npub mod v3_{minor};\n")
    entries = "".join(f"    entry::<v3_{minor}::{build}>(),\n" for build in layouts.BUILDS)
    write_table(re.sub(r"(static TABLE: .*\n)", rf"\1{entries}", table))


def write_table(table):
    count = len(re.findall(r"^    entry::<", table, re.MULTILINE))
    (COPY / TABLE).write_text(re.sub(r"\[Entry; \d+\]", f"[Entry; {count}]", table), encoding="utf-8")


def run(*arguments, cwd=COPY):
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET)}
    return subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True)


class ALayoutThatIsThere(unittest.TestCase):
    maxDiff = None

    def test_is_drafted_as_it_is(self):
        headers = include_dir("3.15")
        copy_without(15)
        drafted = run("matrix/new-version", "3.15", headers)
        self.assertEqual(drafted.returncode, 0, drafted.stderr)
        self.assertIn("  generator.finished: 1 -> 5\n", drafted.stderr)
        file = layouts.file(cache.REPOSITORY, 15).read_text(encoding="utf-8")
        # Another patch release of it may be at hand.
        read = re.search(r" of (3\.15\.\d+)\.$", file, re.MULTILINE)[1]
        self.assertEqual(re.sub(r" of 3\.15\.\d+\.$", f" of {read}.", drafted.stdout, flags=re.MULTILINE), file)

    def test_is_drafted_with_the_structs_that_moved(self):
        headers = include_dir("3.14")
        copy_without(14)
        drafted = run("matrix/new-version", "3.14", headers)
        self.assertEqual(drafted.returncode, 0, drafted.stderr)
        for moved in (
            "tuple.ob_item: 24 -> 32 (default build), 40 -> 48 (free-threaded build)",
            "basicsize.function: 144 -> 152 (default build), 160 -> 168 (free-threaded build)",
            "frame.owner: 70 -> 74 (default build), 70 -> 78 (free-threaded build)",
            "frame.localsplus: 72 -> 80",
            "frame.tlbc_index: none -> 72 (free-threaded build)",
            "code._co_firsttraceable: 184 -> 192 (default build), 200 -> 208 (free-threaded build)",
            "code.co_code_adaptive: 200 -> 208 (default build), 216 -> 232 (free-threaded build)",
            "code.co_tlbc: none -> 224 (free-threaded build)",
            "frame_object._f_frame_data: 64 -> 72 (default build), 80 -> 88 (free-threaded build)",
            "slot.null: 0 -> 1",
            "count.immortal_from: 4294967295 -> 3221225472 (default build)",
        ):
            self.assertIn(f"  {moved}\n", drafted.stderr)
        self.assertIn("const _: () = assert!(FreeThreaded::ROW.frame.owner == 78);\n", drafted.stdout)

        with self.subTest("what a person has to decide keeps the draft from compiling"):
            file = layouts.file(COPY, 14)
            file.write_text(drafted.stdout, encoding="utf-8")
            add_to_table(14)
            target = TARGET / "matrix/new-version"
            built = run("cargo", "build", "--quiet", "--example", "layouts", "--target-dir", target)
            self.assertNotEqual(built.returncode, 0)
            open_questions = {"slot.null", "slot.tag_mask", "slot.int_tag", "frame.stack_size", "code_array.entries"}
            self.assertEqual(set(re.findall(r"^error: (\S+) is ", built.stderr, re.MULTILINE)), open_questions)
            self.assertNotIn("error[", built.stderr)

        with self.subTest("once decided, it says what the layout says"):
            decided = re.sub(r"^compile_error!.*\n", "", drafted.stdout, flags=re.MULTILINE)
            decided = decided.replace("slot::Pointer;", "slot::StackRef as Tagged;").replace("= Pointer;", "= Tagged;")
            file.write_text(decided, encoding="utf-8")
            with mock.patch.dict(os.environ, {"CARGO_TARGET_DIR": str(TARGET)}):
                self.assertEqual(layouts.read(COPY)[14].values, layouts.read(cache.REPOSITORY)[14].values)

        with self.subTest("a struct written down wrongly does not compile"):
            file.write_text(decided.replace("    return_offset: u16,", "    return_offset: u32,"), encoding="utf-8")
            built = run("cargo", "build", "--quiet", "--example", "layouts", "--target-dir", target)
            self.assertIn("Gil::ROW.frame.owner == 74", built.stderr)


class AField(unittest.TestCase):
    def test_of_an_unknown_type_does_not_compile(self):
        for declaration, field, rust in (
            ("struct frame_core core", "core", "frame_core"),
            ("uint8_t visited : 1", "unknown_declaration", "unknown_type"),
            ("int a, b", "unknown_declaration", "unknown_type"),
            ("const struct _PyInterpreterFrame *previous", "previous", "Ptr"),
            ("PyObject *(*call)(int)", "call", "Ptr"),
            ("char co_code_adaptive[(1)]", "co_code_adaptive", "[u8; 1]"),
        ):
            self.assertEqual(draft._field(declaration)[:2], (field, rust), declaration)


class TheCommand(unittest.TestCase):
    def run_it(self, version, folder):
        """Its exit status or last words, and what it printed."""
        output, errors = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["new-version", version, str(folder)]),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            try:
                end = new_version.main()
            except SystemExit as exit:
                end = exit.code
        return end, output.getvalue(), errors.getvalue()

    def test_says_that_nothing_has_changed(self):
        end, draft, told = self.run_it("3.15", include_dir("3.15"))
        self.assertEqual((end, draft), (0, ""))
        self.assertIn("against the layout of 3.15 (src/layout/v3_15.rs):\n  nothing has changed\n", told)

    def test_says_what_a_layout_gets_wrong(self):
        known = layouts.read(cache.REPOSITORY)
        values = {build: {**row, "frame.owner": 75} for build, row in known[15].values.items()}
        with mock.patch.object(layouts, "read", return_value={**known, 15: replace(known[15], values=values)}):
            end, draft, told = self.run_it("3.15", include_dir("3.15"))
        self.assertEqual((end, draft), (1, ""))
        self.assertIn("  frame.owner: 75 -> 74 (default build), 75 -> 78 (free-threaded build)\n", told)

    def test_refuses_what_it_cannot_read(self):
        with tempfile.TemporaryDirectory() as folder:
            end, *_ = self.run_it("3.16", folder)
            self.assertIn(f"{folder} has no Python.h: give the folder", end)
            Path(folder, "Python.h").write_text("", encoding="utf-8")
            end, *_ = self.run_it("3.16", folder)
            self.assertIn(f"{folder} has no internal/pycore_frame.h: give the folder", end)
            Path(folder, "internal").mkdir()
            Path(folder, "internal/pycore_frame.h").write_text("", encoding="utf-8")
            Path(folder, "Python.h").write_text('#error "no field f_funcobj"\n', encoding="utf-8")
            end, *_ = self.run_it("3.16", folder)
            self.assertRegex(end, '(?s)does not compile.*error: .*"no field f_funcobj".*under an #if PY_VERSION_HEX')

    def test_refuses_headers_of_something_else(self):
        end, *_ = self.run_it("3.16", include_dir("3.15"))
        self.assertRegex(end, r"has the headers of CPython 3\.15\.\d+, not of 3\.16")
        end, *_ = self.run_it("3.15", include_dir("3.15d"))
        self.assertRegex(end, "has the headers of a debug build; give those of the default build")
        end, _, told = self.run_it("four", "/nowhere")
        self.assertEqual(end, 2)
        self.assertIn("'four' is no version like 3.16", told)


if __name__ == "__main__":
    unittest.main()

"""Checks that what is said of the rows elsewhere agrees with interpreters.toml, and the matrix's own promises.

Run by matrix/run; by itself: python3 -m unittest discover matrix
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent))

from localsplus_matrix import apt, cache, cargo, cli, command, installed, outcome, probe, provide, rows
from localsplus_matrix.outcome import Outcome

REQUIRED = {"3.11", "3.12", "3.13", "3.14", "3.15", "3.13t", "3.14d", "3.15d", "3.14-jit", "3.15-jit"}


class TheListOfRows(unittest.TestCase):
    """interpreters.toml against everything else that names interpreters."""

    def setUp(self):
        self.rows = rows.read()

    def test_required_rows(self):
        self.assertEqual({row.name for row in self.rows.values() if row.required}, REQUIRED)

    def test_tox_environments(self):
        tox = tomllib.loads((cache.MATRIX / "tox.toml").read_text(encoding="utf-8"))
        self.assertEqual(tox["env_list"], list(self.rows), "env_list of tox.toml")
        self.assertEqual(list(tox["env"]), list(self.rows), "environments of tox.toml")
        for row in self.rows.values():
            environment = tox["env"][row.name]
            self.assertEqual(environment["base_python"], [f"{{env:LOCALSPLUS_MATRIX_PYTHON:{row.command}}}"], row.name)
            self.assertEqual(environment.get("set_env", {}), row.set_env, row.name)

    def test_rust_layouts(self):
        layouts = set()
        for file in (cache.REPOSITORY / "src/layout").glob("v3_*.rs"):
            version = file.stem.removeprefix("v").replace("_", ".")
            for build in re.findall(r"const ROW: Row = .*Build::(\w+)\)", file.read_text(encoding="utf-8")):
                layouts.add((version, build))
        self.assertTrue(layouts, "no layout found in src/layout/v3_*.rs")
        newest = max(int(version.split(".")[1]) for version, _ in layouts)
        kinds = {"free-threaded": "FreeThreaded", "free-threaded debug": "FreeThreaded", "trace-refs": "TraceRefs"}
        tested = set()
        for row in self.rows.values():
            # A version without a layout runs on the official API.
            if int(row.version.split(".")[1]) <= newest:
                tested.add((row.version, kinds.get(row.build, "Gil")))
        self.assertEqual(tested - layouts, set(), "rows without a layout in src/layout")
        # Nobody packages a 3.12 with trace-refs, and its source package is gone.
        self.assertEqual(
            layouts - tested, {("3.12", "TraceRefs")} & layouts, "layouts without a row in interpreters.toml"
        )

    def test_pyo3_configurations(self):
        for row in self.rows.values():
            name = row.version + ("t" if row.free_threaded else "")
            if name != "3.13t":  # pyo3-ffi has none
                self.assertIn(name, cargo.CONFIGURATIONS)

    def test_support_table_of_the_readme(self):
        """A cell says yes if, and only if, there is a row for it."""
        newest = max(file.stem for file in (cache.REPOSITORY / "src/layout").glob("v3_*.rs")).replace("v3_", "3.")
        wanted = {}
        for row in self.rows.values():
            cells = wanted.setdefault(row.version, {})
            if row.version > newest:
                cells.update(dict.fromkeys(("release", "free-threaded", "debug"), "by its official function"))
            cells[row.build] = cells.get(row.build, "yes")
        for version, cells in wanted.items():
            cells.setdefault("free-threaded", "not tested" if version >= "3.13" else "-")
            cells.setdefault("debug", "not tested")
            for build in set(cells) - {"release", "free-threaded", "debug"}:
                del cells[build]
        found = {}
        readme = (cache.REPOSITORY / "README.md").read_text(encoding="utf-8")
        for versions, *cells in re.findall(r"^\| (3\.\d+[^|]*) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", readme, re.MULTILINE):
            for version in re.findall(r"3\.\d+", versions):
                found[version] = dict(zip(("release", "free-threaded", "debug"), cells, strict=True))
        self.assertEqual(found, wanted, "the support table of README.md, as interpreters.toml has it")

    def test_a_mistake_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "interpreters.toml")
            good = '[[row]]\nname = "3.14"\nversion = "3.14"\nbuild = "release"\nrequired = true\nsources = ["path"]\n'
            for change, complaint in {
                ('"release"', '"fast"'): "build = 'fast'",
                ('"path"', '"conda"'): "unknown source 'conda'",
                ("required = true\n", ""): "required is missing",
                ("sources", "source"): "unknown key source",
            }.items():
                file.write_text(good.replace(*change), encoding="utf-8")
                with self.assertRaisesRegex(rows.BadRows, complaint):
                    rows.read(file)

    def test_rows_can_be_made_required(self):
        changed = rows.require(self.rows, "3.14t, 3.13d")
        self.assertEqual({row.name for row in changed.values() if row.required}, REQUIRED | {"3.14t", "3.13d"})
        with self.assertRaisesRegex(rows.BadRows, "names '3.99'"):
            rows.require(self.rows, "3.99")


class AMissingInterpreter(unittest.TestCase):
    def row(self, required, version="3.14", build="release", sources=("path",)):
        return rows.Row("row", version, build, required, sources)

    def provide(self, row, recorded=None):
        """Provides with an empty PATH and its own interpreters.json; answers what was found, missing, and shouted."""
        with tempfile.TemporaryDirectory() as folder:
            listed = Path(folder, "interpreters.json")
            if recorded is not None:
                cache.write_json(listed, {"row": recorded.as_json()})
            with (
                mock.patch.object(provide, "LIST", listed),
                mock.patch.dict("os.environ", {"PATH": folder}),
                mock.patch("localsplus_matrix.progress.shout") as shout,
                mock.patch("localsplus_matrix.progress.say"),
            ):
                found, missing = provide.provide([row], offline=True)
            return found, missing, [call.args[0] for call in shout.call_args_list], cache.read_json(listed)

    def test_is_shouted_with_the_reason_and_the_cure(self):
        for required in (True, False):
            found, missing, shouted, _ = self.provide(self.row(required, sources=("path", "debian:testing")))
            self.assertEqual(found, {})
            self.assertIn("no python3.14 on PATH", missing["row"])
            self.assertIn("debian:testing: not asked (--offline)", missing["row"])
            self.assertIn("uv python install 3.14", missing["row"])
            self.assertEqual(len(shouted), 1)
            self.assertIn("required" if required else "optional", shouted[0])

    def test_that_was_there_before(self):
        gone = probe.Interpreter("/nowhere/python3.14", "3.14.1", "release", ("/nowhere",), "PATH", {})
        _, missing, shouted, listed = self.provide(self.row(True), gone)
        self.assertIn("gone now: /nowhere/python3.14 does not run", missing["row"])
        self.assertEqual(len(shouted), 2)
        self.assertEqual(listed, {}, "it stays in interpreters.json")

    def test_fails_a_required_row_and_skips_an_optional_one(self):
        required = Outcome.of_missing("3.14", True, "3.14", "release", "no reason")
        optional = Outcome.of_missing("3.16", False, "3.16", "release", "too early")
        self.assertEqual(outcome.totals([required, optional]), "0 passed, 1 failed, 1 skipped")
        self.assertIn("FAILED 3.14: no reason", outcome.notes([required, optional]))
        self.assertIn("skipped: too early: 3.16", outcome.notes([required, optional]))

    def test_another_build_or_version_is_not_taken(self):
        version = "%d.%d" % sys.version_info[:2]
        for row in (self.row(True, "3.99"), self.row(True, version, "free-threaded debug")):
            with self.assertRaisesRegex(probe.Unusable, f"needed: cpython {row.version} {row.build}"):
                probe.fit(row, sys.executable, "this one")

    def test_an_interpreter_without_headers_is_not_taken(self):
        row = self.row(True, "%d.%d" % sys.version_info[:2], probe.build_of(probe.ask(sys.executable)))
        with self.assertRaisesRegex(probe.Unusable, "no header Python.h in /nowhere"):
            probe.fit(row, sys.executable, "this one", (Path("/nowhere"),))


class TheInterpretersOfAMachine(unittest.TestCase):
    """Which of them are looked at: the same by us and by `localsplus doctor`."""

    FOUND = (
        "bin/python3.11",
        "bin/python3.13t",
        "bin/python3.14d",
        "more/python3.11",
        "more/python3.16td",
        "pyenv/versions/3.11.7/bin/python3.11",
        "pyenv/versions/3.12.10-debug/bin/python3.12d",
        "pyenv/versions/3.14.0t/bin/python3.14t",
        "pyenv/versions/3.14-dev/bin/python3.14",
        "pyenv/versions/3.15.-dev/bin/python3.15",
        "pyenv/versions/3.15t-debug/bin/python3.15td",
        "home/.local/share/uv/python/cpython-3.12.9-linux-x86_64-gnu/bin/python3.12",
        "home/.local/share/uv/python/cpython-3.14.0+freethreaded-linux-x86_64-gnu/bin/python3.14t",
    )
    OTHERS = (
        "bin/python3.10",
        "bin/python3.11-config",
        "bin/python3.12m",
        "bin/python3.1",
        "pyenv/versions/3.10.13/bin/python3.10",
        "pyenv/versions/3.13.0rc1/bin/python3.13",
        "pyenv/versions/3.13t-dev/bin/python3.13t",
        "pyenv/versions/pypy3.11-7.3.20/bin/python3.11",
        "pyenv/versions/graalpy-25.0/bin/python3.12",
        "pyenv/versions/mine/bin/python3.12",
        "home/.local/share/uv/python/pypy-3.11.13-linux-x86_64-gnu/bin/python3.11",
        "home/.local/share/uv/python/cpython-3.13-linux-x86_64-gnu/bin/python3.13",
    )

    def setUp(self):
        self.root = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        for name in self.FOUND + self.OTHERS:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            known = {"implementation": "CPython", "version": "3.99.0", "number": 0x363, "executable": path}
            lines = [f"printf 'localsplus-doctor\\t{word}\\t{value}\\n'\n" for word, value in known.items()]
            path.write_text("#!/bin/sh\n" + "".join(lines), encoding="utf-8")
            path.chmod(0o755)
        # An installation has its interpreter under a second name.
        (self.root / "pyenv/versions/3.14.0t/bin/python3.14").symlink_to("python3.14t")
        self.environment = {
            "PATH": f"{self.root / 'bin'}{os.pathsep}{self.root / 'more'}",
            "HOME": str(self.root / "home"),
            "PYENV_ROOT": str(self.root / "pyenv"),
        }

    def of_the_matrix(self):
        looked_at = set()

        def fit(row, executable, source):
            looked_at.add(Path(executable).resolve())
            raise probe.Unusable("go on")

        with mock.patch.dict("os.environ", self.environment), mock.patch.object(probe, "fit", fit):
            for minor in range(11, 17):
                for build in rows.BUILDS:
                    row = rows.Row("row", f"3.{minor}", build, True, ())
                    for source in (installed.from_path, installed.from_pyenv, installed.from_uv):
                        with self.assertRaises(probe.Unusable):
                            source(row)
        return looked_at

    def of_the_doctor(self):
        with mock.patch("localsplus_matrix.progress.say"):
            cargo.build_library()
        command = [cargo.program(), "doctor", "--list"]
        listed = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout
        return {Path(line).resolve() for line in listed.splitlines()}

    def test_are_those_of_the_doctor(self):
        found = {self.root / name for name in self.FOUND}
        self.assertEqual(self.of_the_matrix(), found)
        self.assertEqual(self.of_the_doctor(), found)


class AnInterruption(unittest.TestCase):
    def test_leaves_no_half_folder(self):
        with tempfile.TemporaryDirectory() as top:
            final = Path(top, "python")
            with self.assertRaises(KeyboardInterrupt), cache.folder_made_whole(final) as partial:
                (partial / "half").touch()
                raise KeyboardInterrupt
            self.assertFalse(final.exists())
            with cache.folder_made_whole(final) as partial:
                (partial / "whole").touch()
            self.assertEqual([file.name for file in final.iterdir()], ["whole"])
            self.assertEqual([folder.name for folder in Path(top).iterdir()], ["python"])

    def test_leaves_no_half_file(self):
        with tempfile.TemporaryDirectory() as top:
            file = Path(top, "interpreters.json")
            cache.write_json(file, {"3.14": 1})
            with mock.patch("os.replace", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                cache.write_json(file, {})
            self.assertEqual(cache.read_json(file), {"3.14": 1})
            self.assertEqual(list(Path(top).iterdir()), [file])

    def test_a_damaged_list_is_made_again(self):
        with tempfile.TemporaryDirectory() as top:
            file = Path(top, "interpreters.json")
            file.write_text('{"3.14": ', encoding="utf-8")
            self.assertIsNone(cache.read_json(file))


class OtherPrograms(unittest.TestCase):
    def test_a_missing_one_is_named_with_its_package(self):
        with mock.patch.dict("os.environ", {"PATH": "/nowhere"}):
            self.assertEqual(command.missing("xz"), "xz is not on PATH; on Debian: apt-get install xz-utils")

    def test_all_that_are_missing_are_named_at_once(self):
        """Those that README.md names, before anything is downloaded."""
        with mock.patch.dict("os.environ", {"PATH": "/nowhere"}), mock.patch("sys.argv", ["matrix/run"]):
            complaint = command.missing(*cli._needed(["consumers"], cli._arguments()))
        readme = (cache.REPOSITORY / "README.md").read_text(encoding="utf-8")
        [packages] = re.findall(r"\(Debian's packages:\s+`(.+)`\)", readme)
        for package in ("rustup", "gcc", *packages.split()):
            self.assertRegex(complaint, rf" {re.escape(package)}( |$)")
        named = complaint.split("apt-get install ")[1].split(" (")[0].split()
        self.assertEqual(set(named) - {"rustup", "gcc"}, set(packages.split()))

    def test_a_failure_says_what_the_program_said(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(command.CommandFailed, "ended with 3.*\n.*no such luck"):
                command.run([sys.executable, "-c", "print('no such luck'); exit(3)"], Path(folder, "log"))

    def test_one_that_hangs_is_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(command.CommandFailed, "did not end within"):
                command.run([sys.executable, "-c", "import time; time.sleep(60)"], Path(folder, "log"), timeout=0.2)

    def test_complaints_of_apt_keep_the_file_and_lose_the_address(self):
        address = "http://mirror.invalid/debian/pool/p/python_1.orig.tar.xz"
        complaint = f"E: Failed to fetch {address}  404  Not Found [IP: 192.0.2.1 80]"
        self.assertEqual(
            apt._complaint(f"{complaint}\nE: Failed to fetch some archives."),
            "Failed to fetch python_1.orig.tar.xz 404 Not Found",
        )


class TheTable(unittest.TestCase):
    def test_has_a_line_for_each_outcome_and_the_totals(self):
        outcomes = [
            Outcome("3.14", version="3.14.2", passed=5, skipped=[("a", "no JIT"), ("b", "no JIT")]),
            Outcome("3.15", version="3.15.0", passed=4, failed=1, problem="case F5"),
        ]
        lines = outcome.table(outcomes).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(len(set(map(len, lines))), 1, "columns do not line up")
        self.assertEqual(outcome.totals(outcomes), "9 passed, 1 failed, 2 skipped")
        self.assertIn("skipped: no JIT: 3.14 (2 cases)", outcome.notes(outcomes))


if __name__ == "__main__":
    unittest.main()

"""The benchmarks run to their end, and what can be counted without noise is not lost: a call's instructions."""

import json
import re
import unittest

from workspace import REPOSITORY, ROOT, folder, interpreter, run

TARGET = ROOT / "benchmarks"
VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.15")


def benchmark(python, *options):
    library = TARGET / "release/liblocalsplus.so"
    where = ("--library", library, "--build-dir", folder("benchmark"), *python.includes("--python-include"))
    return python.python("-B", REPOSITORY / "benches/run.py", *where, *options, cwd=REPOSITORY)


class Benchmarks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        manifest = REPOSITORY / "benches/rust_caller/Cargo.toml"
        run("cargo", "fetch", "--locked", "--manifest-path", manifest, CARGO_NET_OFFLINE="false")
        build = ("cargo", "build", "--release", "--lib", "--locked", "--target-dir", TARGET)
        run(*build, cwd=REPOSITORY, PYO3_BUILD_EXTENSION_MODULE=1)

    def test_times(self):
        for version in VERSIONS:
            with self.subTest(version):
                report = folder("report") / "report.json"
                output = benchmark(interpreter(version), "--rounds", "2", "--report", report)
                self.assertRegex(output, rf"^CPython {re.escape(version)}\.\S+, layout {re.escape(version)}\n")
                rows = json.loads(report.read_text(encoding="utf-8"))["rows"]
                self.assertGreater(len(rows), 20)
                for text, *_ in rows:
                    self.assertRegex(output, rf"(?m)^ +{re.escape(text)} +-?\d")

    def test_instructions(self):
        output = benchmark(interpreter("3.13"), "--instructions")
        counts = re.findall(r"^  (.+?) +localsplus (\d+), plain reader (\d+)$", output, re.MULTILINE)
        ways = ["get_locals, 17 slots", *(f"get_local, {kind}" for kind in ("plain", "cell", "free", "unset"))]
        self.assertEqual([way for way, *_ in counts], ways)
        for way, ours, plain in counts:
            # What has run at all took some.
            self.assertGreater(int(ours), 10, way)
            self.assertLess(int(ours), int(plain), way)

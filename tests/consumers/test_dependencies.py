"""What comes along with localsplus: the crates that a dependent builds, their licences, and that each comes once."""

import json
import re
import unittest

from workspace import REPOSITORY, run

# Licences that MIT OR Apache-2.0 can be given on together with.
LICENCES = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-3-Clause", "ISC", "Unicode-3.0", "Zlib", "0BSD"}
# Every one more is something that everybody builds and somebody must trust: add it here with that in mind.
CRATES = set(
    "cfg-if libc libloading proc-macro2 pyo3-build-config pyo3-ffi quote syn target-lexicon thiserror thiserror-impl"
    " unicode-ident version_check windows-link".split()
)


def allowed(expression):
    """Whether a choice that the expression (SPDX, or the older A/B) leaves is among those above."""
    words = re.findall(r"[()]|[\w.+-]+(?: WITH [\w.-]+)?", expression.replace("/", " OR "))
    known = [str(word in LICENCES) if word not in ("(", ")", "OR", "AND") else word.lower() for word in words]
    return eval(" ".join(known), {"__builtins__": {}})


class Dependencies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        metadata = json.loads(run("cargo", "metadata", "--locked", "--format-version", "1", cwd=REPOSITORY))
        cls.packages = {package["id"]: package for package in metadata["packages"]}
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        root = cls.root = cls.packages[metadata["resolve"]["root"]]
        cls.everything = [package for package in cls.packages.values() if package is not root]
        seen, ahead = set(), [root["id"]]
        while ahead:
            for dependency in nodes[ahead.pop()]["deps"]:
                kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
                if kinds != {"dev"} and dependency["pkg"] not in seen:
                    seen.add(dependency["pkg"])
                    ahead.append(dependency["pkg"])
        cls.built = [cls.packages[each] for each in seen]

    def test_which(self):
        self.assertEqual({package["name"] for package in self.built}, CRATES)

    def test_each_once(self):
        names = [package["name"] for package in self.built]
        self.assertEqual({name for name in names if names.count(name) > 1}, set())

    def test_licences(self):
        """Those of the tests and benchmarks, too: they are in the repository's lock file."""
        for expression, outcome in (("MIT/Apache-2.0", 1), ("MIT OR GPL-3.0", 1), ("(MIT OR X) AND Unicode-3.0", 1), ("MIT AND X", 0)):
            self.assertEqual(allowed(expression), outcome, expression)
        refused = {package["name"]: package["license"] for package in self.everything if not allowed(package["license"] or "X")}
        self.assertEqual(refused, {})

    def test_where_from(self):
        sources = {package["source"] for package in self.everything}
        self.assertEqual(len(sources), 1, "one registry, no git repositories, no folders")
        self.assertTrue(sources.pop().startswith(("registry+", "sparse+")))

    def test_rust_version(self):
        def number(package):
            return tuple(map(int, (package["rust_version"] or "1.0").split(".")[:2]))

        newer = {package["name"]: package["rust_version"] for package in self.built if number(package) > number(self.root)}
        self.assertEqual(newer, {}, f"localsplus promises to build with {self.root['rust_version']}")

"""The public Rust API is the one that was agreed on, and every item of it has an example."""

import unittest

import rust_api
from workspace import REPOSITORY, ROOT, cargo_version, run

# An incompatible change begins a new file, as it begins a new version: while the first number is 0, the second counts.
SERIES = cargo_version().rpartition(".")[0] if cargo_version().startswith("0.") else cargo_version().partition(".")[0]
LISTING = REPOSITORY / f"tests/consumers/rust-api-{SERIES}.txt"


class PublicApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # rustdoc's JSON is not stable; the variable makes a stable toolchain write it.
        run(
            *("cargo", "rustdoc", "--lib", "--locked", "--target-dir", ROOT / "rustdoc"),
            *("--", "-Zunstable-options", "--output-format", "json"),
            cwd=REPOSITORY,
            RUSTC_BOOTSTRAP=1,
            PYO3_CONFIG_FILE=REPOSITORY / "packaging/pyo3-config.txt",
        )
        cls.api = rust_api.Api(ROOT / "rustdoc/doc/localsplus.json")

    def test_is_the_listed_one(self):
        listed = set(LISTING.read_text(encoding="utf-8").splitlines())
        found = set(self.api.lines)
        self.assertGreater(len(found), 50)
        gone, new = sorted(listed - found), sorted(found - listed)
        if gone:
            self.fail(f"no longer so, which takes another version than {SERIES} and a new file:\n" + "\n".join(gone))
        if new:
            where = LISTING.relative_to(REPOSITORY)
            self.fail(f"new: tell the changelog, and add to {where}, which is sorted:\n" + "\n".join(new))
        self.assertEqual(LISTING.read_text(encoding="utf-8").splitlines(), self.api.lines, "the order")

    def test_every_item_has_an_example(self):
        self.assertEqual(self.api.without_example, [], "see CONTRIBUTING.md")

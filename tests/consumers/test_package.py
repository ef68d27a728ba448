"""The package that `cargo publish` would upload: what is in it, and that it builds, and documents itself, alone."""

import os
import shutil
import tomllib
import unittest

from workspace import REPOSITORY, ROOT, archive, folder, run, sources

# What a build of the library runs, and nothing that could be a Python.
PROGRAMS = ("cargo", "rustc", "rustdoc", "cc", "ld", "as", "ar")


def path_without_python():
    place = folder("bin")
    for program in PROGRAMS:
        (place / program).symlink_to(shutil.which(program))
    return place


def files():
    return {str(file.relative_to(sources())) for file in sources().rglob("*") if file.is_file()}


class Contents(unittest.TestCase):
    def test_what_users_need(self):
        folders = ("src", "shims/include", "packaging", "examples", "docs")
        names = {str(file.relative_to(REPOSITORY)) for name in folders for file in (REPOSITORY / name).rglob("*")}
        tracked = set(run("git", "-C", REPOSITORY, "ls-files", "--cached", "--others", "--exclude-standard").split("\n"))
        # What is a package of its own, cargo leaves out.
        own = tuple(name.removesuffix("Cargo.toml") for name in names & tracked if name.endswith("/Cargo.toml"))
        needed = {name for name in names & tracked if not name.startswith(own)}
        needed |= {"CMakeLists.txt", "Cargo.lock", "build.rs", "README.md", "CHANGELOG.md"}
        needed |= {"LICENSE-APACHE", "LICENSE-MIT"}
        self.assertEqual(needed - files(), set(), "not in the package: see `include` in Cargo.toml")

    def test_nothing_else(self):
        top = {name.split("/")[0] for name in files()}
        made_by_cargo = {"Cargo.toml", "Cargo.toml.orig", "Cargo.lock", ".cargo_vcs_info.json"}
        wanted = {"CHANGELOG.md", "CMakeLists.txt", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "build.rs"}
        wanted |= {"docs", "examples", "packaging", "shims", "src"}
        self.assertEqual(top - made_by_cargo, wanted)
        self.assertEqual([name for name in files() if "__pycache__" in name or name.endswith((".so", ".o"))], [])

    def test_size(self):
        self.assertLess(archive().stat().st_size, 400_000, "bytes: what has become so large?")

    def test_scripts_stay_executable(self):
        self.assertTrue(os.access(sources() / "packaging/relink", os.X_OK))


class Alone(unittest.TestCase):
    """In a folder in which there is nothing else, with no Python on PATH."""

    def unpacked(self):
        made = folder("empty")
        run("tar", "-xzf", archive(), cwd=made)
        (package,) = made.iterdir()
        return package

    def cargo(self, *arguments, cwd, **changes):
        return run("cargo", *arguments, cwd=cwd, PATH=path_without_python(), CARGO_TARGET_DIR=ROOT / "package", **changes)

    def test_there_is_no_python(self):
        """Were there one, the other tests would prove nothing."""
        output = run("cargo", "check", "--locked", cwd=self.unpacked(), PATH=path_without_python(), fails=True)
        self.assertIn("no Python 3.x interpreter found", output)

    def test_builds(self):
        package = self.unpacked()
        config = package / "packaging/pyo3-config.txt"
        self.cargo("build", "--release", "--locked", cwd=package, PYO3_CONFIG_FILE=config, PYO3_BUILD_EXTENSION_MODULE=1)
        self.assertTrue((ROOT / "package/release/liblocalsplus.so").exists())

    def test_a_missing_libpython_is_named(self):
        package = self.unpacked()
        config = package / "pyo3-config.txt"
        lines = ("implementation=CPython", "version=3.11", "shared=true", "pointer_width=64", "lib_name=python3.11", "lib_dir=/nowhere")
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        output = self.cargo("check", "--locked", cwd=package, PYO3_CONFIG_FILE=config)
        self.assertIn("there is no libpython3.11.so in /nowhere", output)
        self.assertIn("apt-get install python3-dev", output)

    def test_can_be_depended_on(self):
        made = folder("dependent")
        (made / "src").mkdir()
        (made / "src/lib.rs").write_text("pub use localsplus::Frame;\n", encoding="utf-8")
        (made / "Cargo.toml").write_text(
            '[package]\nname = "dependent"\nversion = "1.0.0"\nedition = "2024"\n'
            f'[dependencies]\nlocalsplus = {{ path = "{self.unpacked()}" }}\n',
            encoding="utf-8",
        )
        shutil.copy(sources() / "Cargo.lock", made)
        config = sources() / "packaging/pyo3-config.txt"
        self.cargo("check", cwd=made, PYO3_CONFIG_FILE=config)

    def test_documents_itself_as_on_docs_rs(self):
        package = self.unpacked()
        manifest = tomllib.loads((package / "Cargo.toml").read_text(encoding="utf-8"))
        arguments = manifest["package"]["metadata"]["docs"]["rs"]["cargo-args"]
        self.cargo("doc", "--lib", "--no-deps", *arguments, cwd=package, DOCS_RS=1, RUSTDOCFLAGS="-D warnings")
        page = (ROOT / "package/doc/localsplus/struct.Frame.html").read_text(encoding="utf-8")
        self.assertIn("get_local", page)


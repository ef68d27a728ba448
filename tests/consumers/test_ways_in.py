"""CMake as part of a build, an installed localsplus, pkg-config, setuptools, a cargo package: docs/CPP.md and
docs/RUST.md, followed to the letter, in folders outside the repository."""

import re
import shutil
import unittest

from workspace import (
    BLOCKS,
    REPOSITORY,
    ROOT,
    RUST_BLOCKS,
    archive,
    cargo_version,
    cmakes,
    dynamic_section,
    environment,
    exported,
    folder,
    interpreter,
    interpreters,
    needed,
    path_with_python,
    plain_interpreters,
    prefix,
    run,
    section_sizes,
    shell,
    sources,
    tool,
    vendored,
)

STRAY_LIBRARIES = re.compile(r"^(?!(libc|libm|libdl|libpthread|libgcc_s|libstdc\+\+|ld-linux.*)\.so|liblocalsplus\.so\.1)")

# For tests that do not care where cargo builds, so that it builds the dependencies once.
SHARED_TARGET = ROOT / "cargo-target"


def project(name):
    """A project made of the files that docs/CPP.md shows."""
    made = folder(name)
    for file in ("hook.cpp", "try.py", "CMakeLists.txt", "setup.py"):
        (made / file).write_text(BLOCKS[file], encoding="utf-8")
    return made


def replace_in(file, old, new):
    text = file.read_text(encoding="utf-8")
    assert text.count(old) >= 1, f"{file.name} has no {old!r}"
    file.write_text(text.replace(old, new), encoding="utf-8")


class WaysIn(unittest.TestCase):
    def path(self, cmake=None):
        return path_with_python() if cmake is None else f"{cmake.parent}:{path_with_python()}"

    def check_module(self, made, module, linked="static"):
        """What the project built is a proper extension module, and works."""
        # A debug build has inline functions of the C++ library, which exports them for everybody.
        own = {name for name in exported(module) if not name.startswith("_ZNSt")}
        self.assertEqual(own, {"PyInit_hook"}, "only its own entry point is exported")
        self.assertEqual([name for name in needed(module) if STRAY_LIBRARIES.match(name)], [])
        self.assertEqual("liblocalsplus.so.1" in needed(module), linked == "shared")
        output = run("python3", made / "try.py", cwd=made, PATH=path_with_python(), PYTHONPATH=module.parent)
        self.assertEqual(output, BLOCKS["output"])

    def module(self, made):
        (found,) = [file for file in made.glob("hook*.so")]
        return found


class CMake(WaysIn):
    def test_add_subdirectory(self):
        for cmake in cmakes():
            with self.subTest(run(cmake, "--version").splitlines()[0]):
                made = project("add-subdirectory")
                vendored(made)
                output = shell(BLOCKS["build"], made, PATH=self.path(cmake))
                self.assertIn(BLOCKS["output"], output)
                self.check_module(made, self.module(made / "build"))
                self.assertTrue((made / "build/third_party/localsplus/cargo/release").is_dir())
                # The sources stay as they were: no target folder, no changed lock file.
                self.assertEqual(
                    {file.name for file in (made / "third_party/localsplus").iterdir()},
                    {file.name for file in (ROOT / "localsplus").iterdir()},
                )

    def test_nothing_is_built_twice(self):
        made = project("twice")
        vendored(made)
        build = ["cmake", "--build", "build"]
        run("cmake", "-S.", "-Bbuild", "-GNinja", cwd=made, PATH=self.path())
        self.assertIn("Building localsplus", run(*build, cwd=made, PATH=self.path()))
        self.assertIn("no work to do", run(*build, cwd=made, PATH=self.path()))
        source = made / "third_party/localsplus/src/lib.rs"
        source.write_text(source.read_text(encoding="utf-8") + "\n// changed\n", encoding="utf-8")
        output = run(*build, cwd=made, PATH=self.path())
        self.assertIn("Building localsplus", output)
        self.assertIn("Linking CXX shared module", output)

    def test_fetch_content_debug_shared(self):
        made = project("fetch-content")
        shutil.copy(archive(), made)
        lists = made / "CMakeLists.txt"
        replace_in(lists, "add_subdirectory(third_party/localsplus)\n", BLOCKS["FetchContent"])
        replace_in(lists, "localsplus::static", "localsplus::shared")
        script = BLOCKS["build"].replace("=Release", "=Debug")
        # Asked for explicitly, cargo's folder is the user's.
        output = shell(script, made, PATH=self.path(cmakes()[0]), CARGO_TARGET_DIR=SHARED_TARGET)
        self.assertIn(BLOCKS["output"], output)
        self.check_module(made, self.module(made / "build"), linked="shared")
        self.assertTrue((SHARED_TARGET / "debug/liblocalsplus.a").is_file())
        self.assertFalse((made / "build/_deps/localsplus-build/cargo").exists())
        (shared,) = (made / "build/_deps/localsplus-build/lib").glob("liblocalsplus.so.1.*")
        self.assertIn(".debug_info", section_sizes(shared), "a debug build can be debugged")

    def test_profile(self):
        made = project("profile")
        vendored(made)
        run("cmake", "-S.", "-Bbuild", "-DLOCALSPLUS_PROFILE=dev", cwd=made, PATH=self.path())
        run("cmake", "--build", "build", cwd=made, PATH=self.path(), CARGO_TARGET_DIR=None)
        self.assertTrue((made / "build/third_party/localsplus/cargo/debug/liblocalsplus.a").is_file())

    def test_no_cargo(self):
        made = project("no-cargo")
        vendored(made)
        # Only what is needed to get that far.
        bin = folder("bin")
        for name in ("cmake", "ninja", "cc", "c++", "gcc", "ld", "ar", "as", "python3"):
            (bin / name).symlink_to(shutil.which(name, path=self.path()))
        output = run("cmake", "-S.", "-Bbuild", "-GNinja", cwd=made, PATH=bin, HOME=bin, CARGO_HOME=bin, fails=True)
        self.assertIn("localsplus needs cargo (Rust 1.88 or later)", output)

    def test_vendored_crates(self):
        made = project("vendored")
        vendored(made)
        shell(BLOCKS["vendor"], made, PATH=self.path())
        # Nothing but what is in the tree: an empty cargo home, no network.
        output = shell(BLOCKS["build"], made, PATH=self.path(), CARGO_HOME=folder("cargo-home"))
        self.assertIn(BLOCKS["output"], output)

    def test_evaluator(self):
        made = folder("evaluator")
        vendored(made)
        output = shell(BLOCKS["evaluator"], made, PATH=self.path(cmakes()[0]), CARGO_TARGET_DIR=SHARED_TARGET)
        self.assertRegex(output, r"frames are read by: layout 3\.11\n(.*\n){3}hits 1, misses 2\n$")

    def test_evaluator_with_installed_localsplus(self):
        made = folder("evaluator-installed")
        vendored(made)
        script = BLOCKS["evaluator"].replace(" -B ", f" -DCMAKE_PREFIX_PATH={prefix()} -B ")
        self.assertNotIn("Building localsplus", shell(script, made, PATH=self.path()))


class Installed(WaysIn):
    def test_files(self):
        found = {str(file.relative_to(prefix())) for file in prefix().rglob("*") if not file.is_dir()}
        version = cargo_version()
        self.assertEqual(
            found,
            {
                "include/localsplus.h",
                "include/localsplus.hpp",
                "include/localsplus_compat.h",
                "lib/liblocalsplus.a",
                "lib/liblocalsplus.so",
                "lib/liblocalsplus.so.1",
                f"lib/liblocalsplus.so.1.{version}",
                "lib/cmake/localsplus/localsplus-config.cmake",
                "lib/cmake/localsplus/localsplus-config-version.cmake",
                "lib/pkgconfig/localsplus.pc",
                "lib/pkgconfig/localsplus-static.pc",
            },
        )
        for file in ("liblocalsplus.so", "liblocalsplus.so.1"):
            self.assertEqual((prefix() / "lib" / file).resolve().name, f"liblocalsplus.so.1.{version}")
        for file in prefix().rglob("*"):
            if file.suffix in (".cmake", ".pc"):
                self.assertNotIn(str(ROOT), file.read_text(encoding="utf-8"), f"{file.name} names a folder")

    def find_package(self, prefix_path, target, cmake):
        made = project("find-package")
        lists = made / "CMakeLists.txt"
        replace_in(lists, "add_subdirectory(third_party/localsplus)\n", BLOCKS["find_package"])
        replace_in(lists, "localsplus::static", f"localsplus::{target}")
        script = BLOCKS["build"].replace(" -B ", f" -DCMAKE_PREFIX_PATH={prefix_path} -B ")
        output = shell(script, made, PATH=self.path(cmake))
        self.assertIn(BLOCKS["output"], output)
        self.check_module(made, self.module(made / "build"), linked=target)

    def test_find_package(self):
        for cmake in cmakes():
            for target in ("static", "shared"):
                with self.subTest(target, cmake=run(cmake, "--version").splitlines()[0]):
                    self.find_package(prefix(), target, cmake)

    def test_find_package_version(self):
        for wanted, found in ((cargo_version(), True), ("0.1", True), ("0.2", False), ("0.0", False), ("1.0", False)):
            made = folder("version")
            (made / "CMakeLists.txt").write_text(
                f"cmake_minimum_required(VERSION 3.18)\nproject(version NONE)\n"
                f"find_package(localsplus {wanted} CONFIG REQUIRED)\n",
                encoding="utf-8",
            )
            with self.subTest(wanted):
                run("cmake", "-S.", "-Bbuild", f"-DCMAKE_PREFIX_PATH={prefix()}", cwd=made, fails=not found)

    def test_destdir_and_layout(self):
        made = folder("destdir")
        vendored(made)
        stage = made / "stage"
        run(
            *("cmake", "-S", "third_party/localsplus", "-B", "build", "-DCMAKE_BUILD_TYPE=Release"),
            *("-DCMAKE_INSTALL_PREFIX=/usr", "-DCMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu"),
            cwd=made,
            CARGO_TARGET_DIR=SHARED_TARGET,
        )
        run("cmake", "--build", "build", cwd=made)
        run("cmake", "--install", "build", cwd=made, DESTDIR=stage)
        self.assertEqual([file.name for file in stage.iterdir()], ["usr"])
        libraries = stage / "usr/lib/x86_64-linux-gnu"
        self.assertTrue((libraries / "liblocalsplus.so.1").is_file())
        # Taken to its place, every file finds the others.
        flags = run("pkg-config", "--cflags", "--libs", "localsplus", PKG_CONFIG_PATH=libraries / "pkgconfig")
        paths = re.findall(r"-[IL](\S+)", flags)
        self.assertEqual(len(paths), 2)
        for path in paths:
            self.assertTrue(any((stage / path).glob("*localsplus*")), path)
        self.find_package(stage / "usr", "static", cmakes()[0])

    def test_pkg_config(self):
        for package, linked in (("localsplus-static", "static"), ("localsplus", "shared")):
            with self.subTest(package):
                made = project("pkg-config")
                script = BLOCKS["pkg-config"].replace("localsplus-static", package)
                path = {"LD_LIBRARY_PATH": prefix() / "lib"} if linked == "shared" else {}
                output = shell(script, made, PATH=self.path(), PREFIX=prefix(), **path)
                self.assertEqual(output, BLOCKS["output"])
                if linked == "static":
                    self.check_module(made, made / "hook.so", linked)
                else:
                    self.assertIn("liblocalsplus.so.1", needed(made / "hook.so"))

    def test_replacing(self):
        made = folder("replacing")
        for file in ("replacing.cpp", "try_replacing.py"):
            (made / file).write_text(BLOCKS[file], encoding="utf-8")
        script = re.sub(r"\b(hook|try)\b", lambda word: {"hook": "replacing", "try": "try_replacing"}[word[1]], BLOCKS["pkg-config"])
        self.assertEqual(shell(script, made, PATH=self.path(), PREFIX=prefix()), BLOCKS["replaced"])

    def test_pkg_config_version(self):
        found = run("pkg-config", "--modversion", "localsplus", PKG_CONFIG_PATH=prefix() / "lib/pkgconfig")
        self.assertEqual(found.strip(), cargo_version())

    def test_soname(self):
        self.assertIn(
            ("SONAME", "Library soname: [liblocalsplus.so.1]"), dynamic_section(prefix() / "lib/liblocalsplus.so")
        )

    def test_case_suite_with_the_installed_library(self):
        """It is not the file that cargo made, so it is tried like that one."""
        for name in ("3.11", "3.13t", "3.15"):
            python = interpreter(name)
            with self.subTest(name):
                output = python.python(
                    *("-B", REPOSITORY / "tests/python/run.py", "--build-dir", folder("suite")),
                    *("--library", prefix() / f"lib/liblocalsplus.so.1.{cargo_version()}"),
                    *("--include", prefix() / "include", *python.includes("--python-include")),
                    *("test_rules", "test_entry", "test_cells", "test_boundary", "test_generators"),
                )
                self.assertRegex(output, r"\n[1-9]\d* passed, 0 failed")


class Setuptools(WaysIn):
    def site_packages(self):
        import setuptools

        return setuptools.__path__[0].removesuffix("/setuptools")

    def test_extension(self):
        made = project("setuptools")
        vendored(made)
        output = shell(BLOCKS["setuptools"], made, PATH=self.path(), PYTHONPATH=self.site_packages())
        self.assertTrue(output.endswith(BLOCKS["output"]), output)
        self.check_module(made, self.module(made))

    def test_many_pythons_one_library(self):
        made = project("wheels")
        vendored(made)
        pythons = plain_interpreters()
        output = shell(
            BLOCKS["wheels"],
            made,
            PYTHONS=" ".join(python.executable for python in pythons),
            PYTHONPATH=self.site_packages(),
        )
        self.assertEqual(output.count("Compiling localsplus"), 1, "built once, for the first Python")
        for python in pythons:
            tag = f"cpython-{python.name.replace('.', '')}"
            output = python.python(made / "try.py", PYTHONPATH=made / "build" / f"lib-{tag}")
            self.assertEqual(output, BLOCKS["output"], python.name)

    def test_static_library_is_the_one_cmake_makes(self):
        made = folder("static-library")
        vendored(made)
        script = made / "third_party/localsplus/packaging/localsplus_build.py"
        output = run("python3", script, made / "out", PATH=self.path(), CARGO_TARGET_DIR=SHARED_TARGET)
        ours, theirs = (prefix() / "lib/liblocalsplus.a"), output.splitlines()[-1]
        for file in ours, theirs:
            self.assertEqual(run("ar", "t", file), "localsplus.o\n")
        self.assertEqual(section_sizes(ours).keys(), section_sizes(theirs).keys())

    def test_no_cargo(self):
        made = folder("no-cargo")
        vendored(made)
        script = made / "third_party/localsplus/packaging/localsplus_build.py"
        output = run(tool("python3"), script, made / "out", PATH=folder("empty"), fails=True)
        self.assertIn("localsplus needs cargo (Rust 1.88 or later)", output)


class Rust(unittest.TestCase):
    def test_program(self):
        made = folder("rust")
        vendored(made)
        (made / "src").mkdir()
        for file in ("Cargo.toml", "src/main.rs"):
            (made / file).write_text(RUST_BLOCKS[file], encoding="utf-8")
        # The crates that are there already.
        shutil.copy(sources() / "Cargo.lock", made)
        output = shell(RUST_BLOCKS["rpath"] + RUST_BLOCKS["run"], made, PATH=path_with_python())
        addresses = re.compile(r"0x[0-9a-f]+")
        self.assertEqual(addresses.sub("0x", output), addresses.sub("0x", RUST_BLOCKS["output"]))


class Documentation(unittest.TestCase):
    def test_the_hook_is_short(self):
        lines = BLOCKS["hook.cpp"].splitlines()
        self.assertLessEqual(len([line for line in lines if line.strip()]), 26)


def setUpModule():
    # Everything that follows is offline.
    from workspace import sources

    sources()
    assert environment()["CARGO_NET_OFFLINE"] == "true"


class Program(unittest.TestCase):
    """`cargo install` keeps the program localsplus, and nothing else."""

    def test_cargo_install(self):
        made = folder("package")
        # What a registry would have.
        package = ("cargo", "package", "--allow-dirty", "--no-verify", "--target-dir", made / "target")
        run(*package, cwd=sources())
        (crate,) = (made / "target/package").glob("localsplus-*.crate")
        run("tar", "-xf", crate, "-C", made)
        (unpacked,) = made.glob("localsplus-*/")
        install = ("cargo", "install", "--locked", "--path", unpacked, "--features", "embedded-library", "--root", made)
        environment = {"CARGO_TARGET_DIR": made / "target", "PYO3_BUILD_EXTENSION_MODULE": "1"}
        run(*install, PATH=path_with_python(), **environment)
        shutil.rmtree(unpacked)
        shutil.rmtree(made / "target")

        temporary = folder("temporary")
        for interpreter in interpreters().values():
            with self.subTest(interpreter.name):
                command = (made / "bin/localsplus", "doctor", interpreter.executable)
                output = run(*command, TMPDIR=temporary, **interpreter.env)
                self.assertIn(", built in\n", output)
                self.assertRegex(output, r"\n  WORKS: ")
        self.assertEqual(list(temporary.iterdir()), [], "the library was left behind")

"""Builds the extensions that use localsplus as its users do: strictly, with the public headers alone."""

import os
import shlex
import shutil
import subprocess

import support

REPOSITORY = os.path.dirname(os.path.dirname(support.HERE))

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


def build_extension(name, source, standard):
    """Compiles the file `source`, C or C++ as `standard` says, into the extension `name`."""
    toolchain = support.toolchain
    if standard.startswith("c++"):
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        if shutil.which(compiler[0]) is None:
            raise AssertionError(f"no C++ compiler: {compiler[0]} is not on PATH; CXX names another one")
    else:
        compiler = toolchain.compiler
    # Only our headers are held to these warnings, hence -isystem for Python's.
    includes = [option for path in toolchain.python_includes for option in ("-isystem", path)]
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout
    if "clang" not in version:
        # gcc would follow links between headers of debug and release builds.
        includes.append("-fno-canonical-system-headers")
    built = os.path.join(toolchain.build_dir, f"{name}.o")
    command = [*compiler, f"-std={standard}", "-O2", "-g", *STRICT, "-fPIC", "-fvisibility=hidden"]
    command += ["-I" + toolchain.include, *includes, "-c", source, "-o", built]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0 or process.stderr:
        raise AssertionError(f"{shlex.join(command)}\n{process.stderr}")
    libraries = ["-lstdc++"] if standard.startswith("c++") else []
    return toolchain.extension(name, [built, *libraries], link_library=True)


def build_crate(folder, profile="release"):
    """A crate of its own, built once for all interpreters next to the library under test: its shared library."""
    name = os.path.basename(folder)
    target = os.path.join(os.path.dirname(os.path.dirname(support.toolchain.library)), name)
    manifest = os.path.join(REPOSITORY, folder, "Cargo.toml")
    if shutil.which("cargo") is None:
        raise AssertionError(f"no cargo on PATH to build {folder} with")
    command = ["cargo", "build", "--quiet", "--profile", profile, "--manifest-path", manifest, "--target-dir", target]
    environment = {
        **os.environ,
        "PYO3_BUILD_EXTENSION_MODULE": "1",
        # Without asking any interpreter.
        "PYO3_CONFIG_FILE": os.path.join(REPOSITORY, "packaging", "pyo3-config.txt"),
    }
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    if process.returncode != 0:
        raise AssertionError(f"{shlex.join(command)}\n{process.stderr}")
    return os.path.join(target, "debug" if profile == "dev" else profile, f"lib{name}.so")

"""Builds localsplus for a setup.py: see "setuptools" in docs/CPP.md.

Python 3.8 or later; needs cargo, and on ELF platforms GNU binutils.
"""

import os
import subprocess
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(_HERE)
INCLUDE = os.path.join(ROOT, "shims", "include")
_ELF = sys.platform not in ("win32", "cygwin", "darwin")


def static_library(folder, profile="release"):
    """Builds the static library into `folder` and answers its path. Cargo builds into CARGO_TARGET_DIR if that is set,
    else below `folder`; what is up to date is not built again, whichever Python asks."""
    folder = os.path.abspath(folder)
    os.makedirs(folder, exist_ok=True)
    # Relative to where cargo runs, like cargo's own reading of it.
    target = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR") or os.path.join(folder, "cargo"))
    environment = dict(os.environ, PYO3_BUILD_EXTENSION_MODULE="1")
    if sys.platform != "win32":
        # As in CMakeLists.txt: pyo3-ffi is told of an interpreter instead of looking for one.
        environment["PYO3_CONFIG_FILE"] = os.path.join(_HERE, "pyo3-config.txt")
    cargo = [os.environ.get("CARGO", "cargo"), "rustc", "--lib", "--crate-type", "staticlib", "--locked"]
    cargo += ["--profile", profile, "--target-dir", target]
    try:
        subprocess.run(cargo, cwd=ROOT, env=environment, check=True)
    except FileNotFoundError:
        raise SystemExit("localsplus needs cargo (Rust 1.88 or later): it is not on PATH") from None
    name = "localsplus.lib" if sys.platform == "win32" else "liblocalsplus.a"
    parts = [target, os.environ.get("CARGO_BUILD_TARGET", ""), "debug" if profile == "dev" else profile, name]
    archive = os.path.join(*filter(None, parts))
    if not _ELF:
        return archive
    static = os.path.join(folder, name)
    script = os.path.join(_HERE, "relink")
    newest = max(os.path.getmtime(archive), os.path.getmtime(script))
    if not os.path.exists(static) or os.path.getmtime(static) < newest:
        environment["DEBUG_INFO"] = str(int(profile == "dev"))
        environment.pop("CFLAGS", None)  # those of the extension
        environment.pop("LDFLAGS", None)
        header = os.path.join(INCLUDE, "localsplus.h")
        shared = os.path.join(folder, "liblocalsplus.so")
        command = [script, archive, header, static, shared, "liblocalsplus.so"]
        subprocess.run(command, env=environment, check=True)
    return static


def link(extension, folder, profile="release"):
    """Makes a setuptools.Extension include and link localsplus, built into `folder`."""
    library = static_library(folder, profile)
    extension.include_dirs.append(INCLUDE)
    extension.define_macros.append(("LOCALSPLUS_STATIC", None))
    extension.extra_objects.append(library)
    # The library is as good as a source: a newer one is linked anew.
    extension.depends.append(library)
    if _ELF:
        extension.libraries += ["gcc_s", "pthread", "dl", "m"]
    return extension


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: localsplus_build.py FOLDER; prints the path of the static library")
    print(static_library(sys.argv[1]))

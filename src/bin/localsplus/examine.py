# What an interpreter runs for `localsplus doctor`: it says what it is, then loads
# the library, whose path is the first argument, and hands on what that says. In any
# Python from 2.7 on, hence the old-fashioned ways. Every line is MARK and a record,
# as src/report.rs describes them.
MARK = ("localsplus-doctor\t")  # a shell goes no further than this bracket

import os
import sys

# A file in the current folder must not be taken for a module.
sys.path[:] = [folder for folder in sys.path if folder not in ("", ".")]


def write(line):
    line = MARK + line + "\n"
    if not isinstance(line, bytes):
        line = line.encode("utf-8", "backslashreplace")
    os.write(1, line)


def say(*words):
    escaped = []
    for word in words:
        for character, name in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
            word = word.replace(character, name)
        escaped.append(word)
    write("\t".join(escaped))


def identity():
    import platform
    import sysconfig

    level = {"alpha": "a", "beta": "b", "candidate": "rc"}.get(sys.version_info[3], "")
    version = "%d.%d.%d" % sys.version_info[:3] + (level + str(sys.version_info[4]) if level else "")
    words = []
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        words.append("free-threaded")
    if hasattr(sys, "gettotalrefcount"):
        words.append("debug")
    if hasattr(sys, "getobjects"):
        words.append("trace-refs")
    executable = sys.executable or ""
    if sys.prefix != getattr(sys, "base_prefix", sys.prefix):
        executable = getattr(sys, "_base_executable", executable)
    say("implementation", platform.python_implementation())
    say("version", version)
    say("number", "%d" % (sys.version_info[0] * 256 + sys.version_info[1]))
    say("build", " ".join(words) or "release")
    say("bits", "64" if sys.maxsize > 2**32 else "32")
    say("platform", sysconfig.get_platform())
    say("executable", executable)
    jit = getattr(sys, "_jit", None)
    if jit is not None and jit.is_enabled():
        say("mode", "JIT on")
    if "free-threaded" in words:
        say("mode", "GIL on" if sys._is_gil_enabled() else "GIL off")
    if os.environ.get("LOCALSPLUS_PROVIDER"):
        say("mode", "LOCALSPLUS_PROVIDER=" + os.environ["LOCALSPLUS_PROVIDER"])


def main():
    identity()
    if len(sys.argv) < 2:
        return
    try:
        import faulthandler

        faulthandler.enable()
    except Exception:
        pass  # it only tells more about a crash
    try:
        import ctypes

        load = ctypes.PyDLL
    except (ImportError, AttributeError) as error:
        say("unloadable", "it has no ctypes to load a library with: %s" % error)
        return
    say("loading")
    try:
        library = load(sys.argv[1])
    except OSError as error:
        say("unloadable", "the library does not load in it: %s" % error)
        return
    try:
        report = library.localsplus_report
    except AttributeError:
        say("other-library")
        return
    report.argtypes = [ctypes.py_object]
    say("inspecting")
    report(write)


main()

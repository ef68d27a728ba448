"""What the libraries give to, take from and do to whatever they are linked into."""

import ctypes
import os
import re
import shutil
import unittest

from workspace import (
    HEADERS,
    REPOSITORY,
    Failed,
    cargo_archive,
    declared_functions,
    dynamic_section,
    exported,
    folder,
    interpreter,
    interpreters,
    needed,
    prefix,
    run,
    section_sizes,
    symbols,
)

# Rust's standard library calls these. All of them are in the libraries that a C++ program links anyway.
SYSTEM_LIBRARIES = {"libc.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "libm.so.6", "libdl.so.2", "libpthread.so.0"}

# Another Rust library: panics, threads, collections, so that much of the standard library comes along.
OTHER_CRATE = """\
#[no_mangle]
pub extern "C" fn other_catches(size: i32) -> i32 {
    std::panic::set_hook(Box::new(|_| {}));
    let caught = std::panic::catch_unwind(|| {
        let table: std::collections::HashMap<i32, i32> = (0..size).map(|i| (i, i)).collect();
        std::thread::spawn(move || table[&-1]).join().unwrap()
    });
    caught.is_err() as i32
}
"""

# A module that reads a frame and whose init() reports what went wrong.
MODULE = """\
#include <localsplus.h>
#ifdef WITH_OTHER
int other_catches(int);
#else
#define other_catches(size) 1
#endif
static PyObject *first(PyObject *self, PyObject *address)
{
    PyObject *value;
    (void)self;
    struct _PyInterpreterFrame *frame = (struct _PyInterpreterFrame *)PyLong_AsVoidPtr(address);
    int found = localsplus_get_local(frame, 0, &value);
    return found < 0 ? NULL : Py_BuildValue("(Ni)", found ? value : Py_NewRef(Py_None), other_catches(3));
}
static PyObject *init(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return localsplus_init() < 0 ? NULL : PyUnicode_FromString(localsplus_provider());
}
static PyObject *hook(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(_PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) != _PyEval_EvalFrameDefault);
}
static PyMethodDef methods[] = {
    {"first", first, METH_O, 0}, {"init", init, METH_NOARGS, 0}, {"hook", hook, METH_NOARGS, 0}, {0, 0, 0, 0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAME", 0, -1, methods, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_NAME(void)
{
    PyObject *made = PyModule_Create(&module);
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED);
#endif
    return made;
}
"""

# The frame of a frame object, from its public size: header, f_back, f_frame.
FRAME_ADDRESS = """\
import ctypes, os, sys, threading
def address(frame):
    return ctypes.c_size_t.from_address(id(frame) + object.__basicsize__ + ctypes.sizeof(ctypes.c_size_t)).value
"""

PROGRAM = """\
#include <localsplus.h>
#include <stdio.h>
static PyObject *evaluate(PyThreadState *tstate, struct _PyInterpreterFrame *frame, int throwflag)
{
    PyObject *value = NULL;
    PyObject *names = localsplus_names(frame);
    if (names != NULL && localsplus_get_local(frame, 0, &value) == 1 && PyLong_Check(value)) {
        printf("%s=%ld\\n", PyUnicode_AsUTF8(PyTuple_GetItem(names, 0)), PyLong_AsLong(value));
    }
    PyErr_Clear();
    Py_XDECREF(names);
    Py_XDECREF(value);
    return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
}
int main(void)
{
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.site_import = 0;
    if (PyStatus_Exception(Py_InitializeFromConfig(&config)) || localsplus_init() < 0) {
        PyErr_Print();
        return 1;
    }
    puts(localsplus_provider());
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluate);
    int failed = PyRun_SimpleString("def f(answer): pass\\nf(42)\\n");
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), _PyEval_EvalFrameDefault);
    return Py_FinalizeEx() < 0 || failed;
}
"""


def static_library():
    return prefix() / "lib/liblocalsplus.a"


def shared_library():
    return (prefix() / "lib/liblocalsplus.so").resolve()


def build_module(where, name, *link, python="3.11", options=()):
    source = where / f"{name}.c"
    source.write_text(MODULE.replace("NAME", name), encoding="utf-8")
    module = where / f"{name}.so"
    run("gcc", "-shared", "-fPIC", "-O2", *options, "-I", HEADERS, *interpreter(python).includes(), source, *link,
        "-o", module, "-lgcc_s")
    return module


def other_library():
    made = folder("other")
    (made / "src").mkdir()
    (made / "src/lib.rs").write_text(OTHER_CRATE, encoding="utf-8")
    (made / "Cargo.toml").write_text(
        '[package]\nname = "other"\nversion = "0.1.0"\n[lib]\ncrate-type = ["staticlib"]\n', encoding="utf-8"
    )
    run("cargo", "build", "--release", "--offline", "--target-dir", made / "target", cwd=made)
    return made / "target/release/libother.a"


class Static(unittest.TestCase):
    def test_one_object_that_defines_the_functions_only(self):
        self.assertEqual(run("ar", "t", static_library()), "localsplus.o\n")
        visible = [symbol for symbol in symbols(static_library()) if symbol.defined and symbol.visible]
        self.assertEqual({symbol.name for symbol in visible}, declared_functions())
        self.assertEqual({symbol.visibility for symbol in visible}, {"HIDDEN"})
        # Groups are merged by name with those of other objects; common and unique symbols, too.
        self.assertEqual(run("readelf", "--section-groups", static_library()).count("COMDAT"), 0)
        self.assertFalse([symbol.name for symbol in visible if symbol.section == "COM" or symbol.binding == "UNIQUE"])

    def test_the_check_sees_what_cargo_leaves(self):
        visible = {symbol.name for symbol in symbols(cargo_archive()) if symbol.defined and symbol.visible}
        self.assertIn("rust_eh_personality", " ".join(visible))
        self.assertGreater(len(visible), 100)

    def test_nothing_runs_at_load_time(self):
        for kind in (".init_array", ".ctors", ".preinit_array", ".fini_array", ".init"):
            self.assertFalse([name for name in section_sizes(static_library()) if name.startswith(kind)], kind)
        self.assertIn(".init_array.00099", section_sizes(cargo_archive()), "what packaging/relink takes out")

    def test_beside_another_rust_library(self):
        other = other_library()
        for order in ((static_library(), other), (other, static_library())):
            for whole in (False, True):
                made = folder("beside")
                link = ["-Wl,--whole-archive", *order, "-Wl,--no-whole-archive"] if whole else order
                module = build_module(made, "beside", *link, options=("-DLOCALSPLUS_STATIC", "-DWITH_OTHER"))
                self.assertEqual(exported(module) & declared_functions(), set())
                script = f"{FRAME_ADDRESS}\nimport beside\ndef f(x): return beside.first(address(sys._getframe()))\nprint(f('x'))"
                self.assertEqual(interpreter("3.11").python("-c", script, PYTHONPATH=made), "('x', 1)\n")

    def test_beside_another_rust_library_needs_relink(self):
        with self.assertRaisesRegex(Failed, "multiple definition"):
            build_module(folder("raw"), "raw", cargo_archive(), other_library(), options=("-DWITH_OTHER",))

    def test_beside_a_static_libpython(self):
        tried = []
        for name in ("3.11", "3.12", "3.13", "3.13t"):
            python = interpreters().get(name)
            if python is None:
                continue
            script = "import sysconfig as s; print(s.get_config_var('LIBPL'), s.get_config_var('LIBRARY'), s.get_config_var('LIBS'), s.get_config_var('SYSLIBS'), s.get_config_var('prefix'), sep='\\n')"
            folder_, library, libs, syslibs, home = python.python("-c", script).splitlines()
            # With a shared libpython, LIBRARY is still the static one.
            library = os.path.join(folder_, library)
            if not library.endswith(".a") or not os.path.exists(library):
                continue
            made = folder("embedding")
            (made / "program.c").write_text(PROGRAM, encoding="utf-8")
            for order in ((library, static_library()), (static_library(), library)):
                run("gcc", "-O2", "-DLOCALSPLUS_STATIC", "-I", HEADERS, *python.includes(), made / "program.c", "-Wl,-E",
                    *order, *libs.split(), *syslibs.split(), "-lgcc_s", "-o", made / "program")
                output = run(made / "program", PYTHONHOME=home)
                self.assertEqual(output, f"layout {name}\nanswer=42\n")
                self.assertNotIn("libpython", " ".join(needed(made / "program")))
            defined = {s.name for s in symbols(library) if s.defined and s.visible}
            ours = {s.name for s in symbols(static_library()) if s.defined and s.visible}
            self.assertGreater(len(defined), 1000)
            self.assertEqual(defined & ours, set())
            tried.append(name)
        if not tried:
            self.skipTest("no interpreter here has a static libpython")

    def test_no_python_symbol_is_defined(self):
        for file in (static_library(), shared_library()):
            own = {symbol.name for symbol in symbols(file) if symbol.defined}
            self.assertEqual([name for name in own if re.match(r"_?Py[A-Z_]", name)], [], file)

    def test_needs_nothing_unusual(self):
        """Linked into a C program, every reference is found in libc, libgcc_s or the interpreter."""
        source = folder("plain") / "plain.c"
        source.write_text("#include <localsplus.h>\nint main(void) { return localsplus_abi_version() - 1; }\n")
        python = interpreter("3.11")
        library = python.python("-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))").strip()
        flags = run("pkg-config", "--libs", "localsplus-static", PKG_CONFIG_PATH=prefix() / "lib/pkgconfig").split()
        program = source.with_suffix("")
        run("gcc", "-DLOCALSPLUS_STATIC", "-I", HEADERS, *python.includes(), source, *flags, "-o", program,
            f"-L{library}", f"-Wl,-rpath,{library}", "-lpython3.11", "-Wl,-z,defs", "-Wl,--fatal-warnings")
        run(program)


class Shared(unittest.TestCase):
    def test_exports(self):
        self.assertEqual(exported(shared_library()), declared_functions())

    def test_dynamic_section(self):
        tags = dict(dynamic_section(shared_library()))
        self.assertEqual(needed(shared_library()) - SYSTEM_LIBRARIES, set())
        self.assertNotIn("TEXTREL", tags)
        self.assertNotIn("TEXTREL", tags.get("FLAGS", ""))
        for path in ("RPATH", "RUNPATH"):
            self.assertNotIn(path, tags)
        self.assertIn("BIND_NOW", tags["FLAGS"])
        self.assertIn("SYMBOLIC", tags["FLAGS"])

    def test_nothing_runs_at_load_time(self):
        """Nothing but what every shared library has."""
        empty = folder("empty") / "empty.so"
        run("gcc", "-shared", "-fPIC", "-xc", os.devnull, "-o", empty)
        for section in (".init", ".init_array", ".preinit_array"):
            ours, theirs = (section_sizes(file).get(section) for file in (shared_library(), empty))
            self.assertEqual(ours, theirs, section)

    def test_the_stack_is_not_executable(self):
        for file in (shared_library(),):
            (line,) = re.findall(r"GNU_STACK.*", run("readelf", "-lW", file))
            self.assertNotIn("E", line.split()[-2], line)

    def test_undefined_python_symbols_are_in_every_interpreter(self):
        wanted = {s.name for s in symbols(shared_library(), dynamic=True) if not s.defined and re.match(r"_?Py", s.name)}
        self.assertGreater(len(wanted), 20)
        # One that is in the stable ABI: see runtime.rs for why not Py_DecRef.
        self.assertEqual([name for name in wanted if name.startswith("_Py")], ["_Py_DecRef"])
        script = "import ctypes, sys; print([n for n in sys.argv[1:] if not hasattr(ctypes.pythonapi, n)])"
        for name, python in interpreters().items():
            self.assertEqual(python.python("-c", script, *wanted), "[]\n", name)

    def test_loads_lazily_without_an_interpreter(self):
        library = ctypes.CDLL(str(shared_library()), mode=os.RTLD_LAZY)
        self.assertEqual(library.localsplus_abi_version(), 1)


class Sizes(unittest.TestCase):
    """docs/CPP.md states them; a tenth more or less is still the same."""

    def stripped(self, file):
        copy = folder("stripped") / file.name
        shutil.copy(file, copy)
        run("strip", "--strip-all", copy)
        return copy.stat().st_size

    def test_stated_sizes(self):
        text = (REPOSITORY / "docs/CPP.md").read_text(encoding="utf-8")
        (stated,) = re.findall(r"the shared library takes (\d+) KiB, and the static one\s+adds (\d+) KiB", text)
        made = folder("sizes")
        with_library = build_module(made, "with", static_library(), options=("-DLOCALSPLUS_STATIC", "-Wl,--gc-sections"))
        stub = made / "stub.c"
        functions = "".join(f"int {name}(void) {{ return 0; }}\n" for name in declared_functions())
        stub.write_text(functions, encoding="utf-8")
        without = build_module(made, "without", stub, options=("-fvisibility=hidden",))
        sizes = self.stripped(shared_library()), self.stripped(with_library) - self.stripped(without)
        print(f"\nstripped: shared library {sizes[0]} bytes, static one in a module {sizes[1]} bytes more")
        for kib, size in zip(map(int, stated), sizes, strict=True):
            self.assertLess(abs(size / 1024 - kib), kib / 10, f"{size} bytes, {kib} KiB stated")


class TwoCopies(unittest.TestCase):
    """Two wheels in one process, each with its own localsplus."""

    SCRIPT = """
import one, two
def f(x, module): return module.first(address(sys._getframe()))[0]
"""

    def copies(self, kind, python):
        made = folder("copies")
        for name in ("one", "two"):
            if kind == "static":
                build_module(made, name, static_library(), python=python, options=("-DLOCALSPLUS_STATIC",))
            else:
                # Same file name, same SONAME, as two wheels would bring them, in two folders.
                (made / name).mkdir()
                library = made / name / "liblocalsplus.so.1"
                shutil.copy(shared_library(), library)
                build_module(made, name, library, f"-Wl,-rpath,{made / name}", python=python)
        return made

    def python(self, made, script, python, **environment):
        return interpreter(python).python("-c", FRAME_ADDRESS + script, PYTHONPATH=made, **environment)

    def test_both_read(self):
        for kind in ("static", "shared"):
            for python in ("3.11", "3.13"):
                with self.subTest(kind, python=python):
                    script = self.SCRIPT + "print(f('x', one), f('y', two), one.init() == two.init(), one.hook())"
                    self.assertEqual(self.python(self.copies(kind, python), script, python), "x y True False\n")

    def test_one_refuses_the_other_does_not(self):
        """Neither state nor calls are shared, not even when all symbols are process-wide."""
        made = self.copies("static", "3.11")
        script = """
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
import one
os.environ["LOCALSPLUS_PROVIDER"] = "nonsense"
libc = ctypes.CDLL(None)
libc.setenv(b"LOCALSPLUS_PROVIDER", b"nonsense", 1)
try:
    one.init()
except RuntimeError as error:
    print("one:", "nonsense" in str(error))
libc.unsetenv(b"LOCALSPLUS_PROVIDER")
import two
print("two:", two.init())
def f(x): return two.first(address(sys._getframe()))[0]
print(f("x"))
"""
        self.assertEqual(self.python(made, script, "3.11"), "one: True\ntwo: layout 3.11\nx\n")
        # The shared library, loaded twice from two files with process-wide symbols: calls stay inside each.
        script = """
import shutil, tempfile
os.environ["LOCALSPLUS_PROVIDER"] = "nonsense"
libc = ctypes.CDLL(None)
first, second = sys.argv[1:]
def load(path):
    library = ctypes.PyDLL(path, mode=os.RTLD_GLOBAL | os.RTLD_NOW)
    library.localsplus_provider.restype = ctypes.c_char_p
    return library
a = load(first)
print("first:", a.localsplus_provider())
libc.unsetenv(b"LOCALSPLUS_PROVIDER")
b = load(second)
def f(x):
    result = ctypes.py_object()
    found = b.localsplus_get_local(ctypes.c_void_p(address(sys._getframe())), ctypes.c_ssize_t(0), ctypes.byref(result))
    return found, result.value
print("second:", b.localsplus_provider(), f("x"))
"""
        copy = folder("copy") / "other.so"
        # Another SONAME: with the same one the loader would hand out the first.
        library = cargo_archive()
        run(REPOSITORY / "packaging/relink", library, HEADERS / "localsplus.h", copy.with_suffix(".a"), copy, "other.so")
        output = interpreter("3.11").python("-c", FRAME_ADDRESS + script, shared_library(), copy)
        self.assertEqual(output, "first: None\nsecond: b'layout 3.11' (1, 'x')\n")

    def test_both_choose_at_the_same_time(self):
        script = self.SCRIPT + """
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)
providers = set()
def work(module):
    barrier.wait()
    providers.add(module.init())
threads = [threading.Thread(target=work, args=[module]) for module in (one, two) * 4]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(providers), f('x', one), f('y', two), one.hook())
"""
        for python in ("3.11", "3.13", "3.13t"):
            made = self.copies("static", python)
            with self.subTest(python):
                for _ in range(20):
                    self.assertEqual(self.python(made, script, python), "1 x y False\n")


class Relink(unittest.TestCase):
    """packaging/relink itself."""

    def test_bad_use(self):
        script = REPOSITORY / "packaging/relink"
        self.assertIn("usage:", run(script, fails=True))
        made = folder("relink")
        (made / "empty.h").write_text("", encoding="utf-8")
        arguments = (cargo_archive(), made / "empty.h", made / "a", made / "so", "name")
        self.assertIn("declares no function", run(script, *arguments, fails=True))
        self.assertEqual({file.name for file in made.iterdir()}, {"empty.h"}, "nothing is left behind")

    def test_a_function_that_is_missing(self):
        """A header that is newer than the library is found out when the library is made."""
        made = folder("newer")
        text = (HEADERS / "localsplus.h").read_text(encoding="utf-8")
        (made / "h").write_text(text + "\nLOCALSPLUS_API int localsplus_of_tomorrow(void);\n", encoding="utf-8")
        arguments = (cargo_archive(), made / "h", made / "a", made / "so", "name")
        self.assertIn("localsplus_of_tomorrow", run(REPOSITORY / "packaging/relink", *arguments, fails=True))
        self.assertEqual({file.name for file in made.iterdir()}, {"h"})

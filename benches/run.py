"""Times localsplus beside its peers in the interpreter that runs this file.

    python benches/run.py --library target/release/liblocalsplus.so --build-dir DIR

See docs/SPEED.md for what the figures mean. `matrix/run --bench` does this on every release row.
"""

import argparse
import functools
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
# Where a loop happens to start in a cache line can be worth 20%: each layout, of the
# peers' code and of ours, is compiled and timed, and the best of each way counts.
CODE_LAYOUTS = [
    ("-falign-functions=16", ""),
    ("-falign-functions=32", "-align-loops=32"),
    ("-falign-functions=64 -falign-loops=32", "-align-all-functions=6 -align-all-nofallthru-blocks=5"),
]


def function(slots, namespace):
    """A closure of `slots` slots, of which 9 in 17 are set at entry: arguments, two
    of seven cells, and two free variables; the rest are locals."""
    free = max(1, slots * 2 // 17)
    arguments = max(2, slots * 7 // 17)
    cells = max(1, arguments * 2 // 7)
    rest = slots - free - arguments
    names = {kind: [f"{kind}{i}" for i in range(n)] for kind, n in (("a", arguments), ("f", free), ("r", rest))}
    lines = [f"def outer({', '.join(names['f'])}):", f" def inner({', '.join(names['a'])}):"]
    lines.append("  if False:")
    lines += [f"   {name} = None" for name in names["r"]] or ["   pass"]
    captured = ", ".join(names["a"][:cells])
    lines.append(f"  (lambda: ({captured},))")
    lines.append(f"  ({', '.join(names['f'])},)")
    lines.append("  if look is not None: return look()")
    lines.append(" return inner")
    exec("\n".join(lines), namespace)
    inner = namespace["outer"](*[object() for _ in range(free)])
    return inner, tuple(object() for _ in range(arguments))


def rust_libraries(options, alignment):
    """localsplus, as given if its code is laid out as usual, and the Rust API in a
    library of its own, each built once for all interpreters."""
    folder = options.library.parent.parent / "bench-layouts" / (alignment.replace(" ", "") or "usual")
    environment = {**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1"}
    environment.pop("CARGO_TARGET_DIR", None)
    environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(f"-Cllvm-args={argument}" for argument in alignment.split())

    def build(manifest):
        command = ["cargo", "build", "--quiet", "--release", "--lib", "--manifest-path", str(manifest)]
        subprocess.run([*command, "--target-dir", str(folder)], check=True, env=environment)

    build(HERE / "rust_caller/Cargo.toml")
    if alignment:
        build(ROOT / "Cargo.toml")
    ours = folder / f"release/{options.library.name}" if alignment else options.library
    return ours, folder / "release/librust_caller.so"


def build(options, variant, flags, libraries):
    target = options.build_dir / f"variant{variant}"
    target.mkdir(parents=True, exist_ok=True)
    module = target / "_bench.so"
    include = options.python_include or [sysconfig.get_path("include")]
    common = ["-O2", "-DNDEBUG", "-fPIC", *flags.split(), "-I", str(ROOT / "shims/include")]
    for directory in include:
        common += ["-I", directory, "-I", f"{directory}/internal"]
    objects = []
    for compiler, source in ("cc -std=gnu11", "_bench.c"), ("cc -std=gnu11", "peers.c"), ("c++ -std=gnu++17", "mapping.cpp"):
        objects.append(str(target / f"{source}.o"))
        subprocess.run([*compiler.split(), *common, "-c", str(HERE / "c" / source), "-o", objects[-1]], check=True)
    command = ["c++", "-shared", "-o", str(module), *objects]
    for library in libraries:
        command += [str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, check=True)
    return load(module)


def load(module):
    loader = importlib.machinery.ExtensionFileLoader("_bench", str(module))
    spec = importlib.util.spec_from_file_location("_bench", module, loader=loader)
    loaded = importlib.util.module_from_spec(spec)
    loader.exec_module(loaded)
    return loaded


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--build-dir", type=pathlib.Path, required=True)
    parser.add_argument("--python-include", action="append")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--variant", type=int, help="time one code layout only and print JSON")
    parser.add_argument("--instructions", action="store_true", help="count a call's instructions with valgrind instead")
    parser.add_argument("--way", help="(what --instructions runs under valgrind)")
    options = parser.parse_args()
    options.library = options.library.resolve()
    options.build_dir = options.build_dir.resolve()
    if options.instructions:
        count_instructions(options)
    elif options.way:
        run_way(options)
    elif options.variant is None:
        results = []
        for variant in range(len(CODE_LAYOUTS)):
            command = [sys.executable, __file__, *sys.argv[1:], "--variant", str(variant)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            results.append(json.loads(output))
        report(options, results)
    else:
        print(json.dumps(time_one(options)))


def time_one(options):
    flags, alignment = CODE_LAYOUTS[options.variant]
    bench = build(options, options.variant, flags, rust_libraries(options, alignment))
    figures = {"init": bench.init(), "provider": bench.provider()}
    rounds = options.rounds
    for slots in (5, 17, 300):
        repeat = max(20, 5000 // slots)
        namespace = {"look": None}
        inner, arguments = function(slots, namespace)
        count = len(inner.__code__.co_varnames) + len(inner.__code__.co_freevars)
        assert count == slots, (count, slots)

        def at_entry(ways, slot=0, repeat=repeat, inner=inner, arguments=arguments):
            return bench.at_entry(inner, arguments, ways, slot, rounds, repeat)

        alls = ["all_localsplus", "all_rust", "all_plain", "all_floor", "all_mapping", "all_mapping_strong"]
        figures[f"entry {slots}"] = at_entry(alls)
        figures[f"entry {slots} each"] = at_entry(["each_localsplus", "each_plain"])
        if slots == 17:
            for name, slot in slot_kinds(inner):
                figures[f"one {name}"] = at_entry(["one_localsplus", "one_rust", "one_plain"], slot, 1000)
            plain = dict(slot_kinds(inner))["plain"]
            one_by_name = ["one_localsplus", "one_getvar"]
            namespace["look"] = functools.partial(bench.running, one_by_name, plain, rounds, 1000)
            figures["started one"] = inner(*arguments)
        # Called by C, so that the caller, whose frame is read, is `inner` itself.
        started = ["all_localsplus", "all_plain", "all_dict"]
        namespace["look"] = functools.partial(bench.running, started, 0, rounds, repeat)
        figures[f"started {slots}"] = inner(*arguments)
    for name, (program, arguments) in programs().items():
        figures[f"hook {name}"] = bench.hooked(program, arguments, 60)
    return figures


CALLS = 1000


def count_instructions(options):
    """Prints what a call takes, without the loop around it and the drop behind it."""
    build(options, 0, CODE_LAYOUTS[0][0], rust_libraries(options, ""))
    print(f"CPython {platform.python_version()}: instructions for one call")
    ways = {"get_locals, 17 slots": "all", **{f"get_local, {kind}": kind for kind in ("plain", "cell", "free", "unset")}}
    for text, way in ways.items():
        figures = {}
        for peer, function in ("localsplus", "localsplus_get_local"), ("plain reader", "plain_get_local"):
            function += "s" if way == "all" else ""
            output = options.build_dir / "callgrind.out"
            output.unlink(missing_ok=True)
            command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", f"--toggle-collect={function}"]
            command += [sys.executable, __file__, *sys.argv[1:], "--way", f"{peer.split()[0]} {way}"]
            command.remove("--instructions")
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            total = re.search(r"^(?:summary|totals): (\d+)", output.read_text(), re.MULTILINE)
            figures[peer] = int(total[1]) / CALLS
        print(f"  {text:24}" + ", ".join(f"{peer} {count:.0f}" for peer, count in figures.items()))


def run_way(options):
    peer, kind = options.way.split()
    bench = load(options.build_dir / "variant0/_bench.so")
    bench.init()
    inner, arguments = function(17, {"look": None})
    way = f"{'all' if kind == 'all' else 'one'}_{peer}"
    bench.at_entry(inner, arguments, [way], dict(slot_kinds(inner)).get(kind, 0), 1, CALLS)


def slot_kinds(inner):
    code = inner.__code__
    names = list(code.co_varnames) + list(code.co_freevars)
    yield "cell", names.index("a0")
    yield "plain", names.index(f"a{code.co_argcount - 1}")
    yield "unset", names.index("r0")
    yield "free", names.index("f0")


# A function that calls itself by its global name, one that does so by a free
# variable, and a method.
PROGRAMS = """
def recursive(n):
    return n if n < 2 else recursive(n - 1) + recursive(n - 2)

def make_closure():
    def closure(n):
        return n if n < 2 else closure(n - 1) + closure(n - 2)
    return closure

class Counter:
    def __init__(self):
        self.value = 0

    def add(self, amount):
        total = self.value + amount
        self.value = total
        return total

    def run(self, times):
        for i in range(times):
            self.add(i)
"""


def programs():
    namespace = {}
    exec(PROGRAMS, namespace)
    return {
        "recursive": (namespace["recursive"], (16,)),
        "methods": (namespace["Counter"]().run, (2000,)),
        "closure": (namespace["make_closure"](), (16,)),
    }


def report(options, results):
    def best(group, way):
        return min(result[group][way][0] for result in results)

    def median(group, way):
        return sorted(result[group][way][1] for result in results)[len(results) // 2]

    rows = []

    def row(text, group, way, other_group, other, target):
        by_minimum = best(group, way) / best(other_group, other)
        by_median = median(group, way) / median(other_group, other)
        rows.append((text, by_minimum, by_median, target))

    us = "all_localsplus"
    row("get_locals / plain reader", "entry 17", us, "entry 17", "all_plain", 0.85)
    row("get_locals / floor", "entry 17", us, "entry 17", "all_floor", 1.9)
    row("get_locals / mapping, borrowed", "entry 17", us, "entry 17", "all_mapping", 0.7)
    row("get_locals / mapping, strong", "entry 17", us, "entry 17", "all_mapping_strong", 0.4)
    row("get_locals / dict (started)", "started 17", us, "started 17", "all_dict", 0.1)
    for kind in ("plain", "cell", "free", "unset"):
        group = f"one {kind}"
        row(f"get_local, {kind} / plain reader", group, "one_localsplus", group, "one_plain", 1.0)
    row("17 x get_local / plain reader", "entry 17 each", "each_localsplus", "entry 17 each", "each_plain", 1.0)
    row("Rust, all slots / C caller", "entry 17", "all_rust", "entry 17", us, 1.05)
    for kind in ("plain", "cell", "free", "unset"):
        group = f"one {kind}"
        row(f"Rust, one slot, {kind} / C call", group, "one_rust", group, "one_localsplus", 0.9)
    if sys.version_info >= (3, 12):
        row("get_local, plain / PyFrame_GetVar (started)", "started one", "one_localsplus", "started one", "one_getvar", None)
    for slots in (5, 300):
        row(f"get_locals, {slots} slots / plain reader", f"entry {slots}", us, f"entry {slots}", "all_plain", None)
        row(f"get_locals, {slots} started / plain", f"started {slots}", us, f"started {slots}", "all_plain", None)
    row("get_locals, 17 started / plain reader", "started 17", us, "started 17", "all_plain", None)
    per_slot = best("entry 300", us) / 300 / (best("entry 17", us) / 17)
    rows.append(("cost per slot, 300 / 17 slots", per_slot, per_slot, 1.2))
    for name, target in ("recursive", 0.3), ("methods", 0.3), ("closure", None):
        group = f"hook {name}"
        base = best(group, "pass")
        ratio = (best(group, "localsplus") - base) / (best(group, "mapping") - base)
        middle = median(group, "pass")
        ratio_median = (median(group, "localsplus") - middle) / (median(group, "mapping") - middle)
        rows.append((f"added by a hook, {name} / mapping", ratio, ratio_median, target))
    init = min(result["init"] for result in results) / 1e6
    rows.append(("localsplus_init, ms", init, init, 1.0))
    print(f"CPython {platform.python_version()}, {results[0]['provider']}")
    ns = {way: best("entry 17", way) for way in results[0]["entry 17"]}
    print("  ns, 17 slots at entry: " + ", ".join(f"{way} {value:.1f}" for way, value in ns.items()))
    print(f"  {'ratio':40} {'minimum':>8} {'median':>8} {'target':>7}")
    for text, minimum, middle, target in rows:
        mark = "" if target is None else ("ok" if minimum <= target else "MISSED")
        print(f"  {text:40} {minimum:8.2f} {middle:8.2f} {target or '':>7} {mark}")
    if options.report:
        document = {"version": platform.python_version(), "rows": rows, "results": results}
        options.report.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()

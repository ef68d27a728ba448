"""Every block of every page is compiled or run: here, or by the tests that are named here."""

import functools
import json
import re
import shlex
import sys
import unittest

from workspace import BLOCKS, REPOSITORY, RUST_BLOCKS, run

# The pages whose blocks have names, and the tests that use them.
NAMED = {
    "docs/CPP.md": "tests/consumers/test_[!p]*.py",
    "docs/RUST.md": "tests/consumers/test_ways_in.py",
    "docs/PORTING.md": "tests/python/test_porting.py",
    "docs/DOCTOR.md": "tests/python/test_doctor.py",
}

# The tests that run what a command runs.
RUN_BY = {
    "trace_locals": "tests/trace_locals.rs",
    "stack_sampler": "tests/stack_sampler.rs",
    "draw_layouts": "tests/layouts_picture.rs",
    "layouts": "matrix/test_new_version.py",
    "localsplus": "tests/doctor.rs",
}

BLOCK = re.compile(r"^(?:<!-- name: ([^\n]+) -->\n)?( *)```([\w,]+)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
# Commands within the text.
INLINE = re.compile(r"`((?:matrix/run|matrix/new-version|\.ci/run|cargo (?:run|test|bench|install))\b[^`]*)`")


def pages():
    found = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), REPOSITORY / "matrix/ADDING_A_VERSION.md"]
    return {str(page.relative_to(REPOSITORY)): page.read_text(encoding="utf-8") for page in sorted(found)}


@functools.cache
def targets():
    """The names of the package's targets by their kind."""
    metadata = json.loads(run("cargo", "metadata", "--no-deps", "--format-version", "1", cwd=REPOSITORY))
    (package,) = metadata["packages"]
    found = {kind: set() for kind in ("bin", "example", "test")}
    for target in package["targets"]:
        for kind in target["kind"]:
            found.setdefault(kind, set()).add(target["name"])
    return found, set(package["features"])


def check_block(page, name, language, text):
    """Fails unless something compiles or runs the block."""
    if name is not None:
        assert page in NAMED, f"{page} has named blocks: which test uses them?"
        tests = "".join(file.read_text(encoding="utf-8") for file in REPOSITORY.glob(NAMED[page]))
        assert f'"{name}"' in tests, f"{page}: no test uses the block {name}"
    elif language == "sh":
        for line in text.replace("\\\n", " ").splitlines():
            check_command(line)
    elif (page, language) == ("README.md", "rust,no_run"):
        # A doc test compiles it; it is run in the program that it is a part of.
        assert text in RUST_BLOCKS["src/main.rs"], "README.md shows another hook than docs/RUST.md"
    elif (page, language) == ("README.md", "cpp"):
        assert text in BLOCKS["hook.cpp"], "README.md shows another hook than docs/CPP.md"
    elif (page, language) == ("ARCHITECTURE.md", "text"):
        for module in re.findall(r"[\w/]+\.rs|\w+/(?= )", text):
            assert any((REPOSITORY / "src").rglob(module)), f"ARCHITECTURE.md draws {module}"
    elif page == "docs/SEMANTICS.md" and language in ("python", "text"):
        pass  # test_semantics.py runs all of them, and counts
    else:
        raise AssertionError(f"{page}: no test covers this block:\n{text}")


def check_command(line):
    """Fails unless the command of this line is there and understands its arguments."""
    words = [word for word in shlex.split(line, comments=True) if not re.match(r"[A-Z_0-9]+=", word)]
    if not words:
        return
    if ">" in words:
        words = words[: words.index(">")]
    # What is new on the page about a new version is not there yet.
    program, *arguments = [word.replace("3.16", "3.15") for word in words if word != "..."]
    if program == "cargo":
        check_cargo(line, *arguments)
    elif program == "matrix/run":
        # Rows and options are understood, or this fails.
        run(sys.executable, REPOSITORY / program, "--list", *arguments, cwd=REPOSITORY)
    elif program == "matrix/new-version":
        # test_new_version.py runs it.
        assert not arguments or re.fullmatch(r"3\.\d+ INCLUDE_DIR", " ".join(arguments)), line
    elif program == ".ci/run":
        check_door(line, *arguments)
    elif arguments and arguments[0] == "benches/run.py":
        check_options(line, [program for program in arguments if program.startswith("--")])
    elif program.startswith("python3") and arguments[0] == "-c":
        assert run(sys.executable, "-c", arguments[1], cwd=REPOSITORY).strip(), line
    else:
        raise AssertionError(f"no test knows the command {line!r}")


def check_cargo(line, command, *arguments):
    known, features = targets()
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    for option, value in zip(own, own[1:]):
        if option in ("--bin", "--example"):
            assert value in known[option[2:]], line
            assert value in RUN_BY and (REPOSITORY / RUN_BY[value]).exists(), f"{line}: no test runs it"
        elif option == "--test":
            assert value in known["test"], line
        elif option == "--features":
            assert value in features, line
        elif option == "--manifest-path":
            run("cargo", "metadata", "--no-deps", "--format-version", "1", *own[:2], cwd=REPOSITORY)
    assert command in ("bench", "build", "fmt", "install", "run", "test"), f"no test knows the command {line!r}"


def check_door(line, *arguments):
    script = (REPOSITORY / ".ci/run").read_text(encoding="utf-8")
    if arguments:
        assert f"\n{arguments[0]}() {{" in script, f"{line}: no such step"
    if arguments[:1] == ("matrix",):
        check_command(shlex.join(("matrix/run", *arguments[1:])))


def check_options(line, options):
    usage = run(sys.executable, REPOSITORY / "benches/run.py", "--help")
    for option in options:
        assert re.search(rf"{option}\b", usage), line


class Pages(unittest.TestCase):
    def test_every_block_is_covered(self):
        for page, text in pages().items():
            blocks = BLOCK.findall(text)
            self.assertEqual(len(re.findall(r"^ *```", text, re.MULTILINE)), 2 * len(blocks), f"{page}: a block without a language")
            for name, indent, language, block in blocks:
                block = re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
                with self.subTest(page, block=name or block.splitlines()[0]):
                    check_block(page, name or None, language, block)

    def test_every_command_in_the_text_is_understood(self):
        found = 0
        for page, text in pages().items():
            for command in INLINE.findall(BLOCK.sub("", text)):
                found += 1
                with self.subTest(page, command=command):
                    check_command(" ".join(command.split()))
        self.assertGreater(found, 15)

    def test_one_that_nothing_covers_is_found(self):
        for page, name, language, block in (
            ("README.md", None, "python", "import localsplus\n"),
            ("README.md", None, "cpp", "static int other;\n"),
            ("README.md", None, "rust,no_run", "fn other() {}\n"),
            ("README.md", "hook.cpp", "cpp", "static int other;\n"),
            ("docs/CPP.md", "other.cpp", "cpp", "static int other;\n"),
            ("docs/NEW.md", None, "text", "output\n"),
            ("README.md", None, "sh", "make install\n"),
            ("README.md", None, "sh", "cargo run --example other\n"),
            ("README.md", None, "sh", "cargo install --path . --features other\n"),
            ("README.md", None, "sh", "cargo frobnicate\n"),
            ("README.md", None, "sh", ".ci/run other\n"),
            ("README.md", None, "sh", "matrix/run 3.99\n"),
            ("docs/SPEED.md", None, "sh", "python3 benches/run.py --other\n"),
            ("ARCHITECTURE.md", None, "text", "| other.rs |\n"),
        ):
            with self.subTest(block), self.assertRaises(AssertionError):
                check_block(page, name, language, block)

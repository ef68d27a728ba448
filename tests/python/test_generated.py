"""localsplus on generated programs, at every occasion: see programs.py and observed.py."""

import importlib.util
import json
import os
import random
import textwrap
import unittest

import support
from support import HERE, python

# Of every run in CI, so that a change is judged on the programs that the last one was judged on. The long form takes
# another one each time. run.py --seed sets it.
SEED = 20_261_201
EXAMPLES, MANY = 2000, 50_000


def run_differential(*arguments, timeout):
    return python(os.path.join(HERE, "differential.py"), *arguments, timeout=timeout)


class Generated(unittest.TestCase):
    """Programs that were found once, and 2000 (--stress: 50,000) new ones."""

    def check(self, source):
        program = textwrap.dedent(source)
        process = python("-c", f"import observed; observed.prepare(); observed.check({program!r})")
        self.assertEqual(process.returncode, 0, process.stdout)

    def test_generated(self):
        if importlib.util.find_spec("hypothesis") is None:
            self.skipTest("no hypothesis; matrix/run brings one, and so does pip install hypothesis")
        seed = support.seed
        if seed is None:
            seed = random.SystemRandom().randrange(1 << 32) if support.stress else SEED
        current = os.path.join(support.toolchain.build_dir, "current_program.py")
        report = os.path.join(support.toolchain.build_dir, "generated.json")
        arguments = ["--seed", str(seed), "--current", current, "--report", report]
        arguments += ["--examples", str(MANY if support.stress else EXAMPLES)]
        process = run_differential(*arguments, timeout=7200 if support.stress else 600)
        if process.returncode < 0:
            # The interpreter crashed: again, each program in a process of its own.
            with open(current, encoding="utf-8") as file:
                print(f"{process.stdout}\ncrashed (--seed {seed}) in\n\n{file.read()}", flush=True)
            process = run_differential(*arguments, "--isolated", timeout=7200)
        self.assertEqual(process.returncode, 0, process.stdout)
        with open(report, encoding="utf-8") as file:
            figures = json.load(file)
        support.figures["generated programs"] = figures
        print(", ".join(f"{name}: {figure}" for name, figure in figures.items()), end=" ", flush=True)
        self.assertGreaterEqual(figures["programs"], MANY if support.stress else EXAMPLES)
        # What the programs are made of: a change that silences the generator shall not pass.
        self.assertGreater(figures["entries as constructed"], 2 * figures["programs"])
        self.assertGreater(figures["values"], 100 * figures["programs"])

    def test_f5_captured_comprehension_variable(self):
        """The interpreter replaces the cell of a free variable, which stays so (3.12 to 3.15)."""
        self.check(
            """
            def main():
                k = V(1)
                def f():
                    k
                    [(look(), lambda: k)[1] for k in [V(2)]]
                    look()
                call(f)
            call(main)
            """
        )

    def test_exec_leaves_names_in_locals(self):
        """A name that is no slot, in the dict that locals() is before 3.13."""
        self.check(
            """
            def main():
                exec('a = V(2)', globals(), locals())
                look(locals())
            call(main)
            """
        )

    def test_coroutine_that_does_not_want_to_be_closed(self):
        """frame.clear() leaves it suspended, with its values (3.12)."""
        self.check(
            """
            def main():
                async def f(a):
                    keep()
                    try:
                        await suspend(a)
                    finally:
                        await suspend(a)
                drive(call(f, V(1)), 'n')
            call(main)
            """
        )

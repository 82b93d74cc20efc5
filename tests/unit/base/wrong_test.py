#!/usr/bin/env python3
"""What must not compile does not: a dropped status, a guarded member that is read without its mutex.

    wrong_test.py COMPILER FLAGS...

Each file of wrong/ compiles as it is, and fails with HILBERT_RING_WRONG for the reason named here.
"""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "wrong"
ROOT = FOLDER.parents[3]
WRONG = "-DHILBERT_RING_WRONG"


class DroppedResult(unittest.TestCase):
    """With the flags that the project is built with, by its compiler and by the other one."""

    def check(self, name, reason):
        compilers = {COMPILER, *filter(None, map(shutil.which, ("g++", "clang++")))}
        for compiler in compilers:
            with self.subTest(compiler=compiler):
                command = [compiler, *FLAGS, "-std=c++20", "-fsyntax-only", f"-I{ROOT}",
                           str(FOLDER / name)]
                right = subprocess.run(command, capture_output=True, text=True)
                self.assertEqual(right.returncode, 0, right.stderr)
                wrong = subprocess.run([*command, WRONG], capture_output=True, text=True)
                self.assertNotEqual(wrong.returncode, 0)
                self.assertIn(reason, wrong.stderr)

    def test_status(self):
        self.check("dropped_status.cc", "unused-result")

    def test_status_or(self):
        self.check("dropped_status_or.cc", "unused-result")

    def test_answer(self):
        self.check("dropped_answer.cc", "unused-result")


@unittest.skipUnless(shutil.which("clang++"), "clang++ is not there: it alone follows mutexes")
class Locks(unittest.TestCase):
    """By tools/check_locks.py, as ./dev check runs it."""

    def analyse(self, name, *flags, changed=()):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as commands:
            command = " ".join(["c++", "-std=c++20", f"-I{ROOT}", *flags, "-c", str(FOLDER / name)])
            json.dump([{"directory": str(ROOT), "file": str(FOLDER / name), "command": command}],
                      commands)
            commands.flush()
            return subprocess.run([sys.executable, str(ROOT / "tools/check_locks.py"),
                                   commands.name, *changed], capture_output=True, text=True)

    def check(self, name, reason):
        right = self.analyse(name)
        self.assertEqual(right.returncode, 0, right.stderr)
        self.assertIn("1 file", right.stdout)
        wrong = self.analyse(name, WRONG)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn(reason, wrong.stderr)

    def test_unguarded_read(self):
        self.check("unguarded_read.cc", "requires holding mutex 'mutex_'")

    def test_lock_order(self):
        self.check("lock_order.cc", "must be acquired before")

    def test_only_what_a_change_reaches(self):
        for changed, files in ([str((FOLDER / "unguarded_read.cc").relative_to(ROOT))], 1), \
                (["engine/base/mutex.h"], 1), (["tools/check_locks.py"], 1), (["engine/run/run.h"], 0), ([], 0):
            seen = self.analyse("unguarded_read.cc", WRONG, changed=["--changed", *changed])
            self.assertIn(f"{files} files with locks", seen.stdout, changed)
            self.assertEqual(seen.returncode, files, changed)  # what is wrong there is found

    def test_a_change_reaches_over_headers(self):
        sys.path.insert(0, str(ROOT / "tools"))
        import check_locks
        names = {"a.cc": "b.h", "b.h": "c.h", "c.h": "b.h", "d.h": "c.h"}  # who includes whom
        with tempfile.TemporaryDirectory() as folder:
            for name, included in names.items():
                (Path(folder) / name).write_text(f'#include <set>\n#include "{included}"\n')
            with unittest.mock.patch.object(check_locks, "ROOT", Path(folder)):
                for changed, is_reached in ("a.cc", True), ("b.h", True), ("c.h", True), ("d.h", False):
                    self.assertEqual(check_locks.reached("a.cc", {changed}, set()), is_reached, changed)


if __name__ == "__main__":
    COMPILER, *FLAGS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1], verbosity=2)

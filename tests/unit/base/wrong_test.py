#!/usr/bin/env python3
"""What must not compile does not: a guarded member that is read without its mutex.

Each file of wrong/ compiles as it is, and fails with HILBERT_RING_WRONG for the reason named here.
"""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "wrong"
ROOT = FOLDER.parents[3]
WRONG = "-DHILBERT_RING_WRONG"


@unittest.skipUnless(shutil.which("clang++"), "clang++ is not there: it alone follows mutexes")
class Locks(unittest.TestCase):
    """By tools/check_locks.py, as ./dev check runs it."""

    def analyse(self, name, *flags):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as commands:
            command = " ".join(["c++", "-std=c++20", f"-I{ROOT}", *flags, "-c", str(FOLDER / name)])
            json.dump([{"directory": str(ROOT), "file": str(FOLDER / name), "command": command}],
                      commands)
            commands.flush()
            return subprocess.run([sys.executable, str(ROOT / "tools/check_locks.py"),
                                   commands.name], capture_output=True, text=True)

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


if __name__ == "__main__":
    unittest.main(verbosity=2)

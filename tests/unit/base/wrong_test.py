#!/usr/bin/env python3
"""clang-tidy rejects an unguarded read of a guarded member, and locks in another order.

Each file of wrong/ passes as it is, and fails with HILBERT_RING_WRONG for the reason named here.
"""
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


@unittest.skipUnless(shutil.which("clang-tidy"), "clang-tidy is not there: it alone follows mutexes")
class Locks(unittest.TestCase):
    """By clang-tidy and .clang-tidy, as ./dev check runs them."""

    def analyse(self, name, *flags):
        return subprocess.run(["clang-tidy", "--quiet", str(FOLDER / name), "--", "-std=c++20", f"-I{ROOT}", *flags],
                              capture_output=True, text=True)

    def check(self, name, reason):
        right = self.analyse(name)
        self.assertEqual(right.returncode, 0, right.stdout)
        wrong = self.analyse(name, WRONG)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn(reason, wrong.stdout)

    def test_unguarded_read(self):
        self.check("unguarded_read.cc", "requires holding mutex 'mutex_'")

    def test_lock_order(self):
        self.check("lock_order.cc", "must be acquired before")


class FilesToTidy(unittest.TestCase):
    def test_a_change_reaches_over_headers(self):
        sys.path.insert(0, str(ROOT / "tools"))
        import files_to_tidy
        names = {"a.cc": "b.h", "b.h": "c.h", "c.h": "b.h", "d.h": "c.h", "e.cc": "d.h"}  # who includes whom
        with tempfile.TemporaryDirectory() as folder:
            for name, included in names.items():
                (Path(folder) / name).write_text(f'#include <set>\n#include "{included}"\n')
            with unittest.mock.patch.object(files_to_tidy, "ROOT", Path(folder)):
                for changed, far in (["a.cc"], {"a.cc": 0}), (["c.h"], {"a.cc": 2, "e.cc": 2}), \
                        (["d.h", "a.cc"], {"a.cc": 0, "e.cc": 1}), (["f.h"], {}):
                    self.assertEqual(files_to_tidy.distances(["a.cc", "e.cc"], changed), far, changed)


if __name__ == "__main__":
    unittest.main(verbosity=2)

"""Machine code of the Hopper kernels' loops over keys.

    warpgroup_test.py "OBJECT;OBJECT;..."

A kernel has three loops: without a mask, with a diagonal, and with any other task. The first two read global
memory only by asynchronous copies and spill no register. Copies follow the products that hide them. The
exponentials lie between the wait for the scores and the wait for the values' product.
"""
import re
import sys
import unittest

import sass
from sass import at

# The most instructions of a step of 128 keys without a mask, in which no row's maximum rises and no maximum is large: a
# tenth above docs/adr/0008.
MOST_INSTRUCTIONS = {64: 454, 128: 500}
EXPONENTIALS = 64  # of a thread's scores in a step


class Warpgroup(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kernels = sass.kernels(sys.argv[1].split(";"), "warpgroup_", "AttendByWarpgroups")

    def fast_loops(self):
        """(description, head dim, loop) of the loops on aligned rows without a mask or with a diagonal."""
        for name, code in self.kernels.items():
            dim = int(re.search(r"Li(64|128)ELi", name).group(1))
            of_kernel = sass.loops(code)
            self.assertEqual(len(of_kernel), 3, name)
            fast = sorted((body for body in of_kernel if not at(body, r"STS\.U16")), key=len)
            self.assertEqual(len(fast), 2, name)
            yield f"{name}, no mask", dim, fast[0]
            yield f"{name}, diagonal", dim, fast[1]

    def test_all_kernels_are_there(self):
        self.assertEqual(len(self.kernels), 4, "two types, two head dims")

    def test_nothing_is_read_from_global_memory(self):
        for name, _, body in self.fast_loops():
            with self.subTest(name):
                self.assertGreater(len(at(body, r"LDGSTS")), 0)
                self.assertEqual([body[i] for i in at(body, r"LDG?\.E|LDG\b|LD\.|ATOM|RED\b|STG|ST\.")], [])

    def test_no_register_is_spilled(self):
        for name, _, body in self.fast_loops():
            with self.subTest(name):
                self.assertEqual([body[i] for i in at(body, r"LDL|STL")], [])

    def test_copies_follow_the_products(self):
        for name, _, body in self.fast_loops():
            with self.subTest(name):
                self.assertLess(max(at(body, "HGMMA")), min(at(body, "LDGSTS")))

    def test_exponentials_overlap_the_product_of_values(self):
        for name, _, body in self.fast_loops():
            with self.subTest(name):
                scores_done, values_done = sass.waits(body)
                self.assertEqual(len(scores_done), 1)
                self.assertGreaterEqual(len(values_done), 1)
                self.assertGreaterEqual(sass.overlapped_exponentials(body), EXPONENTIALS)

    def test_a_step_is_as_short_as_stated(self):
        for name, dim, body in self.fast_loops():
            if "no mask" in name:
                with self.subTest(name):
                    self.assertLessEqual(body.shortest(), MOST_INSTRUCTIONS[dim])


if __name__ == "__main__":
    sass.main()

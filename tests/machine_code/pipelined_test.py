"""Machine code of the Hopper kernels with a producer.

    pipelined_test.py "OBJECT;OBJECT;..."

A kernel has a consumer's loop over keys twice: without a mask and with a diagonal. Both loops touch no memory, but
those of a softcap at head dim 64 spill registers.
Products start by turns once the values' buffer is full. The exponentials and the wait for the next keys lie
between the wait for the scores and the only wait for the values' product, an instruction of all four warps.
Each buffer is freed once it is read. In the whole kernel registers change hands, and tensor maps copy boxes.
"""
import re
import sys
import unittest

import sass
from sass import at

# The most instructions of a step of 128 keys without a mask, in which no row's maximum rises and no maximum is large: a
# tenth above docs/adr/0008.
MOST_INSTRUCTIONS = {64: 466, 128: 517}
EXPONENTIALS = 64  # of a thread's scores in a step
REGISTERS = {64: (0x20, 0xa0), 128: (0x28, 0xe8)}  # of a producer's thread, and of a consumer's
# A box of keys and a box of values per 64 elements of a row.
BOXES = {64: 2, 128: 4}


class Pipelined(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kernels = sass.kernels(sys.argv[1].split(";"), "pipelined_", "AttendPipelined")

    def whole(self):
        """(name, head dim, instructions) of each kernel."""
        for name, code in self.kernels.items():
            yield name, int(re.search(r"Li(64|128)ELi", name).group(1)), [text for _, text, _ in code]

    def loops(self):
        """(description, head dim, loop) of the two loops over keys."""
        for name, dim, _ in self.whole():
            # The loop over tiles, which contains both, is longer. Jumps back from a repeated wait make longer loops
            # too.
            of_kernel = sorted(sass.loops(self.kernels[name]), key=len)
            self.assertGreater(len(of_kernel[2]), len(of_kernel[0]) + len(of_kernel[1]), name)
            capped = "softcap, " if "ELb1EEE" in name else ""
            yield f"{name}, {capped}no mask", dim, of_kernel[0]
            yield f"{name}, {capped}diagonal", dim, of_kernel[1]

    def test_all_kernels_are_there(self):
        self.assertEqual(len(self.kernels), 8, "two types, two head dims, with and without a softcap")

    def test_registers_change_hands(self):
        for name, dim, code in self.whole():
            with self.subTest(name):
                given = [code[i] for i in at(code, r"USETMAXREG\.DEALLOC")]
                taken = [code[i] for i in at(code, r"USETMAXREG\.TRY_ALLOC")]
                self.assertEqual((len(given), len(taken)), (1, 1))
                self.assertEqual((int(given[0].split()[-1], 16), int(taken[0].split()[-1], 16)),
                                 REGISTERS[dim])

    def test_boxes_are_copied_and_their_maps_acquired(self):
        for name, dim, code in self.whole():
            with self.subTest(name):
                self.assertGreaterEqual(len(at(code, r"UTMALDG\.3D")), BOXES[dim])
                self.assertGreaterEqual(len(at(code, "UTMACCTL")), 1)

    def test_consumers_touch_no_memory(self):
        for name, dim, body in self.loops():
            memory = r"LD|ST[GSL. ]|ATOM|RED\b|UTMA"
            if "softcap" in name and dim == 64:
                memory = r"LD[^L]|ST[GS. ]|ATOM|RED\b|UTMA"
            with self.subTest(name):
                self.assertEqual([body[i] for i in at(body, memory)], [])

    def test_products_start_when_buffers_are_full_and_the_turn_has_come(self):
        for name, _, body in self.loops():
            with self.subTest(name):
                full, turn = at(body, r"SYNCS\.PHASECHK"), at(body, r"BAR\.SYNC")
                passed, products = at(body, r"BAR\.ARV"), at(body, "HGMMA")
                self.assertEqual((len(full), len(turn), len(passed)), (2, 1, 1))
                self.assertLess(full[0], turn[0])
                _, values_done = sass.waits(body)
                self.assertTrue(max(at(body, r"MUFU\.EX2")) < full[1] < values_done[0])
                self.assertLess(turn[0], min(products))
                self.assertLess(max(products), passed[0])

    def test_exponentials_overlap_the_product_of_values(self):
        for name, _, body in self.loops():
            with self.subTest(name):
                scores_done, values_done = sass.waits(body)
                self.assertEqual((len(scores_done), len(values_done)), (1, 1))
                self.assertGreaterEqual(sass.overlapped_exponentials(body), EXPONENTIALS)

    def test_buffers_are_given_back_when_they_are_read(self):
        for name, _, body in self.loops():
            with self.subTest(name):
                free = at(body, r"SYNCS\.ARRIVE")
                (scores_done,), values_done = sass.waits(body)
                self.assertEqual(len(free), 2)
                self.assertTrue(scores_done < free[0] < min(values_done), (scores_done, free, values_done))
                self.assertLess(max(values_done), free[1])

    def test_a_step_is_as_short_as_stated(self):
        for name, dim, body in self.loops():
            if "no mask" in name and "softcap" not in name:
                with self.subTest(name):
                    self.assertLessEqual(body.shortest(), MOST_INSTRUCTIONS[dim])


if __name__ == "__main__":
    sass.main()

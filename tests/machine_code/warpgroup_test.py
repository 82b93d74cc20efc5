"""The loops over keys of the Hopper kernels, as the machine has them.

    warpgroup_test.py "OBJECT;OBJECT;..."

A kernel has three loops: without a mask, with a diagonal, and one for everything else. Of the first two:
nothing is read from global memory but by asynchronous copies, no register goes to memory, copies follow the
products that they are hidden behind, and the exponentials lie between the wait for the scores and the wait
for the values' product.
"""
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

SKIPPED = 77

# Of one step without a mask, 128 keys: at most so many instructions, a tenth above what docs/adr/0008 states.
MOST_INSTRUCTIONS = {64: 703, 128: 794}
EXPONENTIALS = 64  # of a thread's scores in a step


def find_cuobjdump():
    found = shutil.which("cuobjdump", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    tools = Path(os.environ["TOOLS"]).glob("lib/python3*/site-packages/nvidia/cu*/bin/cuobjdump")
    return found or next((str(path) for path in tools), None)


def functions(listing):
    """Name -> [(address, instruction without its predicate, whole instruction)]."""
    found = {}
    for line in listing.splitlines():
        if head := re.search(r"Function : (\S+)", line):
            code = found.setdefault(head.group(1), [])
        elif at := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?) *;", line):
            whole = at.group(2)
            code.append((int(at.group(1), 16), re.sub(r"^@!?U?P\w+ +", "", whole), whole))
    return found


def loops(code):
    """Instructions of each loop that has a product, in the order of their addresses."""
    places = {address: index for index, (address, _, _) in enumerate(code)}
    bodies = []
    for index, (address, instruction, _) in enumerate(code):
        target = re.match(r"BRA\S* (?:\S+, )?(?:`\()?(0x[0-9a-f]+)", instruction)
        if target and int(target.group(1), 16) < address:
            body = [text for _, text, _ in code[places[int(target.group(1), 16)]:index + 1]]
            if any(text.startswith("HGMMA") for text in body):
                bodies.append(body)
    return bodies


def at(body, start):
    return [index for index, text in enumerate(body) if re.match(start, text)]


class Warpgroup(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kernels = {}
        for path in sys.argv[1].split(";"):
            if "warpgroup_" not in Path(path).name:
                continue
            cuobjdump = find_cuobjdump()
            # It looks for nvdisasm on PATH.
            places = os.pathsep.join([str(Path(cuobjdump).parent), os.environ["PATH"]])
            listing = subprocess.run([cuobjdump, "-sass", path], capture_output=True, text=True,
                                     timeout=120, check=True,
                                     env={**os.environ, "PATH": places}).stdout
            cls.kernels |= {name: code for name, code in functions(listing).items()
                            if "AttendByWarpgroups" in name}

    def fast_loops(self):
        """(what it is, head dim, loop) of those that serve aligned rows without a mask or with a diagonal."""
        for name, code in self.kernels.items():
            dim = int(re.search(r"Li(64|128)ELi", name).group(1))
            of_kernel = loops(code)
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
                scores_done = at(body, r"WARPGROUP\.DEPBAR\.LE gsb0, 0x1")
                values_done = at(body, r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0")
                self.assertEqual(len(scores_done), 1)
                self.assertGreaterEqual(len(values_done), 1)
                between = [i for i in at(body, r"MUFU\.EX2") if scores_done[0] < i < min(values_done)]
                self.assertGreaterEqual(len(between), EXPONENTIALS)

    def test_a_step_is_as_short_as_is_said(self):
        for name, dim, body in self.fast_loops():
            if "no mask" in name:
                with self.subTest(name):
                    self.assertLessEqual(len(body), MOST_INSTRUCTIONS[dim])


if __name__ == "__main__":
    if find_cuobjdump() is None:
        print("skipped: neither the CUDA toolkit nor build/cuda_tools has cuobjdump")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])

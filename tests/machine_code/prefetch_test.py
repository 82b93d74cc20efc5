"""The CPU's kernels ask for the rows that they will pack next, in the machine code too: a compiler may take
a function that only prefetches for one without effect, and leave its calls out.

    prefetch_test.py "OBJECT;OBJECT;..."
"""
import platform
import re
import shutil
import subprocess
import sys
import unittest

SKIPPED = 77


# What asks for rows, by a part of the names of the functions that may hold it: of keys and values beside products;
# of queries; of outputs. The last two may be inlined into what calls them.
STEPS = {"keys": "AttendBlock|BlockSequence", "queries": "PackQueries|TileRunI.*6AttendE",
         "outputs": "FinishLanes|TileRunI.*6AttendE"}


def prefetches(objects):
    """Instruction set -> its functions that prefetch, for each instruction set that is there."""
    found = {}
    for path in objects:
        listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True,
                                 check=True, timeout=120).stdout
        target = name = None
        for line in listing.splitlines():
            if head := re.match(r"[0-9a-f]+ <(.*)>:$", line):
                name = head.group(1)
                inside = re.search(r"(\d)(N_[A-Z0-9]+)", name)  # its length, then the name
                target = inside.group(2)[:int(inside.group(1))] if inside else None
                if target:
                    found.setdefault(target, set())
            elif target and re.search(r"\tprefetch\w+ ", line):
                found[target].add(name)
    return found


class Prefetch(unittest.TestCase):
    def test_every_instruction_set_prefetches(self):
        found = prefetches(OBJECTS)
        self.assertIn("N_AVX2", found)
        for target, functions in found.items():
            for step, names in STEPS.items():
                with self.subTest(target=target, step=step):
                    self.assertTrue([name for name in functions if re.search(names, name)])


if __name__ == "__main__":
    if platform.machine() != "x86_64" or shutil.which("objdump") is None:
        print("skipped: this is no x86-64 machine, or it has no objdump")
        sys.exit(SKIPPED)
    OBJECTS = [path for path in sys.argv[1].split(";") if "attention_kernel" in path]
    unittest.main(argv=sys.argv[:1])

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


def prefetches(objects):
    """Instruction set -> prefetches in its functions, for each instruction set that is there."""
    found = {}
    for path in objects:
        listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True,
                                 check=True, timeout=120).stdout
        target = None
        for line in listing.splitlines():
            if head := re.match(r"[0-9a-f]+ <(.*)>:$", line):
                inside = re.search(r"(\d)(N_[A-Z0-9]+)", head.group(1))  # its length, then the name
                target = inside.group(2)[:int(inside.group(1))] if inside else None
                if target:
                    found.setdefault(target, 0)
            elif target and re.search(r"\tprefetch\w+ ", line):
                found[target] += 1
    return found


class Prefetch(unittest.TestCase):
    def test_every_instruction_set_prefetches(self):
        found = prefetches(OBJECTS)
        self.assertIn("N_AVX2", found)
        self.assertEqual([], [target for target, count in found.items() if count == 0], found)


if __name__ == "__main__":
    if platform.machine() != "x86_64" or shutil.which("objdump") is None:
        print("skipped: this is no x86-64 machine, or it has no objdump")
        sys.exit(SKIPPED)
    OBJECTS = [path for path in sys.argv[1].split(";") if "attention_kernel" in path]
    unittest.main(argv=sys.argv[:1])

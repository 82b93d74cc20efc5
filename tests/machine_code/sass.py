"""Machine code of GPU kernels, as cuobjdump lists it."""
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

SKIPPED = 77


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


def kernels(objects, part_of_file, part_of_name):
    """The functions of this name in the objects of this name."""
    found = {}
    for path in objects:
        if part_of_file not in Path(path).name:
            continue
        cuobjdump = find_cuobjdump()
        # cuobjdump looks for nvdisasm on PATH.
        places = os.pathsep.join([str(Path(cuobjdump).parent), os.environ["PATH"]])
        listing = subprocess.run([cuobjdump, "-sass", path], capture_output=True, text=True, timeout=120,
                                 check=True, env={**os.environ, "PATH": places}).stdout
        found |= {name: code for name, code in functions(listing).items() if part_of_name in name}
    return found


class Loop(list):
    """Instructions without their predicates, in the order of their addresses."""

    def __init__(self, code):
        super().__init__(text for _, text, _ in code)
        self.code = code

    def shortest(self):
        """The fewest instructions from the first to the last, by forward jumps: no row's maximum rises."""
        places = {address: index for index, (address, _, _) in enumerate(self.code)}
        steps = [0] + [len(self.code) * 2] * len(self.code)
        for index, (_, instruction, whole) in enumerate(self.code):
            ahead = target_of(instruction)
            if ahead in places and places[ahead] > index:
                steps[places[ahead]] = min(steps[places[ahead]], steps[index] + 1)
                if whole == instruction and "," not in instruction:
                    continue  # the jump is always taken
            steps[index + 1] = min(steps[index + 1], steps[index] + 1)
        return steps[len(self.code)]


def target_of(instruction):
    """A jump's target address, or None."""
    target = re.match(r"BRA\S* (?:\S+, )?(?:`\()?(0x[0-9a-f]+)", instruction)
    return int(target.group(1), 16) if target else None


def loops(code):
    """Each loop that has a product, in the order of their addresses."""
    places = {address: index for index, (address, _, _) in enumerate(code)}
    bodies = []
    for index, (address, instruction, _) in enumerate(code):
        target = target_of(instruction)
        if target is not None and target < address:
            body = Loop(code[places[target]:index + 1])
            if any(text.startswith("HGMMA") for text in body):
                bodies.append(body)
    return bodies


def at(body, start):
    return [index for index, text in enumerate(body) if re.match(start, text)]


def waits(body):
    """Indices of a step's waits for its scores, and for its values."""
    return (at(body, r"WARPGROUP\.DEPBAR\.LE gsb0, 0x1"), at(body, r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0"))


def overlapped_exponentials(body):
    """The number of exponentials between the two waits."""
    scores_done, values_done = waits(body)
    return sum(max(scores_done) < i < min(values_done) for i in at(body, r"MUFU\.EX2"))


def main():
    """Runs the tests if cuobjdump can read machine code."""
    if find_cuobjdump() is None:
        print("skipped: neither the CUDA toolkit nor build/cuda_tools has cuobjdump")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])

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
        # It looks for nvdisasm on PATH.
        places = os.pathsep.join([str(Path(cuobjdump).parent), os.environ["PATH"]])
        listing = subprocess.run([cuobjdump, "-sass", path], capture_output=True, text=True, timeout=120,
                                 check=True, env={**os.environ, "PATH": places}).stdout
        found |= {name: code for name, code in functions(listing).items() if part_of_name in name}
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


def waits(body):
    """Where a step waits for its scores, and for its values."""
    return (at(body, r"WARPGROUP\.DEPBAR\.LE gsb0, 0x1"), at(body, r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0"))


def overlapped_exponentials(body):
    """How many are between the two."""
    scores_done, values_done = waits(body)
    return sum(max(scores_done) < i < min(values_done) for i in at(body, r"MUFU\.EX2"))


def main():
    """Runs the tests, where there is something to read machine code with."""
    if find_cuobjdump() is None:
        print("skipped: neither the CUDA toolkit nor build/cuda_tools has cuobjdump")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])

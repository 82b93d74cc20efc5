#!/usr/bin/env python3
"""A billion tokens through the service, once streamed and once by reference.

    billion.py [--tokens 1073741824] [--streamed | --by-reference] [--picture memory.svg]

Drawn rows are computed again in float64; the resident memory of every process is sampled. `./dev bench billion` builds
the programs and calls this. It computes the published pattern ([2048, 4096, 8192] with [1, 2, 4]), a head to each
branch, in float32. billion_streamed.py and billion_by_reference.py make the rows.
"""
import argparse
import sys
import tempfile
from pathlib import Path

import billion_by_reference
import billion_streamed
from billion_rows import WINDOW
from resident_memory import ResidentMemory, picture, processes_of

import hilbert_ring

MOST_DEVIATION = 1e-5


def streamed(arguments):
    """Returns lines to print, the largest deviation, and the memory of the processes."""
    service = hilbert_ring.local(workers=arguments.workers, memory_limit=arguments.memory_limit)
    try:
        client = service.start()
        with ResidentMemory(processes_of(service)) as memory:
            lines, worst = billion_streamed.run(client, arguments, memory)
    finally:
        service.stop()
    return lines, worst, memory


def by_reference(arguments):
    """Returns the same as streamed."""
    with tempfile.TemporaryDirectory(prefix="hilbert-ring-billion-", dir=arguments.folder) as folder:
        service = hilbert_ring.local(workers=arguments.workers, data_root=folder,
                                     memory_limit=arguments.piece_memory_limit)
        try:
            client = service.start()
            with ResidentMemory(processes_of(service)) as memory:
                lines, worst = billion_by_reference.run(service, client, folder, arguments, memory)
        finally:
            service.stop()
    return lines, worst, memory


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    half = parser.add_mutually_exclusive_group()
    half.add_argument("--streamed", action="store_true", help="Run this half alone")
    half.add_argument("--by-reference", action="store_true", help="Run this half alone")
    parser.add_argument("--tokens", type=int, default=1 << 30)
    parser.add_argument("--epoch-tokens", type=int, default=0, help="Tokens per epoch, streamed (0: the service's most)")
    parser.add_argument("--piece-tokens", type=int, default=1 << 23, help="Tokens per job, by reference")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", default="256MiB", help="Memory of each worker, streamed")
    parser.add_argument("--piece-memory-limit", default="2GiB", help="Memory of each worker, by reference")
    parser.add_argument("--folder", help="Folder of the files (default: the system's temporary folder)")
    parser.add_argument("--rows", type=int, default=4096, help="Rows of each half that are computed again")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", help="SVG file to write")
    arguments = parser.parse_args()
    if arguments.piece_tokens < 1 or arguments.piece_tokens % WINDOW:
        parser.error(f"--piece-tokens must be a multiple of {WINDOW}")
    return arguments


def main():
    arguments = parse()
    halves = {"streamed": streamed, "by reference": by_reference}
    if arguments.streamed or arguments.by_reference:
        del halves["by reference" if arguments.streamed else "streamed"]
    memories, worst = [], 0.0
    for name, half in halves.items():
        print(f"billion: {name}", file=sys.stderr, flush=True)
        lines, deviation, memory = half(arguments)
        print(*lines, "", *memory.table(), "", sep="\n", flush=True)
        worst = max(worst, deviation)
        memories.append(memory)
    if arguments.picture:
        title = f"Resident memory of every process, {arguments.tokens:,} tokens {', then '.join(halves)}"
        Path(arguments.picture).write_text(picture(memories, title).document())
    if worst > MOST_DEVIATION:
        sys.exit(f"billion: a row is off by {worst}, more than {MOST_DEVIATION}")


if __name__ == "__main__":
    main()

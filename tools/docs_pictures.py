#!/usr/bin/env python3
"""Makes the pictures of README and docs; with --check it compares them.

Each picture comes from a command of `hilbert-ring draw`. The trace is recorded (docs/pictures/trace.json), because
times differ from run to run.
"""
import argparse
import sys
import tempfile
from pathlib import Path

import hilbert_ring
from hilbert_ring.__main__ import main as command

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"

PICTURES = {
    "pattern.svg": ["pattern", "--tokens", "64", "--heads", "4", "--mixing", "lse",
                    "--segments", "16,64", "--dilations", "1,4"],
    "order_rowmajor.svg": ["order", "--grid", "32,32", "--segments", "128", "--curve", "none",
                           "--tokens", "1024"],
    "order_hilbert.svg": ["order", "--grid", "32,32", "--segments", "128", "--curve", "hilbert"],
    "plan.svg": ["plan", "--tokens", "65536", "--heads", "8", "--head-dim", "64", "--causal",
                 "--segments", "2048,65536", "--dilations", "1,16", "--workers", "4"],
    "trace.svg": ["trace", str(FOLDER / "trace.json")],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    stale = []
    with hilbert_ring.local(workers=1) as client, tempfile.TemporaryDirectory() as scratch:
        for name, line in PICTURES.items():
            out = Path(scratch if arguments.check else FOLDER) / name
            if line[0] == "plan":
                line = [*line, "--server", client.server]
            if command(["draw", *line, "--out", str(out)]) != 0:
                return 1
            if arguments.check and not (FOLDER / name).is_file():
                stale.append(name)
            elif arguments.check and out.read_bytes() != (FOLDER / name).read_bytes():
                stale.append(name)
    if stale:
        print(f"docs/pictures: {', '.join(stale)} differ from the programs' output: run ./dev docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Follows docs/tutorial.md word for word, the build included, and says how long each block took. By hand, in a fresh clone:

    git clone REPOSITORY clone && tests/python/follow_tutorial.py clone

Its commands run in one shell, whose home is a folder of its own; the service has the page's ports. What the page says to save and
run is saved and run by /usr/bin/python3. ./dev test runs the same page without the build (test_pages.py).
"""
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from page_blocks import blocks_of  # noqa: E402

PYTHON = "/usr/bin/python3"  # which the page names
READY = "for i in $(seq 300); do hilbert-ring status >/dev/null 2>&1 && break; sleep 0.2; done"


def script(page):
    """The page's blocks, in its order, as one shell would run them."""
    lines = ["set -e -o pipefail", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"]
    for number, block in enumerate(page):
        lines.append(f"begun=$(date +%s); echo '== line {block.line}'")
        if block.language == "python":
            name = f"block_{number}.py"
            lines += [f"cat >{name} <<'BLOCK'", block.code.rstrip("\n"), "BLOCK", f"{PYTHON} {name}"]
        elif block.tag == "service":  # in a terminal of its own; the reader asks again until it is there
            lines += [f"{block.code.strip()} >service.log 2>&1 &", READY]
        else:
            lines.append(block.code.rstrip("\n"))
        lines.append(f"echo \"== line {block.line}: $(($(date +%s) - begun)) s\"")
    return "\n".join([*lines, "echo '== the end'"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path)
    clone = parser.parse_args().clone.resolve()
    page = blocks_of("docs/tutorial.md", (clone / "docs/tutorial.md").read_text())
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("HILBERT_RING_") and name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as home:
        return subprocess.run(["bash", "-c", script(page)], cwd=clone, env={**kept, "HOME": home}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

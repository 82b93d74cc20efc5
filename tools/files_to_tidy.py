#!/usr/bin/env python3
"""Prints the files that clang-tidy reads after a change.

    tools/files_to_tidy.py COMPILE_COMMANDS CHANGED...

They are the changed compiled files, and the compiled files that include a changed file, directly or through our
headers. Their order is by the number of includes between.
"""
import json
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def includes(path):
    """Returns our own headers that a file includes."""
    file = ROOT / path
    return INCLUDE.findall(file.read_text(encoding="utf-8")) if file.is_file() else []


def distances(files, changed):
    """Returns {file: number of includes from it to a changed file} of the files that reach a changed file."""
    includers, seen, queue = {}, set(), list(files)
    while queue:
        path = queue.pop()
        if path in seen:
            continue
        seen.add(path)
        for header in includes(path):
            includers.setdefault(header, set()).add(path)
            queue.append(header)
    found = {path: 0 for path in changed}
    queue = list(found)
    for path in queue:
        for includer in sorted(includers.get(path, ())):
            if includer not in found:
                found[includer] = found[path] + 1
                queue.append(includer)
    return {path: found[path] for path in files if path in found}


def main():
    entries = json.loads(Path(sys.argv[1]).read_text())
    compiled = {os.path.relpath(entry["file"], ROOT) for entry in entries if entry["file"].endswith(".cc")}
    files = sorted(path for path in compiled if not path.startswith("build/"))
    reached = distances(files, sys.argv[2:])
    print(*sorted(reached, key=lambda path: (reached[path], path)), sep="\n", end="\n" * bool(reached))


if __name__ == "__main__":
    main()

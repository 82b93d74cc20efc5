#!/usr/bin/env python3
"""Checks with clang's thread safety analysis that what a mutex guards is used only where it is held.

    tools/check_locks.py COMPILE_COMMANDS [FILE...]
    tools/check_locks.py COMPILE_COMMANDS --changed FILE...

Without files, all that lock: those that include engine/base/mutex.h themselves or by a header that
they include. With --changed, those of them that a change in these files reaches: they are among them, or
include one of them, by whatever headers of ours. Prints what clang says and exits with 1 when it says
anything.
"""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "engine/base/mutex.h"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
ANALYSIS = ["-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Wthread-safety-beta",
            "-Werror=thread-safety", "-Werror=thread-safety-beta"]
# What clang needs of a command for another compiler.
KEPT = re.compile(r"-(D|I|std=|f(no-)?exceptions)")


def includes(path, known={}):
    """Our own headers that a file names."""
    if path not in known:
        file = ROOT / path
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        known[path] = INCLUDE.findall(text)
    return known[path]


def locks(path):
    return HEADER in includes(path) or any(HEADER in includes(header) for header in includes(path))


def reached(path, changed, seen):
    """Whether the file is among those changed, or includes one of them."""
    if path in changed:
        return True
    seen.add(path)
    return any(reached(header, changed, seen) for header in includes(path) if header not in seen)


def arguments(command):
    """Macros, include folders and language of a compile command."""
    words = shlex.split(command)
    kept = []
    for at, word in enumerate(words):
        if word == "-isystem":
            kept += words[at:at + 2]
        elif KEPT.match(word):
            kept.append(word)
    return kept


def analyse(entry):
    command = ["clang++", *ANALYSIS, *arguments(entry["command"]), entry["file"]]
    run = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    return run.returncode, run.stderr


def main():
    wanted = set(sys.argv[2:])
    changed = None
    if sys.argv[2:3] == ["--changed"]:
        wanted, changed = set(), set(sys.argv[3:])
        if os.path.relpath(__file__, ROOT) in changed:
            changed = None  # what it says of any file may be another thing
    entries = {}
    for entry in json.loads(Path(sys.argv[1]).read_text()):
        path = os.path.relpath(entry["file"], ROOT)
        if path.endswith(".cc") and (path in wanted or not wanted and locks(path) and
                                     (changed is None or reached(path, changed, set()))):
            entries.setdefault(path, entry)  # once, though several targets have it
    failed = False
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for status, said in pool.map(analyse, entries.values()):
            failed = failed or status != 0
            sys.stderr.write(said)
    print(f"{len(entries)} files with locks")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

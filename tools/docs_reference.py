#!/usr/bin/env python3
"""Writes docs/reference.md, the help of each program and command; with --check it compares the page.

The programs must be in HILBERT_RING_BIN_DIR, and the Python package on PYTHONPATH.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"
HEAD = """# Reference: options of the programs

Made by `tools/docs_reference.py` (`./dev docs`) from the programs' own `--help`; a test compares it. Other pages
describe settings ([settings.md](settings.md)), the fields of a job ([job_spec.md](job_spec.md)), calls and
messages ([protocol.md](protocol.md)), errors ([errors.md](errors.md)) and metrics ([metrics.md](metrics.md)). Options
and notes of several commands appear once, at the first command.
"""
PYTHON = "/usr/bin/python3"  # its version of argparse made the page
HELP_SECONDS = 60


def help_of(words):
    """Returns a command's help, without the settings of the environment."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("HILBERT_RING_")}
    done = subprocess.run([*map(str, words), "--help"], capture_output=True, text=True,
                          timeout=HELP_SECONDS, env={**environment, "COLUMNS": "120",
                                                 "HILBERT_RING_PYTHON": PYTHON})
    if done.returncode != 0:
        raise SystemExit(f"{words} --help ended with {done.returncode}: {done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def commands_of(text):
    """Returns the commands in a help of CLI11 (below "Subcommands:") or argparse (below a name in capitals)."""
    _, found, listed = text.partition("\nSubcommands:\n")
    if found:
        return [line.split()[0] for line in listed.split("\n\n")[0].splitlines()
                if re.match(r"  \S", line)]
    _, found, listed = text.partition("\npositional arguments:\n  ")
    if not found or not re.match(r"[A-Z]+\n", listed):
        return []
    return re.findall(r"^    (\w+) ", listed.split("\n\n")[0], re.MULTILINE)


def dense(text, title, seen):
    """Returns a help with one line for each option, without --help. It refers to earlier commands for their options.

    seen: lines and parts of earlier helps, with their commands.
    """
    usage, found, rest = text.partition("usage: ")
    if found:  # argparse's help repeats all options in the usage
        usage, _, rest = rest.partition("\n\n")
        usage = re.sub(r"\s*\[[^][]*(\[[^][]*\][^][]*)*\]", "", usage)
        text = f"usage: {' '.join(usage.split())} [OPTIONS]\n\n{rest}"
    text = re.sub(r"^  -h,.*\n?", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(  +\S+( \S+)*)\n {20,}(?=\S)", r"\1  ", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=\S)\n {20,}(?=\S)", " ", text)
    lines = []
    for part in re.split(r"\n{2,}", text):
        part = part.rstrip("\n")
        if part.endswith(":") or seen.setdefault(part, title) != title:
            continue
        common = {}
        for line in part.splitlines():
            line = re.sub(r"^(  +\S.*?) {2,}", r"\1  ", line)
            option = re.match(r" +(--[a-z-]+)", line)
            whose = seen.setdefault(line, title)
            if option and whose != title:
                common.setdefault(whose, []).append(option[1])
            else:
                lines.append(line)
        lines += [f"  as of {whose}: {', '.join(names)}" for whose, names in common.items()]
    return "\n".join(lines)


def sections(title, words, seen):
    """Yields the sections of a program and of all its commands."""
    text = help_of(words)
    yield f"## `{title}`\n\n```text\n{dense(text, title, seen)}\n```\n"
    for command in commands_of(text):
        yield from sections(f"{title} {command}", [*words, command], seen)


def page():
    programs = Path(os.environ["HILBERT_RING_BIN_DIR"])
    parts, seen = [HEAD], {}
    for program in ("hilbert-ring-coordinator", "hilbert-ring-worker", "hilbert-ring"):
        parts += sections(program, [programs / program], seen)
    parts += sections("python -m hilbert_ring.convert", [PYTHON, "-m", "hilbert_ring.convert"], seen)
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    made = page()
    if not arguments.check:
        PAGE.write_text(made)
        return 0
    there = PAGE.read_text() if PAGE.exists() else ""
    if there == made:
        return 0
    sys.stderr.writelines(line + "\n" for line in list(difflib.unified_diff(
        there.splitlines(), made.splitlines(), str(PAGE), "the programs", lineterm=""))[:60])
    print(f"{PAGE} differs from the programs' help: run ./dev docs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

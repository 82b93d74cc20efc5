#!/usr/bin/env python3
"""Makes docs/benchmarks.md of bench/page.md and the records in bench/results, or with --check compares it.

A line of the page that stands for a table:

    {{table RECORD NUMBER}}                          all of it; NUMBER counts the record's tables from 1
    {{table RECORD NUMBER | COLUMN = VALUE; VALUE | show COLUMN; COLUMN}}
                                                     rows whose cell is one of the values, these columns

RECORD is a path below bench/results without .json. A table that is not shown whole is followed by a link to its record.
"""
import argparse
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import benchmark_tables  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
PAGE, RESULTS, OUT = ROOT / "bench/page.md", ROOT / "bench/results", ROOT / "docs/benchmarks.md"
MADE = "<!-- Made by ./dev docs of bench/page.md and bench/results: change those. -->\n"


def table(words, results):
    target, *parts = [part.strip() for part in words.split("|")]
    name, number = target.split()
    path = results / f"{name}.json"
    whole = json.loads(path.read_text())["tables"][int(number) - 1]
    columns, rows = whole["columns"], whole["rows"]
    shown = columns
    for part in parts:
        if part.startswith("show "):
            shown = re.split(r";\s*", part[len("show "):])
        else:
            column, value = (side.strip() for side in part.split(" = "))
            rows = [row for row in rows if row[columns.index(column)] in re.split(r";\s*", value)]
    if not rows:
        raise ValueError(f"no row is left: {words}")
    at = [columns.index(column) for column in shown]
    text = benchmark_tables.to_markdown(shown, [[row[i] for i in at] for row in rows])
    if parts:
        text += f"\nAll of it: [{name}.json](../bench/results/{name}.json).\n"
    return text


def render(page, results):
    lines = []
    for line in page.splitlines():
        directive = re.fullmatch(r"\{\{table (.*)\}\}", line)
        lines.append(table(directive[1], results) if directive else line + "\n")
    title, rest = "".join(lines).split("\n", 1)
    return f"{title}\n\n{MADE}{rest}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    made = render(PAGE.read_text(), RESULTS)
    if not parser.parse_args().check:
        OUT.write_text(made)
    elif OUT.read_text() != made:
        print("docs/benchmarks.md is not what bench/page.md and bench/results say: ./dev docs",
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

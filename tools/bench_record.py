#!/usr/bin/env python3
"""Runs a benchmark, prints its output, and records its tables as FOLDER/<machine>-<date>/NAME.json.

    tools/bench_record.py --results bench/results --name tls --as './dev bench tls' -- python3 bench/tls_cost.py ...

./dev bench runs every benchmark this way. A successful run replaces the benchmark's record of the same machine and
day. Cells are the printed texts. Each row of a table has a line of the file, so that git diff compares rows.
"""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path


def processor(cpuinfo):
    """Returns the processor's name and its best instruction set that kernels use: "AMD EPYC", "avx512-bf16"."""
    name = re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.M)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", cpuinfo, re.M)
    has = set(flags[1].split()) if flags else set()
    widest = next((name for flag, name in (("amx_bf16", "amx-bf16"), ("avx512_bf16", "avx512-bf16"),
                                           ("avx512f", "avx512"), ("avx2", "avx2"), ("asimd", "neon")) if flag in has), "")
    return (name[1] if name else "unknown processor"), widest


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def revision():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return done.stdout.strip()


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def parse(text):
    """Returns the tables of a Markdown text, and its other lines. A table's title is the last line before it."""
    tables, others, lines, at, title = [], [], text.splitlines(), 0, ""
    while at < len(lines):
        if lines[at].startswith("|") and re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", "".join(lines[at + 1:at + 2]).strip()):
            columns, rows = cells_of(lines[at]), []
            named = [column for column in columns if column]
            if len(set(named)) < len(named):
                raise ValueError(f"two columns of one name: {lines[at]}")
            at += 2
            while at < len(lines) and lines[at].startswith("|"):
                rows.append(cells_of(lines[at]))
                if len(rows[-1]) != len(columns):
                    raise ValueError(f"{len(rows[-1])} cells under {len(columns)} columns: {lines[at]}")
                at += 1
            tables.append({"title": title, "columns": columns, "rows": rows})
            continue
        if lines[at].strip():
            others.append(lines[at].rstrip())
            title = lines[at].strip("#: ")
        at += 1
    return tables, others


def to_json(record):
    def one(value):
        return json.dumps(value, ensure_ascii=False)

    tables = []
    for table in record["tables"]:
        rows = ",\n".join(f"      {one(row)}" for row in table["rows"])
        tables.append(f'    {{"title": {one(table["title"])},\n     "columns": {one(table["columns"])},\n'
                      f'     "rows": [\n{rows}\n    ]}}')
    fields = [f"  {one(key)}: {one(value)}" for key, value in record.items() if key not in ("tables", "lines")]
    for key, items in (("tables", tables), ("lines", [f"    {one(line)}" for line in record["lines"]])):
        fields.append(f'  "{key}": [\n' + ",\n".join(items) + "\n  ]" if items else f'  "{key}": []')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def run(command):
    """Runs a command and prints its output. Returns the exit status and stdout."""
    printed = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line)
    return process.returncode, "".join(printed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--as", dest="shown", help="recorded command; default: the program's")
    parser.add_argument("--machine", help="name of the machine for the folder; default: its processor")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        parser.error("a command is missing, after --")
    name, widest = processor(Path("/proc/cpuinfo").read_text())
    date = datetime.date.today().isoformat()
    load = os.getloadavg()[0]
    status, printed = run(command)
    if status != 0:
        print(f"bench: {given.name} ended with {status}, nothing is recorded", file=sys.stderr)
        return status if status > 0 else 1
    tables, lines = parse(printed)
    lines = [line for line in lines if not Path(line).is_file()]  # `hilbert-ring bench` prints its page's path
    folder = given.results / f"{slug(given.machine or f'{name} {widest}')}-{date}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{given.name}.json"
    path.write_text(to_json({
        "name": given.name, "command": given.shown or " ".join(command), "date": date,
        "machine": f"{name} ({widest}), {len(os.sched_getaffinity(0))} cores",
        "load": f"{load:.1f} before, {os.getloadavg()[0]:.1f} after", "revision": revision(),
        "tables": tables, "lines": lines}))
    print(f"bench: recorded in {path}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

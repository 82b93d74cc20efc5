"""The record of a benchmark: JSON with the tables that it printed, one row a line.

    record = {"name": "tls", "command": "./dev bench tls", "date": "2026-11-22", "machine": "...", "load": "9 to 13",
              "tables": [{"title": "...", "columns": [...], "rows": [[...], ...]}], "lines": [...]}

Cells are texts as the program printed them, so that a page made of them says what was measured and no more.
"""
import json
import re

KEYS = ("name", "command", "date", "machine", "load", "revision", "tables", "lines")


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def is_rule(line):
    return re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", line.strip()) is not None


def parse(text):
    """Tables of a Markdown text, and its other lines. A table's title is the last line before it, without marks."""
    tables, others, lines, at, title = [], [], text.splitlines(), 0, ""
    while at < len(lines):
        if lines[at].startswith("|") and at + 1 < len(lines) and is_rule(lines[at + 1]):
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
    """The same record always gives the same bytes; each row has a line of its own, for comparison."""
    def one(value):
        return json.dumps(value, ensure_ascii=False)

    fields = [f'  {one(key)}: {one(record[key])}' for key in KEYS[:6] if key in record]
    tables = []
    for table in record["tables"]:
        rows = ",\n".join(f"      {one(row)}" for row in table["rows"])
        tables.append(f'    {{"title": {one(table["title"])},\n     "columns": {one(table["columns"])},\n'
                      f'     "rows": [\n{rows}\n    ]}}')
    fields.append('  "tables": [\n' + ",\n".join(tables) + "\n  ]" if tables else '  "tables": []')
    lines = ",\n".join(f"    {one(line)}" for line in record.get("lines", []))
    fields.append(f'  "lines": [\n{lines}\n  ]' if lines else '  "lines": []')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def to_markdown(columns, rows):
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines).replace("|  |", "| |") + "\n"

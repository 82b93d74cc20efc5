"""The table of fields in docs/job_spec.md has exactly the fields of the parser."""
import re

from page_blocks import ROOT


def table():
    """Fields as the table writes them, those of the ordering with `ordering.` before them."""
    rows = (ROOT / "docs/job_spec.md").read_text().split("## Fields\n")[1].strip().split("\n\n")[0].splitlines()[2:]
    found = []
    for row in rows:
        names = re.findall(r"`([\w.]+)`", row.split("|")[1])
        prefix = "ordering." if names[0].startswith("ordering.") else ""
        found += [prefix + name.removeprefix("ordering.") for name in names]
    return found


def parsed():
    """Returns the parser's fields."""
    source = (ROOT / "engine/spec/job_spec_json.cc").read_text()
    spec, ordering = (re.findall(r'"(\w+)"', re.search(rf"{name}\(\) {{.*?{{(.*?)}};", source, re.S)[1])
                      for name in ("SpecFields", "OrderingFields"))
    assert "ordering" in spec
    return [*(field for field in spec if field != "ordering"), *(f"ordering.{field}" for field in ordering)]


def test_the_table_and_the_parser_have_the_same_fields():
    assert len(table()) > 20 and len(table()) == len(set(table()))
    assert sorted(table()) == sorted(parsed())

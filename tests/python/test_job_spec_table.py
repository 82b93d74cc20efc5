"""The README's table of a job's fields has those that the parser knows, and no other."""
import json
import re
import subprocess

import pytest

from hilbert_ring.local_service import find_program
from page_blocks import ROOT

JOB = {"tokens": 64, "heads": 1, "head_dim": 8, "segments": [16], "dilations": [1]}
VALUES = {"kv_heads": 1, "value_dim": 8, "dtype": "float32", "mixing": "lse", "causal": True, "scale": 0.5, "tail": "mask",
          "average_groups": True, "sequence_lengths": [64], "curve": "hilbert", "scope": "qkv", "window": 16,
          "grid": [8, 8], "coords": [[0, 0]] * 64, "coords_file": "coords.npy", "coords_axes": 2}


def table():
    """Fields as the table writes them, those of the ordering with `ordering.` before them."""
    rows = (ROOT / "README.md").read_text().split("### The job spec\n")[1].strip().split("\n\n")[0].splitlines()[2:]
    found = []
    for row in rows:
        names = re.findall(r"`([\w.]+)`", row.split("|")[1])
        prefix = "ordering." if names[0].startswith("ordering.") else ""
        found += [prefix + name.removeprefix("ordering.") for name in names]
    return found


def parsed():
    """Fields that the parser lists."""
    source = (ROOT / "engine/spec/job_spec_json.cc").read_text()
    spec, ordering = (re.findall(r'"(\w+)"', re.search(rf"{name}\(\) {{.*?{{(.*?)}};", source, re.S)[1])
                      for name in ("SpecFields", "OrderingFields"))
    assert "ordering" in spec
    return [*(field for field in spec if field != "ordering"), *(f"ordering.{field}" for field in ordering)]


def refusal(spec):
    """What `plan` says against it; empty when it plans."""
    done = subprocess.run([find_program("hilbert-ring"), "plan", "--local", "--spec", "-"], input=json.dumps(spec),
                          capture_output=True, text=True, timeout=60)
    return done.stderr if done.returncode != 0 else ""


def test_the_table_and_the_parser_have_the_same_fields():
    assert len(table()) > 20 and len(table()) == len(set(table()))
    assert sorted(table()) == sorted(parsed())


@pytest.mark.parametrize("field", table())
def test_a_field_of_the_table_is_known(field):
    name = field.removeprefix("ordering.")
    given = {name: {**JOB, **VALUES}[name]}
    if name == "coords_axes":
        given["coords"] = VALUES["coords"]
    assert "unknown field" not in refusal({**JOB, **({"ordering": given} if "." in field else given)})


def test_another_field_is_refused():
    assert 'unknown field "foo"' in refusal({**JOB, "foo": 1})
    assert 'unknown field "foo"' in refusal({**JOB, "ordering": {"foo": 1}})

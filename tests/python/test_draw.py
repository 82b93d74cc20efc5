"""Pictures, compared with the definition of a pattern, with a plan, and with a trace's spans."""
import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import hilbert_ring
from client_rig import program
from hilbert_ring.__main__ import main
from hilbert_ring.draw.curves import phases, seen, token_order
from hilbert_ring.draw.plot import Axis, Series, plot

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

import attention_oracle  # noqa: E402

RANDOM = np.random.default_rng(5)
COORDS_2D = RANDOM.permutation(400)[:150, None] // [[1, 20]] % 20
COORDS_3D = RANDOM.integers(0, 2000, (150, 3))
KINDS = {"hilbert": hilbert_ring.Hilbert, "morton": hilbert_ring.Morton}


def of_oracle(ordering):
    """Returns the same ordering in the oracle's form."""
    if ordering is None:
        return None
    fields = {"curve": ordering.curve, "scope": ordering.scope, "window": ordering.window}
    if ordering.grid:
        fields["grid"] = list(ordering.grid)
    if ordering.coords is not None:
        fields["coords"] = ordering.coords
    return fields


@pytest.mark.parametrize("curve", KINDS)
@pytest.mark.parametrize("tokens, options", [
    (1, {}), (2, {}), (150, {}), (256, {}), (150, {"window": 32}), (150, {"grid": (10, 15)}),
    (120, {"grid": (4, 5, 6)}), (1, {"grid": (1, 1)}), (150, {"coords": COORDS_2D}),
    (150, {"coords": COORDS_3D})])
def test_orders_are_the_oracles(curve, tokens, options):
    ordering = KINDS[curve](**options)
    assert np.array_equal(token_order(tokens, ordering),
                          attention_oracle.token_order(tokens, of_oracle(ordering)))


@pytest.mark.parametrize("mixing", ["head_groups", "lse"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pairs, ordering", [
    ([(40, 40)], None), ([(13, 13), (20, 20), (7, 7)], None), ([(40, 40)], hilbert_ring.Hilbert(grid=(5, 8))),
    ([(40, 40)], hilbert_ring.Morton(scope="kv")), ([(25, 25), (15, 15)], hilbert_ring.Hilbert(coords=COORDS_2D[:40])),
    ([(3, 40), (0, 5), (2, 0), (9, 9)], None), ([(11, 40)], hilbert_ring.Hilbert(grid=(5, 8))),
    ([(9, 40)], hilbert_ring.Morton(scope="kv"))])
def test_a_query_is_drawn_to_see_what_moves_its_output(mixing, causal, pairs, ordering):
    compare_with_oracle(pairs, {"segments": [8, 16, 100], "dilations": [1, 3, 4]}, mixing, causal, ordering)


@pytest.mark.parametrize("align", ["end", "start"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(None, None), (3, 1)])
def test_queries_of_another_number_are_drawn_where_they_are(align, causal, window):
    compare_with_oracle([(9, 4), (4, 9), (1, 1)], {"segments": [9], "dilations": [1]}, "lse", causal, None,
                        align=align, window=window)


def compare_with_oracle(pairs, pattern, mixing, causal, ordering, **more):
    lengths, key_lengths = map(list, zip(*pairs))
    tokens, keys, heads = sum(lengths), sum(key_lengths), 5
    v = np.repeat(np.eye(keys)[:, None], heads, axis=1)   # out[n, h, m] > 0: n sees m
    out, _ = attention_oracle.attention(
        RANDOM.standard_normal((tokens, heads, 4)), RANDOM.standard_normal((keys, heads, 4)), v, mixing=mixing,
        causal=causal, ordering=of_oracle(ordering), sequence_lengths=lengths, key_sequence_lengths=key_lengths,
        **pattern, **more)
    drawn = np.zeros((heads, tokens, keys), bool)
    for phase in phases(heads, mixing=mixing, **pattern):
        drawn[list(phase.heads)] |= seen(pairs, phase, causal=causal, ordering=ordering, **pattern, **more)
    assert np.array_equal(drawn, out.transpose(1, 0, 2) > 0)


def test_a_window_is_drawn(tmp_path):
    (tmp_path / "spec.json").write_text('{"segments": [64], "dilations": [1], "window": [3, null], "softcap": 2}')
    assert "mixing head_groups, window 3, none" in words(drawn(tmp_path, "pattern", "--spec", str(tmp_path / "spec.json")))


def drawn(tmp_path, *line):
    out = tmp_path / "picture.svg"
    assert main(["draw", *line, "--out", str(out)]) == 0
    return ElementTree.parse(out).getroot()


def words(root):
    return [text.text for text in root.findall(".//{*}text")]


def test_pattern_has_a_panel_for_each_branch_and_offset(tmp_path):
    root = drawn(tmp_path, "pattern", "--segments", "16,64", "--dilations", "1,4",
                 "--mixing", "lse")
    assert "w 64, r 4, offset 3: head 3" in words(root)
    assert len(root.findall("{*}path")) == 5            # one of branch 0, four offsets of branch 1


def test_pattern_of_a_spec_with_keys_of_another_number(tmp_path):
    (tmp_path / "spec.json").write_text(json.dumps({
        "tokens": 3, "key_tokens": 30, "segments": [30], "dilations": [1], "causal": True, "align": "start",
        "sequence_lengths": [2, 1], "key_sequence_lengths": [20, 10]}))
    root = drawn(tmp_path, "pattern", "--spec", str(tmp_path / "spec.json"))
    assert "Which query (down) sees which key (across), 3 queries, 30 keys" in words(root)
    assert "mixing head_groups, causal, align start" in words(root)
    panel = root.findall("{*}rect")[-1]
    assert float(panel.get("width")) == pytest.approx(10 * float(panel.get("height")), rel=1e-3)


def test_order_visits_each_cell_once(tmp_path):
    root = drawn(tmp_path, "order", "--grid", "4,8", "--segments", "8", "--curve", "hilbert")
    points = root.find("{*}polyline").get("points").split()
    assert len(points) == len(set(points)) == 32
    assert len(root.findall("{*}path")) == 4            # a colour for each segment


def test_trace_shows_spans_of_all_tracks(tmp_path):
    def named(kind, process, track, name):
        return {"name": kind, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}

    def span(name, process, track, begin, duration):
        return {"name": name, "ph": "X", "pid": process, "tid": track, "ts": begin, "dur": duration}

    trace = {"otherData": {"job_id": "a<b", "tokens": 1000, "total_seconds": 0.01},
             "traceEvents": [named("process_name", 0, 0, "job a<b"),
                             named("thread_name", 0, 0, "phases"), span("compute", 0, 0, 0, 9000),
                             named("process_name", 1, 0, "worker 0"),
                             named("thread_name", 1, 2, "attend"), span("attend", 1, 2, 0, 1000),
                             span("attend", 1, 2, 1000, 1000), span("attend", 1, 2, 5000, 1000)]}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    root = drawn(tmp_path, "trace", str(tmp_path / "trace.json"))
    titles = [title.text for title in root.findall("{*}rect/{*}title")]
    assert titles == ["compute: 0.00 to 9.00 ms", "attend: 0.00 to 2.00 ms",
                      "attend: 5.00 to 6.00 ms"]
    assert "Job a<b: 1,000 tokens, 10 ms" in words(root)


@pytest.mark.parametrize("line, said", [
    (["pattern", "--tokens", "300", "--segments", "16"], "tokens is 300"),
    (["pattern"], "segments are missing"),
    (["order", "--grid", "4,4,4", "--segments", "8", "--curve", "hilbert"], "3 axes"),
    (["order", "--grid", "4,4", "--tokens", "20", "--segments", "8"], "16 cells"),
    (["trace", __file__], "no trace"),
    # The texts of `hilbert-ring plan`.
    *((["pattern", "--segments", "16", *flags], said) for flags, said in [
        (["--tokens", "1_0"], "--tokens: 1_0, must be a whole number in decimal digits;"),
        (["--tokens", str(1 << 63)], f"--tokens: {1 << 63} is beyond 64 bits;"),
        (["--tokens", "0"], "INVALID_ARGUMENT: tokens is 0, must be at least 1\n"),
        (["--head-dim", "12"], "head_dim is 12, must be 8 to 256 in steps of 8\n"),
        (["--sequence-lengths", "-1,65"], "sequence_lengths[0] is -1, must be at least 0\n"),
        (["--key-tokens", "-1"], "key_tokens is -1, must be at least 0\n"),
        (["--key-sequence-lengths", "30"], "key_sequence_lengths add up to 30, but key_tokens is 64\n"),
        (["--key-sequence-lengths", "30,34"],
         "key_sequence_lengths has 2 entries, must have as many as sequence_lengths: 0\n"),
        (["--key-tokens", "20"], "tokens is 64 with key_tokens 20, segments[0] is 16, must be at least the keys\n"),
        (["--key-tokens", "70", "--align", "start"],
         "align is start with 64 queries and 70 keys, segments[0] is 16, must be at least the keys\n"),
        (["--key-tokens", "9", "--dilations", "2"], "tokens is 64 with key_tokens 9, dilations[0] is 2, must be 1\n"),
        (["--key-tokens", "9", "--curve", "hilbert"], "tokens is 64 with key_tokens 9, ordering must be absent\n"),
        (["--key-tokens", "80", "--curve", "hilbert", "--grid", "4,9"],
         "ordering.grid [4, 9] has 36 cells, but key_tokens is 80: a grid must hold "),
        (["--curve", "hilbert", "--grid", "8,8", "--ordering-window", "8"],
         "ordering.window is 8, must be 0 with ordering.grid\n"),
        (["--window", "8"], "--window: 8, must be LEFT,RIGHT, each a whole number or none; an ordering has --ordering-window;"),
        (["--window", "-1,none"], "window[0] is -1, must be at least 0\n"),
        (["--window", "8,none", "--dilations", "2"], "window is [8, null], must be absent with dilations[0] 2\n"),
        (["--curve", "hilbert", "--grid", "4,9"], "ordering.grid [4, 9] has 36 cells, but tokens is 64: a grid must hold ")]),
    (["plan", "--segments", "16", "--workers", "0"], "--workers: Value 0 not in range 1 to 4096;")])
def test_what_cannot_be_drawn_is_refused(capsys, tmp_path, line, said):
    assert main(["draw", *line, "--out", str(tmp_path / "none.svg")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "none.svg").exists()


def test_the_command_line_draws_the_same(capsys, tmp_path):
    line = ["draw", "order", "--grid", "8,8", "--segments", "16", "--curve", "hilbert", "--out"]
    assert main([*line, str(tmp_path / "own.svg")]) == 0
    done = program(*line, tmp_path / "by_program.svg")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'by_program.svg'}\n"), done.stderr
    assert (tmp_path / "own.svg").read_bytes() == (tmp_path / "by_program.svg").read_bytes()
    done = program(*line, tmp_path / "by_program.svg", "--tokens", "9")
    assert done.returncode == 2 and done.stderr.startswith("hilbert-ring: ")


def test_the_command_line_runs_no_module_of_the_current_folder(tmp_path):
    for name in ("json", "types", "argparse", "runpy", "hilbert_ring"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the current folder')\n")
    done = program("draw", "pattern", "--tokens", "64", "--segments", "16", "--out", "picture.svg", cwd=tmp_path,
                   environment={"PYTHONPATH": ":" + os.environ.get("PYTHONPATH", "")})
    assert (done.returncode, done.stdout) == (0, "picture.svg\n"), done.stderr


@pytest.mark.parametrize("spec, expected", [
    ('{"segments": [4], "dilation": [1]}', "unknown field dilation"),
    ('{"segments": [4], "segments": [8]}', 'field "segments" is given more than once'),
    ('{"segments": [4]} {}', "Extra data"),
    ('{"segments": [4]}\0', "Extra data"),
    ('{"segments": [4], "scale": NaN}', "NaN is no number"),
    ("[" * 100_000, "nests too deep"),
    ('{"segments": [4], "ordering": 3}', "ordering is 3, must be an object"),
    ('{"segments": [4], "ordering": {"coords": [[1, 2], [3]]}}', "ordering.coords is a list, must be an array of integers"),
    ('{"segments": [4], "ordering": {"coords_file": "job.json"}}', "job.json: not a .npy file: it does not start with"),
])
def test_a_spec_that_is_no_job_is_refused(capsys, tmp_path, spec, expected):
    (tmp_path / "job.json").write_text(spec)
    assert main(["draw", "pattern", "--spec", str(tmp_path / "job.json"), "--out", "x"]) == 2
    assert expected in capsys.readouterr().err


def test_a_plot_puts_values_where_the_axes_say():
    picture = plot("t", Axis("x", log=2), Axis("y"), [Series("a", [(2, 0), (8, 5), (32, 10)])])
    root = ElementTree.fromstring(picture.document())
    x, y = zip(*((float(c.get("cx")), float(c.get("cy"))) for c in root.findall("{*}circle")))
    assert (x[0], x[2]) == (86, 720 - 24)                          # the axis, end to end
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.02)     # equal factors, equal distances
    assert y[0] - y[1] == pytest.approx(y[1] - y[2], abs=0.02) and y[2] < y[0]

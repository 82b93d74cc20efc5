"""Files and arithmetic of benchmarks, at tiny sizes."""
import json
import time
from xml.etree import ElementTree

import numpy as np
import pytest

from hilbert_ring.__main__ import main
from hilbert_ring.bench import load, project


@pytest.fixture(autouse=True)
def no_server(monkeypatch):
    monkeypatch.delenv("HILBERT_RING_SERVER", raising=False)


def measured(tmp_path, name, *flags):
    line = ["bench", name, "--rounds", "1", "--out", str(tmp_path), *flags]
    assert main(line) == 0
    figures = json.loads((tmp_path / f"{name}.json").read_text())
    assert figures["command"] == line and figures["benchmark"] == name
    page = (tmp_path / f"{name}.md").read_text()
    assert f"![{page.splitlines()[0][2:]}]({name}.svg)" in page
    assert page.count("\n| ") == len(figures["rows"]) + 2   # heading, line, rows
    assert all(note in page for note in figures["notes"])
    plot = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
    assert plot.findall("{*}circle")
    return figures


def test_a_sweep_ends_where_the_service_refuses(tmp_path):
    figures = measured(tmp_path, "sweep", "--first", "512", "--memory-limit", "48MiB")
    rows = figures["rows"]
    assert {row["workers"] for row in rows} == {1, 2}
    assert [row["tokens"] for row in rows if row["workers"] == 1] == [512, 1024, 2048]
    for row in rows:
        assert row["tokens_a_second"] == pytest.approx(row["tokens"] / row["total_seconds"])
        assert row["total_least"] <= row["total_seconds"] <= row["total_most"]
        assert row["memory"] <= 48 << 20
    # A single worker holds Q, K, V and out of 8 heads of 64 numbers, and lse.
    assert rows[0]["memory_a_token"] == pytest.approx(4 * 8 * 64 * 4 + 8 * 4, rel=0.01)
    assert len(figures["notes"]) == 2 and "4,096 tokens on 1 of the workers: refused" in (
        figures["notes"][0])
    assert all("DOES_NOT_FIT" in note for note in figures["notes"])


def test_dilation_has_a_row_for_each_case(tmp_path, client):
    figures = measured(tmp_path, "dilation", "--tokens", "256", "512", "--dilations", "1", "2",
                       "--segment", "128", "--server", client.server)
    assert [(row["tokens"], row["dilation"], row["order"]) for row in figures["rows"]] == [
        (tokens, dilation, name) for tokens in (256, 512) for dilation in (1, 2)
        for name in ("none", "hilbert")]
    assert all(row["compute_seconds"] > 0 for row in figures["rows"])


def test_ablation_runs_each_part_with_and_without(tmp_path):
    figures = measured(tmp_path, "ablate", "--tokens", "256")
    assert len(figures["rows"]) == 3
    for row in figures["rows"]:
        assert row["ratio"] == pytest.approx(row["on_seconds"] / row["off_seconds"])


def test_projection_reports_its_error_first(tmp_path):
    figures = measured(tmp_path, "project", "--scale", "256", "--project-tokens", "100000",
                       "1000000000", "--project-workers", "2", "1024",
                       "--worker-memory", str(2**30))
    rows = figures["rows"]
    held = [row for row in rows if row["kind"] == "predicted"]
    assert len(held) >= 6
    for row in held:
        assert row["exchanged_error"] <= 0.05 and row["memory_error"] <= 0.05
        assert row["seconds_error"] == pytest.approx(
            abs(row["seconds"] - row["measured"]) / row["measured"])
    assert figures["notes"][0].startswith(f"Error of {len(held)} predicted jobs")
    projected = {(row["tokens"], row["workers"]): row for row in rows
                 if row["kind"] == "projected"}
    assert "does not fit" in projected[10**9, 2]["job"] and "seconds" not in projected[10**9, 2]
    assert projected[10**5, 1024]["memory"] < projected[10**5, 2]["memory"]
    assert projected[10**5, 2]["seconds"] > 0


def test_orders_are_counted_and_chosen(tmp_path, client):
    figures = measured(tmp_path, "order", "--grid", "32", "32", "--segment", "64", "--server",
                       client.server)
    by_name = {row["order"]: row for row in figures["rows"]}
    assert by_name["hilbert"]["grid_jump"] == 1.0          # each step to a neighbour
    assert by_name["row-major"]["token_jump"] == 1.0
    # A segment of 64 is 8 x 8 along the curve, two rows of 32 without it.
    assert by_name["hilbert"]["radius"] == pytest.approx(np.sqrt(2 * (64 - 1) / 12))
    assert by_name["row-major"]["radius"] == pytest.approx(
        np.sqrt((32**2 - 1) / 12 + (4 - 1) / 12))
    assert figures["notes"][0].startswith("By the plan's cost: hilbert, since ")


def test_load_counts_jobs_of_both_loops(tmp_path, client):
    figures = measured(tmp_path, "load", "--callers", "1", "2", "--seconds", "0.3", "--of-capacity",
                       "0.5", "--deadline", "60", "--server", client.server)
    assert [(row["loop"], row["callers"]) for row in figures["rows"][:2]] == [
        ("closed", 1), ("closed", 2)]
    for row in figures["rows"]:
        assert row["failed"] == 0 and row["goodput"] == row["jobs_a_second"] > 0
        assert 0 < row["p50"] <= row["p90"] <= row["p99"] <= row["most"]
    assert figures["rows"][2]["loop"] == "open"


def test_an_open_loop_counts_time_from_when_a_job_was_due(monkeypatch):
    monkeypatch.setattr(load, "MOST_CALLERS", 1)   # due jobs wait for one caller
    row = load.open_loop(lambda: time.sleep(0.02), rate=200, seconds=0.1, deadline=0.03)
    jobs = round(row["offered"] * 0.1)
    assert jobs > 5 and row["callers"] == 1 and row["failed"] == 0
    assert row["most"] >= 0.02 * jobs - 0.1        # the last was due by 0.1 s, and came after all
    assert row["goodput"] < row["jobs_a_second"]


def test_fit_finds_rates_and_none_below_zero():
    random = np.random.default_rng(2)
    rows = random.uniform(1, 10, (12, 3)) * [1, 1e6, 1e9]
    assert project.fit(rows, rows @ [0.5, 2e-7, 3e-10]) == pytest.approx([0.5, 2e-7, 3e-10],
                                                                         rel=1e-3)
    assert (project.fit(rows, rows @ [0.5, -1e-8, 3e-10]) >= 0).all()


def test_fit_finds_what_is_computed_while_rows_come():
    random = np.random.default_rng(3)
    tables = random.uniform(1, 10, (16, 4)) * [0, 1e8, 1e10, 1e6] + [1, 0, 0, 0]
    early = np.tile([0.0, 1.0], 8)
    truth = project.Model(np.array([0.1, 3e-9, 2e-11, 1e-8]), 0.6)
    found = project.fit_model(tables, early, [truth.seconds(*job) for job in zip(tables, early)])
    assert found.hidden == pytest.approx(0.6)
    assert found.rates == pytest.approx(truth.rates, rel=0.02)
    assert truth.seconds(tables[0], 1.0) < truth.seconds(tables[0], 0.0)

"""Parts of the service on and off: alternating runs on services that differ in one setting."""
import argparse
from contextlib import ExitStack
from typing import Any, Dict, List, Tuple

from hilbert_ring._command_line import whole_number
from hilbert_ring.bench.jobs import JobRun, alternate, grid_of, job
from hilbert_ring.bench.report import Report, count, milliseconds, percent
from hilbert_ring.draw.plot import Axis, Series, plot
from hilbert_ring.local_service import local
from hilbert_ring.ordering import Hilbert

COLUMNS = (("part", "part", str), ("off", "instead", str), ("tokens", "tokens", count),
           ("on_seconds", "with it: ms, median", milliseconds),
           ("on_least", "with it: least", milliseconds), ("on_most", "with it: most", milliseconds),
           ("off_seconds", "without: ms, median", milliseconds),
           ("off_least", "without: least", milliseconds), ("off_most", "without: most", milliseconds),
           ("ratio", "with / without, median of pairs", percent))
# Part, its replacement, settings with the part, settings without it.
PARTS: List[Tuple[str, str, Dict[str, Any], Dict[str, Any]]] = [
    ("shared memory", "rows go by gRPC", {}, {"share_memory": "false"}),
    ("several workers and a ring", "one worker with all cores", {}, {"workers": 1}),
    ("no rows checked", "16 rows of each job computed again", {}, {"check_rows": 16}),
]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=whole_number, default=65536)


def run(arguments: argparse.Namespace) -> Report:
    if arguments.server:
        raise ValueError("--server (HILBERT_RING_SERVER) is given, must not be: bench ablate starts its own services")
    tokens = arguments.tokens
    report = Report("ablate", f"Parts of the service on and off, {tokens:,} tokens", COLUMNS)
    one = job(tokens, ordering=Hilbert(grid=grid_of(tokens)), mixing="lse",
              segments=[2048, tokens], dilations=[1, 16])
    for part, instead, with_it, without in PARTS:
        with ExitStack() as stack:
            runs = []
            for settings in (with_it, without):
                client = stack.enter_context(local(**{
                    "workers": arguments.workers, "job_workers": arguments.workers, **settings}))
                runs.append(JobRun(client, one))
            report.rows.append(row(part, instead, tokens, *alternate(runs, arguments.rounds)))
    report.picture = plot(
        report.title, Axis("part, in the table's order"), Axis("with / without, %"),
        [Series("time with the part, of the time without it",
                [(place + 1, r["ratio"] * 100) for place, r in enumerate(report.rows)])])
    report.notes.append("The service keeps no plans. It plans each job again.")
    return report


def row(part: str, instead: str, tokens: int, on: Any, off: Any) -> Dict[str, Any]:
    """Returns the figures of the runs with and without a part, compared in pairs."""
    ratios = sorted(a / b for a, b in zip(on.total, off.total))
    spread = {f"{name}_{key.split('_')[1]}": value for name, times in (("on", on), ("off", off))
              for key, value in times.spread().items()}
    return {"part": part, "off": instead, "tokens": tokens, **spread,
            "ratio": ratios[len(ratios) // 2]}

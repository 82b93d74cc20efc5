"""Parts of the service on and off: alternating runs on services that differ in one setting."""
import argparse
from contextlib import ExitStack
from typing import Any, Dict, List, Tuple

from hilbert_ring._job_flags import Job
from hilbert_ring.bench.jobs import JobRun, Times, alternate, grid_of, job
from hilbert_ring.bench.report import Report, count, milliseconds, percent, words
from hilbert_ring.draw.plot import Axis, Series, plot
from hilbert_ring.local_service import local
from hilbert_ring.ordering import Hilbert

COLUMNS = (("part", "part", words), ("off", "instead", words), ("tokens", "tokens", count),
           ("on_seconds", "with it: ms, median", milliseconds),
           ("on_least", "least", milliseconds), ("on_most", "most", milliseconds),
           ("off_seconds", "without: ms, median", milliseconds),
           ("off_least", "least", milliseconds), ("off_most", "most", milliseconds),
           ("ratio", "with / without, median of pairs", percent))
# Part, what stands in its place, settings with it, settings without it.
PARTS: List[Tuple[str, str, Dict[str, Any], Dict[str, Any]]] = [
    ("shared memory", "rows go by gRPC", {}, {"share_memory": "false"}),
    ("pool of shards", "fresh pages for each job", {}, {"keep_shards": "0.001"}),
    ("cache of orders", "an order is made for each job", {}, {"order_cache": "1"}),
    ("the machine's best kernel", "the kernel for SSE4", {}, {"cpu_instructions": "sse4"}),
    ("several workers and a ring", "one worker with all cores", {}, {"workers": 1}),
    ("no rows checked", "16 rows of each job computed again", {}, {"check_rows": 16}),
]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Beside the common ones."""
    parser.add_argument("--tokens", type=int, default=65536)


def run(arguments: argparse.Namespace) -> Report:
    """Runs it on services of its own: settings are the service's."""
    if arguments.server:
        raise ValueError("bench ablate starts services of its own: a service that runs has its "
                         "settings, so leave --server (HILBERT_RING_SERVER) away")
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
    report.rows.append(overlap(arguments, one, tokens))
    report.picture = plot(
        report.title, Axis("part, in the table's order"), Axis("with / without, %"),
        [Series("time with the part, of the time without it",
                [(place + 1, r["ratio"] * 100) for place, r in enumerate(report.rows)])],
        x_text=lambda value: f"{value:g}")
    report.notes.append("There is no cache of plans: each job's is made anew.")
    report.notes.append("No setting turns off the overlap of exchange and compute. Its row adds to "
                        "the same runs the exchange that was not exposed, of the worker that hid "
                        "the most: the most that waiting for each block could cost, for a block's "
                        "time counts from where it is posted, its sender's delay included.")
    return report


def overlap(arguments: argparse.Namespace, one: Job, tokens: int) -> Dict[str, Any]:
    """What waiting for the exchange would add to runs of the job."""
    hidden: List[float] = []
    with local(workers=arguments.workers, job_workers=arguments.workers) as client:
        job_run = JobRun(client, one)

        def once() -> Any:
            figures = job_run()
            hidden.append(hidden_seconds(figures))
            return figures

        (overlapped,) = alternate([once], arguments.rounds)
    # The first run is not counted.
    waiting = Times([a + b for a, b in zip(overlapped.total, hidden[1:])], overlapped.compute)
    return row("overlap of exchange and compute", "what it hid is added, at most", tokens, overlapped,
               waiting)


def hidden_seconds(figures: Any) -> float:
    """Of a job's report: seconds of exchange during which there was something to compute."""
    return max((max(0.0, worker.exchange_seconds - worker.exposed_exchange_seconds)
                for worker in figures.workers), default=0.0)


def row(part: str, instead: str, tokens: int, on: Any, off: Any) -> Dict[str, Any]:
    """Of the runs with and without a part, taken in pairs."""
    ratios = sorted(a / b for a, b in zip(on.total, off.total))
    spread = {f"{name}_{key.split('_')[1]}": value for name, times in (("on", on), ("off", off))
              for key, value in times.spread().items()}
    return {"part": part, "off": instead, "tokens": tokens, **spread,
            "ratio": ratios[len(ratios) // 2]}

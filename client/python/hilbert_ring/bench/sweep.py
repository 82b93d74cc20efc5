"""Lengths doubling until the service refuses: memory and speed of a job."""
import argparse
from itertools import groupby
from typing import Any, Dict

from hilbert_ring._command_line import whole_number
from hilbert_ring._service_flags import service_of
from hilbert_ring.bench.jobs import JobRun, alternate, job
from hilbert_ring.bench.report import Report, count, mebibytes, milliseconds
from hilbert_ring.draw.plot import Axis, Series, plot
from hilbert_ring.errors import FailedPreconditionError, OutOfRangeError

COLUMNS = (("workers", "workers", count), ("tokens", "tokens", count),
           ("memory", "MiB a worker", mebibytes), ("memory_a_token", "bytes a token", count),
           ("total_seconds", "ms, median", milliseconds), ("total_least", "least", milliseconds),
           ("total_most", "most", milliseconds), ("tokens_a_second", "tokens/s", count))


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first", type=whole_number, default=1024, help="tokens to begin with")
    parser.add_argument("--last", type=whole_number, default=1 << 20,
                        help="tokens to end with, unless the service refuses before")
    parser.add_argument("--memory-limit", default="1GiB",
                        help="memory of each worker of the command's own service")


def run(arguments: argparse.Namespace) -> Report:
    """Runs it for 1 to --workers workers. A refusal ends the doubling."""
    report = Report("sweep", "Lengths doubling until the service refuses", COLUMNS)
    for workers in ([arguments.workers] if arguments.server
                    else range(1, arguments.workers + 1)):
        with service_of(arguments, workers=workers, job_workers=workers,
                        memory_limit=arguments.memory_limit) as client:
            tokens = arguments.first
            while tokens <= arguments.last:
                try:
                    one = job(tokens, segments=[2048, 4096, 8192], dilations=[1, 2, 4])
                    times = alternate([JobRun(client, one)], arguments.rounds)[0]
                except (FailedPreconditionError, OutOfRangeError) as refusal:
                    report.notes.append(f"{tokens:,} tokens on {workers} of the workers: "
                                        f"refused, {refusal}")
                    break
                report.rows.append(row(tokens, times))
                tokens *= 2
    report.picture = plot(
        report.title, Axis("tokens", log=2), Axis("tokens a second"),
        [Series(f"{workers} workers", [(r["tokens"], r["tokens_a_second"]) for r in rows],
                [(r["tokens"] / r["total_most"], r["tokens"] / r["total_least"]) for r in rows])
         for workers, found in groupby(report.rows, lambda r: r["workers"]) for rows in [list(found)]])
    return report


def row(tokens: int, times: Any) -> Dict[str, Any]:
    """Returns the figures of a job's runs. memory: the largest peak of a worker's memory for the job."""
    memory = max(worker.memory_peak_bytes for worker in times.report.workers)
    spread = times.spread()
    return {"workers": len(times.report.workers), "tokens": tokens, "memory": memory,
            "memory_a_token": sum(w.memory_peak_bytes for w in times.report.workers) / tokens,
            "tokens_a_second": tokens / spread["total_seconds"], **spread}

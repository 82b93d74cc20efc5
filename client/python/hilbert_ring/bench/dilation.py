"""With and without an order, at each dilation and length: alternating runs."""
import argparse
from typing import List, Tuple

from hilbert_ring._command_line import whole_number
from hilbert_ring._job_flags import Job
from hilbert_ring._service_flags import service_of
from hilbert_ring.bench.jobs import JobRun, alternate, grid_of, job
from hilbert_ring.bench.report import Report, count, milliseconds
from hilbert_ring.draw.plot import Axis, Series, plot
from hilbert_ring.ordering import Hilbert

COLUMNS = (("tokens", "tokens", count), ("dilation", "dilation", count), ("order", "order", str),
           ("compute_seconds", "compute ms, median", milliseconds),
           ("compute_least", "compute, least", milliseconds),
           ("compute_most", "compute, most", milliseconds),
           ("total_seconds", "job ms, median", milliseconds),
           ("total_least", "job, least", milliseconds), ("total_most", "job, most", milliseconds))


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=whole_number, nargs="+", default=[8192, 16384, 32768])
    parser.add_argument("--dilations", type=whole_number, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--segment", type=whole_number, default=4096)


def run(arguments: argparse.Namespace) -> Report:
    report = Report("dilation", f"Dilation with and without an order, segments of "
                    f"{arguments.segment:,}", COLUMNS)
    with service_of(arguments, workers=arguments.workers,
                    job_workers=arguments.workers) as client:
        for tokens in arguments.tokens:
            cases: List[Tuple[int, str, Job]] = []
            for dilation in arguments.dilations:
                for name, order in (("none", None), ("hilbert", Hilbert(grid=grid_of(tokens)))):
                    cases.append((dilation, name, job(tokens, ordering=order,
                                                      segments=[arguments.segment],
                                                      dilations=[dilation])))
            times = alternate([JobRun(client, case) for _, _, case in cases], arguments.rounds)
            for (dilation, name, _), measured in zip(cases, times):
                report.rows.append({"tokens": tokens, "dilation": dilation, "order": name,
                                    **measured.spread("compute"), **measured.spread()})
    report.picture = plot(
        report.title, Axis("dilation", log=2), Axis("compute, ms", log=10),
        [Series(f"{tokens:,} tokens, order: {name}",
                [(r["dilation"], r["compute_seconds"] * 1e3) for r in rows],
                [(r["compute_least"] * 1e3, r["compute_most"] * 1e3) for r in rows])
         for tokens in arguments.tokens for name in ("none", "hilbert")
         for rows in [[r for r in report.rows if (r["tokens"], r["order"]) == (tokens, name)]]])
    report.notes.append("Compute is from the last row's arrival to the last result; a large job "
                        "computes while rows arrive too. Runs of one length alternate.")
    return report

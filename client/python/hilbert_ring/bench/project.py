"""Time and memory of jobs on other numbers of workers, projected from plans and measured rates.

A model of a job's seconds is a sum of a constant and three quotients: payload bytes over a rate, the busiest worker's
flop over a second rate, and rows over a third. A worker computes segments of its own while other rows still come. The
model subtracts a part of that compute as hidden. The benchmark fits the rates to measured jobs. It prints the model's
error for further jobs before the projections.
"""
import argparse
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._command_line import number, whole_number
from hilbert_ring._job_flags import Job
from hilbert_ring._service_flags import service_of
from hilbert_ring.bench.jobs import JobRun, alternate, grid_of, job
from hilbert_ring.bench.report import Report, count, mebibytes, milliseconds, percent
from hilbert_ring.client import Client
from hilbert_ring.draw.plot import Axis, Series, plot
from hilbert_ring.errors import InvalidArgumentError, OutOfRangeError
from hilbert_ring.ordering import Hilbert


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


COLUMNS = (("kind", "kind", str), ("job", "job", str), ("tokens", "tokens", count),
           ("workers", "workers", count), ("memory", "MiB a worker, planned", mebibytes),
           ("memory_error", "error of MiB a worker", percent), ("exchanged", "MiB exchanged, planned", mebibytes),
           ("exchanged_error", "error of MiB exchanged", percent), ("seconds", "seconds, predicted", _seconds),
           ("measured", "measured", _seconds), ("seconds_error", "error of seconds", percent))
REPORTS: Dict[str, Any] = {"segments": [2048, 4096, 8192], "dilations": [1, 2, 4]}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", type=whole_number, default=16384,
                        help="tokens of the smallest measured job; the largest has 12 times as many")
    parser.add_argument("--project-tokens", type=whole_number, nargs="+",
                        default=[1 << 20, 1 << 24, 1 << 28, 10**9])
    parser.add_argument("--project-workers", type=whole_number, nargs="+", default=[1, 8, 64, 1024])
    parser.add_argument("--worker-flops", type=number, metavar="FLOP/S",
                        help="rate of a projected worker; default: as measured")
    parser.add_argument("--worker-memory", type=number, metavar="BYTES", default=80 * 2**30,
                        help="memory of a projected worker (80 GiB)")
    parser.add_argument("--link", type=number, metavar="BYTES/S", default=1.25e9,
                        help="rate at which a projected worker receives (1.25e9)")


def fitted_jobs(scale: int) -> List[Tuple[str, Job]]:
    """Returns the jobs for the fit. Their rows differ in width, so that the fit can separate bytes from rows."""
    return [("reports' pattern", job(scale, **REPORTS)),
            ("reports' pattern", job(6 * scale, **REPORTS)),
            ("full", job(scale, segments=[scale])),
            ("short segments", job(8 * scale, segments=[256])),
            ("one head", job(4 * scale, heads=1, segments=[scale // 2])),
            ("dilated, lse", job(4 * scale, mixing="lse", segments=[1024, 4 * scale],
                                 dilations=[1, 16])),
            ("tiny", job(256, segments=[256])),
            ("wide rows", job(6 * scale, heads=2, head_dim=256, segments=[128])),
            ("narrow rows", job(6 * scale, heads=16, head_dim=16, segments=[128])),
            ("long segments", job(3 * scale, segments=[scale]))]


def other_jobs(scale: int) -> List[Tuple[str, Job]]:
    """Returns the jobs for the prediction's error: other lengths, widths, patterns, orders and causal masks."""
    return [("reports' pattern", job(12 * scale, **REPORTS)),
            ("causal", job(2 * scale, segments=[2 * scale], causal=True)),
            ("hilbert order", job(4 * scale, segments=[2048],
                                  ordering=Hilbert(grid=grid_of(4 * scale)))),
            ("four heads, lse", job(6 * scale, heads=4, mixing="lse", segments=[2048, 6 * scale],
                                    dilations=[1, 8])),
            ("full", job(3 * scale // 2, segments=[3 * scale // 2])),
            ("segments of 512", job(10 * scale, segments=[512])),
            ("slide, lse", job(5 * scale, heads=16, head_dim=32, mixing="lse",
                               segments=[1024, 5 * scale], dilations=[1, 16])),
            ("packed", job(4 * scale, segments=[8192], sequence_lengths=[scale, 3 * scale]))]


def features(one: Job, plan: Any) -> List[float]:
    """Returns the amounts that the rates divide: 1, payload bytes, and the busiest worker's flop and selected rows.

    Rows are counted for each head, with mixing lse also for each branch.
    """
    shape = one.shape
    payload = 4.0 * 4 * shape["tokens"] * shape["heads"] * shape["head_dim"]
    branches = len(one.pattern["segments"]) if one.pattern.get("mixing") == "lse" else 1
    dilations = one.pattern.get("dilations") or [1] * len(one.pattern["segments"])
    share = sum(1 / r for r in dilations) / len(dilations)
    busiest = max(worker.tokens for worker in plan.workers)
    return [1.0, payload, max(worker.flops for worker in plan.workers),
            busiest * shape["heads"] * branches * share]


def fit(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> "NDArray[np.float64]":
    """Returns the coefficients of 0 or more with the least sum of squared relative errors."""
    table = np.asarray(rows, float) / np.asarray(seconds, float)[:, None]
    norms = np.linalg.norm(table, axis=0)
    norms[norms == 0] = 1
    table = table / norms
    gram, target = table.T @ table, table.sum(axis=0)
    result = np.zeros(table.shape[1])
    for _ in range(20_000):  # coordinate descent; each coefficient stays at 0 or more
        before = result.copy()
        for i in range(len(result)):
            if gram[i, i] > 0:
                result[i] = max(0.0, result[i] + (target[i] - gram[i] @ result) / gram[i, i])
        if np.abs(result - before).max() < 1e-12:
            break
    scaled: "NDArray[np.float64]" = result / norms
    return scaled


@dataclass(frozen=True)
class Model:
    """The fitted model of jobs' seconds.

    Attributes:
        rates: seconds for a unit of each of `features`.
        hidden: the part of the early compute that costs no time, 0 to 1.
    """

    rates: "NDArray[np.float64]"
    hidden: float

    def overlap(self, table: Sequence[float], early: float) -> float:
        """Returns the hidden seconds of compute. Three of the payload's four tensors come in: 0.75 of its seconds."""
        _, payload, work, rows = (float(a * b) for a, b in zip(table, self.rates))
        return self.hidden * early * min(0.75 * payload, work + rows)

    def seconds(self, table: Sequence[float], early: float) -> float:
        """Returns the predicted seconds of a job. table: its `features`; early: its `early_share`."""
        return float(np.dot(table, self.rates)) - self.overlap(table, early)


def early_share(one: Job, plan: Any) -> float:
    """Returns the part of the segments that a worker can compute alone while rows come, as a mean over branches.

    An ordering makes it 0, because a segment's rows then arrive all over the input.
    """
    if one.ordering is not None:
        return 0.0
    parts: List[float] = [
        branch.segments_local / max(1, branch.segments_local + branch.segments_exchanged)
        for branch in plan.branches]
    return sum(parts) / len(parts)


def fit_model(tables: Sequence[Sequence[float]], early: Sequence[float],
              seconds: Sequence[float]) -> Model:
    """Returns the model with the least sum of squared relative errors."""
    best: Tuple[float, Optional[Model]] = (np.inf, None)
    for hidden in np.linspace(0, 1, 11):
        model = Model(fit(tables, seconds), float(hidden))
        for _ in range(5):  # rates and hidden seconds depend on each other
            whole = [s + model.overlap(t, e) for t, e, s in zip(tables, early, seconds)]
            model = Model(fit(tables, whole), float(hidden))
        error = sum((model.seconds(t, e) / s - 1)**2 for t, e, s in zip(tables, early, seconds))
        if error < best[0]:
            best = error, model
    assert best[1] is not None
    return best[1]


def _error(predicted: float, measured: float) -> float:
    return abs(predicted - measured) / measured if measured else float(predicted != 0)


def measured_row(kind: str, name: str, one: Job, plan: Any, times: Any,
                 seconds: float) -> Dict[str, Any]:
    """Returns the predicted and measured figures of a job on this machine."""
    workers = times.report.workers
    memory = max(worker.resident_bytes for worker in plan.workers)
    spread = times.spread()
    return {"kind": kind, "job": name, "tokens": one.shape["tokens"], "workers": len(workers),
            "memory": memory, "seconds": seconds, "measured": spread["total_seconds"],
            "measured_least": spread["total_least"], "measured_most": spread["total_most"],
            "memory_error": _error(memory, max(w.memory_peak_bytes for w in workers)),
            "exchanged": plan.bytes_exchanged,
            "exchanged_error": _error(plan.bytes_exchanged, times.report.bytes_exchanged),
            "seconds_error": _error(seconds, spread["total_seconds"])}


def run(arguments: argparse.Namespace) -> Report:
    report = Report("project", "Projection to other workers", COLUMNS)
    fitted, others = fitted_jobs(arguments.scale), other_jobs(arguments.scale)
    every = fitted + others
    with service_of(arguments, workers=arguments.workers,
                    job_workers=arguments.workers) as client:
        times = alternate([JobRun(client, one) for _, one in every], arguments.rounds)
        plans = [client.plan(**one.plan_arguments(), workers=arguments.workers)
                 for _, one in every]
        tables = [features(one, plan) for (_, one), plan in zip(every, plans)]
        early = [early_share(one, plan) for (_, one), plan in zip(every, plans)]
        model = fit_model(tables[:len(fitted)], early[:len(fitted)],
                          [t.spread()["total_seconds"] for t in times[:len(fitted)]])
        for i, (name, one) in enumerate(every):
            kind = "fitted to" if i < len(fitted) else "predicted"
            report.rows.append(measured_row(kind, name, one, plans[i], times[i],
                                            model.seconds(tables[i], early[i])))
        report.notes.append(errors_in_words(report.rows))
        report.notes.append(rates_in_words(model))
        for tokens in arguments.project_tokens:
            for workers in arguments.project_workers:
                report.rows.append(projected_row(client, tokens, workers, model, arguments))
    report.notes.append(
        f"Projected: each worker receives at {arguments.link:.3g} bytes/s beside computing, "
        f"has {arguments.worker_memory / 2**30:.0f} GiB, and the rows come through one coordinator at the rate "
        "measured here, which gives the payload's seconds.")
    shown = [row for row in report.rows if row["kind"] != "projected"]
    report.picture = plot(
        report.title, Axis("seconds measured", log=10), Axis("seconds predicted", log=10),
        [Series(kind, sorted((row["measured"], row["seconds"]) for row in shown
                             if row["kind"] == kind)) for kind in ("fitted to", "predicted")])
    return report


def errors_in_words(rows: Sequence[Dict[str, Any]]) -> str:
    """Returns the largest and the median error of the predicted jobs."""
    held = [row for row in rows if row["kind"] == "predicted"]
    parts = []
    for key, what in (("seconds_error", "time"), ("exchanged_error", "bytes exchanged"),
                      ("memory_error", "memory")):
        errors = sorted(row[key] for row in held)
        parts.append(f"{what} {errors[len(errors) // 2]:.1%} in the middle, {errors[-1]:.1%} at "
                     "most")
    return f"Error of {len(held)} predicted jobs: {'; '.join(parts)}."


def rates_in_words(model: Model) -> str:
    rates = model.rates

    def inverse(value: float, unit: str, scale: float) -> str:
        return f"{1 / value / scale:.3g} {unit}" if value > 0 else f"no limit of {unit} seen"
    return (f"Fitted: {milliseconds(float(rates[0]))} ms a job, payload at "
            f"{inverse(rates[1], 'MB/s', 1e6)}, a worker's compute at "
            f"{inverse(rates[2], 'Gflop/s', 1e9)} and {inverse(rates[3], 'million rows/s', 1e6)}; "
            f"{model.hidden:.0%} of the compute that can run while rows come is hidden.")


def projected_row(client: Client, tokens: int, workers: int, model: Model,
                  arguments: argparse.Namespace) -> Dict[str, Any]:
    """Projects a job with short segments and a branch over all tokens."""
    one = job(tokens, segments=[4096, tokens], dilations=[1, max(1, tokens // 8192)])
    row: Dict[str, Any] = {"kind": "projected", "job": "w 4,096 r 1; all, dilated",
                           "tokens": tokens, "workers": workers}
    try:
        plan = client.plan(**one.plan_arguments(), workers=workers)
    except (OutOfRangeError, InvalidArgumentError) as refusal:
        row["job"] = f"refused: {refusal.reason}"
        return row
    row["memory"] = max(worker.resident_bytes for worker in plan.workers)
    row["exchanged"] = plan.bytes_exchanged
    exchange = max(worker.bytes_received for worker in plan.workers) / arguments.link
    row["seconds"] = projected_seconds(features(one, plan), model.rates, arguments.worker_flops,
                                       exchange)
    if row["memory"] > arguments.worker_memory:
        row["job"] = "does not fit the workers' memory"
        del row["seconds"]
    return row


def projected_seconds(table: Sequence[float], rates: "NDArray[np.float64]",
                      flops: Optional[float], exchange: float) -> float:
    """Returns a job's seconds without hidden compute, because a branch over all tokens waits for the last row.

    flops: rate of a worker; None: the measured rate. exchange: seconds; it runs beside compute, and the longer of both
    counts.
    """
    constant, payload, work, rows = (float(a * b) for a, b in zip(table, rates))
    if flops is not None:
        work, rows = table[2] / flops, 0.0
    return constant + payload + max(work + rows, exchange)

"""Small jobs of many callers: jobs a second, seconds of a job, and the point of saturation.

In the closed loop each caller sends its next job after its previous job has ended. In the open loop jobs are due at
random moments at a given rate, regardless of earlier jobs. A job's time counts from its due moment. Goodput is the rate
of jobs that ended with OK within the deadline.
"""
import argparse
import queue
import random
import threading
import time
from collections import Counter
from typing import Any, Callable, Dict, List, Sequence

from hilbert_ring._command_line import number, whole_number
from hilbert_ring._service_flags import service_of
from hilbert_ring.bench.jobs import RepeatedRows
from hilbert_ring.bench.report import Report, count, milliseconds
from hilbert_ring.client import Client
from hilbert_ring.draw.plot import Axis, Series, plot
from hilbert_ring.errors import HilbertRingError


def _rate(value: float) -> str:
    return f"{value:,.1f}"


COLUMNS = (("loop", "loop", str), ("callers", "callers", count),
           ("offered", "offered, jobs/s", _rate), ("jobs_a_second", "done, jobs/s", _rate),
           ("goodput", "goodput, jobs/s", _rate), ("p50", "p50 ms", milliseconds),
           ("p90", "p90", milliseconds), ("p99", "p99", milliseconds),
           ("most", "most", milliseconds), ("failed", "failed", count))
MOST_CALLERS = 64


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--callers", type=whole_number, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--seconds", type=number, default=5.0, help="of each measurement")
    parser.add_argument("--tokens", type=whole_number, default=64)
    parser.add_argument("--deadline", type=number, default=0.1, help="seconds, of goodput")
    parser.add_argument("--of-capacity", type=number, nargs="*", default=[0.5, 0.8, 1.0, 1.2],
                        help="rates of the open loop, by the best of the closed one")


class Tally:
    """Counts the results of jobs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: List[float] = []
        self.failures: Counter[str] = Counter()

    def call(self, one: Callable[[], Any], due: float) -> None:
        """Runs a job and counts its seconds since `due`, a moment of time.perf_counter."""
        try:
            one()
            reason = None
        except HilbertRingError as error:
            reason = error.reason
        seconds = time.perf_counter() - due
        with self._lock:
            if reason is None:
                self.seconds.append(seconds)
            else:
                self.failures[reason] += 1

    def row(self, loop: str, callers: int, offered: float, elapsed: float,
            deadline: float) -> Dict[str, Any]:
        """Returns a row of the table for a loop that took `elapsed` seconds."""
        done = sorted(self.seconds)
        return {"loop": loop, "callers": callers, "offered": offered or None,
                "jobs_a_second": len(done) / elapsed,
                "goodput": sum(seconds <= deadline for seconds in done) / elapsed,
                **{f"p{part}": percentile(done, part) for part in (50, 90, 99)},
                "most": done[-1] if done else None, "failed": sum(self.failures.values()),
                "failures": dict(self.failures)}


def percentile(ascending: Sequence[float], part: int) -> Any:
    """Returns the percentile of values in ascending order; None without values."""
    if not ascending:
        return None
    return ascending[max(0, -(-len(ascending) * part // 100) - 1)]


def small_job(client: Client, tokens: int) -> Callable[[], Any]:
    """Returns a function that runs a job without retries, so that refusals are counted."""
    rows = [RepeatedRows((tokens, 4, 32), seed) for seed in range(3)]
    return lambda: client.attend(*rows, segments=[tokens], lse=False, progress=False,
                                 max_attempts=1, deadline=60)


def closed(one: Callable[[], Any], callers: int, seconds: float, deadline: float
           ) -> Dict[str, Any]:
    tally = Tally()
    start = time.perf_counter()

    def caller() -> None:
        while (now := time.perf_counter()) < start + seconds:
            tally.call(one, now)

    _in_threads(caller, callers)
    return tally.row("closed", callers, 0.0, time.perf_counter() - start, deadline)


def open_loop(one: Callable[[], Any], rate: float, seconds: float, deadline: float
              ) -> Dict[str, Any]:
    """Measures the open loop: jobs come at random moments, `rate` a second on average.

    MOST_CALLERS jobs run at the same time at most. A further job waits, and its time includes the wait.
    """
    draw = random.Random(1)
    due: List[float] = []
    moment = draw.expovariate(rate)
    while moment < seconds:
        due.append(moment)
        moment += draw.expovariate(rate)
    waiting: "queue.SimpleQueue[float]" = queue.SimpleQueue()
    for moment in due:
        waiting.put(moment)
    tally = Tally()
    start = time.perf_counter()

    def caller() -> None:
        while True:
            try:
                moment = start + waiting.get_nowait()
            except queue.Empty:
                return
            time.sleep(max(0.0, moment - time.perf_counter()))
            tally.call(one, moment)

    _in_threads(caller, min(MOST_CALLERS, max(1, len(due))))
    elapsed = max(seconds, time.perf_counter() - start)
    return tally.row("open", min(MOST_CALLERS, len(due)), len(due) / seconds, elapsed, deadline)


def _in_threads(work: Callable[[], None], number: int) -> None:
    threads = [threading.Thread(target=work, daemon=True) for _ in range(number)]  # daemons do not delay Ctrl-C
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(arguments: argparse.Namespace) -> Report:
    if max(arguments.callers) > MOST_CALLERS or min(arguments.callers) < 1:
        raise ValueError(f"callers is {arguments.callers}, expected 1 to {MOST_CALLERS}")
    report = Report("load", f"Load: jobs of {arguments.tokens} tokens", COLUMNS)
    with service_of(arguments, workers=arguments.workers) as client:
        one = small_job(client, arguments.tokens)
        for _ in range(10):
            one()
        for callers in arguments.callers:
            report.rows.append(closed(one, callers, arguments.seconds, arguments.deadline))
        best = max(row["jobs_a_second"] for row in report.rows)
        for part in arguments.of_capacity:
            report.rows.append(open_loop(one, max(part * best, 0.1), arguments.seconds,
                                         arguments.deadline))
    at = next(row["callers"] for row in report.rows if row["jobs_a_second"] >= 0.9 * best)
    report.notes.append(f"Most: {best:,.1f} jobs/s; nine tenths of that from {at} callers on. "
                        f"Goodput counts jobs within {arguments.deadline * 1e3:g} ms. The callers "
                        "are threads of one Python process, which takes its part of the machine.")
    report.picture = plot(
        report.title, Axis("callers", log=2), Axis("milliseconds", log=10),
        [Series(name, [(row["callers"], row[name] * 1e3) for row in report.rows
                       if row["loop"] == "closed" and row[name] is not None])
         for name in ("p50", "p90", "p99")])
    return report

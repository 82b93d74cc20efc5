"""Makes and times the jobs of a benchmark.

Inputs are slices of one block of random rows, so that long jobs take no memory for them. Outputs go to one array.
"""
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from hilbert_ring._job_flags import Job
from hilbert_ring.client import Client

_BLOCK = 4096  # rows


class RepeatedRows:
    """An array [rows, heads, dim] that repeats one block of random rows."""

    def __init__(self, shape: Tuple[int, int, int], seed: int) -> None:
        self.shape = shape
        self.dtype = np.dtype(np.float32)
        block = np.random.default_rng(seed).standard_normal(
            (min(_BLOCK, shape[0]), *shape[1:]), dtype=np.float32)
        self._block = np.concatenate([block, block])

    def __getitem__(self, rows: slice) -> Any:
        size = len(self._block) // 2
        first = rows.start % size
        if rows.stop - rows.start <= len(self._block) - first:
            return self._block[first:first + rows.stop - rows.start]
        return np.take(self._block, np.arange(rows.start, rows.stop) % size, axis=0)


@dataclass
class Times:
    """Seconds of all runs except the first.

    Attributes:
        total: seconds of each run by the caller's clock.
        compute: seconds of each run by the service's report.
        report: the last run's report.
    """

    total: List[float]
    compute: List[float]
    report: Any = None

    def spread(self, which: str = "total") -> Dict[str, float]:
        seconds = getattr(self, which)
        return {f"{which}_seconds": statistics.median(seconds),
                f"{which}_least": min(seconds), f"{which}_most": max(seconds)}


class JobRun:
    """A job with its inputs and a place for its output."""

    def __init__(self, client: Client, job: Job) -> None:
        job.need("tokens", "heads", "head_dim")
        shape = job.shape
        kv_heads = shape.get("kv_heads", shape["heads"])
        value_dim = shape.get("value_dim", shape["head_dim"])
        self._client, self._job = client, job
        self._inputs = [RepeatedRows((shape["tokens"], heads, dim), seed) for seed, (heads, dim) in
                        enumerate(((shape["heads"], shape["head_dim"]),
                                   (kv_heads, shape["head_dim"]), (kv_heads, value_dim)))]
        self._out = np.empty((shape["tokens"], shape["heads"], value_dim), np.float32)

    def __call__(self) -> Any:
        """Runs the job once and returns its report."""
        return self._client.attend(*self._inputs, out=self._out, lse=False, progress=False,
                                   ordering=self._job.ordering, **self._job.pattern).report


def alternate(runs: Sequence[Callable[[], Any]], rounds: int) -> List[Times]:
    """Times each run `rounds` times. The first round is not counted.

    Each round runs all of them in a random order, so that the machine's changes affect all in the same way.
    """
    times = [Times([], []) for _ in runs]
    draw = random.Random(1)
    for turn in range(rounds + 1):
        for place in draw.sample(range(len(runs)), len(runs)):
            start = time.perf_counter()
            report = runs[place]()
            seconds = time.perf_counter() - start
            if turn > 0:
                times[place].total.append(seconds)
                times[place].compute.append(getattr(report, "compute_seconds", 0.0))
                times[place].report = report
    return times


def job(tokens: int, *, heads: int = 8, head_dim: int = 64, ordering: Any = None,
        **pattern: Any) -> Job:
    return Job({"tokens": tokens, "heads": heads, "head_dim": head_dim}, pattern, ordering)


def grid_of(tokens: int) -> Tuple[int, int]:
    """Returns rows and columns of a grid of `tokens`, as square as factors of two allow."""
    rows = 1
    while rows * rows * 4 <= tokens and tokens % (rows * 2) == 0:
        rows *= 2
    return rows, tokens // rows

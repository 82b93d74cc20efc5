#!/usr/bin/env python3
"""Arrays in shared memory beside the same arrays sent, and passed by path as files in memory, by the Python client.

    shared_arrays.py [--jobs small,light,ordered,reports] [--rounds 5] [--workers 2]

`./dev bench python` builds the programs and calls this. Each round runs every job all ways, in alternating order; the
first round is a warm-up. float32. The second table has processor seconds of each process.
"""
import argparse
import gc
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import hilbert_ring
from hilbert_ring import _by_reference
from hilbert_ring._connection import run
from hilbert_ring.v1 import attention_pb2 as pb
from python_client import PATTERN, processor
from resident_memory import processes_of

LIGHT = {"segments": [64]}
JOBS = {  # tokens, heads, dim, pattern; "ordered": at random coordinates
    "small": [(256, 8, 64, PATTERN), (1024, 8, 64, PATTERN)],
    "light": [(1024, 8, 64, LIGHT), (2048, 8, 64, LIGHT), (4096, 8, 64, LIGHT), (8192, 8, 64, LIGHT)],
    "ordered": [(262_144, 2, 16, LIGHT), (65_536, 8, 16, LIGHT), (32_768, 8, 64, LIGHT)],
    "reports": [(425_984, 8, 64, PATTERN)],
}
WAYS = {"sent": "never", "shared": "auto", "by path": "always"}
PROCESSES = ("client", "coordinator", "worker")
TICK = os.sysconf("SC_CLK_TCK")


def await_root(client, workers):
    end = time.monotonic() + 30
    while run(client._calls._connection.short("GetDataRoot", pb.GetDataRootRequest(),
                                              pb.GetDataRootResponse)).workers < workers:
        assert time.monotonic() < end, "the workers do not see the data root"
        time.sleep(0.01)


class Job:
    def __init__(self, group, tokens, heads, dim, pattern, root):
        self.name = f"{group}: {tokens:,} tokens, {heads} heads of {dim}"
        self.mib = 4 * tokens * heads * dim * 4 / 2**20
        random = np.random.default_rng(1)
        self.arrays = [random.standard_normal((tokens, heads, dim), dtype="f4") for _ in "qkv"]
        self.pattern = dict(pattern)
        self.named_pattern = dict(pattern)
        self.files = [root / f"{tensor}.npy" for tensor in ("q", "k", "v", "out", "coords")]
        if group == "ordered":
            coords = random.integers(0, 1 << 20, (tokens, 2), dtype="u4")
            np.save(self.files[4], coords)
            self.pattern["ordering"] = hilbert_ring.Hilbert(coords=coords)
            self.named_pattern["ordering"] = hilbert_ring.Hilbert(coords=self.files[4])
        for file, values in zip(self.files, self.arrays):
            np.save(file, values)

    def run(self, client, how):
        """Returns seconds and the output."""
        named = how == "by path"
        arrays, pattern = (self.files[:3], self.named_pattern) if named else (self.arrays, self.pattern)
        start = time.perf_counter()
        result = client.attend(*arrays, out=self.files[3] if named else None, lse=False, by_reference=WAYS[how],
                               progress=False, **pattern)
        seconds = time.perf_counter() - start
        assert result.report.by_reference == (how != "sent")
        return seconds, result.out


def used(processes):
    """Returns user and system seconds by kind of process."""
    seconds = {kind: np.zeros(2) for kind in PROCESSES}
    for name, process in processes.items():
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        seconds[name.split()[0]] += [int(ticks) / TICK for ticks in fields[11:13]]
    return seconds


def measure(job, rounds, repeats, client, processes):
    """Returns seconds of each round, and processor seconds of a job by kind of process, by way."""
    measured = {how: [] for how in WAYS}
    spent = {how: {kind: np.zeros(2) for kind in PROCESSES} for how in WAYS}
    for turn in range(rounds + 1):
        outs = []
        for how in sorted(WAYS, reverse=turn % 2 == 0):
            before, seconds = used(processes), []
            for _ in range(repeats):
                elapsed, out = job.run(client, how)
                seconds.append(elapsed)
            after = used(processes)
            outs.append(out)
            if turn > 0:
                measured[how].append(statistics.median(seconds))
                for kind in PROCESSES:
                    spent[how][kind] += (after[kind] - before[kind]) / repeats / rounds
        assert all(np.array_equal(outs[0], out) for out in outs)
        del out, outs
        gc.collect()
    return measured, spent


def times_row(job, measured):
    cells = [job.name, f"{job.mib:,.0f}", *(f"{1000 * statistics.median(measured[how]):,.1f}" for how in WAYS)]
    for how in ("shared", "by path"):
        pairs = sorted(sent / other for sent, other in zip(measured["sent"], measured[how]))
        cells.append(f"{statistics.median(pairs):.2f} ({pairs[0]:.2f} to {pairs[-1]:.2f})")
    return "| " + " | ".join(cells) + " |"


def processor_row(job, how, spent):
    cells = [job.name, how]
    for kind in PROCESSES:
        user, system = spent[how][kind] / (job.mib / 1024)
        cells.append(f"{user:.2f}, {system:.2f}")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default="small,light,ordered,reports")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    _by_reference.SHARED_BYTES = _by_reference.SCATTERED_ROW_BYTES = 1  # shares all arrays
    print(f"{processor()}, {os.cpu_count()} cores, {given.workers} workers; load {os.getloadavg()[0]:.1f} before")
    times, processors = [], []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        service = hilbert_ring.local(workers=given.workers, data_root=root)
        with service as client:
            await_root(client, given.workers)
            processes = processes_of(service)
            for group in given.jobs.split(","):
                for shape in JOBS[group]:
                    job = Job(group, *shape, Path(root))
                    repeats = 1 if job.mib > 64 else 5
                    measured, spent = measure(job, given.rounds, repeats, client, processes)
                    times.append(times_row(job, measured))
                    processors += [processor_row(job, how, spent) for how in WAYS]
    print(f"load {os.getloadavg()[0]:.1f} after, {given.rounds} rounds\n")
    print("Milliseconds\n")
    print("| job | MiB of q, k, v, out | sent | shared | by path | sent / shared (least to most) | sent / by path |\n"
          "| --- | --: | --: | --: | --: | --: | --: |", *times, sep="\n")
    print("\nProcessor seconds a GiB of q, k, v, out: user, system\n")
    print("| job | way | client | coordinator | workers |\n| --- | --- | --: | --: | --: |", *processors, sep="\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Samples the resident memory of a service's processes and of this one.

    resident_memory.py [--workers 1] [--lines sequences,order]

`./dev bench python` builds the programs and calls this. It prints for kinds of jobs the growth of a worker beside the
plan's bytes and the report's peak. Sampling serves other benchmarks:

    with ResidentMemory(processes_of(service)) as memory:
        memory.done = 0.5     # share of the work
    memory.growth("client")
    picture([memory])
"""
import argparse
import os
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np

import hilbert_ring
from hilbert_ring.draw.plot import Axis, Series, plot
from published_encoder import config_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
import random_encoder  # noqa: E402

SETTLED = 4  # seconds after which the service takes a model's files as unchanged
_MOST_SAMPLES = 120  # per process, in the picture


def processes_of(service):
    """Returns process ids by name: of this program, the coordinator and its workers."""
    def children(process):
        tasks = Path(f"/proc/{process}/task").iterdir()  # each thread lists the children that it started
        return sorted(int(child) for task in tasks for child in (task / "children").read_text().split())

    (coordinator,) = children(service._guard.pid)  # pylint: disable=protected-access
    named = {"client": os.getpid(), "coordinator": coordinator}
    named.update({f"worker {i}": child for i, child in enumerate(children(coordinator))})
    return named


class ResidentMemory(threading.Thread):
    """Samples bytes ten times a second within a `with` block.

    Attributes:
        processes: ids by name.
        samples: (seconds of the monotonic clock, share of the work, bytes by name).
        done: the finished share of the work, 0 to 1, which the caller sets.
    """

    def __init__(self, processes, period=0.1):
        super().__init__(daemon=True)
        self.processes = processes
        self.samples = []
        self.done = 0.0
        self._period = period
        self._over = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()

    def run(self):
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._over.wait(self._period):
            resident = {}
            for name, process in self.processes.items():
                with open(f"/proc/{process}/statm") as statm:
                    resident[name] = int(statm.read().split()[1]) * page
            self.samples.append((time.monotonic(), self.done, resident))
            if len(self.samples) > 4 * _MOST_SAMPLES:  # keeps every second one and halves the rate
                self.samples = self.samples[::2]
                self._period *= 2

    def peaks(self, name):
        """Returns the peaks in the second tenth of the work, and after it."""
        early = [bytes_[name] for _, done, bytes_ in self.samples if 0.1 <= done < 0.2]
        late = [bytes_[name] for _, done, bytes_ in self.samples if 0.2 <= done]
        return max(early, default=0), max(late, default=0)

    def table(self):
        """Returns the lines of a Markdown table."""
        yield "| process | resident MiB, at most, in the second tenth | from then on | growth |"
        yield "| --- | --- | --- | --- |"
        for name in self.processes:
            early, late = self.peaks(name)
            growth = f"{late / early - 1:+.1%}" if early else "-"
            yield f"| {name} | {early / 2**20:.1f} | {late / 2**20:.1f} | {growth} |"


def picture(memories, title):
    """Draws memories over common seconds; processes of one name share a line."""
    sampled = [memory for memory in memories if memory.samples]
    begun = sampled[0].samples[0][0] if sampled else 0.0
    lines = {}
    for memory in sampled:
        every = max(1, len(memory.samples) // _MOST_SAMPLES)
        for at, _, bytes_ in memory.samples[::every]:
            for name in memory.processes:
                lines.setdefault(name, []).append((at - begun, bytes_[name] / 2**20))
    return plot(title, Axis("seconds"), Axis("MiB"), [Series(*line) for line in lines.items()])


def _resident(process, field):
    """Returns bytes of /proc/PID/status: VmRSS now, VmHWM at most since the reset."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":"))


def _grown(workers, run):
    """Returns each worker's growth at its peak within a run, and the run's reports."""
    idle = [_resident(worker, "VmRSS") for worker in workers]
    for worker in workers:
        Path(f"/proc/{worker}/clear_refs").write_text("5")  # resets VmHWM
    reports = run()
    return [_resident(worker, "VmHWM") - before for worker, before in zip(workers, idle)], reports


def _rows(count, heads=8, dim=64):
    values = np.random.default_rng(1).standard_normal((count, heads, dim), dtype="f4")
    return values, values, values


def _write_model(folder):
    config = config_of("published")
    random_encoder.write(folder / "models" / "model", config, random_encoder.weights(config, 1))
    time.sleep(SETTLED)
    return folder / "models"


def _kinds(client):
    """Yields a line of the table, the group that `--lines` names, and a run that returns reports."""
    def attend(rows, **spec):
        return lambda: [client.attend(*rows, progress=False, **spec).report]

    def many(length):
        jobs = [_rows(length)] * 256
        return lambda: [result.report for result in client.attend_many(jobs, segments=[length])]

    def stream(size, count):
        rows = _rows(count)[0]

        def run():
            call = client.attend_stream(((rows[i:i + size],) * 3 for i in range(0, count, size)),
                                        segments=[1024, 2048, 4096], dilations=[1, 2, 4])
            for _ in call:
                pass
            return [call.report]
        return run

    for length in (8, 64, 256):
        yield f"256 jobs of {length} by attend_many: a pack, of which two run", "many", many(length)
    for size, count in ((4096, 65_536), (64, 65_536), (1, 8192)):
        yield f"stream of {count:,} in blocks of {size}", "stream", stream(size, count)
    small = _rows(1 << 20, 1, 8)
    for length in (None, 4, 1):
        name = f"2^20 tokens, sequences of {length}" if length else "2^20 tokens in one sequence"
        yield name, "sequences", attend(small, segments=[4], by_reference="never",
                                        sequence_lengths=np.full((1 << 20) // length, length) if length else None)
    mixed = np.random.default_rng(1).permutation(np.repeat([1, 2, 3], (1 << 20) // 6 + 1))
    mixed = mixed[np.cumsum(mixed) <= 1 << 20]
    mixed[-1] += (1 << 20) - mixed.sum()
    yield "2^20 tokens, mixed sequences of 1 to 3", "sequences", attend(
        small, segments=[4], by_reference="never", sequence_lengths=mixed)
    placed = _rows(1 << 18, 2, 16)
    order = hilbert_ring.Hilbert(coords=np.random.default_rng(1).integers(0, 1 << 16, (1 << 18, 2)))
    for way, name in (("never", "sent"), ("auto", "handed over")):
        yield f"order of 2^18 random coordinates, {name}", "order", attend(
            placed, segments=[1024], ordering=order, by_reference=way)
    for way, name in (("never", "sent"), ("auto", "handed over")):
        yield f"64 MiB of rows, {name}", "arrays", attend(_rows(1 << 13), segments=[64], by_reference=way)
    for way, name in (("never", "sent"), ("auto", "handed over")):
        yield f"the reports' job, {name}", "reports", attend(
            _rows(425_984), segments=[2048, 4096, 8192], dilations=[1, 2, 4], by_reference=way)
    for tiles in (10, 10_000):
        values, place = np.random.default_rng(1).standard_normal((tiles, 1536), dtype="f4"), np.arange(tiles)
        grid = 256.0 * np.stack([place % 100, place // 100], axis=1)
        yield f"encode of {tiles:,} tiles", "encode", lambda values=values, grid=grid: [
            client.encode(values, grid, model="model", pool="mean", progress=False).report]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", default="many,stream,sequences,order,arrays,reports,encode")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # notes of segments longer than the slide
    print("| job | planned MiB | reported peak | resident growth | beyond the plan MiB |\n"
          "| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        settings = {}
        if "encode" in given.lines:
            settings["model_dir"] = _write_model(Path(folder))
        service = hilbert_ring.local(workers=given.workers, **settings)
        with service as client:
            workers = [process for name, process in processes_of(service).items() if name.startswith("worker")]
            client.attend(*_rows(4096), segments=[64], progress=False)  # the processes' first use
            for name, group, run in _kinds(client):
                if group not in given.lines.split(","):
                    continue
                if group == "encode":
                    run()  # brings the weights, which the model's memory has
                    time.sleep(0.2)
                grown, reports = _grown(workers, run)
                shares = [worker for report in reports for worker in report.workers]
                planned = max(share.memory_predicted_bytes for share in shares)
                peak = max(share.memory_peak_bytes for share in shares)
                cells = (planned, peak, max(grown), max(grown) - planned)
                print("| " + " | ".join([name, *(f"{bytes_ / 2**20:,.2f}" for bytes_ in cells)]) + " |", flush=True)


if __name__ == "__main__":
    main()

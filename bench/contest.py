"""Contests of the engine and its peers on a CPU: the same work on the same inputs with the same threads.

    options = arguments(description, JOBS)
    results, peak = race(job, [Engine, Peer1, Peer2], inputs, options)

Each round runs every contestant once. A contestant's best round counts. A job has a name, a dtype, tokens, heads, dim
and spec(), the fields of a job's JSON file.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

LONG_SECONDS = 20  # a contestant whose rounds take longer together has no more


class Engine:
    """The engine in its own process. Inputs are arrays or tensors [tokens, heads, dim]."""
    name = "Hilbert Ring"

    def __init__(self, job, inputs, options, folder):
        (folder / "spec.json").write_text(json.dumps(job.spec()))
        files = [folder / name for name in "qkv"]
        for path, x in zip(files, inputs):
            with path.open("wb") as file:
                for part in torch.as_tensor(x).split(65536):
                    part.to(getattr(torch, job.dtype)).contiguous().view(torch.uint8).numpy().tofile(file)
        self.job, self.folder = job, folder
        self.process = subprocess.Popen([options.engine_case, folder / "spec.json", *files, str(options.threads)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.kernel = self.process.stdout.readline().strip()
        self.name += f" ({self.kernel})"
        for path in files:
            path.unlink()

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline()

    def run(self):
        return float(self.ask("run"))

    def peak(self):
        return float(self.ask("peak"))

    def out(self):
        self.ask(f"write {self.folder / 'out'}")
        raw = np.fromfile(self.folder / "out", np.int16 if self.job.dtype == "bfloat16" else np.float32)
        raw = torch.from_numpy(raw)
        raw = raw.view(torch.bfloat16).float() if self.job.dtype == "bfloat16" else raw
        return raw.numpy().reshape(self.job.tokens, self.job.heads, self.job.dim)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


class Peer:
    """A contestant in this process; the time of `compute` counts."""

    def run(self):
        start = time.perf_counter()
        self.compute()
        return time.perf_counter() - start

    def close(self):
        pass


@dataclass
class Result:
    name: str
    seconds: list  # by round; empty if the contestant is absent
    difference: float = 0.0  # the largest to the engine's output
    absent: str = ""  # the reason

    @property
    def best(self):
        return min(self.seconds)

    @property
    def median(self):
        return sorted(self.seconds)[len(self.seconds) // 2]


def race(job, kinds, inputs, options):
    """Returns a Result of each contestant, the engine first, and the multiply-add peak in GFLOP/s."""
    results, running, peak = [], [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            try:
                one = kind(job, inputs, options, Path(folder))
                one.run()
                out = one.out()
            except Exception as error:  # peers raise different types
                if kind is Engine:
                    raise
                reason = next(iter(str(error).splitlines()), type(error).__name__)
                print(f"{job.name}: {kind.name}: {reason}", file=sys.stderr)
                results.append(Result(kind.name, [], absent=reason))
                continue
            if kind is Engine:
                engine, expected = one, out
            difference = float("nan") if out is None else float(np.abs(out - expected).max())
            results.append(Result(one.name, [], difference))
            running.append((one, results[-1]))
        for _ in range(options.rounds):
            for one, result in running:
                if sum(result.seconds) > LONG_SECONDS:
                    continue
                time.sleep(0.05)  # the previous contestant's threads stop spinning
                peak = max(peak, engine.peak())
                result.seconds.append(one.run())
        for one, _ in running:
            one.close()
    return results, peak


def arguments(description, jobs):
    """Returns the options of a contest of jobs, and sets the number of PyTorch's threads."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--engine-case", required=True, help="Path of the program engine_case")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="Run a smoke test: small, one round")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(job.name for job in jobs))
    options = parser.parse_args()
    unknown = set(options.jobs) - {job.name for job in jobs}
    if unknown:
        parser.error(f"no job {', '.join(sorted(unknown))}")
    if options.quick:
        options.rounds = 1
    torch.set_num_threads(options.threads)
    return options

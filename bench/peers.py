#!/usr/bin/env python3
"""Compares the engine and its alternatives on a CPU: the same work on the same inputs with the same threads.

    peers.py --engine-case build/release/bench/engine_case [--rounds N] [JOB...]

Each round runs every contestant once. A contestant's best round counts. Jobs are in peer_jobs.py, contestants in
peer_contestants.py. `./dev bench peers` makes the environment (bench/peers_requirements.txt).
"""
import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from peer_jobs import JOBS


def compete(job, options):
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((job.tokens, job.heads, job.dim), dtype=np.float32) for _ in "qkv"]
    if job.dtype == "bfloat16":
        inputs = [torch.from_numpy(x).bfloat16().float().numpy() for x in inputs]
    with tempfile.TemporaryDirectory() as folder:
        running, differences = [], []
        for kind in contestants(job):
            try:
                one = kind(job, inputs, options, Path(folder))
                one.run()
                out = one.out()
            except Exception as error:  # peers raise different types; a failed peer gets no row
                print(f"{job.name}: {kind.name}: {str(error).splitlines()[0]}", file=sys.stderr)
                if kind is Engine:
                    raise
                continue
            if kind is Engine:
                engine, expected = one, out
            running.append(one)
            differences.append(float(np.abs(out - expected).max()))
        times, peak = [[] for _ in running], 0.0
        for _ in range(options.rounds):
            for one, seconds in zip(running, times):
                time.sleep(0.05)  # the previous contestant's threads stop spinning
                peak = max(peak, engine.peak())
                seconds.append(one.run())
        for one in running:
            one.close()
    ours = min(times[0])
    for one, seconds, difference in zip(running, times, differences):
        best = min(seconds)
        rate = job.flops() / best * 1e-9
        print(f"| {job.name} | {one.name} | {best:.3f} | {sorted(seconds)[len(seconds) // 2]:.3f} "
              f"| {rate:.1f} | {100 * rate / peak:.1f} | {best / ours:.2f} | {difference:.1e} |",
              flush=True)
    return peak


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine-case", required=True, help="Path of the program engine_case")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="Run a smoke test: small, one round")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(j.name for j in JOBS))
    options = parser.parse_args()
    unknown = set(options.jobs) - {job.name for job in JOBS}
    if unknown:
        parser.error(f"no job {', '.join(sorted(unknown))}")

    if options.quick:
        options.rounds = 1
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # the peers read it when they are loaded
    global np, onnxruntime, openvino, torch, Engine, contestants
    import numpy as np
    import onnxruntime
    import openvino
    import torch
    from peer_contestants import Engine, contestants
    torch.set_num_threads(options.threads)

    print(f"PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), "
          f"ONNX Runtime {onnxruntime.__version__}, OpenVINO {openvino.__version__.split('-')[0]}; "
          f"{options.threads} threads, best of {options.rounds} rounds\n")
    print("| job | contestant | best s | median s | GFLOP/s | % of peak | time over the engine's "
          "| max difference to the engine |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    peak = 0.0
    for job in JOBS:
        if options.jobs and job.name not in options.jobs:
            continue
        if options.quick:
            job = replace(job, tokens=job.tokens // 16,
                          segments=tuple(max(1, w // 16) for w in job.segments))
        peak = max(peak, compete(job, options))
    print(f"\nMultiply-add peak of the run: {peak:.1f} GFLOP/s")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares the engine and its alternatives on a CPU: the same work on the same inputs with the same threads.

    peers.py --engine-case build/release/bench/engine_case [--rounds N] [JOB...]

Each round runs every contestant once. A contestant's best round counts. Jobs are in peer_jobs.py, contestants in
peer_contestants.py. `./dev bench peers` makes the environment (bench/peers_requirements.txt).
"""
from dataclasses import replace

import numpy as np
import onnxruntime
import openvino
import torch

from contest import arguments, race
from peer_contestants import contestants
from peer_jobs import JOBS


def compete(job, options):
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((job.tokens, job.heads, job.dim), dtype=np.float32) for _ in "qkv"]
    if job.dtype == "bfloat16":
        inputs = [torch.from_numpy(x).bfloat16().float().numpy() for x in inputs]
    results, peak = race(job, contestants(job), inputs, options)
    for one in results:
        if one.absent:
            continue
        rate = job.flops() / one.best * 1e-9
        print(f"| {job.name} | {one.name} | {one.best:.3f} | {one.median:.3f} "
              f"| {rate:.1f} | {100 * rate / peak:.1f} | {one.best / results[0].best:.2f} | {one.difference:.1e} |",
              flush=True)
    return peak


def main():
    options = arguments(__doc__, JOBS)
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

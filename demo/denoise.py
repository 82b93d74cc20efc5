#!/usr/bin/env python3
"""Denoises a photograph by exact attention over its 262,144 pixels, on two local CPU workers.

The same job runs with the pixels in row-major order, and along the Hilbert curve of the grid. A segment of 1024 pixels
is two rows of the picture in the first order and a 32 x 32 square in the second, where more pixels look alike.
`./dev demo` builds the programs and runs this program.
"""
import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hilbert_ring
import nonlocal_means
import pictures
import verified
from demo_command import FOLDER, DemoError, exit_code_of

WORKERS = 2
SEGMENT = 1024
SIGMA = 25
SEED = 25
RECOMPUTED = 4096  # rows, in float64


@dataclass
class Run:
    name: str
    title: str
    ordering: hilbert_ring.Hilbert  # None: row-major
    picture: np.ndarray = None
    report: object = None
    verified: str = ""


PATTERN = {"segments": [SEGMENT], "dilations": [1], "mixing": "lse", "scale": nonlocal_means.SCALE}


def denoise(client, run, noisy, tensors):
    print(f"{run.title}: the job ...", flush=True)
    result = client.attend(*tensors, ordering=run.ordering, **PATTERN)
    run.report = result.report
    run.picture = nonlocal_means.denoised_picture(result.out, noisy)

    print(f"{run.title}: a sample again in float64 ...", flush=True)
    run.verified = verified_by_command(run, [*tensors, result.out, result.lse])


def verified_by_command(run, tensors):
    """Returns the output of `hilbert-ring verify` about the result."""
    flags = ["--segments", str(SEGMENT), "--dilations", "1", "--mixing", "lse",
             "--scale", repr(nonlocal_means.SCALE), "--rows", str(RECOMPUTED)]
    if run.ordering is not None:
        flags += ["--curve", run.ordering.curve, "--grid", ",".join(map(str, run.ordering.grid))]
    return verified.by_command(flags, tensors)


def mebibytes(count):
    return f"{count / 2**20:.1f} MiB"


def table(runs, noisy, truth):
    """Returns the lines of the table of results: a label, then a column for each run."""
    rows = [("", [run.title for run in runs]),
            ("PSNR, noisy", [f"{nonlocal_means.psnr(noisy, truth):.2f} dB"] * len(runs)),
            ("PSNR, denoised",
             [f"{nonlocal_means.psnr(run.picture, truth):.2f} dB" for run in runs]),
            ("tokens/s", [f"{getattr(run.report, 'tokens_per_second'):,.0f}" for run in runs])]
    for phase in ("receive", "compute", "send", "total"):
        rows.append((f"seconds, {phase}",
                     [f"{getattr(run.report, phase + '_seconds'):.2f}" for run in runs]))
    for label, name in (("bytes exchanged", "bytes_exchanged"),
                        ("  as planned", "bytes_exchanged_planned"),
                        ("  by a naive ring", "bytes_exchanged_naive")):
        rows.append((label, [f"{getattr(run.report, name):,.0f}" for run in runs]))
    for place in range(WORKERS):
        for label, name in ((f"memory of worker {place + 1}", "memory_peak_bytes"),
                            ("  as planned", "memory_predicted_bytes")):
            rows.append((label, [mebibytes(getattr(run.report.workers[place], name))
                                 for run in runs]))
    label_width = max(len(label) for label, _ in rows)
    return [f"  {label:<{label_width}}" + "".join(f"{cell:>18}" for cell in cells)
            for label, cells in rows]


def faults_of(runs):
    """Yields a sentence for each fault of the results."""
    for run in runs:
        done, planned = (getattr(run.report, name)
                         for name in ("bytes_exchanged", "bytes_exchanged_planned"))
        if done != planned:
            yield f"{run.title}: {done:,.0f} bytes were exchanged, {planned:,.0f} were planned"


def demonstrate(arguments):
    truth = pictures.load(arguments.photograph)
    noisy = nonlocal_means.add_noise(truth, SIGMA, SEED)
    rows, cols = truth.shape
    runs = [Run("rowmajor", "row-major", None),
            Run("hilbert", "Hilbert", hilbert_ring.Hilbert(grid=(rows, cols)))]

    arguments.out.mkdir(parents=True, exist_ok=True)
    tensors = nonlocal_means.attention_inputs(noisy)
    print(f"{truth.size:,} tokens ({rows} x {cols} pixels, noise of sigma {SIGMA}), "
          f"one head of {nonlocal_means.WIDTH}, segments of {SEGMENT}, float32", flush=True)
    with hilbert_ring.local(WORKERS, job_workers=WORKERS) as client:
        for run in runs:
            denoise(client, run, noisy, tensors)

    print()
    print("\n".join(table(runs, noisy, truth)))
    print()
    shard = truth.size // WORKERS
    print(f"Each worker holds {shard:,} tokens, a whole number of segments of {SEGMENT}: every\n"
          "segment is local, so the plan exchanges nothing. A naive ring would send all keys and\n"
          "values to everyone.")
    for run in runs:
        lines = run.verified.strip().splitlines() or ["ok"]
        print(f"hilbert-ring verify, {run.title}: {lines[0]}: {lines[-1]}")

    pictures.save(arguments.out / "noisy.png", noisy)
    for run in runs:
        pictures.save(arguments.out / f"denoised_{run.name}.png", run.picture)
    pictures.save_beside(
        arguments.out / "before_after.png",
        [(f"noisy, {nonlocal_means.psnr(noisy, truth):.1f} dB", noisy)] +
        [(f"{run.title} order, {nonlocal_means.psnr(run.picture, truth):.1f} dB", run.picture)
         for run in runs])
    faults = list(faults_of(runs))
    if faults:
        raise DemoError("the results are wrong:\n" + "\n".join(f"    {text}" for text in faults))
    print("The service agrees with float64 within float32's rounding.")
    print(f"Pictures: {arguments.out}/before_after.png, noisy.png, "
          + ", ".join(f"denoised_{run.name}.png" for run in runs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photograph", type=Path, required=True, help="a grey picture")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the pictures")
    return exit_code_of(demonstrate, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())

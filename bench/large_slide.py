#!/usr/bin/env python3
"""A slide of a million tiles through an encoder of the published size, by the service.

    large_slide.py [--tiles 1000000] [--workers 2] [--compute bfloat16] [--picture memory.svg]

`./dev bench large_slide` builds the programs and calls this. It samples the resident memory of every process. The
weights are random: this measures speed, memory and fidelity. The tiles are a float16 .npy file beneath the service's
data root. All blocks have the same tiles times a factor of their own. Each tile has its own cell of the slide's grid.
"""
import argparse
import math
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from published_encoder import SIZES, TILE_SIZE, config_of
from resident_memory import ResidentMemory, picture, processes_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
import random_encoder  # noqa: E402

import hilbert_ring  # noqa: E402

BLOCK = 4096  # tiles
SEED = 1


def write_slide(folder, tiles, dim, grid):
    """Writes the slide's two files."""
    base = np.random.default_rng(SEED).standard_normal((min(BLOCK, tiles), dim), dtype="f4")
    rows = np.lib.format.open_memmap(folder / "tiles.npy", "w+", "f2", (tiles, dim))
    for first in range(0, tiles, BLOCK):
        factor = np.float32(0.5 + (first // BLOCK * 0.61803398875) % 1)
        rows[first:first + BLOCK] = base[:tiles - first] * factor
    rows.flush()
    cells = np.arange(tiles)
    np.save(folder / "coords.npy", TILE_SIZE * np.stack([cells % grid, cells // grid], 1).astype("f8"))


def table(tiles, seconds, result):
    """Returns the lines of two Markdown tables."""
    report = result.report
    yield "| tiles | seconds | tiles/s | receive s | compute s | GiB exchanged | planned |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    yield (f"| {tiles:,} | {seconds:.1f} | {tiles / seconds:,.0f} | {report.receive_seconds:.1f} | "
           f"{report.compute_seconds:.1f} | {report.bytes_exchanged / 2**30:.2f} | "
           f"{report.bytes_exchanged_planned / 2**30:.2f} |")
    yield ""
    yield "| worker | tokens | MiB taken | planned | seconds | waiting for keys | GiB read |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for rank, worker in enumerate(report.workers):
        yield (f"| {rank} | {worker.tokens:,} | {worker.memory_peak_bytes / 2**20:,.0f} | "
               f"{worker.memory_predicted_bytes / 2**20:,.0f} | {worker.compute_seconds:.1f} | "
               f"{worker.exposed_exchange_seconds:.2f} | {worker.file_bytes_read / 2**30:.2f} |")
    yield ""
    yield from (f"- {note}" for note in report.notes)
    yield ""


def peaks(memory):
    """Returns the lines of a Markdown table."""
    yield "| process | resident MiB, at most |"
    yield "| --- | --- |"
    for name in memory.processes:
        yield f"| {name} | {max(bytes_[name] for _, _, bytes_ in memory.samples) / 2**20:,.0f} |"


def run(arguments, folder):
    grid = max(2, math.ceil(math.sqrt(arguments.tiles)))
    config = config_of(arguments.size, grid)
    random_encoder.write(folder / "models" / "model", config, random_encoder.weights(config, SEED))
    root = folder / "slides"
    root.mkdir()
    write_slide(root, arguments.tiles, config["input_dim"], grid)
    service = hilbert_ring.local(
        workers=arguments.workers, model_dir=folder / "models", data_root=root, job_workers=arguments.workers,
        max_tokens=2 * arguments.tiles, job_timeout=86400)
    try:
        client = service.start()
        with ResidentMemory(processes_of(service)) as memory:
            last = time.monotonic()

            def progress(now):
                nonlocal last
                memory.done = now.compute_fraction
                if time.monotonic() - last > 10:
                    last = time.monotonic()
                    print(f"{memory.done:.1%}", file=sys.stderr, flush=True)

            begun = time.monotonic()
            with warnings.catch_warnings(action="ignore"):  # the table shows the report's notes
                result = client.encode(root / "tiles.npy", root / "coords.npy", model="model", pool="mean",
                                       compute=arguments.compute, by_reference="always", progress=progress)
            seconds = time.monotonic() - begun
    finally:
        service.stop()
    if not np.isfinite(result.embeddings).all():
        raise AssertionError("the slide's vector is not finite")
    return table(arguments.tiles, seconds, result), memory


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiles", type=int, default=1_000_000)
    parser.add_argument("--size", choices=SIZES, default="published")
    parser.add_argument("--compute", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", help="Folder of the files (default: the system's temporary folder)")
    parser.add_argument("--picture", help="SVG file to write")
    return parser.parse_args()


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="hilbert-ring-slide-", dir=arguments.folder) as folder:
        lines, memory = run(arguments, Path(folder))
    print(*lines, *peaks(memory), sep="\n", flush=True)
    if arguments.picture:
        title = f"Resident memory of every process, a slide of {arguments.tiles:,} tiles"
        Path(arguments.picture).write_text(picture([memory], title).document())


if __name__ == "__main__":
    main()

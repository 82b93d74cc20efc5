#!/usr/bin/env python3
"""Embeddings of a picture's tiles by an encoder, on two local CPU workers.

The demo cuts a photograph into tiles and runs them through all layers of a LongNet encoder in the service. The results
are a vector for each tile, a vector for the picture, and the class token's attention to each tile. The model has random
weights: the demo shows correctness and speed, and its vectors and maps have no meaning. `./dev demo encode` builds the
programs and runs this program.
"""
import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import hilbert_ring
import pictures
import random_encoder
from demo_command import FOLDER, DemoError, exit_code_of

WORKERS = 2
SEED = 7
ALLOWED = 2e-5  # of 1 + |x|, in float32
MODEL = "random"


def cut(picture, tile):
    """Returns tiles [rows x cols, tile x tile] of values around 0, their pixels (x, y), and the grid's (rows, cols)."""
    rows, cols = (side // tile for side in picture.shape)
    if min(rows, cols) < 1:
        raise DemoError(f"the picture of {picture.shape} has no tile of {tile} x {tile}")
    part = picture[:rows * tile, :cols * tile].reshape(rows, tile, cols, tile)
    tiles = part.swapaxes(1, 2).reshape(rows * cols, tile * tile) / 127.5 - 1
    y, x = np.divmod(np.arange(rows * cols), cols)
    return tiles.astype(np.float32), np.stack([x, y], axis=1) * tile, (rows, cols)


def off(values, expected):
    """Returns the largest difference relative to 1 + |x|."""
    return float(np.max(np.abs(values - expected) / (1 + np.abs(expected))))


def picture_of(values, grid, tile):
    """Returns a picture in which each tile is grey by its value; the least values are black."""
    low, high = np.percentile(values, [1, 99])
    grey = np.clip((values - low) / max(high - low, 1e-30), 0, 1) * 255
    return np.kron(grey.reshape(grid), np.ones((tile, tile)))


def first_component(rows):
    centred = rows - rows.mean(axis=0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][0]


def mebibytes(count):
    return f"{count / 2**20:.1f} MiB"


def figures(title, report):
    yield (f"{title}: {report.tokens_per_second:,.0f} rows/s; receive {report.receive_seconds:.2f} s,"
           f" compute {report.compute_seconds:.2f} s, send {report.send_seconds:.2f} s")
    for worker in report.workers:
        yield (f"  {worker.worker}: {worker.tokens:,} rows, memory "
               f"{mebibytes(worker.memory_peak_bytes)}, as planned "
               f"{mebibytes(worker.memory_predicted_bytes)}; {worker.kernel}")


def demonstrate(arguments):
    photograph = pictures.load(arguments.photograph)
    tiles, coords, grid = cut(photograph, arguments.tile)
    config = random_encoder.config(arguments.tile, max(grid), arguments.layers)
    weights = random_encoder.weights(config, SEED)
    numbers = sum(value.size for value in weights.values())
    print(f"{len(tiles):,} tiles of {arguments.tile} x {arguments.tile} pixels; a model of "
          f"{config['layers']} layers, {config['embed_dim']} wide, {numbers:,} random weights",
          flush=True)
    with tempfile.TemporaryDirectory(prefix="hilbert-ring-demo-") as folder:
        random_encoder.write(Path(folder) / MODEL, config, weights)
        with hilbert_ring.local(WORKERS, job_workers=WORKERS, model_dir=folder) as client:
            def encode(**options):
                return client.encode(tiles, coords, model=MODEL, progress=False, **options)

            encode(pool="mean")  # loads the weights before the measured runs
            rows = encode(pool="none", attention_map=True, attention_map_heads=True)
            pooled = encode(pool="mean")
            half = encode(pool="mean", compute="bfloat16")
    for line in (*figures("float32", pooled.report), *figures("bfloat16", half.report)):
        print(line)

    print("the definition in float64 ...", flush=True)
    out, vector, received = random_encoder.defined(tiles, coords, weights, config)
    errors = {"every tile's vector": off(rows.embeddings, out),
              "the picture's vector": off(pooled.embeddings[0], vector),
              "the attention map": off(rows.attention_map, received)}
    for what, error in errors.items():
        print(f"  {what}: off by {error:.1e} of 1 + |x|, allowed {ALLOWED:.0e}")
    print(f"  the picture's vector in bfloat16: off by {off(half.embeddings[0], vector):.1e}")

    arguments.out.mkdir(parents=True, exist_ok=True)
    shown = rows.attention_map.mean(axis=1)[1:]  # row 0 is the class token
    height, width = (side * arguments.tile for side in grid)
    pictures.save_beside(arguments.out / "encode.png", [
        ("picture", photograph[:height, :width]),
        ("embeddings, 1st component",
         picture_of(first_component(rows.embeddings[1:]), grid, arguments.tile)),
        ("log attention, random weights",
         picture_of(np.log(np.maximum(shown, shown[shown > 0].min())), grid, arguments.tile))])
    np.save(arguments.out / "embeddings.npy", rows.embeddings)
    np.save(arguments.out / "attention_map.npy", rows.attention_map)
    wrong = [what for what, error in errors.items() if not error <= ALLOWED]
    if wrong:
        raise DemoError("off by more than is allowed: " + ", ".join(wrong))
    print("The map's bands are the branches: the class token sees every row of the first segment, and "
          "every\nsecond and fourth of the longer ones, in the heads that begin with it.")
    print("Random weights show that the service follows the definition, and its speed.\n"
          "Their results have no medical meaning: convert a trained checkpoint (docs/encoder.md).")
    print(f"Pictures: {arguments.out}/encode.png; arrays: embeddings.npy, attention_map.npy")


def main():
    parser = argparse.ArgumentParser(prog="dev demo encode", description=__doc__.splitlines()[0])
    parser.add_argument("--photograph", type=Path, required=True, help="a grey picture")
    parser.add_argument("--tile", type=int, default=8, help="pixels of a tile's side")
    parser.add_argument("--layers", type=int, default=6, help="layers of the model")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the pictures")
    return exit_code_of(demonstrate, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Work in small pieces beside the same work in one piece, by the Python client on one service.

    small_pieces.py --encoder-case build/release/bench/encoder_case --engine-case build/release/bench/engine_case
                    [--rounds 7] [--size published]

`./dev bench python` builds the programs and calls this. Each round runs a line and its reference once, after a warm-up
round. The lines are 256 jobs of one `attend_many` beside a packed job, short sequences beside one in as short segments,
streams in small blocks beside blocks of 4,096 rows, and `encode` of few tiles beside the engine in its own process with
the same threads. Weights are random. If PyTorch is installed, its attention over [segments, heads, tokens, dim] is the
reference of the engine alone in short segments.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import hilbert_ring
from published_encoder import SIZES, TILE_SIZE, config_of
from tls_cost import processor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
import random_encoder  # noqa: E402

HEADS, DIM, JOBS, BLOCK = 8, 64, 256, 4096
STREAM = {"segments": [1024, 2048, 4096], "dilations": [1, 2, 4]}
SETTLED = 4  # seconds after which the service takes a model's files as unchanged


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def rows(count, heads=HEADS, dim=DIM):
    return [np.random.default_rng(1).standard_normal((count, heads, dim), dtype="f4") for _ in "qkv"]


def segments(engine_case):
    try:
        import torch
        from contest import Engine
    except ImportError:
        return
    for count, heads, dim in ((1 << 16, 8, 64), (1 << 20, 1, 8)):
        for length in (1, 2, 3):
            whole = rows(count // length * length, heads, dim)
            tokens = len(whole[0])
            job = SimpleNamespace(dtype="float32", spec=lambda tokens=tokens, heads=heads, dim=dim, length=length: {
                "tokens": tokens, "heads": heads, "head_dim": dim, "segments": [length], "dilations": [1]})
            cut = [torch.from_numpy(tensor).view(-1, length, heads, dim).transpose(1, 2).contiguous()
                   for tensor in whole]
            with tempfile.TemporaryDirectory() as folder:
                options = SimpleNamespace(engine_case=engine_case, threads=os.cpu_count())
                engine = Engine(job, whole, options, Path(folder))
                yield (f"{tokens} tokens of {heads} x {dim}, segments of {length}", tokens // length * heads,
                       engine.run, lambda cut=cut: seconds(lambda: torch.nn.functional.scaled_dot_product_attention(*cut)))
                engine.process.communicate()


def jobs(client):
    """Yields for each line its name, pieces, seconds of a run, and seconds of its reference."""
    for length in (8, 64, 256):
        whole = rows(JOBS * length)
        cut = list(zip(*(np.split(tensor, JOBS) for tensor in whole)))
        yield (f"{JOBS} jobs of {length}", JOBS,
               lambda cut=cut, length=length: seconds(lambda: client.attend_many(cut, segments=[length])),
               lambda whole=whole, length=length: seconds(lambda: client.attend(
                   *whole, segments=[length], sequence_lengths=[length] * JOBS, progress=False)))


def sequences(client):
    count = 1 << 20
    whole = rows(count, 1, 8)

    def run(segment, lengths=None):
        return seconds(lambda: client.attend(*whole, segments=[segment], sequence_lengths=lengths, progress=False))

    ends = np.cumsum(np.random.default_rng(1).integers(1, 4, count))
    for name, segment, lengths in (
            ("1", 1, np.full(count, 1)), ("4", 4, np.full(count // 4, 4)),
            ("1 to 3", 2, np.diff(ends[ends < count], prepend=0, append=count))):
        yield (f"2^20 tokens, sequences of {name}", len(lengths), lambda lengths=lengths: run(4, lengths),
               lambda segment=segment: run(segment))


def streams(client):
    def run(whole, size):
        count = len(whole[0])
        blocks = (tuple(tensor[first:first + size] for tensor in whole) for first in range(0, count, size))
        assert sum(len(result.out) for result in client.attend_stream(blocks, **STREAM)) == count

    for size, count in ((64, 65_536), (16, 65_536), (4, 16_384), (1, 8192)):
        whole = rows(count)
        yield (f"blocks of {size}", count // size, lambda whole=whole, size=size: seconds(lambda: run(whole, size)),
               lambda whole=whole: seconds(lambda: run(whole, BLOCK)))


def tiles(client, given, folder):
    config = config_of(given.size)
    for count in (1, 4, 10):
        values = np.random.default_rng(1).standard_normal((count, config["input_dim"]), dtype="f4")
        coords = TILE_SIZE * np.stack([np.arange(count), np.zeros(count)], axis=1)
        values.tofile(folder / "tiles")
        coords.astype("f4").tofile(folder / "coords")
        with subprocess.Popen([given.encoder_case, folder / "models" / "model", folder / "tiles", folder / "coords",
                               "float32", str(os.cpu_count()), "1"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
            engine.stdout.readline()

            def alone():
                print("run", file=engine.stdin, flush=True)
                return float(engine.stdout.readline().split()[0])

            yield (f"encode of {count}", 1, lambda: seconds(lambda: client.encode(
                values, coords, model="model", pool="mean", progress=False)), alone)
            engine.stdin.close()


def row(name, pieces, run, reference, rounds):
    measured = [(run(), reference()) for _ in range(rounds + 1)][1:]
    middle = [1000 * statistics.median(column) for column in zip(*measured)]
    ratios = sorted(one / other for one, other in measured)
    more = statistics.median(1000 * (one - other) / pieces for one, other in measured)
    return (f"| {name} | {middle[0]:,.1f} | {middle[1]:,.1f} | {statistics.median(ratios):.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}) | {more:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder-case", required=True, help="Path of the program encoder_case")
    parser.add_argument("--engine-case", required=True, help="Path of the program engine_case")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", choices=SIZES, default="published")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # notes of segments longer than the slide
    print(f"{processor()}, {os.cpu_count()} cores, {given.workers} workers; load {os.getloadavg()[0]:.1f} before\n")
    print("| line | ms | reference ms | times | more ms each |\n| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        folder, config = Path(name), config_of(given.size)
        random_encoder.write(folder / "models" / "model", config, random_encoder.weights(config, 1))
        time.sleep(SETTLED)
        with hilbert_ring.local(workers=given.workers, model_dir=folder / "models") as client:
            for lines in (segments(given.engine_case), jobs(client), sequences(client), streams(client),
                          tiles(client, given, folder)):
                for line in lines:
                    print(row(*line, given.rounds), flush=True)


if __name__ == "__main__":
    main()

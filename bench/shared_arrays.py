#!/usr/bin/env python3
"""Arrays shared with a service on the same host, without a copy, beside the same arrays sent, by the Python client.

    shared_arrays.py [--tokens 256,1024,4096,65536,425984] [--rounds 5]

`./dev bench python` builds the programs and calls this. Each round runs every length both ways, in alternating order;
the first round is a warm-up. The published configuration, float32, no order.
"""
import argparse
import gc
import os
import statistics
import time

import numpy as np

import hilbert_ring
from hilbert_ring import _by_reference
from hilbert_ring._connection import run
from hilbert_ring.v1 import attention_pb2 as pb
from python_client import PATTERN, processor

HEADS, DIM = 8, 64
WAYS = {"sent": "never", "shared": "auto"}


def await_root(client, workers):
    end = time.monotonic() + 30
    while run(client._calls._connection.short("GetDataRoot", pb.GetDataRootRequest(),
                                              pb.GetDataRootResponse)).workers < workers:
        assert time.monotonic() < end, "the workers do not see the data root"
        time.sleep(0.01)


def measure(client, arrays, how):
    """Returns seconds, CPU seconds of the client, and the output."""
    start, used = time.perf_counter(), time.process_time()
    result = client.attend(*arrays, lse=False, by_reference=WAYS[how], progress=False, **PATTERN)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    assert result.report.by_reference == (how == "shared")
    return seconds, used, result.out


def row(tokens, measured):
    middle = {how: statistics.median(seconds for seconds, _ in runs) for how, runs in measured.items()}
    used = {how: statistics.median(used for _, used in runs) for how, runs in measured.items()}
    pairs = sorted(sent / shared for (sent, _), (shared, _) in zip(measured["sent"], measured["shared"]))
    cells = [f"{tokens:,}", f"{4 * tokens * HEADS * DIM * 4 / 2**20:,.0f}",
             *(f"{1000 * middle[how]:,.1f}" for how in WAYS),
             f"{statistics.median(pairs):.2f} ({pairs[0]:.2f} to {pairs[-1]:.2f})",
             *(f"{1000 * used[how]:,.1f}" for how in WAYS)]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="256,1024,4096,65536,425984")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    lengths = [int(tokens) for tokens in given.tokens.split(",")]
    _by_reference.SHARED_BYTES = 1  # shares arrays of any length
    random = np.random.default_rng(1)
    arrays = [random.standard_normal((max(lengths), HEADS, DIM), dtype="f4") for _ in "qkv"]
    measured = {tokens: {how: [] for how in WAYS} for tokens in lengths}
    print(f"{processor()}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f} before")
    with hilbert_ring.local(workers=given.workers) as client:
        await_root(client, given.workers)
        for turn in range(given.rounds + 1):
            for tokens in lengths:
                parts = [array[:tokens] for array in arrays]
                outs = []
                for how in sorted(WAYS, reverse=turn % 2 == 0):
                    seconds, used, out = measure(client, parts, how)
                    outs.append(out)
                    if turn > 0:
                        measured[tokens][how].append((seconds, used))
                assert np.array_equal(*outs)
                del out, outs
                gc.collect()
    print(f"load {os.getloadavg()[0]:.1f} after, {given.rounds} rounds\n")
    print("Arrays in memory, sent and shared\n")
    print("| tokens | MiB of q, k, v, out | ms, sent | ms, shared | sent / shared (least to most) "
          "| client ms of a processor, sent | shared |\n|--:|--:|--:|--:|--:|--:|--:|")
    for tokens in lengths:
        print(row(tokens, measured[tokens]))


if __name__ == "__main__":
    main()

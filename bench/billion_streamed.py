"""The streamed half of bench/billion.py, which makes rows as the stream asks for them.

A block of 65,536 tokens is a fixed block of random rows times a factor of its own. Any row is thus cheap to make again
for the check in float64.
"""
import sys
import time

import numpy as np

from billion_rows import DILATIONS, DIM, HEADS, SEGMENTS, WINDOW, deviation

BLOCK = 65_536


class Source:
    """Makes the stream's rows, by token."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self.base = [random.standard_normal((BLOCK, HEADS, DIM), dtype="f4") for _ in "qkv"]

    def block(self, number):
        """Returns q, k and v of a block, [BLOCK, HEADS, DIM]."""
        factor = np.float32(1 + (number * 0.61803398875) % 1)
        return [tensor * factor for tensor in self.base]

    def window(self, first, count):
        """Returns q, k and v of tokens that lie in one block."""
        at = slice(first % BLOCK, first % BLOCK + count)
        return [tensor[at] for tensor in self.block(first // BLOCK)]

    def blocks(self, tokens):
        for first in range(0, tokens, BLOCK):
            yield tuple(tensor[:tokens - first] for tensor in self.block(first // BLOCK))


def run(client, arguments, memory):
    """Streams all tokens. Returns lines of a Markdown table, and the largest deviation of drawn rows."""
    tokens = arguments.tokens
    source = Source(arguments.seed)
    drawn = np.sort(np.random.default_rng(arguments.seed + 1).choice(
        tokens, min(arguments.rows, tokens), replace=False))
    kept = []
    begun = last = time.monotonic()
    results = client.attend_stream(
        source.blocks(tokens), segments=SEGMENTS, dilations=DILATIONS,
        epoch_tokens=arguments.epoch_tokens or None, chunk_bytes=4 << 20)
    for block in results:
        end = block.first_token + len(block.out)
        low, high = np.searchsorted(drawn, [block.first_token, end])
        kept += [(int(token), block.out[token - block.first_token].copy()) for token in drawn[low:high]]
        memory.done = end / tokens
        if time.monotonic() - last > 10:
            last = time.monotonic()
            print(f"{end:,} tokens, {end / (last - begun):,.0f} tokens/s", file=sys.stderr, flush=True)
    seconds = time.monotonic() - begun
    report = results.report
    assert report.tokens == tokens and len(kept) == len(drawn)
    worst = 0.0
    for token, row in kept:
        first = token // WINDOW * WINDOW
        window = source.window(first, min(WINDOW, tokens - first))
        worst = max(worst, deviation(row, window, token - first))
    moved = report.bytes_received + report.bytes_sent
    return [
        "| tokens, streamed | epochs | seconds | tokens/s | GiB in and out | rows in float64 | largest deviation |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        f"| {tokens:,} | {report.epochs:,} | {seconds:.1f} | {tokens / seconds:,.0f} | {moved / 2**30:.1f} | "
        f"{len(kept):,} | {worst:.1e} |"], worst

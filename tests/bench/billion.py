#!/usr/bin/env python3
"""A stream of a billion tokens through the service: rows are made as they are asked for, rows that are drawn are computed
again in float64, and the resident memory of every process is looked at all the time.

    billion.py [--tokens 1073741824] [--picture memory.svg]

`./dev bench billion` builds what it needs and calls this. The published pattern ([2048, 4096, 8192] with [1, 2, 4]), a
head to each branch. The rows of a block of 65,536 tokens are random ones, the same for all blocks, times a factor that
is the block's own, so that making them costs little and any can be made again.
"""
import argparse
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

import hilbert_ring
from hilbert_ring.draw.plot import Axis, Series, plot

SEGMENTS, DILATIONS = (2048, 4096, 8192), (1, 2, 4)
HEADS, DIM, BLOCK = 3, 8, 65_536
MOST_SAMPLES = 120  # of memory, in the picture


class Source:
    """Rows of the whole stream, by their tokens."""

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self.base = [random.standard_normal((BLOCK, HEADS, DIM), dtype="f4") for _ in "qkv"]

    def block(self, number):
        """q, k and v of a whole block. The factors of blocks side by side differ."""
        factor = np.float32(1 + (number * 0.61803398875) % 1)
        return [tensor * factor for tensor in self.base]

    def rows(self, first, count):
        """Of some tokens, which lie in one block."""
        q, k, v = self.block(first // BLOCK)
        at = slice(first % BLOCK, first % BLOCK + count)
        return q[at], k[at], v[at]

    def blocks(self, tokens):
        for first in range(0, tokens, BLOCK):
            yield tuple(tensor[:tokens - first] for tensor in self.block(first // BLOCK))


class Memory(threading.Thread):
    """Resident bytes of processes, ten times a second."""

    def __init__(self, processes, period=0.1):
        super().__init__(daemon=True)
        self.processes = processes  # name: id
        self.samples = []           # (seconds, tokens that are done, bytes by name)
        self.done = 0
        self._period = period
        self._begun = time.monotonic()
        self._over = threading.Event()

    def run(self):
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._over.wait(self._period):
            resident = {}
            for name, process in self.processes.items():
                with open(f"/proc/{process}/statm") as statm:
                    resident[name] = int(statm.read().split()[1]) * page
            self.samples.append((time.monotonic() - self._begun, self.done, resident))
            if len(self.samples) > 4 * MOST_SAMPLES:  # every second one, half as often from now on
                self.samples = self.samples[::2]
                self._period *= 2

    def stop(self):
        self._over.set()
        self.join()

    def peaks(self, name, tokens):
        """Largest of the stream's second tenth, and of all that follows."""
        early = [bytes_[name] for _, done, bytes_ in self.samples if 0.1 <= done / tokens < 0.2]
        late = [bytes_[name] for _, done, bytes_ in self.samples if 0.2 <= done / tokens]
        return max(early, default=0), max(late, default=0)

    def picture(self):
        every = max(1, len(self.samples) // MOST_SAMPLES)
        return plot("Resident memory of every process during the stream", Axis("seconds"), Axis("MiB"),
                    [Series(name, [(at, bytes_[name] / 2**20)
                                   for at, _, bytes_ in self.samples[::every]])
                     for name in self.processes])


def processes_of(service):
    """The coordinator and its workers, and this program."""
    def children(process):
        tasks = Path(f"/proc/{process}/task").iterdir()  # a child is that of the thread which began it
        return sorted(int(child) for task in tasks for child in (task / "children").read_text().split())

    (coordinator,) = children(service._guard.pid)  # pylint: disable=protected-access
    named = {"client": os.getpid(), "coordinator": coordinator}
    named.update({f"worker {i}": child for i, child in enumerate(children(coordinator))})
    return named


def expected(source, token, tokens):
    """[heads, dim] of a token's row, in float64, by the definition: each head has one branch."""
    row = np.zeros((HEADS, DIM))
    for head, (segment, dilation) in enumerate(zip(SEGMENTS, DILATIONS)):
        first = token // segment * segment
        offset = head % dilation
        if (token - first - offset) % dilation:
            continue  # the branch does not select it
        count = min(segment, tokens - first)
        q, k, v = (tensor[:, head].astype("f8") for tensor in source.rows(first, count))
        scores = k[offset::dilation] @ q[token - first] / np.sqrt(DIM)
        weights = np.exp(scores - scores.max())
        row[head] = weights @ v[offset::dilation] / weights.sum()
    return row / len(SEGMENTS)


def stream(client, source, arguments, memory):
    """Seconds, the report, and the largest deviation of rows that were drawn."""
    tokens = arguments.tokens
    drawn = np.sort(np.random.default_rng(arguments.seed + 1).choice(
        tokens, min(arguments.rows, tokens), replace=False))
    kept = []
    begun = time.monotonic()
    last = begun
    results = client.attend_stream(
        source.blocks(tokens), segments=SEGMENTS, dilations=DILATIONS,
        epoch_tokens=arguments.epoch_tokens or None, chunk_bytes=4 << 20)
    for block in results:
        end = block.first_token + len(block.out)
        low, high = np.searchsorted(drawn, [block.first_token, end])
        kept += [(token, block.out[token - block.first_token].copy()) for token in drawn[low:high]]
        memory.done = end
        if time.monotonic() - last > 10:
            last = time.monotonic()
            print(f"{end:,} tokens, {end / (last - begun):,.0f} tokens/s", file=sys.stderr, flush=True)
    seconds = time.monotonic() - begun
    assert results.report.tokens == tokens and len(kept) == len(drawn)
    return seconds, results.report, kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=1 << 30)
    parser.add_argument("--epoch-tokens", type=int, default=0, help="0: as many as the service takes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", default="256MiB", help="of each worker")
    parser.add_argument("--rows", type=int, default=4096, help="that are computed again")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--picture", help="SVG to write")
    arguments = parser.parse_args()
    source = Source(arguments.seed)
    service = hilbert_ring.local(workers=arguments.workers, memory_limit=arguments.memory_limit)
    try:
        client = service.start()
        memory = Memory(processes_of(service))
        memory.start()
        seconds, report, kept = stream(client, source, arguments, memory)
        memory.stop()
    finally:
        service.stop()
    worst = max((np.abs(row - expected(source, int(token), arguments.tokens)).max()
                 for token, row in kept), default=0.0)
    moved = report.bytes_received + report.bytes_sent
    print("| tokens | epochs | seconds | tokens/s | GiB in and out | rows in float64 | largest deviation |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(f"| {report.tokens:,} | {report.epochs:,} | {seconds:.1f} | {report.tokens / seconds:,.0f} | "
          f"{moved / 2**30:.1f} | {len(kept):,} | {worst:.1e} |")
    print("\n| process | resident MiB, in the second tenth | from then on | growth |")
    print("| --- | --- | --- | --- |")
    for name in memory.processes:
        early, late = memory.peaks(name, arguments.tokens)
        growth = f"{late / early - 1:+.1%}" if early else "-"
        print(f"| {name} | {early / 2**20:.1f} | {late / 2**20:.1f} | {growth} |")
    if arguments.picture:
        Path(arguments.picture).write_text(memory.picture().document())
    if worst > 1e-5:
        sys.exit(f"billion: a row is off by {worst}, more than 1e-5")


if __name__ == "__main__":
    main()

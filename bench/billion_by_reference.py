"""The half of the benchmark that names files: Q, K and V of all tokens lie in three .npy files beneath the service's
data root, and no row passes the network.

A job's rows are all in its workers' memory, so that the tokens are taken in pieces, each a job that names its part of
the three files and a file of its own for the output. A piece is a multiple of all segments: that changes no row.

The inputs are sparse. Of each piece five windows (the longest segment) have rows, random ones: the first, the last, the
two at its middle, where rows pass from one worker to the other, and one that is drawn. Rows of these are computed again
in float64; another window, which was never written, must come out as zeros. What was looked at is removed, so that no
more than one piece's output is on the disk.
"""
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from billion_rows import DILATIONS, DIM, HEADS, SEGMENTS, WINDOW, deviation


class Piece:
    """Tokens of one job, and which windows of it have rows."""

    def __init__(self, first, count, random):
        windows = -(-count // WINDOW)
        written = {0, (windows - 1) // 2, windows // 2, windows - 1, int(random.integers(windows))}
        holes = sorted(set(range(windows)) - written)
        self.first, self.count = first, count
        self.written = sorted(written)
        self.hole = int(random.choice(holes)) if holes else None

    def window(self, number):
        """Its rows, as a slice of the piece's."""
        return slice(number * WINDOW, min((number + 1) * WINDOW, self.count))

    def of(self, tensors):
        return [tensor[self.first:self.first + self.count] for tensor in tensors]


def pieces_of(arguments):
    random = np.random.default_rng(arguments.seed + 2)
    size = arguments.piece_tokens
    return [Piece(first, min(size, arguments.tokens - first), random)
            for first in range(0, arguments.tokens, size)]


@contextmanager
def input_files(folder, pieces, arguments):
    """The paths of q, k and v, sparse files that are removed at the end."""
    random = np.random.default_rng(arguments.seed)
    paths = [folder / f"{name}.npy" for name in "qkv"]
    try:
        for path in paths:
            tensor = np.lib.format.open_memmap(path, "w+", "f4", (arguments.tokens, HEADS, DIM))
            for piece in pieces:
                rows = piece.of([tensor])[0]
                for number in piece.written:
                    at = piece.window(number)
                    rows[at] = random.standard_normal((at.stop - at.start, HEADS, DIM), dtype="f4")
            tensor.flush()
            del tensor, rows  # pages of a map count as the program's for as long as it is there
        yield paths
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def received_bytes(service):
    """That came to the coordinator as rows, so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{service.ready['http_port']}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines
                   if line.startswith("hilbert_ring_received_bytes_total")))


def check(piece, inputs, out, rows, random):
    """The largest deviation of rows that are drawn in each window."""
    worst = 0.0
    if piece.hole is not None and out[piece.window(piece.hole)].any():
        raise AssertionError(f"window {piece.hole} from token {piece.first} on has no rows, and its output is not zero")
    for number in piece.written:
        at = piece.window(number)
        window = [tensor[at] for tensor in inputs]
        for token in random.choice(at.stop - at.start, rows):
            worst = max(worst, deviation(out[at][token], window, int(token)))
    return worst


def run(service, client, folder, arguments, memory):
    """Lines of a Markdown table, and the largest deviation of rows that were drawn."""
    tokens, folder = arguments.tokens, Path(folder)
    pieces = pieces_of(arguments)
    windows = sum(len(piece.written) for piece in pieces)
    rows = -(-arguments.rows // windows)
    random = np.random.default_rng(arguments.seed + 3)
    read = written = 0
    worst = seconds = 0.0
    with input_files(folder, pieces, arguments) as paths:
        before = received_bytes(service)
        begun = last = time.monotonic()
        for piece in pieces:
            out = folder / "out.npy"
            inputs = piece.of([np.load(path, mmap_mode="r") for path in paths])
            asked = time.monotonic()
            result = client.attend(*inputs, segments=SEGMENTS, dilations=DILATIONS, out=out,
                                   by_reference="always")
            seconds += time.monotonic() - asked
            read += sum(worker.file_bytes_read for worker in result.report.workers)
            written += sum(worker.file_bytes_written for worker in result.report.workers)
            worst = max(worst, check(piece, inputs, result.out, rows, random))
            out.unlink()
            end = piece.first + piece.count
            memory.done = end / tokens
            if time.monotonic() - last > 10:
                last = time.monotonic()
                print(f"{end:,} tokens, {end / (last - begun):,.0f} tokens/s", file=sys.stderr, flush=True)
        passed = received_bytes(service) - before
    return [
        "| tokens, by reference | jobs | seconds | tokens/s | GiB read | GiB written | bytes to the coordinator | "
        "rows in float64 | largest deviation |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        f"| {tokens:,} | {len(pieces):,} | {seconds:.1f} | {tokens / seconds:,.0f} | {read / 2**30:.1f} | "
        f"{written / 2**30:.1f} | {passed:,} | {windows * rows:,} | {worst:.1e} |"], worst

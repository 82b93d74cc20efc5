"""The by-reference half of the benchmark: Q, K and V of all tokens are .npy files beneath the service's data root.

No row passes the network. The workers hold all rows of a job in memory, so the tokens are computed in pieces. Each
piece is a job with its part of the files and an output file of its own. A piece is a multiple of all segments,
which leaves every row unchanged.

The inputs are sparse. Five windows (the longest segment) of each piece have random rows: the first, the last, the two
at its middle, which different workers hold, and a drawn one. Some of their rows are computed again in float64. The
output of an unwritten window must be zeros. Each output is removed after its check, so that the disk holds at most one.
"""
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from billion_rows import DILATIONS, DIM, HEADS, SEGMENTS, WINDOW, deviation


class Piece:
    """The tokens of one job, of which only some windows have rows."""

    def __init__(self, first, count, random):
        windows = -(-count // WINDOW)
        written = {0, (windows - 1) // 2, windows // 2, windows - 1, int(random.integers(windows))}
        holes = sorted(set(range(windows)) - written)
        self.first, self.count = first, count
        self.written = sorted(written)
        self.hole = int(random.choice(holes)) if holes else None

    def window(self, number):
        """Returns a window's rows, as a slice of the piece's rows."""
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
    """Yields the paths of q, k and v: sparse files that exist within the `with` block."""
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
            del tensor, rows  # pages of an open map count as the program's
        yield paths
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def received_bytes(service):
    """Returns the bytes of rows that the coordinator has received."""
    with urllib.request.urlopen(f"http://127.0.0.1:{service.ready['http_port']}/metrics", timeout=30) as page:
        lines = page.read().decode().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines
                   if line.startswith("hilbert_ring_received_bytes_total")))


def check(piece, inputs, out, rows, random):
    """Returns the largest deviation of rows drawn in each window."""
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
    """Returns lines of a Markdown table, and the largest deviation of drawn rows."""
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

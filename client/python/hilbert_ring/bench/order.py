"""Curves against row-major order: compactness of segments, memory that they touch, and time."""
import argparse
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._command_line import whole_number
from hilbert_ring._service_flags import service_of
from hilbert_ring.bench.jobs import JobRun, alternate, job
from hilbert_ring.bench.report import Report, count, milliseconds
from hilbert_ring.client import Client
from hilbert_ring.draw.curves import token_order
from hilbert_ring.draw.plot import Axis, Series, plot
from hilbert_ring.ordering import Auto, Hilbert, Morton
from hilbert_ring.v1 import attention_pb2 as pb

PAGE = 4096    # bytes
LINE = 64      # bytes, of a processor's caches
_WORKER = "hilbert-ring-worker"[:15]  # the kernel's limit of names
_LIMIT_SECONDS = 30.0
WINDOW = 33    # tokens, side of the square that a reader reads from the ordered rows


def _two(value: float) -> str:
    return f"{value:.2f}"


COLUMNS = (("order", "order", str), ("grid_jump", "mean jump, cells", _two),
           ("token_jump", "mean jump, tokens", count),
           ("radius", "radius of a segment, cells", _two),
           ("segment_pages", "pages of rows that a segment gathers", count),
           ("segment_lines", "lines that it touches", count),
           ("window_pages", f"pages of slots of a {WINDOW} x {WINDOW} window", count),
           ("window_lines", "lines that the window touches", count),
           ("flops", "flop of the busiest, planned", lambda value: f"{value:.3g}"),
           ("compute_seconds", "compute ms, median", milliseconds),
           ("compute_least", "least", milliseconds), ("compute_most", "most", milliseconds),
           ("cache_misses", "cache misses of a run", count))


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--grid", type=whole_number, nargs=2, default=[256, 256], metavar=("ROWS", "COLS"))
    parser.add_argument("--segment", type=whole_number, default=1024)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--row-bytes", type=whole_number, default=256, metavar="N",
                        help="of the rows whose pages and lines are counted (256: one head's keys)")


def orders(grid: Any) -> List[Tuple[str, Any]]:
    return [("row-major", None), ("hilbert", Hilbert(grid=grid)), ("morton", Morton(grid=grid))]


def locality(order: "NDArray[np.int64]", grid: Tuple[int, int], segment: int,
             row_bytes: int) -> Dict[str, float]:
    """Measures an order of the grid's tokens, which lie row-major in memory before they are ordered.

    Returns:
        grid_jump: mean distance between the tokens of neighbouring slots, cells.
        token_jump: the same in tokens, by their row-major places.
        radius: root mean square distance of a segment's tokens from their centre, cells.
        segment_pages: mean pages of a segment's rows in token order.
        window_pages: mean pages of a square window's rows in slot order.
        segment_lines, window_lines: the same in lines of caches.
    """
    rows, cols = grid
    y, x = order // cols, order % cols
    jumps = np.hypot(np.diff(x), np.diff(y))
    starts = range(0, len(order) - segment + 1, segment)
    parts = [order[start:start + segment] for start in starts] or [order]
    slots = np.empty_like(order)
    slots[order] = np.arange(len(order))
    plane = slots.reshape(rows, cols)
    side = (min(WINDOW, rows), min(WINDOW, cols))
    drawn = np.random.default_rng(1)
    corners = zip(drawn.integers(0, rows - side[0] + 1, 200), drawn.integers(0, cols - side[1] + 1,
                                                                              200))
    windows = [plane[top:top + side[0], left:left + side[1]].reshape(-1) for top, left in corners]
    return {"grid_jump": float(jumps.mean()) if len(jumps) else 0.0,
            "token_jump": float(np.abs(np.diff(order)).mean()) if len(order) > 1 else 0.0,
            "radius": float(np.mean([_radius(part, cols) for part in parts])),
            "segment_pages": _mean_blocks(parts, row_bytes, PAGE),
            "segment_lines": _mean_blocks(parts, row_bytes, LINE),
            "window_pages": _mean_blocks(windows, row_bytes, PAGE),
            "window_lines": _mean_blocks(windows, row_bytes, LINE)}


def _mean_blocks(parts: Sequence["NDArray[np.int64]"], row_bytes: int, block: int) -> float:
    return float(np.mean([blocks(part, row_bytes, block) for part in parts]))


def blocks(rows: "NDArray[np.int64]", row_bytes: int, block: int = PAGE) -> int:
    """Counts the blocks of `block` bytes that hold these rows of an array that is aligned to blocks."""
    first, last = rows * row_bytes // block, ((rows + 1) * row_bytes - 1) // block
    return len(np.unique(np.concatenate([first + i for i in range(int((last - first).max()) + 1)])))


def choose(client: Client, grid: Any, pattern: Dict[str, Any], workers: int,
           figures: List[Dict[str, Any]]) -> Tuple[str, str]:
    """Returns the name of the service's choice of order, and its reason.

    Adds the planned flop of the busiest worker to `figures`.
    """
    for (_, ordering), figure in zip(orders(grid), figures):
        plan = client.plan(**pattern, ordering=ordering, workers=workers)
        figure["flops"] = max(worker.flops for worker in plan.workers)
    plan = client.plan(**pattern, ordering=Auto(grid=grid), workers=workers)
    return {pb.CURVE_HILBERT: "hilbert", pb.CURVE_MORTON: "morton"}.get(plan.curve, "row-major"), plan.curve_why


def run(arguments: argparse.Namespace) -> Report:
    rows, cols = arguments.grid
    tokens = rows * cols
    report = Report("order", f"Orders of {rows} x {cols} tokens, segments of {arguments.segment:,}",
                    COLUMNS)
    candidates = orders((rows, cols))
    jobs = [job(tokens, ordering=ordering, segments=[arguments.segment], causal=arguments.causal)
            for _, ordering in candidates]
    with service_of(arguments, workers=arguments.workers,
                    job_workers=arguments.workers) as client:
        runs = [JobRun(client, one) for one in jobs]
        times = alternate(runs, arguments.rounds)
        workers = own_workers()
        for (name, ordering), run_once, measured in zip(candidates, runs, times):
            report.rows.append({"order": name, **measured.spread("compute"), **locality(
                token_order(tokens, ordering), (rows, cols), arguments.segment,
                arguments.row_bytes), "cache_misses": count_misses(run_once, workers)})
        name, why = choose(client, (rows, cols), {**jobs[0].shape, **jobs[0].pattern}, arguments.workers, report.rows)
    report.notes.append(f"By the plan's cost: {name}, since {why}.")
    if arguments.causal:
        report.notes.append("With an order, a plan counts all pairs of a causal job: the order decides which are "
                            "masked.")
    report.notes.append(f"Rows of {arguments.row_bytes:,} bytes, pages of {PAGE:,}, lines of {LINE}. "
                        "The caller's tokens lie row-major; slots lie in the order.")
    if arguments.row_bytes % LINE == 0:
        report.notes.append("No two rows share a line, so every order touches the same number of lines. The order "
                            "decides the number of pages.")
    if report.rows[0]["cache_misses"] is None:
        report.notes.append("Cache misses were not counted: that needs workers of the command's own service, and perf "
                            "with permission to count.")
    report.picture = plot(
        report.title, Axis("segment"), Axis("radius of a segment, cells"),
        [Series(name, segment_radii(token_order(tokens, ordering), cols, arguments.segment))
         for name, ordering in candidates])
    return report


def segment_radii(order: "NDArray[np.int64]", cols: int, segment: int
                  ) -> List[Tuple[float, float]]:
    """(number, radius) of the first 64 segments."""
    starts = range(0, len(order), segment)[:64]
    return [(float(i), _radius(order[start:start + segment], cols)) for i, start in enumerate(starts)]


def _radius(tokens: "NDArray[np.int64]", cols: int) -> float:
    return float(np.sqrt((tokens // cols).var() + (tokens % cols).var()))


def own_workers() -> List[int]:
    """Returns the process ids of the workers that descend from this process."""
    parents: Dict[int, List[int]] = {}
    names: Dict[int, str] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:  # it has ended
            continue
        pid, name = int(status.parent.name), text[text.index("(") + 1:text.rindex(")")]
        parents.setdefault(int(text[text.rindex(")") + 2:].split()[1]), []).append(pid)
        names[pid] = name
    found, level = [], [os.getpid()]
    while level:
        level = [child for pid in level for child in parents.get(pid, [])]
        found += [pid for pid in level if names[pid] == _WORKER]
    return sorted(found)


def count_misses(run: Callable[[], Any], workers: List[int]) -> Optional[int]:
    """Returns the workers' cache misses during `run`, by `perf`; None: perf is absent, not permitted, or has no such counter."""
    perf = shutil.which("perf")
    if perf is None or not workers:
        return None
    counting = subprocess.Popen(  # runs as long as cat, which echoes a line after perf has begun to count
        [perf, "stat", "-x", ",", "-e", "cache-misses", "-p", ",".join(map(str, workers)), "--", "cat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert counting.stdin is not None and counting.stdout is not None
    try:
        print(file=counting.stdin, flush=True)
        if counting.stdout.readline():
            run()
        _, counts = counting.communicate(timeout=_LIMIT_SECONDS)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        return None
    finally:
        counting.kill()
        counting.wait()
    for line in counts.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2].startswith("cache-misses") and fields[0].isdigit():
            return int(fields[0])
    return None

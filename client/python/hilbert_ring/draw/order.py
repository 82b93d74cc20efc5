"""Draws a curve over the grid, with coloured segments."""
import numpy as np

from hilbert_ring._job_flags import Job
from hilbert_ring.draw.curves import coordinates, token_order
from hilbert_ring.draw.pattern import cell_path
from hilbert_ring.draw.svg import INK, TINTS, Svg
from hilbert_ring.errors import InvalidArgumentError, OutOfRangeError

MOST_TOKENS = 16_384
_SIDE, _GAP, _TOP = 480.0, 28.0, 64.0


def draw_order(job: Job) -> Svg:
    """Draws cells in the colour of their segment, and the curve through them."""
    grid = list(job.ordering.grid or ()) if job.ordering else []
    name = "key_tokens" if "key_tokens" in job.shape else "tokens"  # an ordering is of the keys
    tokens = int(job.shape[name]) if name in job.shape else int(np.prod(grid)) if grid else 0
    if not 1 <= tokens <= MOST_TOKENS:
        raise OutOfRangeError(f"{name} is {tokens}, a picture of an order shows 1 to "
                              f"{MOST_TOKENS}", field=name, limit=MOST_TOKENS)
    axes = coordinates(tokens, job.ordering)
    if len(axes) != 2:
        raise InvalidArgumentError("ordering.grid has 3 axes, a picture has 2",
                                   field="ordering.grid")
    if grid and int(np.prod(grid)) != tokens:
        raise InvalidArgumentError(f"{name} is {tokens}, ordering.grid has {int(np.prod(grid))} "
                                   "cells", field=name)
    x, y = (axis - axis.min() for axis in axes)
    cols, rows = int(x.max()) + 1, int(y.max()) + 1
    cell = _SIDE / max(cols, rows)
    order = token_order(tokens, job.ordering)
    segment = int(job.pattern["segments"][0])
    curve = "row-major" if job.ordering is None else job.ordering.curve.capitalize()
    picture = Svg(max(cols * cell + 2 * _GAP, 460), rows * cell + _TOP + _GAP,
                  f"{curve} order of {rows} x {cols} tokens")
    picture.text(_GAP, 24, f"{curve} order, {rows} x {cols} tokens", size=15, bold=True)
    picture.text(_GAP, 42, f"segments of {segment:,}: {-(-tokens // segment)}, each of one colour")
    for color, tint in enumerate(TINTS):
        cells = np.zeros((rows, cols), bool)
        inside = order[(np.arange(tokens) // segment) % len(TINTS) == color]
        cells[y[inside], x[inside]] = True
        picture.path(cell_path(cells, _GAP, _TOP, cell), fill=tint)
    picture.polyline([(_GAP + (x[token] + 0.5) * cell, _TOP + (y[token] + 0.5) * cell)
                      for token in order], stroke=INK, width=max(0.5, min(1.5, cell / 8)))
    return picture

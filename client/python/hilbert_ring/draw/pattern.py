"""Draws which query sees which key, by branch and head."""
from typing import List

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._job_flags import Job
from hilbert_ring.draw.curves import phases, seen
from hilbert_ring.draw.svg import FAINT, Svg, color_of
from hilbert_ring.errors import OutOfRangeError

MOST_TOKENS = 256
_SIDE = 220.0
_GAP, _TOP, _CAPTION = 28.0, 64.0, 20.0


def draw_pattern(job: Job) -> Svg:
    """Draws a row of panels for each branch, and a panel for each set of heads that see the same keys."""
    tokens = int(job.shape["tokens"])
    keys = int(job.shape.get("key_tokens", tokens))
    for name, rows in (("tokens", tokens), ("key_tokens", keys)):
        if rows > MOST_TOKENS:
            raise OutOfRangeError(f"{name} is {rows}, a picture of the pattern shows up to {MOST_TOKENS}: "
                                  "draw a smaller job of the same shape", field=name, limit=MOST_TOKENS)
    side = _SIDE / max(tokens, keys)
    size = f"{tokens} tokens" if keys == tokens else f"{tokens} queries, {keys} keys"
    segments = job.pattern["segments"]
    dilations = job.pattern.get("dilations") or [1] * len(segments)
    found = phases(int(job.shape["heads"]), segments, dilations,
                   job.pattern.get("mixing", "head_groups"))
    panels: List[List[int]] = [[i for i, phase in enumerate(found) if phase.branch == branch]
                               for branch in range(len(segments))]
    across = max(len(row) for row in panels)
    picture = Svg(max(_GAP + across * (_SIDE + _GAP), 560),
                  _TOP + len(panels) * (_SIDE + _CAPTION + _GAP),
                  f"Which query sees which key: {size}")
    picture.text(_GAP, 24, f"Which query (down) sees which key (across), {size}",
                 size=15, bold=True)
    words = [f"mixing {job.pattern.get('mixing', 'head_groups')}"]
    words += ["causal"] if job.pattern.get("causal") else []
    words += ["align start"] if job.pattern.get("align") == "start" else []
    if job.pattern.get("window"):
        words.append("window " + ", ".join("none" if side is None else str(side) for side in job.pattern["window"]))
    if job.ordering is not None:
        words.append(f"{job.ordering.curve} order of {job.ordering.scope}")
    picture.text(_GAP, 42, ", ".join(words))
    for branch, row in enumerate(panels):
        top = _TOP + branch * (_SIDE + _CAPTION + _GAP) + _CAPTION
        for place, number in enumerate(row):
            phase = found[number]
            left = _GAP + place * (_SIDE + _GAP)
            heads = ", ".join(map(str, phase.heads))
            picture.text(left, top - 6, f"w {segments[branch]}, r {dilations[branch]}, offset "
                         f"{phase.offset}: head{'s' * (len(phase.heads) > 1)} {heads}", size=10.5)
            picture.rect(left, top, keys * side, tokens * side, stroke=FAINT)
            cells = seen(job.pairs(), phase, segments=segments, dilations=dilations,
                         causal=bool(job.pattern.get("causal")), ordering=job.ordering,
                         align=job.pattern.get("align", "end"), window=job.pattern.get("window"))
            picture.path(cell_path(cells, left, top, side), fill=color_of(branch))
    return picture


def cell_path(cells: "NDArray[np.bool_]", left: float, top: float, side: float) -> str:
    """Returns a path's commands for the true cells: a rectangle for each run of a row."""
    parts = []
    for row, line in enumerate(cells):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], line.astype(np.int8), [0]))))
        for begin, end in zip(edges[::2], edges[1::2]):
            parts.append(f"M{left + begin * side:.2f} {top + row * side:.2f}"
                         f"h{(end - begin) * side:.2f}v{side:.2f}h{(begin - end) * side:.2f}z")
    return "".join(parts)

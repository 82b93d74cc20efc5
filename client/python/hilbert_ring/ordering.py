"""Space-filling-curve orders of a job's tokens."""
from dataclasses import dataclass, fields
from typing import Any, Optional, Sequence

import numpy as np


@dataclass(frozen=True)
class Ordering:
    """An order of each sequence; segments and dilation count in it.

    At most one of window, grid and coords is given; without them the curve runs over the implicit
    square of the sequence.

    Attributes:
        grid: (rows, cols) or (planes, rows, cols), in tokens; their product is the tokens of a
            sequence.
        window: tokens; each run of so many is ordered on its own. 0: no window.
        coords: integers [tokens, 2] or [tokens, 3], (x, y) or (x, y, z), 0 or more. On a grid x is
            the column and y the row: `numpy.argwhere(mask)[:, ::-1]`. An array, or the path of one.
        scope: "qkv", or "kv": keys and values alone are ordered.
    """

    grid: Optional[Sequence[int]] = None
    window: int = 0
    coords: Optional[Any] = None
    scope: str = "qkv"

    curve = ""

    def __eq__(self, other: object) -> bool:
        """Of one kind, with equal fields; coordinates are compared by value, their paths as such."""
        if type(other) is not type(self):
            return NotImplemented
        return all(mine is theirs or np.array_equal(mine, theirs) for mine, theirs in (
            (getattr(self, field.name), getattr(other, field.name)) for field in fields(self)))

    def __hash__(self) -> int:  # coordinates and grids have none
        return hash((type(self), self.window, self.scope))


class Hilbert(Ordering):
    """Along a Hilbert curve: neighbours in the order are neighbours in the plane or the volume."""

    curve = "hilbert"


class Morton(Ordering):
    """Along a Morton (Z) curve."""

    curve = "morton"


class Auto(Ordering):
    """Along the curve that suits the job, or along none, as the service finds.

    The one whose plan computes least; of plans that cost the same the one whose segments are the
    most compact on the grid. The result of `attend` says which it was, and why.
    """

    curve = "auto"

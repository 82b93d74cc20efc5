"""Space-filling-curve orders of a job's tokens."""
from dataclasses import dataclass, fields
from typing import Any, Optional, Sequence

import numpy as np


@dataclass(frozen=True)
class Ordering:
    """An order of each sequence, in which segments and dilation count.

    At most one of window, grid and coords may be given. Without them the curve runs over the implicit square of the
    sequence.

    Attributes:
        grid: (rows, cols) or (planes, rows, cols), in tokens; their product is the tokens of a sequence.
        window: tokens of a run that is ordered on its own; 0: no window.
        coords: integers [tokens, 2] or [tokens, 3], (x, y) or (x, y, z), 0 or more: an array, or the path of one. On
            a grid x is the column and y the row: `numpy.argwhere(mask)[:, ::-1]`.
        scope: "qkv"; "kv": only keys and values are ordered.
    """

    grid: Optional[Sequence[int]] = None
    window: int = 0
    coords: Optional[Any] = None
    scope: str = "qkv"

    curve = ""

    def __eq__(self, other: object) -> bool:
        """Returns whether class and fields are equal. Coordinates are compared by value, paths by their text."""
        if type(other) is not type(self):
            return NotImplemented
        return all(mine is theirs or np.array_equal(mine, theirs) for mine, theirs in (
            (getattr(self, field.name), getattr(other, field.name)) for field in fields(self)))

    def __hash__(self) -> int:  # coordinates and grids have no hash
        return hash((type(self), self.window, self.scope))


class Hilbert(Ordering):
    """A Hilbert curve: neighbours in the order are neighbours in the plane or the volume."""

    curve = "hilbert"


class Morton(Ordering):
    """A Morton (Z) curve."""

    curve = "morton"


class Auto(Ordering):
    """The service's choice of a curve, or of no ordering.

    The service chooses the plan with the least compute. If plans cost the same, it chooses the most compact segments on
    the grid. The result of `attend` has the choice and its reason.
    """

    curve = "auto"

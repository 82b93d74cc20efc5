"""Converts the coordinates of a slide's file to the model's own pixels."""
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._channel import PathLike
from hilbert_ring._slide_files import View, opened_slide, patches_beside
from hilbert_ring._slide_layouts import Layout, coords_of, fits_any, layout_of, tile_of
from hilbert_ring._tile_coords import check_places, coordinate_array, places_of
from hilbert_ring._warn import warn
from hilbert_ring.errors import InvalidArgumentError

_SAME = 1e-4       # steps within which floats are of the same column
# Pipelines round sides and overlaps to pixels. A gap may differ from n steps by n * _OFF_A_STEP steps, at least by
# _OFF_PIXELS pixels, at most by _MOST_OFF steps.
_OFF_A_STEP, _MOST_OFF, _OFF_PIXELS = 0.01, 0.25, 2
_PRECISION = 1e-6  # relative, of a number of tiles: float32, and scales written with few digits


@dataclass(frozen=True)
class CoordsOptions:
    """The caller's arguments about coordinates.

    Attributes:
        name: name of their data set.
        layout: layout of the file.
        patches: the file with the coordinates or their attributes.
        scale: factor of the coordinates, in place of the attributes.
    """

    name: Optional[str]
    layout: Optional[str]
    patches: Optional[PathLike]
    scale: Optional[float]


class Scaled(NamedTuple):
    """Coordinates in the model's pixels, the name of the layout, and the factors of x and y."""

    coords: "NDArray[np.float64]"
    layout: Optional[str]
    scale: Tuple[float, float]


class _Raw(NamedTuple):
    array: "NDArray[Any]"
    attributes: Dict[str, Any]
    of: str  # in errors


def scaled_coords(view: View, options: CoordsOptions, tiles: int, tile_size: int) -> Scaled:
    """Returns the coordinates of a slide with `tiles` tiles, in a model whose tiles have `tile_size` pixels a side.

    Raises:
        InvalidArgumentError: see read_slide.
    """
    raw = _find(view, options)
    columns = raw.array.shape[1]
    layout = layout_of(raw.attributes, columns, options.layout, options.scale is not None, raw.of)
    wanted = layout.columns if layout else 2
    if raw.array.shape != (tiles, wanted):
        raise InvalidArgumentError(f"{raw.of} has shape {raw.array.shape}, must be ({tiles}, {wanted})", field="coords")
    array = raw.array[:, :2]
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise InvalidArgumentError(f"{raw.of}[{row}] is {array[row].tolist()}, must be finite", field="coords")
    found = _scale(array, layout, raw, options.scale, tile_size)
    check_places(places_of(found.coords, tile_size), tile_size, [tiles], raw.of)
    _warn_of_duplicates(array, raw.of)
    return found


def _scale(array: "NDArray[Any]", layout: Optional[Layout], raw: _Raw, scale: Optional[float],
           tile_size: int) -> Scaled:
    side = np.broadcast_to(tile_size / scale, (2,)) if scale is not None else None
    if side is None:
        if layout is None:
            raise _unknown_scale(raw.of, array, tile_size)
        tile = tile_of(layout, raw.attributes)
        side = tile.side
        if tile.overlap is not None:
            _check_steps(array, side, tile.overlap, raw.of)
    tiles = array.astype(np.float64) / side
    # A number that is nearly whole is rounded, or the tile would lie in the cell before.
    whole = np.rint(tiles)
    tiles = np.where(np.abs(tiles - whole) <= _PRECISION * np.abs(whole), whole, tiles)
    return Scaled(tiles * tile_size, layout.name if layout else None,
                  (float(tile_size / side[0]), float(tile_size / side[1])))


def _find(view: View, options: CoordsOptions) -> _Raw:
    """Returns the coordinates of a file or of its file of patches, with the attributes of both."""
    names = coords_of(view, options.name if options.patches is None else None)
    attributes = view.attributes_of(names[0] if names else "")
    patches = options.patches
    if patches is None and not (names and (options.scale is not None or fits_any(attributes))):
        patches = patches_beside(view.path)
    array = _read(view, names) if names else None
    of = f"coords of {view.path}"
    if patches is not None:
        other: View
        with opened_slide(patches) as other:
            names = coords_of(other, options.name if options.patches is not None else None)
            attributes.update(other.attributes_of(names[0] if names else ""))
            found = _read(other, names) if names else None
        if array is not None and found is not None and not np.array_equal(array, found):
            raise InvalidArgumentError(f"{of} differ from those of {other.path}, must be the same",
                                       field="patches")
        array, of = (found, f"coords of {other.path}") if array is None else (array, of)
    if array is None:
        raise InvalidArgumentError(f"{view.path} has no coordinates, it has {sorted(view.arrays)}; patches "
                                   "(--patches) must be the file with them", field="coords")
    return _Raw(array, attributes, of)


def _read(view: View, names: Sequence[str]) -> "NDArray[Any]":
    arrays = [coordinate_array(view.read(name), f"{name} of {view.path}") for name in names]
    shapes = [array.shape for array in arrays]
    axes = 2 if len(arrays) == 1 else 1
    if any(len(shape) != axes or shape != shapes[0] for shape in shapes):
        raise InvalidArgumentError(f"{' and '.join(names)} of {view.path} has shape {', '.join(map(str, shapes))}, "
                                   f"must be {'(tiles, 2)' if axes == 2 else '(tiles,)'}", field="coords")
    return arrays[0] if axes == 2 else np.stack(arrays, axis=1)


def _gaps(values: "NDArray[Any]") -> "Tuple[NDArray[np.float64], NDArray[np.float64]]":
    """Returns the distinct values, and the differences of neighbours."""
    distinct = np.unique(values.astype(np.float64))
    return distinct, np.diff(distinct)


def _check_steps(coords: "NDArray[Any]", sides: "NDArray[np.float64]", overlap: float, of: str) -> None:
    for axis, side in zip((0, 1), sides):
        step = side - overlap
        values, gaps = _gaps(coords[:, axis])
        # TRIDENT's second column is a whole tile behind the first column at 0, without overlap.
        wrong = _off(gaps, step) & ((values[:-1] != 0) | _off(gaps - overlap, step)) & (gaps > _SAME * step)
        if wrong.any():
            first = int(np.argmax(wrong))
            row = int(np.argmax(coords[:, axis] == values[first + 1]))
            raise InvalidArgumentError(
                f"{of}: {'xy'[axis]} steps by {gaps[first]:g} to {values[first + 1]:g} in row {row}, must be a "
                f"multiple of {step:g}: the attributes give tiles of {side:g} and an overlap of {overlap:g}",
                field="coords")


def _off(gaps: "NDArray[np.float64]", step: float) -> "NDArray[np.bool_]":
    """Returns which gaps are no multiples of a step."""
    steps = gaps / step
    allowed = np.clip(_OFF_A_STEP * steps, _OFF_PIXELS / step, _MOST_OFF)
    wrong: "NDArray[np.bool_]" = np.abs(steps - np.maximum(np.rint(steps), 1)) > allowed
    return wrong


def _unknown_scale(of: str, array: "NDArray[Any]", tile_size: int) -> InvalidArgumentError:
    low, high = array.min(axis=0), array.max(axis=0)
    steps: List[float] = [float(gaps.min()) for _, gaps in map(_gaps, array.T) if len(gaps)]
    seen = f"x is {low[0]:g} to {high[0]:g}, y is {low[1]:g} to {high[1]:g}"
    if steps:
        seen += (f", the smallest step between neighbours is {min(steps):g}, which suggests tiles of {min(steps):g}, "
                 f"a coord_scale of {tile_size / min(steps):.9g} with the model's tiles of {tile_size}")
    return InvalidArgumentError(
        f"{of} have no attribute that gives their unit: {seen}; patches (--patches FILE), coord_scale "
        "(--coord-scale NUMBER) or coords_are (--coords-are tiles|pixels) must give it", field="coords")


def _warn_of_duplicates(coords: "NDArray[Any]", of: str) -> None:
    order = np.lexsort((coords[:, 1], coords[:, 0]))
    same = (coords[order[1:]] == coords[order[:-1]]).all(axis=1)
    if same.any():
        later = order[1:][same]  # the sort is stable: each row follows an equal one
        row = int(later.min())
        warn(f"{of}: {len(later)} of {len(coords)} tiles lie at the place of another, the first in row {row}, at "
             f"{coords[row].tolist()}", UserWarning)

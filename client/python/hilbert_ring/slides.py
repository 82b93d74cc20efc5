"""Reads files of slide pipelines: TRIDENT, CLAM, STAMP, AtlasPatch, raw2features and slide2vec.

    tiles, coords = hilbert_ring.read_slide("slide.h5")
    result = client.encode(slide="slide.h5", model="slide_encoder")
"""
import math
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._files import PathLike, checked_path
from hilbert_ring._slide_files import View, opened_slide, patches_beside
from hilbert_ring._slide_layouts import NAMES, Layout, coords_of, features_of, fits_any, layout_of, tile_of
from hilbert_ring._spec import check_text, choice, coordinate_values, integer
from hilbert_ring._tensors import refuse_masked
from hilbert_ring._warn import warn
from hilbert_ring.errors import InvalidArgumentError

COORDS_ARE = ("tiles", "pixels")
TILE_SIZE = 256
_MOST_TILE_SIZE = 1 << 24  # of engine/model/files/encoder_config.h
_ROWS_AT_ONCE = 1 << 14
# Tiles that overlap by seven eighths still have different places.
_PLACES_PER_SIDE = 8
_SAME = 1e-4       # steps within which floats are of the same column
# Pipelines round sides and overlaps to pixels. A gap may differ from n steps by n * _OFF_A_STEP steps, at least by
# _OFF_PIXELS pixels, at most by _MOST_OFF steps.
_OFF_A_STEP, _MOST_OFF, _OFF_PIXELS = 0.01, 0.25, 2
_PRECISION = 1e-6  # relative, of a number of tiles: float32, and scales written with few digits


class Scaled(NamedTuple):
    """Coordinates in the model's pixels, the name of the layout, and the factors of x and y."""

    coords: "NDArray[np.float64]"
    layout: Optional[str]
    scale: Tuple[float, float]


class _Raw(NamedTuple):
    array: "NDArray[Any]"
    attributes: Dict[str, Any]
    of: str  # in errors


@dataclass(frozen=True)
class SlideFile:
    """A slide pipeline's file. The fields are arguments of read_slide."""

    path: PathLike
    features: Optional[str] = None
    coords: Optional[str] = None
    layout: Optional[str] = None
    patches: Optional[PathLike] = None
    coord_scale: Optional[float] = None
    coords_are: Optional[str] = None

    def __post_init__(self) -> None:
        checked_path("path", self.path)
        for name, check in (("patches", checked_path), ("features", check_text), ("coords", check_text)):
            if getattr(self, name) is not None:
                check(name, getattr(self, name))
        for name, known in (("layout", NAMES), ("coords_are", COORDS_ARE)):
            if getattr(self, name) is not None:
                choice(name, getattr(self, name), dict.fromkeys(known))
        if self.coord_scale is None:
            return
        if self.coords_are is not None:
            raise InvalidArgumentError("coord_scale and coords_are are given, must be one of them", field="coord_scale")
        number = isinstance(self.coord_scale, (int, float, np.number)) and not isinstance(self.coord_scale, bool)
        if not number or not 0 < float(self.coord_scale) < math.inf:
            raise InvalidArgumentError(f"coord_scale is {self.coord_scale!r}, must be a number above 0",
                                       field="coord_scale")

    def files(self) -> Dict[str, PathLike]:
        """Returns the given paths."""
        named = {"slide": self.path, "patches": self.patches}
        return {name: path for name, path in named.items() if path is not None}

    def read_tiles(self) -> "NDArray[Any]":
        """Reads the tiles. The file need not have coordinates."""
        with opened_slide(self.path) as view:
            return _tiles_of(view, self.features)

    def read(self, tile_size: int) -> "Tuple[NDArray[Any], Scaled]":
        """See read_slide."""
        size = integer("tile_size", tile_size)
        if not 1 <= size <= _MOST_TILE_SIZE:
            raise InvalidArgumentError(f"tile_size is {size}, must be 1 to {_MOST_TILE_SIZE}", field="tile_size")
        with opened_slide(self.path) as view:
            tiles = _tiles_of(view, self.features)
            return tiles, _scaled_coords(view, self, len(tiles), size)


def read_slide(path: PathLike, *, features: Optional[str] = None, coords: Optional[str] = None,
               layout: Optional[str] = None, patches: Optional[PathLike] = None,
               coord_scale: Optional[float] = None, coords_are: Optional[str] = None,
               tile_size: int = TILE_SIZE) -> "Tuple[NDArray[Any], NDArray[np.float64]]":
    """Reads tiles [tiles, dim] and coordinates [tiles, 2] of a slide pipeline's file, as NumPy arrays.

    Tiles are float32 or float16. Coordinates are in the model's pixels: the file's values, divided by a tile's side in
    the file's unit, which its attributes give, and multiplied by tile_size. docs/encoder.md of the repository lists
    layouts and attributes.

    Args:
        path: HDF5, which needs h5py; .pt, which needs PyTorch and is read as weights only; .npz.
        features: the data set of features, or the encoder's name; None: `features` or `feats`.
        coords: the data set of coordinates; None: `coords`, `coordinates`, or `x` and `y`.
        layout: "atlaspatch", "trident", "raw2features", "stamp", "slide2vec" or "clam"; None: recognised by names and
            attributes.
        patches: the file with the coordinates or their attributes, such as CLAM's patches/NAME.h5; None: a file in a
            folder beside path's, if path lacks them.
        coord_scale: factor of the coordinates, in place of attributes.
        coords_are: "tiles" (columns and rows) or "pixels" of the model, in place of attributes.
        tile_size: the side of the model's tiles in its pixels.

    Warns:
        UserWarning: features are not finite, or several tiles lie at the same place.

    Raises:
        InvalidArgumentError: a file cannot be read, its arrays are no tiles with coordinates, or no attribute gives
            the coordinates' unit; `field` names the argument.
    """
    tiles, scaled = SlideFile(path, features, coords, layout, patches, coord_scale, coords_are).read(tile_size)
    return tiles, scaled.coords


def _tiles_of(view: View, wanted: Optional[str]) -> "NDArray[Any]":
    name = features_of(view, wanted)
    array = view.read(name)
    of = f"{name} of {view.path}"
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == 2:  # bfloat16
        bits = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16
        array = bits.view(np.float32)
    if array.dtype.kind not in "iuf" or array.ndim != 2:
        raise InvalidArgumentError(f"{of} is {array.dtype} {array.shape}, must be numbers (tiles, dim)",
                                   field="features")
    if 0 in array.shape:
        raise InvalidArgumentError(f"{of} has shape {array.shape}, must have at least 1 tile", field="features",
                                   limit=1)
    half = array.dtype.kind == "f" and array.dtype.itemsize == 2
    with np.errstate(over="ignore"):
        tiles = np.ascontiguousarray(array, dtype=np.float16 if half else np.float32)
    _warn_of_features(tiles, of)
    return tiles


def _warn_of_features(tiles: "NDArray[Any]", of: str) -> None:
    wrong = [first + row for first in range(0, len(tiles), _ROWS_AT_ONCE)
             for row in np.flatnonzero(~np.isfinite(tiles[first:first + _ROWS_AT_ONCE]).all(axis=1)).tolist()]
    if wrong:
        warn(f"{of}: {len(wrong)} of {len(tiles)} tiles are not finite, the first in row {wrong[0]}", UserWarning)


def _scaled_coords(view: View, file: SlideFile, tiles: int, tile_size: int) -> Scaled:
    """Returns the coordinates of a slide with `tiles` tiles, in a model whose tiles have `tile_size` pixels a side."""
    scale = {"tiles": float(tile_size), "pixels": 1.0}.get(file.coords_are or "")
    scale = scale if file.coord_scale is None else float(file.coord_scale)
    raw = _find(view, file, scale is not None)
    columns = raw.array.shape[1]
    layout = layout_of(raw.attributes, columns, file.layout, scale is not None, raw.of)
    wanted = layout.columns if layout else 2
    if raw.array.shape != (tiles, wanted):
        raise InvalidArgumentError(f"{raw.of} has shape {raw.array.shape}, must be ({tiles}, {wanted})", field="coords")
    array = raw.array[:, :2]
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise InvalidArgumentError(f"{raw.of}[{row}] is {array[row].tolist()}, must be finite", field="coords")
    found = _scale(array, layout, raw, scale, tile_size)
    check_places(places_of(found.coords, tile_size), tile_size, [tiles], raw.of)
    _warn_of_duplicates(array, raw.of)
    return found


def _scale(array: "NDArray[Any]", layout: Optional[Layout], raw: _Raw, scale: Optional[float],
           tile_size: int) -> Scaled:
    side = np.broadcast_to(tile_size / scale, (2,)) if scale is not None else None
    if side is None:
        if layout is None:
            raise _unknown_scale(raw.of, array, tile_size)
        side, overlap = tile_of(layout, raw.attributes)
        if overlap is not None:
            _check_steps(array, side, overlap, raw.of)
    tiles = array.astype(np.float64) / side
    # A number that is nearly whole is rounded, or the tile would lie in the cell before.
    whole = np.rint(tiles)
    tiles = np.where(np.abs(tiles - whole) <= _PRECISION * np.abs(whole), whole, tiles)
    return Scaled(tiles * tile_size, layout.name if layout else None,
                  (float(tile_size / side[0]), float(tile_size / side[1])))


def _find(view: View, file: SlideFile, scale_given: bool) -> _Raw:
    """Returns the coordinates of a file or of its file of patches, with the attributes of both."""
    names = coords_of(view, file.coords if file.patches is None else None)
    attributes = view.attributes_of(names[0] if names else "")
    patches = file.patches
    if patches is None and not (names and (scale_given or fits_any(attributes))):
        patches = patches_beside(view.path)
    array = _read(view, names) if names else None
    of = f"coords of {view.path}"
    if patches is not None:
        other: View
        with opened_slide(patches) as other:
            names = coords_of(other, file.coords if file.patches is not None else None)
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


def coordinate_array(value: Any, of: str = "coords") -> "NDArray[Any]":
    """Returns an array of integers, or floats of at least 32 bits. of: their name in errors."""
    refuse_masked("coords", value)
    array = coordinate_values("coords", value, "integers, float32 or float64")
    found = array.dtype
    if found.kind not in "iuf" or found.kind == "f" and found.itemsize < 4:
        raise InvalidArgumentError(f"{of} is {found}, must be integers, float32 or float64: floats of 16 bits "
                                   "round coordinates", field="coords")
    return array


def places_of(coords: "NDArray[Any]", tile_size: float) -> "NDArray[np.int64]":
    """Numbers the place of each tile, an eighth of a side wide. coords: [tiles, 2] in the model's grid."""
    cells = np.floor(coords * (_PLACES_PER_SIDE / tile_size)).astype(np.int64)
    places: "NDArray[np.int64]" = cells[:, 0] * (1 << 32) + cells[:, 1]
    return places


def check_places(tiles_places: "NDArray[np.int64]", tile_size: float, slides: Sequence[int],
                 of: str = "coords") -> None:
    """Checks that tiles do not share few places. tiles_places: from places_of; slides: number of tiles of each."""
    first = 0
    for slide, tiles in enumerate(slides):
        places = len(np.unique(tiles_places[first:first + tiles]))
        first += tiles
        if 2 * places < tiles:
            which = f"{of} of slide {slide}" if len(slides) > 1 else of
            raise InvalidArgumentError(
                f"{which} has {places} distinct places, must have at least {(tiles + 1) // 2} for {tiles} tiles: "
                f"coordinates that are normalised or in another unit lie too close for tiles of {tile_size:g} pixels",
                field="coords", limit=(tiles + 1) // 2)

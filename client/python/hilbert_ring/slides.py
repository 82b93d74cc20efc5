"""Reads files of slide pipelines: TRIDENT, CLAM, STAMP, AtlasPatch, raw2features and slide2vec.

    tiles, coords = hilbert_ring.read_slide("slide.h5")
    result = client.encode(slide="slide.h5", model="slide_encoder")
"""
import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._channel import PathLike
from hilbert_ring._files import checked_path
from hilbert_ring._slide_coords import Scaled, CoordsOptions, scaled_coords
from hilbert_ring._slide_files import View, opened_slide
from hilbert_ring._slide_layouts import NAMES, features_of
from hilbert_ring._spec import check_text, choice, integer
from hilbert_ring._warn import warn
from hilbert_ring.errors import InvalidArgumentError

COORDS_ARE = ("tiles", "pixels")
TILE_SIZE = 256
_MOST_TILE_SIZE = 1 << 24  # of engine/model/files/encoder_config.h
_ROWS_AT_ONCE = 1 << 14


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

    def files(self) -> Dict[str, Tuple[PathLike, None]]:
        """Returns the given paths in the form of check_distinct's inputs."""
        named = {"slide": self.path, "patches": self.patches}
        return {name: (path, None) for name, path in named.items() if path is not None}

    def read_tiles(self) -> "NDArray[Any]":
        """Reads the tiles. The file need not have coordinates."""
        with opened_slide(self.path) as view:
            return _tiles_of(view, self.features)

    def read(self, tile_size: int) -> "Tuple[NDArray[Any], Scaled]":
        """See read_slide."""
        size = integer("tile_size", tile_size)
        if not 1 <= size <= _MOST_TILE_SIZE:
            raise InvalidArgumentError(f"tile_size is {size}, must be 1 to {_MOST_TILE_SIZE}", field="tile_size")
        scale = {"tiles": float(size), "pixels": 1.0}.get(self.coords_are or "")
        scale = scale if self.coord_scale is None else float(self.coord_scale)
        with opened_slide(self.path) as view:
            tiles = _tiles_of(view, self.features)
            return tiles, scaled_coords(view, CoordsOptions(self.coords, self.layout, self.patches, scale), len(tiles), size)


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

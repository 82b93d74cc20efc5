"""Checks tiles' coordinates, of arrays and of slides' files. client/cpp/encode.cc does the same."""
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._spec import coordinate_values
from hilbert_ring._tensors import refuse_masked
from hilbert_ring.errors import InvalidArgumentError

# Tiles that overlap by seven eighths still have different places.
_PLACES_PER_SIDE = 8


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

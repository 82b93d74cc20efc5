"""Checks of tiles' coordinates, which arrays and slides' files share. As client/cpp/encode.cc."""
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._spec import coordinate_values
from hilbert_ring._tensors import refuse_masked
from hilbert_ring.errors import InvalidArgumentError

# Tiles that overlap by seven eighths still have a place each.
_PLACES_PER_SIDE = 8


def coordinate_array(value: Any, of: str = "coords") -> "NDArray[Any]":
    """Integers or floats of 32 bits and more; `of` names them in errors.

    Raises:
        InvalidArgumentError: it is masked, or of another type.
    """
    refuse_masked("coords", value)
    array = coordinate_values("coords", value, "integers, float32 or float64")
    found = array.dtype
    if found.kind not in "iuf" or found.kind == "f" and found.itemsize < 4:
        raise InvalidArgumentError(f"{of} is {found}, must be integers, float32 or float64: floats of 16 bits "
                                   "round coordinates", field="coords")
    return array


def places_of(coords: "NDArray[Any]", tile_size: float) -> "NDArray[np.int64]":
    """A number for the place of each tile, an eighth of a side wide. coords: [tiles, 2] in the model's grid."""
    cells = np.floor(coords * (_PLACES_PER_SIDE / tile_size)).astype(np.int64)
    places: "NDArray[np.int64]" = cells[:, 0] * (1 << 32) + cells[:, 1]
    return places


def check_places(tiles_places: "NDArray[np.int64]", tile_size: float, slides: Sequence[int],
                 of: str = "coords") -> None:
    """tiles_places: of places_of; slides: tiles of each.

    Raises:
        InvalidArgumentError: fewer than half of a slide's tiles have a place of their own, as with
            coordinates that are normalised to [0, 1].
    """
    first = 0
    for slide, tiles in enumerate(slides):
        places = len(np.unique(tiles_places[first:first + tiles]))
        first += tiles
        if 2 * places < tiles:
            which = f"{of} of slide {slide}" if len(slides) > 1 else of
            raise InvalidArgumentError(
                f"{which} has {places} distinct places, must have at least {(tiles + 1) // 2} for {tiles} tiles: "
                f"tiles of {tile_size:g} pixels do not lie so close, coordinates that are normalised or in another "
                "unit do", field="coords", limit=(tiles + 1) // 2)

"""Slides as slide pipelines write them.

    tiles, coords = hilbert_ring.read_slide("slide.h5")
    result = client.encode(tiles, coords, model="slide_encoder")
"""
from importlib import import_module
from typing import Any, Tuple

import numpy as np

from hilbert_ring._channel import PathLike
from hilbert_ring.errors import InvalidArgumentError


def read_slide(path: PathLike, *, features: str = "features",
               coords: str = "coords") -> Tuple[Any, Any]:
    """Tiles [tiles, dim] and coordinates [tiles, 2] of an HDF5 file, as NumPy arrays.

    Pipelines write them as data sets `features` and `coords`, some with a leading axis of one,
    which is taken away. Coordinates must be pixels of the level that the model was trained with.

    Raises:
        InvalidArgumentError: h5py is not installed, the file is not there, cannot be read or is no
            HDF5 file, or a data set is missing.
    """
    try:
        h5py: Any = import_module("h5py")
    except ImportError:
        raise InvalidArgumentError(
            "HDF5 is read by h5py, which is not installed: pip install h5py", field="path"
        ) from None
    arrays = []
    try:
        with h5py.File(path, "r") as file:
            for field, name in (("features", features), ("coords", coords)):
                if name not in file:
                    raise InvalidArgumentError(
                        f"{path} has no data set {name!r}; it has {sorted(file)}", field=field)
                array = np.asarray(file[name])
                arrays.append(array[0] if array.ndim == 3 and array.shape[0] == 1 else array)
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read as HDF5: {error}", field="path") from error
    return arrays[0], arrays[1]

"""hilbert-ring slide FILE --tiles TILES --coords COORDS: a slide's HDF5 as the .npy files that encode reads."""
import argparse
import json
from pathlib import Path

import numpy as np

from hilbert_ring._distinct import check_distinct
from hilbert_ring._files import output_path
from hilbert_ring._pending import pending_files
from hilbert_ring.errors import InvalidArgumentError
from hilbert_ring.slides import read_slide

_TILE_TYPES = ("float32", "float16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the HDF5 file of a slide pipeline")
    parser.add_argument("--tiles", type=Path, required=True, metavar="FILE",
                        help=".npy to write: [tiles, tile_dim], float16 where the data set is, else float32")
    parser.add_argument("--coords", type=Path, required=True, metavar="FILE",
                        help=".npy to write: float64 [tiles, 2]")
    parser.add_argument("--features", default="features", metavar="NAME",
                        help="the data set of tiles (%(default)s)")
    parser.add_argument("--coordinates", default="coords", metavar="NAME",
                        help="the data set of coordinates (%(default)s)")


def slide(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    outputs = {"tiles": output_path(arguments.tiles), "coords": output_path(arguments.coords)}
    check_distinct({"file": (arguments.file, None)}, outputs)
    tiles, coords = read_slide(arguments.file, features=arguments.features, coords=arguments.coordinates)
    for name, array in ((arguments.features, tiles), (arguments.coordinates, coords)):
        if array.dtype.kind not in "iuf" or array.ndim != 2 or len(array) == 0:
            raise InvalidArgumentError(f"{arguments.file}: {name} is {array.dtype} {array.shape}, expected "
                                       "numbers with two axes and a row at least", field=name)
    if coords.shape != (len(tiles), 2):
        raise InvalidArgumentError(f"{arguments.file}: {arguments.coordinates} has shape {coords.shape}, "
                                   f"expected ({len(tiles)}, 2)", field=arguments.coordinates)
    if tiles.dtype.name not in _TILE_TYPES:
        tiles = tiles.astype(np.float32)
    with pending_files(list(outputs.values())) as files:
        for file, array in zip(files, (tiles, coords.astype(np.float64))):
            np.save(file, np.ascontiguousarray(array))
    low, high = coords.min(axis=0), coords.max(axis=0)
    if arguments.json:
        print(json.dumps({"tiles": len(tiles), "tile_dim": tiles.shape[1], "low": low.tolist(),
                          "high": high.tolist()}))
        return 0
    print(f"{len(tiles):,} tiles of {tiles.shape[1]:,} numbers; x {low[0]:,} to {high[0]:,}, "
          f"y {low[1]:,} to {high[1]:,}")
    return 0

"""hilbert-ring slide FILE --tiles TILES --coords COORDS: a slide's file as the .npy files that encode reads."""
import argparse
import json
import warnings
from pathlib import Path
from typing import Any, Dict

import numpy as np

from hilbert_ring._command_line import number, warned, whole_number
from hilbert_ring._distinct import check_distinct
from hilbert_ring._encode import check_model, tile_size
from hilbert_ring._files import output_path
from hilbert_ring._pending import pending_files
from hilbert_ring._service_flags import add_access_flags, connected, files_shown
from hilbert_ring._slide_layouts import NAMES
from hilbert_ring.errors import InvalidArgumentError
from hilbert_ring.slides import COORDS_ARE, TILE_SIZE, SlideFile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a slide pipeline's file: HDF5, .pt or .npz")
    parser.add_argument("--tiles", type=Path, required=True, metavar="FILE",
                        help=".npy to write: [tiles, tile_dim], float16 where the data set is, else float32")
    parser.add_argument("--coords", type=Path, metavar="FILE",
                        help=".npy to write: float64 [tiles, 2], the model's pixels; needs a model with positions")
    parser.add_argument("--layout", choices=NAMES, metavar="|".join(NAMES),
                        help="layout of the file; default: as its names and attributes say")
    parser.add_argument("--features", metavar="NAME",
                        help="data set of tiles, or its encoder; default: features or feats")
    parser.add_argument("--coordinates", metavar="NAME", help="data set of coordinates; default: coords")
    parser.add_argument("--patches", type=Path, metavar="FILE",
                        help="file with the coordinates or their attributes, as CLAM's patches/NAME.h5; default: in a "
                        "folder beside the file's")
    parser.add_argument("--coord-scale", type=number, metavar="NUMBER",
                        help="factor of the coordinates, in place of the attributes")
    parser.add_argument("--coords-are", choices=COORDS_ARE, metavar="|".join(COORDS_ARE),
                        help="unit of the coordinates, columns and rows or the model's pixels, in place of the "
                        "attributes")
    parser.add_argument("--tile-size", type=whole_number, metavar="PIXELS", help=f"side of the model's tiles ({TILE_SIZE})")
    parser.add_argument("--model", metavar="NAME", help="model of the service, in place of --tile-size")
    add_access_flags(parser, "of --model")


def slide(arguments: argparse.Namespace) -> int:
    outputs = {name: output_path(path) for name, path in (("tiles", arguments.tiles), ("coords", arguments.coords))
               if path is not None}
    file = SlideFile(arguments.file, arguments.features, arguments.coordinates, arguments.layout, arguments.patches,
                     arguments.coord_scale, arguments.coords_are)
    check_distinct({**file.files(), **files_shown(arguments)}, outputs)
    size = TILE_SIZE if arguments.coords is None else _tile_size(arguments)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if arguments.coords is None:
            tiles, scaled = file.read_tiles(), None
        else:
            tiles, scaled = file.read(size)
    for warning in caught:
        warned(str(warning.message), arguments.json)
    arrays = [tiles] if scaled is None else [tiles, scaled.coords]
    with pending_files(list(outputs.values())) as files:
        for written, array in zip(files, arrays):
            np.save(written, np.ascontiguousarray(array))
    found: Dict[str, Any] = {"tiles": len(tiles), "tile_dim": tiles.shape[1]}
    line = f"{len(tiles):,} tiles of {tiles.shape[1]:,} numbers"
    if scaled is not None:
        low, high = scaled.coords.min(axis=0).tolist(), scaled.coords.max(axis=0).tolist()
        found.update(low=low, high=high, layout=scaled.layout, scale=list(scaled.scale))
        line += (f"; x {low[0]:,} to {high[0]:,}, y {low[1]:,} to {high[1]:,}, scale {scaled.scale[0]:.6g}; "
                 f"layout {scaled.layout or 'unknown'}")
    print(json.dumps(found) if arguments.json else line)
    return 0


def _tile_size(arguments: argparse.Namespace) -> int:
    if arguments.model is None:
        return TILE_SIZE if arguments.tile_size is None else int(arguments.tile_size)
    if arguments.tile_size is not None:
        raise InvalidArgumentError("--tile-size is given beside --model, must be given alone", field="--tile-size")
    with connected(arguments) as client:
        model = client.model(arguments.model)
    check_model(model)
    if not model.positions:
        raise InvalidArgumentError(f"--model is {arguments.model}, must be a model with positions", field="--model")
    return tile_size(model)

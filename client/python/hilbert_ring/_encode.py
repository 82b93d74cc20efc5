"""Makes a job of the arguments of `encode`, and a result of its report."""
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from hilbert_ring._conversation import JobCall
from hilbert_ring._channel import ENCODER_SERVICE
from hilbert_ring._chunks import Inputs, Reader
from hilbert_ring._distinct import check_distinct
from hilbert_ring._files import FileOutput, is_path, opened
from hilbert_ring._job import AttendOptions, output_of
from hilbert_ring._mapped_rows import blocks_of, rows_of
from hilbert_ring._spec import DTYPES, ELEMENT_BYTES, boolean, check_text, choice, integer, integers
from hilbert_ring._tensors import Output, read_tensor
from hilbert_ring._warn import warn_of_notes, warn_of_rows, warn_of_slides
from hilbert_ring.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError
from hilbert_ring.slides import SlideFile, check_places, coordinate_array, places_of
from hilbert_ring.v1 import attention_pb2 as pb
from hilbert_ring.v1 import encoder_pb2 as encoder_pb

_POOLINGS: Dict[str, Any] = {"class": pb.POOLING_CLASS, "mean": pb.POOLING_MEAN,
                             "none": pb.POOLING_NONE}
_COMPUTE = {name: DTYPES[name] for name in ("float32", "bfloat16")}
_COORDINATE_BYTES = 16

Layers = Union[str, int, Sequence[int]]


@dataclass(frozen=True, eq=False)
class EncodeResult:
    """The result of an encoder.

    Attributes:
        embeddings: float32, of the kind of `tiles`. With pooling: [slides, dim], or [slides, layers, dim] in the
            order of `layers` if there are several. Without pooling: [rows, dim] or [rows, layers, dim]; each slide
            begins with its class token if the model has one.
        attention_map: float32 [rows], or [rows, heads]: the share of the attention of its slide's class token that
            each row gets; None if not requested.
        report: the service's figures (message Report of proto/hilbert_ring/v1/attention.proto).
    """

    embeddings: Any
    attention_map: Optional[Any]
    report: pb.Report


@dataclass(frozen=True)
class Wanted:
    """The arguments of Client.encode that select a model's outputs."""

    pool: Optional[str] = None
    layers: Layers = "last"
    final_norm: Optional[bool] = None
    compute: str = "float32"
    sequence_lengths: Optional[Sequence[int]] = None
    attention_map: Union[bool, int] = False
    attention_map_heads: bool = False
    attention_map_out: Any = None


def model_request(name: str) -> encoder_pb.GetModelRequest:
    """Raises InvalidArgumentError if no model can have the name."""
    check_text("model", name)
    return encoder_pb.GetModelRequest(name=name)


def check_model(model: encoder_pb.Model) -> None:
    """Raises FailedPreconditionError if the model cannot be used."""
    if model.error:
        raise FailedPreconditionError(f"the model cannot be used: {model.error}")


def tile_size(model: encoder_pb.Model) -> int:
    """Returns the side of a tile in pixels. The model must have positions."""
    return int(json.loads(model.config)["position"]["tile_size"])


def prepare_encode(model: encoder_pb.Model, tiles: Any, coords: Any, *, slide: Any = None,
                   dtype: Optional[str], out: Any, wanted: Wanted,
                   options: AttendOptions) -> JobCall:
    """Checks the arguments and makes room for the outputs, without a call to the service.

    Raises:
        InvalidArgumentError, OutOfRangeError: names the argument.
        FailedPreconditionError: the model cannot be used.
        InternalError: the model is not valid.
    """
    check_model(model)
    files: Dict[str, Any] = {}
    if slide is not None:
        tiles, coords, files = _read_slide(model, tiles, coords, slide)
    elif tiles is None:
        raise InvalidArgumentError("tiles is missing: give tiles or slide", field="tiles")
    arrays: Dict[Any, Any] = {pb.TENSOR_TILES: opened("tiles", tiles)}
    tensor = read_tensor("tiles", arrays[pb.TENSOR_TILES], dtype)
    if len(tensor.shape) != 2 or tensor.shape[1] != model.tile_dim:
        raise InvalidArgumentError(
            f"tiles has shape {tensor.shape}, model {model.name} takes (tiles, {model.tile_dim})",
            field="tiles", limit=model.tile_dim)
    spec = _spec_of(model, tensor.shape[0], tensor.dtype, wanted)
    readers: Dict[Any, Reader] = {pb.TENSOR_TILES: tensor.rows}
    row_bytes = {pb.TENSOR_TILES: model.tile_dim * ELEMENT_BYTES[tensor.dtype]}
    if model.positions:
        arrays[pb.TENSOR_TILE_COORDS] = opened("coords", coords)
        readers[pb.TENSOR_TILE_COORDS] = _read_coordinates(model, arrays[pb.TENSOR_TILE_COORDS], tensor.shape[0],
                                                            spec.slide_tiles)
        row_bytes[pb.TENSOR_TILE_COORDS] = _COORDINATE_BYTES
    elif coords is not None:
        raise InvalidArgumentError(f"coords: model {model.name} has no positions", field="coords")
    inputs = Inputs(dict.fromkeys(readers, tensor.shape[0]), row_bytes, readers,
                    (pb.TENSOR_TILE_COORDS,) if model.positions else ())
    outputs: Dict[Any, Union[Output, FileOutput]] = {}
    pooled = spec.pooling != pb.POOLING_NONE
    outputs[pb.TENSOR_POOLED if pooled else pb.TENSOR_STATES] = output_of(
        "out", out, tensor, _shape_of(model, spec), "float32")
    if spec.attention_map_layer:
        rows = (_rows_of(model, spec),)
        outputs[pb.TENSOR_ATTENTION_MAP] = output_of(
            "attention_map_out", wanted.attention_map_out, tensor,
            rows + ((model.heads,) if spec.attention_map_by_head else ()), "float32")
    elif wanted.attention_map_out is not None:
        raise InvalidArgumentError("attention_map_out goes with attention_map",
                                   field="attention_map_out")
    check_distinct({**files, "tiles": tiles, "coords": coords},
                   {"out": out, "attention_map_out": wanted.attention_map_out})
    return JobCall(ENCODER_SERVICE + "Encode", pb.Open(encode=spec), inputs, outputs,
                   {**dict.fromkeys(outputs, pb.DATA_TYPE_FLOAT32), pb.TENSOR_TILES: spec.dtype},
                   options.name(), options.chunk_bytes, _rows_of(model, spec),
                   options.by_reference, arrays)


def encoded(call: JobCall, report: pb.Report) -> EncodeResult:
    pooled = call.open.encode.pooling != pb.POOLING_NONE
    result = EncodeResult(call.result(pb.TENSOR_POOLED if pooled else pb.TENSOR_STATES),
                          call.result(pb.TENSOR_ATTENTION_MAP), report)
    if pooled:
        warn_of_slides(report, len(call.open.encode.slide_tiles))
    else:
        warn_of_rows(report)
    warn_of_notes(report)
    return result


def prepare_plan(model: encoder_pb.Model, tiles: int, *, dtype: str, wanted: Wanted,
                 workers: int) -> encoder_pb.PlanEncodeRequest:
    """Returns the request of a plan for this number of tiles."""
    check_model(model)
    count = integer("tiles", tiles)
    if count < 1:
        raise InvalidArgumentError(f"tiles is {count}, must be at least 1", field="tiles", limit=1)
    choice("dtype", dtype, DTYPES)
    return encoder_pb.PlanEncodeRequest(spec=_spec_of(model, count, dtype, wanted),
                                        workers=integer("workers", workers, 32))


def _spec_of(model: encoder_pb.Model, tiles: int, dtype: str, wanted: Wanted) -> pb.EncodeSpec:
    spec = pb.EncodeSpec(
        model=model.name, digest=model.digest, slide_tiles=_slides(tiles, wanted),
        dtype=DTYPES[dtype], compute=choice("compute", wanted.compute, _COMPUTE),
        pooling=_pooling(model, wanted.pool), states=_states(model, wanted.layers))
    last_alone = set(spec.states) == {model.layers}
    spec.skip_final_norm = not boolean("final_norm", wanted.final_norm, last_alone)
    by_head = boolean("attention_map_heads", wanted.attention_map_heads)
    layer = _map_layer(model, wanted.attention_map)
    if layer is not None:
        spec.attention_map_layer = layer
        spec.attention_map_by_head = by_head
    return spec


def _map_layer(model: encoder_pb.Model, value: Any) -> Optional[int]:
    """Returns the layer of the attention map; None: no map is wanted."""
    if value is None or isinstance(value, (bool, np.bool_)):
        layer = model.layers if value else None
    else:
        layer = integer("attention_map", value)
        _in_range("attention_map", layer, 1, model.layers)
    if layer is not None and not model.class_token:
        raise InvalidArgumentError(
            f"attention_map: model {model.name} has no class token", field="attention_map")
    return layer


def _slides(tiles: int, wanted: Wanted) -> List[int]:
    if tiles < 1:
        raise InvalidArgumentError(f"tiles has {tiles} rows, must have at least 1", field="tiles",
                                   limit=1)
    if wanted.sequence_lengths is None:
        return [tiles]
    lengths = integers("sequence_lengths", wanted.sequence_lengths)
    for i, length in enumerate(lengths):
        if length < 1:
            raise InvalidArgumentError(f"sequence_lengths[{i}] is {length}, must be at least 1",
                                       field="sequence_lengths", limit=1)
    if sum(lengths) != tiles:
        raise InvalidArgumentError(
            f"sequence_lengths add up to {sum(lengths)}, tiles has {tiles} rows",
            field="sequence_lengths", limit=tiles)
    return lengths


def _pooling(model: encoder_pb.Model, pool: Optional[str]) -> Any:
    if pool is None:
        pool = "none" if not model.pools else "class" if model.class_token else "mean"
    pooling = choice("pool", pool, _POOLINGS)
    if pool != "none" and not model.pools:
        raise InvalidArgumentError(
            f"pool must be 'none': model {model.name} has no norm behind pooling", field="pool")
    if pool == "class" and not model.class_token:
        raise InvalidArgumentError(f"pool is 'class', but model {model.name} has no class token",
                                   field="pool")
    return pooling


def _states(model: encoder_pb.Model, layers: Layers) -> List[int]:
    if isinstance(layers, str):
        first = choice("layers", layers, {"last": model.layers, "all": 0})
        return list(range(first, model.layers + 1))
    single = np.isscalar(layers) or getattr(layers, "ndim", 1) == 0
    states = [integer("layers", layers)] if single else integers("layers", layers)
    if not states:
        raise InvalidArgumentError("layers is empty", field="layers")
    for state in states:
        _in_range("layers", state, 0, model.layers)
    return states


def _in_range(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise OutOfRangeError(f"{field} is {value}, must be {least} to {most}, the model's layers",
                              field=field, limit=most)


def _rows_of(model: encoder_pb.Model, spec: pb.EncodeSpec) -> int:
    tokens: int = sum(spec.slide_tiles) + (len(spec.slide_tiles) if model.class_token else 0)
    return tokens


def _shape_of(model: encoder_pb.Model, spec: pb.EncodeSpec) -> Tuple[int, ...]:
    pooled = spec.pooling != pb.POOLING_NONE
    rows = len(spec.slide_tiles) if pooled else _rows_of(model, spec)
    layers = (len(spec.states),) if len(spec.states) > 1 else ()
    return (rows, *layers, model.embed_dim)


def _read_slide(model: encoder_pb.Model, tiles: Any, coords: Any,
                slide: Any) -> Tuple[Any, Any, Dict[str, Any]]:
    """Returns tiles and coordinates of a slide's file, and the files that are read."""
    if tiles is not None or coords is not None:
        raise InvalidArgumentError("slide is given beside tiles or coords, must be given alone", field="slide")
    if not isinstance(slide, SlideFile) and not is_path(slide):
        raise InvalidArgumentError(f"slide is of type {type(slide).__name__}, must be a path or a SlideFile",
                                   field="slide")
    file = slide if isinstance(slide, SlideFile) else SlideFile(slide)
    if not model.positions:
        return file.read_tiles(), None, file.files()
    tiles, scaled = file.read(tile_size(model))
    return tiles, scaled.coords, file.files()


def _read_coordinates(model: encoder_pb.Model, coords: Any, tiles: int,
                      slides: Sequence[int]) -> Reader:
    """Returns a reader of coordinates: float64 [count, 2]."""
    if coords is None:
        raise InvalidArgumentError(f"coords are missing: model {model.name} has positions",
                                   field="coords")
    array = coordinate_array(coords)
    if array.shape != (tiles, 2):
        raise InvalidArgumentError(f"coords has shape {array.shape}, must be ({tiles}, 2): x and y of each tile in "
                                   "pixels", field="coords")
    read = rows_of("coords", array)
    places = []
    for first, block in blocks_of(read, tiles):
        outside = ~((block >= 0) & (block < model.grid_pixels))  # true for NaN
        if outside.any():
            row, axis = (int(index) for index in np.argwhere(outside)[0])
            raise OutOfRangeError(
                f"coords[{first + row}][{axis}] is {block[row, axis]}, must be in [0, {model.grid_pixels:g}), "
                "the model's grid", field="coords", limit=int(model.grid_pixels))
        places.append(places_of(block, tile_size(model)))
    check_places(np.concatenate(places), tile_size(model), slides)
    return lambda first, count: (
        read(first, first + count).astype("<f8", order="C").reshape(-1).view(np.uint8).data)

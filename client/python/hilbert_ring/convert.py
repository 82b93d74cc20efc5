"""Converts a published LongNet encoder's checkpoint to a model's folder: config.json and model.safetensors.

    python -m hilbert_ring.convert slide_encoder.pth FOLDER [--max-slide-size N]

The checkpoint is loaded as weights only, so that its code does not run. Its names must be those of torchscale's
encoders, such as Prov-GigaPath's slide encoder, optionally below the key "model". Known names outside of the encoder
are dropped and printed. Other unknown names, and missing names, are errors. Numbers keep their type (float32, float16,
bfloat16). A convolution of patches of pixels (LongViT) is dropped, too: such a model takes embeddings with their
positions, and gives the rows of its last layer.

Widths and layers follow from the weights. Options give heads, the sizes of grid and tiles, the norms' epsilon, segments
and dilations, which a checkpoint does not contain. By default segments follow from the largest slide.
"""
from __future__ import annotations

import argparse
import json
import pickle
import re
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence, Union

import numpy as np

from hilbert_ring._command_line import end_by_signals
from hilbert_ring._pending import pending_files

# Names of trained checkpoints outside of the encoder: the decoder and mask of pretraining, heads of tasks, and a table
# of positions, which the service computes from coordinates.
DROPPED = ("decoder_", "decoder.", "mask_token", "pos_embed", "head.", "vision_embed.", "text_embed.")

PROJECTION = "patch_embed.proj."  # of the input; a model without it takes rows of embed_dim

# Names that are dropped if the projection convolves patches of pixels. In such a model "norm." is the norm of each row
# before pooling, but in a model's folder the norm after pooling.
DROPPED_WITH_PIXELS = (PROJECTION, "norm.")

DILATIONS = [1, 2, 4, 8, 16]
SHORTEST_SEGMENT_LOG2 = 10
FLOAT32_TINY = 1.1754944e-38  # the norms' epsilon is float32

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"


class ConvertError(ValueError):
    """The fault of a checkpoint."""


@dataclass(frozen=True)
class Tensor:
    """A weight in the form of safetensors."""
    dtype: str  # "F32", "F16" or "BF16"
    shape: tuple[int, ...]
    data: bytes


Entry = Union[Tensor, str]  # a text: why the entry cannot be a weight; it may be dropped


@dataclass(frozen=True)
class Settings:
    heads: int = 16
    max_slide_size: int = 262144  # pixels
    tile_size: int = 256
    grid: int = 1000
    drop: Sequence[str] = ()
    segments: Optional[tuple[int, ...]] = None   # None: from max_slide_size
    dilations: Optional[tuple[int, ...]] = None  # None: DILATIONS
    eps: float = 1e-5  # of all norms except the norm after pooling


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}, must be at least 1")
    return value


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


def _epsilon(text: str) -> float:
    value = float(text)
    if not FLOAT32_TINY <= value < 1:
        raise argparse.ArgumentTypeError(f"{text}, must be at least {FLOAT32_TINY} and below 1")
    return value


def branches(settings: Settings) -> tuple[list[int], list[int]]:
    """Returns segments and dilations. Raises ConvertError if their numbers differ."""
    dilations = list(DILATIONS if settings.dilations is None else settings.dilations)
    lengths = (segments(settings.max_slide_size, settings.tile_size) if settings.segments is None
               else list(settings.segments))
    if len(lengths) != len(dilations):
        raise ConvertError(f"segments has {len(lengths)} entries, must have {len(dilations)}, as dilations")
    return lengths, dilations


def segments(max_slide_size: int, tile_size: int) -> list[int]:
    """Returns five segment lengths like those of the published models.

    Their logarithms are evenly spaced from 1,024 to the largest power of two within the most tiles of a slide.
    """
    longest = int(np.log2(max(1, max_slide_size // tile_size) ** 2))
    if longest < SHORTEST_SEGMENT_LOG2:
        raise ConvertError(f"max_slide_size is {max_slide_size}, must be at least "
                           f"{tile_size << SHORTEST_SEGMENT_LOG2 // 2} for tiles of {tile_size}")
    return [int(x) for x in 2.0 ** np.linspace(SHORTEST_SEGMENT_LOG2, longest, len(DILATIONS))]


def strip_prefix(weights: Mapping[str, Entry]) -> dict[str, Entry]:
    """Removes the prefix of an encoder within another model ("slide_encoder.encoder.layers.0...")."""
    prefixes = {found[1] for found in (re.match(r"(.*?)encoder\.layers\.0\.", name) for name in weights)
                if found}
    if not prefixes or "" in prefixes:
        return dict(weights)
    if len(prefixes) > 1:
        raise ConvertError("the checkpoint holds several encoders: "
                           + ", ".join(sorted(prefix + "encoder" for prefix in prefixes)))
    prefix = prefixes.pop()
    stripped: dict[str, Entry] = {}
    for name, tensor in weights.items():
        bare = name.removeprefix(prefix)
        if bare in stripped:
            raise ConvertError(f"the checkpoint has {bare} twice, with and without {prefix}")
        stripped[bare] = tensor
    return stripped


def shape_of(weights: Mapping[str, Tensor], name: str, axes: int) -> tuple[int, ...]:
    if name not in weights:
        raise ConvertError(f"{name} is missing: this is no checkpoint of a LongNet encoder")
    shape = weights[name].shape
    if len(shape) != axes:
        raise ConvertError(f"{name} is {list(shape)}, must have {axes} axes")
    return shape


def make_config(weights: Mapping[str, Tensor], settings: Settings) -> dict[str, Any]:
    ffn_dim, embed_dim = shape_of(weights, "encoder.layers.0.ffn.fc1.weight", 2)
    layers = 0
    while f"encoder.layers.{layers}.ffn.fc1.weight" in weights:
        layers += 1
    projected = PROJECTION + "weight" in weights
    lengths, dilations = branches(settings)
    if embed_dim % settings.heads or embed_dim // settings.heads % 8:
        raise ConvertError(f"heads is {settings.heads}, must cut embed_dim {embed_dim} into heads of "
                           "a multiple of 8")
    return {
        "architecture": "longnet_encoder",
        "input_dim": shape_of(weights, PROJECTION + "weight", 2)[1] if projected else 0,
        "embed_dim": embed_dim,
        "heads": settings.heads,
        "ffn_dim": ffn_dim,
        "layers": layers,
        "segments": lengths,
        "dilations": dilations,
        "layer_norm_eps": settings.eps,
        "norm_eps": 1e-6 if "norm.weight" in weights else 0,
        "class_token": "cls_token" in weights,
        "output_norm": "encoder.layer_norm.weight" in weights,
        # Tiles have coordinates; rows of a bare encoder have not.
        "position": {"kind": "sincos_2d", "tile_size": settings.tile_size, "grid": settings.grid}
                    if projected else None,
    }


def weight_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the names and shapes of an encoder's weights."""
    width, ffn = config["embed_dim"], config["ffn_dim"]
    shapes: dict[str, tuple[int, ...]] = {}

    def put(name: str, *shape: int) -> None:
        shapes[name + ".weight"] = shape
        shapes[name + ".bias"] = shape[:1]

    if config["input_dim"]:
        put("patch_embed.proj", width, config["input_dim"])
    if config["class_token"]:
        shapes["cls_token"] = (1, 1, width)
    for i in range(config["layers"]):
        layer = f"encoder.layers.{i}."
        for projection in ("q", "k", "v", "out"):
            put(f"{layer}self_attn.{projection}_proj", width, width)
        put(layer + "self_attn.inner_attn_ln", width)
        put(layer + "self_attn_layer_norm", width)
        put(layer + "final_layer_norm", width)
        put(layer + "ffn.fc1", ffn, width)
        put(layer + "ffn.ffn_layernorm", ffn)
        put(layer + "ffn.fc2", width, ffn)
    if config["output_norm"]:
        put("encoder.layer_norm", width)
    if config["norm_eps"]:
        put("norm", width)
    return shapes


def to_drop(weights: Mapping[str, Entry], settings: Settings) -> tuple[str, ...]:
    """Returns the beginnings of names that are dropped."""
    projection = weights.get(PROJECTION + "weight")
    of_pixels = isinstance(projection, Tensor) and len(projection.shape) == 4
    return (*DROPPED, *settings.drop, *(DROPPED_WITH_PIXELS if of_pixels else ()))


def convert(weights: Mapping[str, Entry],
            settings: Settings = Settings()) -> tuple[dict[str, Any], dict[str, Tensor], list[str]]:
    """Returns the config, the encoder's weights, and the dropped names.

    Raises ConvertError, with all names, if entries cannot be weights, or weights are missing, unknown or of another
    shape.
    """
    weights = strip_prefix(weights)
    beginnings = to_drop(weights, settings)
    dropped = sorted(name for name in weights if name.startswith(beginnings))
    kept = {name: tensor for name, tensor in weights.items()
            if isinstance(tensor, Tensor) and not name.startswith(beginnings)}
    unusable = [f"{name} {entry} (--drop excludes names by their beginning)"
                for name, entry in weights.items()
                if isinstance(entry, str) and not name.startswith(beginnings)]
    if unusable:
        raise ConvertError("; ".join(unusable))
    config = make_config(kept, settings)
    shapes = weight_shapes(config)
    wrong = [f"{name} is missing" for name in shapes if name not in kept]
    wrong += [f"{name} is {list(kept[name].shape)}, must be {list(shape)}"
              for name, shape in shapes.items() if name in kept and kept[name].shape != shape]
    wrong += [f"{name} is not known (--drop excludes names by their beginning)"
              for name in kept if name not in shapes]
    if wrong:
        raise ConvertError("; ".join(wrong))
    return config, {name: kept[name] for name in shapes}, dropped


def safetensors_header(weights: Mapping[str, Tensor]) -> bytes:
    """Returns the header after its length, padded so that the numbers lie at multiples of 8."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    first = 0
    for name, tensor in weights.items():
        end = first + len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape),
                        "data_offsets": [first, end]}
        first = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_model(folder: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Writes a model's folder. Raises FileExistsError if it already holds a model or a part of one."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / CONFIG_FILE).exists():
        raise FileExistsError(f"{folder / CONFIG_FILE} is there already")
    if (folder / WEIGHTS_FILE).exists():
        raise FileExistsError(f"{folder / WEIGHTS_FILE} is there already, without a {CONFIG_FILE}: remove it if an "
                              "interrupted conversion made it")
    # The config gets its name last, because it makes the folder a model.
    with pending_files([folder / WEIGHTS_FILE, folder / CONFIG_FILE]) as (kept, described):
        described.write((json.dumps(config, indent=1) + "\n").encode())
        kept.write(safetensors_header(weights))
        for tensor in weights.values():
            kept.write(tensor.data)


def load_checkpoint(path: Path) -> dict[str, Entry]:
    """Returns the entries of a PyTorch checkpoint, below the key "model" if it has one."""
    import torch

    dtypes = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConvertError(f"{path} holds more than weights: {str(error).splitlines()[0]}") from error
    except (RuntimeError, EOFError) as error:
        raise ConvertError(f"{path} is no complete checkpoint: {error}") from error
    if isinstance(state, dict) and isinstance(state.get("model"), dict):
        state = state["model"]
    if not isinstance(state, dict):
        raise ConvertError(f"{path} holds a {type(state).__name__}, must hold weights by name")
    weights: dict[str, Entry] = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            weights[str(name)] = "is no tensor"
        elif value.dtype not in dtypes:
            weights[str(name)] = f"is of {value.dtype}, must be float32, float16 or bfloat16"
        else:
            raw = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            weights[str(name)] = Tensor(dtypes[value.dtype], tuple(value.shape), raw)
    return weights


def main(arguments: Optional[Sequence[str]] = None) -> int:
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m hilbert_ring.convert",
                                     description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-slide-size", type=_count, default=defaults.max_slide_size, metavar="PIXELS",
                        help="largest side of a slide, from which the segments follow (%(default)s)")
    parser.add_argument("--segments", type=_counts, metavar="N,...",
                        help="tokens of a segment for each branch, in place of --max-slide-size")
    parser.add_argument("--dilations", type=_counts, metavar="N,...",
                        help="dilation of each branch (" + ",".join(map(str, DILATIONS)) + ")")
    parser.add_argument("--eps", type=_epsilon, default=defaults.eps, metavar="NUMBER",
                        help="epsilon of the layers' norms (%(default)s)")
    parser.add_argument("--heads", type=_count, default=defaults.heads, help="heads of a layer (%(default)s)")
    parser.add_argument("--tile-size", type=_count, default=defaults.tile_size, metavar="PIXELS",
                        help="side of a tile (%(default)s)")
    parser.add_argument("--grid", type=_count, default=defaults.grid, metavar="TILES",
                        help="side of the grid of coordinates (%(default)s)")
    parser.add_argument("--drop", action="append", default=[], metavar="NAME",
                        help="beginning of names to exclude; may be repeated")
    options = parser.parse_args(arguments)
    settings = Settings(**{field.name: getattr(options, field.name) for field in fields(Settings)})
    try:
        config, weights, dropped = convert(load_checkpoint(options.checkpoint), settings)
        write_model(options.folder, config, weights)
    except (ConvertError, OSError) as error:
        print(f"hilbert_ring.convert: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"hilbert_ring.convert: {error}: checkpoints are read by PyTorch (pip install torch)",
              file=sys.stderr)
        return 1
    for name in dropped:
        print(f"dropped {name}")
    numbers = sum(int(np.prod(tensor.shape)) for tensor in weights.values())
    print(json.dumps(config))
    print(f"{options.folder}: {len(weights)} weights, {numbers:,} numbers")
    return 0


if __name__ == "__main__":
    end_by_signals()
    sys.exit(main())

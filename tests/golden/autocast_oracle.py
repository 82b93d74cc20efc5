#!/usr/bin/env python3
"""Errors of PyTorch's encoder within bfloat16 autocast, the yardstick of bfloat16 compute.

    autocast_oracle.py [FOLDER ...]

writes autocast.json into golden cases of encoders (without FOLDER: into all beside this file). Needs PyTorch
(bench/peers_requirements.txt). The same encoder in float32 must first agree with the definition, so that only
bfloat16 is measured.

An error is the root mean square of the differences over that of the definition's values. "states" has one for
each state, from the first layer's input on and without the final norm; "out" is the last state after it: all
rows of the case's own input. "class_out", "mean_out", "class_states" and "mean_states" are of pooled vectors.
A case has one or a few, whose errors vary by a third and more. They are therefore taken over DRAWS inputs: the
case's own, and others whose tiles differ by a thousandth, less than bfloat16 resolves.
"""
import json
import platform
import sys
from pathlib import Path

import numpy as np
import torch

import encoder_oracle
from torch_encoder import TorchEncoder

FLOAT32_ERROR = 2e-5  # of 1 + |x|, the bound of our own float32
DRAWS = 16
TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read_weights(path):
    """Float32 tensors by name."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    weights = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        numbers = torch.frombuffer(bytearray(data[begin + first:begin + last]), dtype=TYPES[entry["dtype"]])
        weights[name] = numbers.reshape(entry["shape"]).float()
    return weights


def encode(encoder, tiles, coords, lengths):
    """The slides of a case -> arrays by the names of its files."""
    pools = bool(encoder.config["norm_eps"])
    slides, first = [], 0
    for length in lengths:
        part = slice(first, first + length)
        first += length
        x = encoder.embed(tiles[part], None if coords is None else encoder.positions(coords[part]))
        states = [x]
        for layer in range(encoder.config["layers"]):
            x = encoder.layer(layer, x)
            states.append(x)
        slides.append((states, encoder.final_norm(x)))
    result = {"states": torch.cat([torch.stack([x.float() for x in states]) for states, _ in slides], dim=1),
              "out": torch.cat([out for _, out in slides])}
    for kind in ("class", "mean") if pools else ():
        result[f"pooled_{kind}_out"] = torch.stack([encoder.pool(out, kind) for _, out in slides])
        result[f"pooled_{kind}_states"] = torch.stack(
            [torch.stack([encoder.pool(x, kind) for x in states]) for states, _ in slides])
    return {name: values.numpy().astype(np.float64) for name, values in result.items()}


def define_pooled(config, weights, tiles, coords, lengths):
    """The definition's pooled vectors, by the names of a case's files."""
    pooled = {f"pooled_{kind}_{rows}": [] for kind in ("class", "mean") for rows in ("out", "states")}
    first = 0
    for length in lengths:
        part = slice(first, first + length)
        first += length
        encoded = encoder_oracle.encode(tiles[part], None if coords is None else coords[part], weights, config)
        for kind in ("class", "mean"):
            pooled[f"pooled_{kind}_out"].append(encoder_oracle.pool(encoded["out"], weights, config, kind))
            pooled[f"pooled_{kind}_states"].append(
                [encoder_oracle.pool(x, weights, config, kind) for x in encoded["states"]])
    return {name: np.array(rows) for name, rows in pooled.items()}


def error(off, expected):
    """Over all axes."""
    return float(np.sqrt(np.square(off).sum() / np.square(expected).sum()))


def by_state(off, expected, axis):
    return [error(off.take(state, axis), expected.take(state, axis)) for state in range(off.shape[axis])]


def row_errors(result, folder):
    states, out = (np.load(folder / f"{name}.npy").astype(np.float64) for name in ("states", "out"))
    return {"states": by_state(result["states"] - states, states, 0), "out": error(result["out"] - out, out)}


def pooled_errors(results, definitions):
    """Over all draws: [draws, slides, ...]."""
    written = {}
    for name in definitions[0]:
        expected = np.stack([definition[name] for definition in definitions])
        off = np.stack([result[name] for result in results]) - expected
        of_states = name.endswith("states")
        written[name.removeprefix("pooled_")] = by_state(off, expected, 2) if of_states else error(off, expected)
    return written


def check_float32(result, folder):
    for name, values in result.items():
        expected = np.load(folder / f"{name}.npy").astype(np.float64).reshape(values.shape)
        off = np.abs(values - expected) / (1 + np.abs(expected))
        if not off.max() <= FLOAT32_ERROR:
            raise ValueError(f"{folder.name}: {name} in float32 is {off.max():.1e} of 1 + |x| off")


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def draws_of(tiles):
    """The case's tiles first, then disturbed ones."""
    yield tiles
    rng = np.random.default_rng(1)
    for _ in range(DRAWS - 1):
        yield (tiles * (1 + 1e-3 * rng.standard_normal(tiles.shape))).astype(np.float32)


def measure(folder):
    config = json.loads((folder / "config.json").read_text())
    lengths = json.loads((folder / "input.json").read_text())["sequence_lengths"]
    tiles = np.load(folder / "tiles.npy")
    coords = np.load(folder / "coords.npy") if config["position"] else None
    tensor = None if coords is None else torch.from_numpy(coords)
    weights = read_weights(folder / "model.safetensors")
    encoder = TorchEncoder(config, weights)
    results, definitions = [], []
    with torch.inference_mode():
        check_float32(encode(encoder, torch.from_numpy(tiles), tensor, lengths), folder)
        for drawn in draws_of(tiles):
            with torch.autocast("cpu", torch.bfloat16):
                results.append(encode(encoder, torch.from_numpy(drawn), tensor, lengths))
            if not config["norm_eps"]:
                break
            definitions.append(define_pooled(config, {name: w.numpy() for name, w in weights.items()}, drawn, coords,
                                             lengths))
    written = {"pytorch": torch.__version__, "instructions": torch.backends.cpu.get_cpu_capability(),
               "processor": processor(), **row_errors(results[0], folder)}
    return {**written, **pooled_errors(results, definitions)} if definitions else written


def main(folders):
    cases = Path(__file__).resolve().parent / "encoder_cases"
    for folder in map(Path, folders) if folders else sorted(cases.iterdir()):
        measured = measure(folder)
        (folder / "autocast.json").write_text(json.dumps(measured, indent=1) + "\n")
        print(f"{folder.name}: {measured['out']:.2e}")


if __name__ == "__main__":
    main(sys.argv[1:])

#!/usr/bin/env python3
"""Executable definition of the attention map: how much of its slide's class token each row is, in NumPy float64.

    attention_map_oracle.py [FOLDER ...]

writes attention_map.npy, float32 [layers, T, heads], into golden cases of models with a class token
(without FOLDER: into all beside this file).

In each layer and head the class token's output is a weighted sum of values. Its weights are the map.
In each branch that selects the class token they are the softmax of its scores over the rows of its
segment. Branches are mixed by their log-sum-exps, like the outputs. The weights sum to 1: such a branch
has offset 0, which leaves no place for zero keys. A row has weight 0 if no branch shows it to the class
token. All rows of a head have weight 0 unless one of its branches selects the class token.
"""
import json
import sys
from pathlib import Path

import numpy as np

import attention_oracle
import encoder_oracle


def branch_weights(q, k, segment, dilation, offset, scale):
    """Head and branch: q [d] of row 0, k [n, d] -> the rows that row 0 sees, their weights and the lse.
    Returns None if the branch does not select row 0."""
    length = min(segment, len(k))
    rows = np.arange(offset, length, dilation)
    if 0 not in rows:
        return None
    scores = k[rows] @ q * scale
    top = scores.max()
    weights = np.exp(scores - top)
    total = weights.sum()
    return rows, weights / total, top + np.log(total)


def attention_map(tiles, coords, weights, config, layer):
    """Sequence and layer (from 1) -> [T, heads]; row 0 is the class token."""
    weights = {name: np.asarray(w, dtype=np.float64) for name, w in weights.items()}
    x = encoder_oracle.encode(tiles, coords, weights, config)["states"][layer - 1]
    name, heads = f"encoder.layers.{layer - 1}", config["heads"]
    h = encoder_oracle.layer_norm(x, weights, name + ".self_attn_layer_norm", config["layer_norm_eps"])
    q, k = (encoder_oracle.linear(h, weights, f"{name}.self_attn.{p}_proj").reshape(len(x), heads, -1)
            for p in "qk")
    received = np.zeros((len(x), heads))
    for head in range(heads):
        parts = []
        for branch, (segment, dilation) in enumerate(zip(config["segments"], config["dilations"])):
            offset = attention_oracle.branch_offset("lse", branch, head, heads, dilation)
            parts.append(branch_weights(q[0, head], k[:, head], segment, dilation, offset,
                                        q.shape[2] ** -0.5))
        parts = [part for part in parts if part is not None]
        if not parts:
            continue
        lses = np.array([lse for _, _, lse in parts])
        shares = np.exp(lses - lses.max())
        shares /= shares.sum()
        for share, (rows, of_rows, _) in zip(shares, parts):
            received[rows, head] += share * of_rows
    return received


def read_safetensors(path):
    """Reads F32, BF16 and F16, the types of golden cases."""
    data = path.read_bytes()
    head = 8 + int.from_bytes(data[:8], "little")
    weights = {}
    for name, entry in json.loads(data[8:head]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[head + begin:head + end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
        weights[name] = values.reshape(entry["shape"])
    return weights


def write_map(folder):
    config = json.loads((folder / "config.json").read_text())
    if not config["class_token"]:
        return
    weights = read_safetensors(folder / "model.safetensors")
    tiles, coords = np.load(folder / "tiles.npy"), None
    if (folder / "coords.npy").exists():
        coords = np.load(folder / "coords.npy")
    layers, first = [[] for _ in range(config["layers"])], 0
    for length in json.loads((folder / "input.json").read_text())["sequence_lengths"]:
        part = slice(first, first + length)
        for layer, maps in enumerate(layers, 1):
            maps.append(attention_map(tiles[part], None if coords is None else coords[part], weights,
                                      config, layer))
        first += length
    received = np.stack([np.concatenate(maps) for maps in layers])
    np.save(folder / "attention_map.npy", received.astype("<f4"))
    print(folder.name, received.shape, "sums", received.sum(axis=1).min(), "to", received.sum(axis=1).max())


if __name__ == "__main__":
    cases = Path(__file__).resolve().parent / "encoder_cases"
    for path in [Path(argument) for argument in sys.argv[1:]] or sorted(cases.iterdir()):
        write_map(path)

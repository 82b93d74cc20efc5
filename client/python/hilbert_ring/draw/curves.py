"""Computes orders of tokens along a curve and the keys that a query sees; used by `draw` and `bench order`.

The service has its own code. tests/python/test_draw.py compares this module with tests/golden/attention_oracle.py.
"""
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring.errors import InvalidArgumentError
from hilbert_ring.ordering import Ordering

Integers = NDArray[np.int64]


def hilbert_keys(axes: Sequence[Integers], bits: int) -> Integers:
    """Returns distances along the Hilbert curve of 2 or 3 axes (x, y[, z]); J. Skilling, 2004."""
    axes = [axis.copy() for axis in axes]
    for bit in range(bits - 1, 0, -1):
        side = 1 << bit
        for i in range(len(axes)):
            high = (axes[i] & side) != 0
            swap = (axes[0] ^ axes[i]) & (side - 1)
            first = np.where(high, axes[0] ^ (side - 1), axes[0] ^ swap)
            if i > 0:
                axes[i] = np.where(high, axes[i], axes[i] ^ swap)
            axes[0] = first
    for i in range(1, len(axes)):
        axes[i] = axes[i] ^ axes[i - 1]
    turn = np.zeros_like(axes[0])
    for bit in range(bits - 1, 0, -1):
        turn ^= np.where(axes[-1] & (1 << bit), (1 << bit) - 1, 0)
    keys = np.zeros_like(axes[0])
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            keys = (keys << 1) | (((axis ^ turn) >> bit) & 1)
    return keys


def morton_keys(axes: Sequence[Integers], bits: int) -> Integers:
    """Interleaves the bits of the coordinates, x in the lowest place."""
    keys = np.zeros_like(axes[0])
    for bit in range(bits):
        for place, axis in enumerate(axes):
            keys |= ((axis >> bit) & 1) << (bit * len(axes) + place)
    return keys


def _sorted(curve: str, axes: Sequence[Integers], bits: int) -> Integers:
    keys = (morton_keys if curve == "morton" else hilbert_keys)(axes, max(1, bits))
    return np.argsort(keys, kind="stable")


def coordinates(tokens: int, ordering: Optional[Ordering]) -> List[Integers]:
    """Returns (x, y[, z]) of each token of a sequence. Without grid and coordinates it is the implicit square."""
    cells = np.arange(tokens, dtype=np.int64)
    if ordering is not None and ordering.coords is not None:
        return [np.asarray(axis, np.int64) for axis in np.asarray(ordering.coords).T]
    if ordering is not None and ordering.grid:
        *_, rows, cols = ordering.grid
        planes = [cells // (cols * rows)] if len(ordering.grid) == 3 else []
        return [cells % cols, cells // cols % rows, *planes]
    side = square_side(tokens)
    return [cells % side, cells // side]


def square_side(tokens: int) -> int:
    """Returns the side of the implicit square: the least power of two whose square holds the tokens."""
    side = 1
    while side * side < tokens:
        side *= 2
    return side


def token_order(tokens: int, ordering: Optional[Ordering]) -> Integers:
    """Returns `order`: slot s of the ordered sequence holds token order[s]."""
    if ordering is None:
        return np.arange(tokens, dtype=np.int64)
    if ordering.curve == "auto":
        raise InvalidArgumentError("ordering.curve is auto, must be hilbert or morton: only a service resolves auto",
                                   field="ordering.curve")
    if ordering.window:
        parts = []
        for start in range(0, tokens, ordering.window):
            size = min(ordering.window, tokens - start)
            parts.append(start + _sorted(ordering.curve, coordinates(size, None),
                                         (square_side(size) - 1).bit_length()))
        return np.concatenate(parts)
    axes = coordinates(tokens, ordering)
    if ordering.coords is not None:
        bits = max(int(axis.max(initial=0)) for axis in axes).bit_length()
    else:
        bits = (max(ordering.grid or [square_side(tokens)]) - 1).bit_length()
    return _sorted(ordering.curve, axes, bits)


class Phase(NamedTuple):
    """Heads that select the same rows in a branch."""

    branch: int
    offset: int
    heads: Tuple[int, ...]


def phases(heads: int, segments: Sequence[int], dilations: Sequence[int], mixing: str
           ) -> List[Phase]:
    found: Dict[Tuple[int, int], List[int]] = {}
    branches = len(segments)
    for branch, dilation in enumerate(dilations):
        for head in range(heads):
            if mixing == "head_groups":
                size, more = divmod(heads, branches)
                begin = branch * size + min(branch, more)
                if not begin <= head < begin + size + (branch < more):
                    continue
                offset = branch % dilation
            else:
                offset = head // -(-heads // dilation)
            found.setdefault((branch, offset), []).append(head)
    return [Phase(*key, tuple(of)) for key, of in found.items()]


def seen(pairs: Sequence[Tuple[int, int]], phase: Phase, *, segments: Sequence[int], dilations: Sequence[int],
         causal: bool, ordering: Optional[Ordering], align: str = "end",
         window: Optional[Sequence[Optional[int]]] = None) -> "NDArray[np.bool_]":
    """Returns [query, key]: whether the query sees the key in the phase's heads.

    pairs: queries and keys of each sequence.
    """
    result = np.zeros((sum(queries for queries, _ in pairs), sum(keys for _, keys in pairs)), bool)
    dilation = dilations[phase.branch]
    left, right = window or (None, None)
    query = key = 0
    for queries, keys in pairs:
        own = ordering
        if ordering is not None and ordering.coords is not None:
            own = type(ordering)(coords=np.asarray(ordering.coords)[key:key + keys], scope=ordering.scope)
        order = token_order(keys, own)
        ordered = ordering is not None and ordering.scope == "qkv"
        positions = np.arange(queries) + (keys - queries if align == "end" else 0)
        cells = result[query:query + queries, key:key + keys]
        query, key = query + queries, key + keys
        step = min(segments[phase.branch], keys)
        if keys == 0 or (step == keys and dilation == 1):  # dense: wherever the queries are
            cells[:] = True
        else:
            slots = (np.argsort(order) if ordered else np.arange(keys))[positions]
            for start in range(0, keys, step):
                slots_of_keys = np.arange(start + phase.offset, min(start + step, keys), dilation)
                cells[np.ix_(np.isin(slots, slots_of_keys), order[slots_of_keys])] = True
        ahead = np.arange(keys) - positions[:, None]
        if causal:
            cells &= ahead <= 0
        if left is not None:
            cells &= ahead >= -left
        if right is not None:
            cells &= ahead <= right
    return result

"""Finds what the queries of a batch see: of which sequences they are, by which window, and which keys are padding.

    parts = seen_by(mask, (batch, heads, queries, keys))     # from a table with a number for each query and key
    part = banded(keys, queries, first, causal, window)      # from a description

Needs NumPy alone.
"""
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._packed import Numbers, bounded
from hilbert_ring._spec import Window
from hilbert_ring.errors import InvalidArgumentError

Flags = NDArray[np.bool_]

# An additive mask excludes a key by this or a lower number: its exp is 0 beside any score.
_EXCLUDES = -1e4


@dataclass(frozen=True)
class Seen:
    """Queries of a batch, and the keys that they see.

    The chosen rows of the whole batch, one after the other, are packed sequences. The last query of a sequence has the
    position of its last key, if the sequences are causal or have a window.

    Attributes:
        queries: bool [batch, queries], the queries that see these keys.
        keys: bool [batch, keys].
        lengths_q, lengths_k: of each sequence.
        causal, window: of all sequences.
    """

    queries: Flags
    keys: Flags
    lengths_q: Numbers
    lengths_k: Numbers
    causal: bool = False
    window: Window = (None, None)


def every_query(keys: Flags, queries: int) -> Seen:
    """Every query sees all keys of its row of the batch. keys: bool [batch, keys], False if a key is padding."""
    counts = keys.sum(1)
    if (counts == 0).any():
        raise _refused(f"is 0 for every key of row {counts.argmin()} of the batch, must leave a key")
    return Seen(np.ones((len(keys), queries), np.bool_), keys, np.full(len(keys), queries), counts)


def banded(keys: Flags, queries: int, first: int, causal: bool, window: Window, ids: Optional[Numbers] = None) -> Seen:
    """Queries see keys of their sequence by their positions, and padding has no queries.

    Args:
        keys: bool [batch, keys], False if a key is padding.
        queries: number of queries in each row of the batch.
        first: the key of the first query's token.
        window: (left, right), in tokens.
        ids: [batch, keys], the sequence of each key, which does not fall within a row; None: a row is a sequence.
    """
    tokens = keys.shape[1]
    end = first + queries
    if first < 0 or end > tokens or (not causal and end < tokens):
        raise _refused(f"is for {queries} queries of tokens from {first} and {tokens} keys, must have a key for each query")
    left, right = bounded(window, tokens)
    place = np.arange(tokens)
    kept: Flags = np.logical_and(keys, (place < end) & (place >= (0 if left is None else first - left)))
    sequence, count = _numbered(kept, ids)
    asking = kept[:, first:end]
    lengths_q = np.bincount(sequence[:, first:end][asking], minlength=count)
    kept &= lengths_q[sequence] > 0
    lengths_k = np.bincount(sequence[kept], minlength=count)
    if (left, right) != (None, None):
        chosen, of = np.flatnonzero(kept), sequence[kept]
        if (np.diff(chosen)[np.diff(of) == 0] != 1).any():
            raise _refused("has padding within a text, must have it at the ends alone with a window")
    some = lengths_q > 0
    return Seen(asking, kept, lengths_q[some], lengths_k[some], causal, (left, right))


def seen_by(mask: NDArray[Any], shape: Tuple[int, int, int, int]) -> List[Seen]:
    """Returns what a mask lets queries see, in parts with different queries. Queries of no part see nothing.

    Args:
        mask: 4 axes, the last as long as the keys, each other as long as that of the shape or 1: bool, True if a
            query sees a key, or numbers that are added to the scores: 0, or -10000 and below.
        shape: of attention: [batch, heads, queries, keys].
    """
    sees, queries = _by_row(mask, shape), shape[2]
    if (sees == sees[:, -1:]).all():
        return [every_query(np.array(sees[:, -1]), queries)]
    tokens = sees.shape[2]
    end = int(np.flatnonzero(sees.any((0, 1)))[-1]) + 1  # of the keys that queries see
    full: Flags = sees.min(2)  # models let queries of padding see all keys
    for padded in (np.zeros_like(full), full & ~full[:, -1:]):
        for first in dict.fromkeys((tokens - queries, end - queries)):
            found = _parts(sees, first, np.any(sees & ~padded[:, :, None], 1)) if first >= 0 else None
            if found is not None:
                return found
    raise _refused("is neither causal nor a window nor padding, must be a mask of these")


def _parts(sees: Flags, first: int, keys: Flags) -> Optional[List[Seen]]:
    """Returns the banded part, and one of the queries of padding if they see the same keys; None: the mask is another.

    Args:
        first: the key of the first query's token.
        keys: bool [batch, keys], False if a key is padding.
    """
    batch, queries, tokens = sees.shape
    own = keys[:, first:first + queries]
    low, high = sees.argmax(2), tokens - sees[:, :, ::-1].argmax(2)
    place = np.arange(first, first + queries)
    ids, left, right = np.zeros((batch, tokens), np.int64), -1, -1
    for row in range(batch):
        lows, highs, places = low[row, own[row]], high[row, own[row]], place[own[row]]
        if not len(lows):
            continue
        apart = np.append(True, lows[1:] >= np.maximum.accumulate(highs)[:-1])  # the query begins a sequence
        ids[row, lows[apart]] = 1
        begins = np.flatnonzero(apart)
        of = np.cumsum(apart) - 1
        begin, end = np.minimum.reduceat(lows, begins)[of], np.maximum.reduceat(highs, begins)[of]
        left = max(left, (places - lows)[lows > begin].max(initial=-1))
        right = max(right, (highs - 1 - places)[highs < end].max(initial=-1))
    ids = np.cumsum(ids, 1)
    window = (None if left < 0 else int(left), None if right < 0 else int(right))
    causal = right == 0
    if not causal and first + queries < tokens:
        return None
    for row in range(batch):
        ahead = np.arange(tokens) - place[own[row], None]
        seen = keys[row] & (ids[row] == ids[row, place[own[row]], None])
        if window[0] is not None:
            seen &= ahead >= -window[0]
        if window[1] is not None:
            seen &= ahead <= window[1]
        if not (sees[row, own[row]] == seen).all():
            return None
    parts = [banded(keys, queries, first, causal, (window[0], None) if causal else window, ids)]
    others: Flags = ~own & np.any(sees, 2)
    if others.any():
        rows: Flags = np.any(others, 1)
        theirs = sees[np.arange(batch), others.argmax(1)] & rows[:, None]
        if not (sees == theirs[:, None])[others].all():
            return None
        parts.append(Seen(others, theirs, others.sum(1)[rows], theirs.sum(1)[rows]))
    return parts


def _numbered(keys: Flags, ids: Optional[Numbers]) -> Tuple[Numbers, int]:
    """Returns the number of each key's sequence, in the order of the batch, and how many there are."""
    change = np.zeros(keys.shape, np.bool_)
    change[:, 0] = True
    if ids is not None:
        ids = np.where(keys, ids, np.iinfo(np.int64).min)
        rising = np.maximum.accumulate(ids, 1)
        if (rising != ids)[keys].any():
            raise _refused("has sequences that are interleaved, must have one after the other")
        change[:, 1:] = rising[:, 1:] != rising[:, :-1]
    sequence = np.cumsum(change).reshape(keys.shape) - 1
    return sequence, int(change.sum())


def _by_row(mask: NDArray[Any], shape: Tuple[int, int, int, int]) -> Flags:
    """Returns [batch, queries, keys], True if a query sees a key."""
    fits = mask.ndim == 4 and mask.shape[3] == shape[3] and all(
        axis in (1, whole) for axis, whole in zip(mask.shape, shape))
    if not fits or mask.dtype.kind not in "bf":
        raise _refused(f"is {mask.dtype} {mask.shape}, must be bool or floating, and of a shape that "
                       f"expands to {shape}")
    sees = mask if mask.dtype == np.bool_ else mask == 0
    if mask.dtype != np.bool_ and not (sees | (mask <= _EXCLUDES)).all():
        raise _refused(f"adds numbers to scores, must be 0 or at most {_EXCLUDES:g}")
    if not (sees == sees[:, :1]).all():
        raise _refused("differs between heads, must be the same for all")
    return np.broadcast_to(sees[:, 0], (shape[0], *shape[2:]))


def _refused(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"attention_mask {what}", field="attention_mask")

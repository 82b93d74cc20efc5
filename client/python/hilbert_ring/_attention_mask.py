"""Finds what the queries of a batch see: of which sequences they are, by which window, and which keys are padding.

    parts = seen_by(mask, (batch, heads, queries, keys))     # from a table with a number for each query and key
    part = banded(keys, queries, first, causal, window)      # from a description

Needs NumPy alone.
"""
from dataclasses import dataclass
from itertools import product
from typing import Any, Iterator, List, Optional, Tuple

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

    The chosen rows of the whole batch, one after the other, are packed sequences.

    Attributes:
        queries: bool [batch, queries], the queries that see these keys.
        keys: bool [batch, keys].
        lengths_q, lengths_k: of each sequence.
        causal, window, align: of all sequences, as of Rule.
    """

    queries: Flags
    keys: Flags
    lengths_q: Numbers
    lengths_k: Numbers
    causal: bool = False
    window: Window = (None, None)
    align: str = "end"


def every_query(keys: Flags, queries: int, field: str = "attention_mask") -> Seen:
    """Every query sees all keys of its row of the batch. keys: bool [batch, keys], False if a key is padding."""
    counts = keys.sum(1)
    if (counts == 0).any():
        raise _refused(f"is 0 for every key of row {counts.argmin()} of the batch, must leave a key", field)
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


def seen_by(mask: NDArray[Any], shape: Tuple[int, int, int, int], field: str = "attention_mask") -> List[Seen]:
    """Returns what a mask lets queries see, in parts with different queries. Queries of no part see nothing.

    Args:
        mask: 4 axes, the last as long as the keys, each other as long as that of the shape or 1: bool, True if a
            query sees a key, or numbers that are added to the scores: 0, or -10000 and below.
        shape: of attention: [batch, heads, queries, keys].
        field: the name of the mask in errors.
    """
    sees, queries = _by_row(mask, shape, field), shape[2]
    if sees.size == 0:
        return []
    if (sees == sees[:, -1:]).all():
        return [every_query(np.array(sees.any(1)), queries, field)]
    asking = sees.any(2)
    for others in _paddings(sees):
        found = _parts(sees, asking & ~others, others & asking)
        if found is not None:
            return found
    raise _refused("is neither causal nor a window nor padding, must be a mask of these", field)


def _paddings(sees: Flags) -> Iterator[Flags]:
    """Yields queries that may be padding, which models let see the same keys."""
    full: Flags = sees.min(2)
    yield np.zeros_like(full)
    yield full & ~full[:, -1:]
    yield full
    yield (sees == sees.any(1, keepdims=True)).min(2)  # all keys that are no padding
    yield np.append(np.zeros((len(sees), 1), np.bool_), (sees[:, 1:] == sees[:, :-1]).min(2), 1)  # its predecessor's keys


def _parts(sees: Flags, asking: Flags, others: Flags) -> Optional[List[Seen]]:
    """Returns what queries see, in parts; None: the mask is not of this kind.

    Args:
        sees: [batch, queries, keys].
        asking: [batch, queries], see keys of sequences by causal order or a window.
        others: [batch, queries], see the same keys as the others of their row.
    """
    rows: Flags = np.asarray(others.any(1))
    keys: Flags = np.any(sees, 1, where=asking[:, :, None])
    theirs: Flags = sees[np.arange(len(sees)), others.argmax(1)] & rows[:, None]
    if not asking.any() or not (sees == theirs[:, None])[others].all():
        return None
    parts = _sequences(sees, asking, keys)
    if parts is not None and rows.any():
        parts.append(Seen(others, theirs, others.sum(1)[rows], theirs.sum(1)[rows]))
    return parts


def _sequences(sees: Flags, asking: Flags, keys: Flags) -> Optional[List[Seen]]:
    """Returns the parts of the asking queries, which see ranges of the batch's keys, one after the other."""
    seen = sees[asking]
    tokens = keys.shape[1]
    begin, before = np.nonzero(asking)[0] * tokens, np.append(0, np.cumsum(keys))
    low, high = before[begin + seen.argmax(1)], before[begin + tokens - seen[:, ::-1].argmax(1)]
    apart = np.append(True, low[1:] >= np.maximum.accumulate(high)[:-1])  # the query begins a sequence
    firsts, of = np.flatnonzero(apart), np.cumsum(apart) - 1
    ends = np.append(0, np.maximum.reduceat(high, firsts))
    if (high - low != seen.sum(1)).any() or (low < ends[of]).any():
        return None
    lengths_q, lengths_k = np.diff(np.append(firsts, len(of))), np.diff(ends)
    low, high, count = low - ends[of], high - ends[of], lengths_k[of]
    from_start = np.arange(len(of)) - firsts[of]
    from_end = from_start + (lengths_k - lengths_q)[of]

    def window_of(position: Numbers) -> Tuple[Numbers, Numbers]:
        """Returns the sides of each sequence's window, with -1 for a side that hides nothing."""
        return (np.maximum.reduceat(np.where(low > 0, position - low, -1), firsts),
                np.maximum.reduceat(np.where(high < count, high - 1 - position, -1), firsts))

    def agree(position: Numbers, left: int, right: int) -> Flags:
        """Returns of which sequences each query sees what it would by its position and the window."""
        fit: Flags = np.logical_and.reduceat(
            (low == (0 if left < 0 else np.maximum(position - left, 0))) &
            (high == (count if right < 0 else np.minimum(position + right + 1, count))), firsts)
        return fit

    lefts, rights = [], []
    for position in (from_end, from_start):
        left, right = window_of(position)
        known = ((left >= 0).astype(int) + (right >= 0)).argmax()  # other sequences may hide nothing on a side
        lefts += [int(left.max()), int(left[known])]
        rights += [int(right.max()), int(right[known])]
    made: List[List[Seen]] = []
    for back, ahead in dict.fromkeys(product(lefts, rights)):
        at_end, at_start = agree(from_end, back, ahead), agree(from_start, back, ahead)
        if (at_end | at_start).all():
            start = at_start if at_start.all() and not at_end.all() else ~at_end
            window = (None if back < 0 else back, None if ahead <= 0 else ahead)
            made.append([])
            for align, ones in (("end", ~start), ("start", start)):
                if ones.any():
                    queries, theirs = np.zeros_like(asking), np.zeros_like(keys)
                    queries[asking], theirs[keys] = ones[of], np.repeat(ones, lengths_k)
                    made[-1].append(Seen(queries, theirs, lengths_q[ones], lengths_k[ones], ahead == 0, window, align))
    return min(made, key=lambda parts: (len(parts), not parts[0].causal), default=None)


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


def _by_row(mask: NDArray[Any], shape: Tuple[int, int, int, int], field: str) -> Flags:
    """Returns [batch, queries, keys], True if a query sees a key."""
    fits = mask.ndim == 4 and mask.shape[3] == shape[3] and all(
        axis in (1, whole) for axis, whole in zip(mask.shape, shape))
    if not fits or mask.dtype.kind not in "bf":
        raise _refused(f"is {mask.dtype} {mask.shape}, must be bool or floating, and of a shape that "
                       f"expands to {shape}", field)
    sees = mask if mask.dtype == np.bool_ else mask == 0
    if mask.dtype != np.bool_ and not (sees | (mask <= _EXCLUDES)).all():
        raise _refused(f"adds numbers to scores, must be 0 or at most {_EXCLUDES:g}", field)
    if not (sees == sees[:, :1]).all():
        raise _refused("differs between heads, must be the same for all", field)
    return np.broadcast_to(sees[:, 0], (shape[0], *shape[2:]))


def _refused(what: str, field: str = "attention_mask") -> InvalidArgumentError:
    return InvalidArgumentError(f"{field} {what}", field=field)

"""Finds the pattern of a model's attention mask: causal or not, and the keys that are padding. Needs NumPy alone."""
from dataclasses import dataclass
from typing import Any, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring.errors import InvalidArgumentError

# An additive mask excludes a key by this or a lower number: its exp is 0 beside any score.
_EXCLUDES = -1e4


@dataclass(frozen=True)
class Seen:
    """The keys that the queries of a batch see.

    Attributes:
        causal: True: the queries are the last of the keys' tokens, and each sees keys up to its own.
            False: every query sees every key except padding.
        keys: bool [batch, keys], False if a key is padding. With a causal mask such a token has no query either.
    """

    causal: bool
    keys: NDArray[np.bool_]


def seen_by(mask: NDArray[Any], shape: Tuple[int, int, int, int]) -> Seen:
    """Returns which keys a mask lets queries see.

    Args:
        mask: 4 axes, each as long as that of the shape or 1: bool, True if a query sees a key, or
            numbers that are added to the scores: 0, or -10000 and below.
        shape: of attention: [batch, heads, queries, keys].
    """
    sees, queries = _by_row(mask, shape), shape[2]
    keys: NDArray[np.bool_] = np.array(sees[:, -1])
    if (sees == keys[:, None]).all():
        return Seen(False, keys)
    before = sees.shape[2] - queries  # keys of tokens without a query
    if before >= 0:
        upto = np.tri(queries, sees.shape[2], before, dtype=np.bool_)
        causal = (sees == (upto & keys[:, None])).all(2)
        # The row of padding means nothing; models make it empty or full.
        nothing = sees.all(2) | ~sees.any(2)
        if np.where(keys[:, before:], causal, nothing).all():
            return Seen(True, keys)
    raise _refused("is neither causal nor padding, must be a mask of these")


def check_seen(seen: Seen, shape: Tuple[int, int, int, int]) -> None:
    batch, _, queries, keys = shape
    if seen.keys.shape != (batch, keys):
        raise _refused(f"is of {seen.keys.shape}, must be of {(batch, keys)}, rows and keys")
    if seen.causal and queries > keys:
        raise _refused(f"is causal for {queries} queries, must be so for at most {keys}, the keys")
    keyless = ~seen.keys.any(1)
    if keyless.any() and not seen.causal:
        raise _refused(f"is 0 for every key of row {keyless.argmax()} of the batch, must leave a key")


def _by_row(mask: NDArray[Any], shape: Tuple[int, int, int, int]) -> NDArray[np.bool_]:
    """Returns [batch, queries or 1, keys], True if a query sees a key."""
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
    return np.broadcast_to(sees[:, 0], (shape[0], *sees.shape[2:]))


def _refused(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"attention_mask {what}", field="attention_mask")

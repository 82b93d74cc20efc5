"""Reads the mask functions that transformers.masking_utils makes.

    found = read(mask_function, positions)      # a mask function of (batch, head, query, key)
    found.causal, found.window, found.ids

A mask of n queries and n keys would have n * n numbers, so the functions are not evaluated there. Their kinds are known
by their names in masking_utils, and their arguments by their closures. Any other function is refused by name.
"""
import inspect
from dataclasses import dataclass
from typing import Any, Callable, Optional

import numpy as np

from hilbert_ring._packed import Numbers
from hilbert_ring._spec import Window
from hilbert_ring.errors import InvalidArgumentError


@dataclass(frozen=True)
class Found:
    """A mask: queries see keys of the same sequence, not after their own if causal, and within the window.

    Attributes:
        ids: [batch, keys], the sequence of each key; None: a row is a sequence.
    """

    causal: bool = False
    window: Window = (None, None)
    ids: Optional[Numbers] = None


def read(function: Callable[..., Any], positions: Numbers, ids: Optional[Numbers] = None) -> Found:
    """Returns the mask of a function, which is combined with sequences `ids`. positions: [batch, keys], of the keys.

    Raises:
        InvalidArgumentError: the function is not known.
    """
    from transformers import masking_utils

    name = getattr(function, "__qualname__", repr(function))
    if getattr(function, "__module__", None) != masking_utils.__name__:
        raise _refused(f"{getattr(function, '__module__', None)}.{name}")
    kind, given = name.split(".")[0], inspect.getclosurevars(function).nonlocals
    if kind == "causal_mask_function":
        return Found(causal=True)
    if kind == "bidirectional_mask_function":
        return Found()
    if kind == "and_masks":
        found = Found()
        for part in given["mask_functions"]:
            found = _both(found, read(part, positions, found.ids))
        return found
    if kind in ("sliding_window_overlay", "sliding_window_bidirectional_overlay"):
        return Found(window=_measured(function, int(given["sliding_window"]), positions.shape[1]))
    if kind == "chunked_overlay":
        return Found(ids=(positions - _numbers(given["left_padding"])[:, None]) // given["chunk_size"])
    if kind == "packed_sequence_mask_function":
        return Found(ids=_numbers(given["packed_sequence_mask"]))
    if kind == "remap_positions_for_packed_sequence":
        positions = _numbers(given["position_ids"])
        if ids is None or (np.diff(positions)[np.diff(ids) == 0] != 1).any():
            raise _refused(f"{name}, whose positions do not rise by 1 within a sequence")
        return read(given["mask_function"], positions)
    raise _refused(name)


def _both(one: Found, other: Found) -> Found:
    left, right = (min((side for side in sides if side is not None), default=None)
                   for sides in zip(one.window, other.window))
    if one.ids is None or other.ids is None:
        ids = other.ids if one.ids is None else one.ids
    else:
        ids = one.ids * (np.ptp(other.ids) + 1) + other.ids - other.ids.min()
    return Found(one.causal or other.causal, (left, right), ids)


def _measured(function: Callable[..., Any], sliding_window: int, tokens: int) -> Window:
    """Returns the window of an overlay. Its definitions differ: a side may be the number, one less, or half of it."""
    import torch

    if sliding_window > 4 * tokens:
        return None, None
    own = 2 * sliding_window + 2
    sees = function(0, 0, torch.arange(own, own + 1), torch.arange(2 * own + 1)).numpy()
    seen = np.flatnonzero(sees)
    if not sees[own] or len(seen) != seen[-1] - seen[0] + 1:
        raise _refused(function.__qualname__)
    return (None if sees[0] else int(own - seen[0]), None if sees[-1] else int(seen[-1] - own))


def _numbers(tensor: Any) -> Numbers:
    numbers: Numbers = tensor.detach().cpu().numpy().astype(np.int64)
    return numbers


def _refused(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"mask_function: the service does not compute the mask {name}", field="mask_function")

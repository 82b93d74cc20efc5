"""Attention within packed sequences of PyTorch's tensors.

    rule = Rule(causal=True, window=(1023, None))
    out, lse = attend_packed(q, k, v, [5, 17], [40, 17], rule, client)     # 5 queries see 40 keys, 17 see 17
"""
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._model_tensors import attend
from hilbert_ring._spec import Window
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError

Numbers = NDArray[np.int64]
Lengths = Union[Numbers, Sequence[int]]


class Pattern(Dict[str, Any]):
    """A pattern of a Rule. Weak references to it may exist."""


@dataclass(frozen=True)
class Rule:
    """The keys that a query sees, and the changes of its scores.

    Positions are those of a sequence's keys.

    Attributes:
        causal: whether a query sees only keys of its own and earlier positions.
        window: (left, right): positions before and after its own; None: no bound.
        scale: None: 1 / sqrt(head_dim).
        softcap: None: no cap.
        sinks: a logit for each head; None: no sinks.
        slopes: of each head, times the distance of positions; None: no bias.
        pattern: segments, dilations, mixing and ordering of Client.attend; empty: a query sees its whole sequence.
        align: "end": the last query of a sequence has the position of its last key; "start": the first of its first.
    """

    causal: bool = False
    window: Window = (None, None)
    scale: Optional[float] = None
    softcap: Optional[float] = None
    sinks: Any = None
    slopes: Any = None
    pattern: Dict[str, Any] = field(default_factory=dict)
    align: str = "end"


def attend_packed(q: Any, k: Any, v: Any, lengths_q: Lengths, lengths_k: Lengths, rule: Rule,
                  client: Optional[Client]) -> Tuple[Any, Any]:
    """Computes attention within each sequence.

    Args:
        q, k, v: torch tensors [tokens, heads, dim].
        lengths_q, lengths_k: tokens of each sequence.

    Returns:
        out [queries, heads, value_dim] and lse float32 [queries, heads]. A query that sees no key has out 0, and the
        sink or -inf as lse.
    """
    import torch

    if len(q) == 0:
        return q.new_zeros((*q.shape[:2], v.shape[2])), q.new_zeros(q.shape[:2], dtype=torch.float32)
    queries, keys = np.asarray(lengths_q, np.int64), np.asarray(lengths_k, np.int64)
    longest = int(keys.max(initial=0))
    window = bounded(rule.window, max(longest, int(queries.max(initial=0))))
    if rule.pattern:
        _check_pattern(queries, keys, rule, window)
    alike, several = bool((queries == keys).all()), len(queries) > 1
    return attend(q, k, v, client, **{
        "scale": rule.scale, "align": rule.align, "segments": [max(longest, 1)], "causal": rule.causal, "softcap": rule.softcap,
        "sinks": rule.sinks, "alibi": rule.slopes, "window": None if window == (None, None) else window,
        "sequence_lengths": queries if several else None,
        "key_sequence_lengths": keys if several and not alike else None, **rule.pattern})


def bounded(window: Window, tokens: int) -> Window:
    """Returns the window without the sides that hide no key of a sequence of this length."""
    left, right = (None if side is None or side >= tokens - 1 else side for side in window)
    return left, right


def ranges(begins: Numbers, counts: Numbers) -> Numbers:
    """Returns begin, begin + 1, ... of each count, one after the other."""
    result: Numbers = np.repeat(begins - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return result


def _check_pattern(queries: Numbers, keys: Numbers, rule: Rule, window: Window) -> None:
    if window != (None, None):
        raise InvalidArgumentError(f"window is {window}, must be at least as long as the text with segments "
                                   f"{rule.pattern['segments']}", field="window")
    if (queries > keys).any() or not rule.causal and (queries != keys).any():
        raise InvalidArgumentError(f"segments are {rule.pattern['segments']}, must be absent where queries are not the last "
                                   "of the keys' tokens, as in cross-attention", field="segments")

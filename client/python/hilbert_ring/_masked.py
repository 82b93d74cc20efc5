"""Attention of a batch under a mask."""
from dataclasses import replace
from typing import Any, List, Optional, Tuple

import numpy as np

from hilbert_ring._attention_mask import Flags, Seen, seen_by
from hilbert_ring._model_tensors import compiling
from hilbert_ring._packed import Rule, attend_packed
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError


def attend_masked(query: Any, key: Any, value: Any, mask: Any, rule: Rule, client: Optional[Client],
                  field: str = "attention_mask") -> Any:
    """Computes attention within each row of a batch.

    Args:
        query, key, value: torch tensors [batch, heads, tokens, dim], kv heads not repeated.
        mask: a ModelMask, or a tensor of 4 axes that expands to [batch, heads, queries, keys]: bool, or added to the
            scores. It replaces causal and window of the rule. Without a mask, positions are by the rule's align.
        field: the name of the mask in errors.

    Returns:
        out [batch, queries, heads, value_dim].
    """
    if key.shape[0] != query.shape[0]:
        raise InvalidArgumentError(f"key has a batch of {key.shape[0]}, must be {query.shape[0]}, that of query",
                                   field="key", limit=query.shape[0])
    if compiling():
        from hilbert_ring._torch_ops import traced_masked
        return traced_masked(query, key, value, mask, rule, client, field)
    return compute_masked(query, key, value, mask, rule, client, field)


def compute_masked(query: Any, key: Any, value: Any, mask: Any, rule: Rule, client: Optional[Client], field: str) -> Any:
    import torch

    q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
    out = torch.zeros((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    for part in _parts(mask, (*query.shape[:3], key.shape[2]), rule, field):
        made, _ = attend_packed(_rows(q, part.queries), _rows(k, part.keys), _rows(v, part.keys), part.lengths_q,
                                part.lengths_k, replace(rule, causal=part.causal, window=part.window,
                                                                  align=part.align), client)
        if part.queries.all():
            return made.unflatten(0, q.shape[:2])
        out[torch.from_numpy(part.queries).to(q.device)] = made
    return out


def _parts(mask: Any, shape: Tuple[int, int, int, int], rule: Rule, field: str) -> List[Seen]:
    batch, _, queries, keys = shape
    if mask is None:
        return [Seen(np.ones((batch, queries), np.bool_), np.ones((batch, keys), np.bool_), np.full(batch, queries),
                     np.full(batch, keys), rule.causal, rule.window, rule.align)]
    seen: Optional[Seen] = getattr(mask, "seen", None)
    if seen is None:
        given = mask.detach().cpu()  # NumPy has no bfloat16
        return seen_by((given.float() if given.is_floating_point() else given).numpy(), shape, field)
    if seen.keys.shape != (batch, keys) or seen.queries.shape != (batch, queries):
        raise InvalidArgumentError(f"attention_mask is of {seen.queries.shape} queries and {seen.keys.shape} keys, must be of "
                                   f"{(batch, queries)} and {(batch, keys)}, rows and tokens", field="attention_mask")
    return [seen]


def _rows(tensor: Any, chosen: Flags) -> Any:
    import torch

    return tensor.flatten(0, 1) if chosen.all() else tensor[torch.from_numpy(chosen).to(tensor.device)]

"""Attention over sequences that lie in parts of tensors, as flash-attn describes them.

While torch.compile traces, the computation is one custom operator (_torch_ops.py).
"""
from dataclasses import dataclass, replace
from typing import Any, List, Optional, Tuple

import numpy as np

from hilbert_ring._model_tensors import compiling
from hilbert_ring._packed import Numbers, Rule, attend_packed, ranges
from hilbert_ring._spec import integers
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError


@dataclass(frozen=True)
class Sequences:
    """The rows of sequences. All are torch tensors of integers.

    Attributes:
        ends_q, ends_k: [sequences + 1], the begin of each sequence and the end of the last.
        used_q, used_k: [sequences], the first rows of each sequence that are used; None: all.
        skipped_k: [sequences], the first of these keys that are not used; None: 0.
    """

    ends_q: Any
    ends_k: Any
    used_q: Any = None
    used_k: Any = None
    skipped_k: Any = None


def attend_batch(q: Any, k: Any, v: Any, rule: Rule, client: Optional[Client], used_k: Any = None,
                 skipped_k: Any = None) -> Tuple[Any, Any]:
    """q, k, v: [batch, tokens, heads, dim]. Returns out [batch, queries, heads, dim], lse [batch, heads, queries]."""
    import torch

    if k.shape[0] != q.shape[0]:
        raise InvalidArgumentError(f"k has a batch of {k.shape[0]}, must be {q.shape[0]}, that of q", field="k",
                                   limit=q.shape[0])
    batch, queries, heads = q.shape[:3]
    ends_q, ends_k = (torch.arange(batch + 1) * tensor.shape[1] for tensor in (q, k))
    out, lse = attend_sequences(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1),
                                Sequences(ends_q, ends_k, used_k=used_k, skipped_k=skipped_k), rule, client)
    return out.unflatten(0, (batch, queries)), lse.reshape(batch, queries, heads).transpose(1, 2).contiguous()


def attend_sequences(q: Any, k: Any, v: Any, sequences: Sequences, rule: Rule, client: Optional[Client]) -> Tuple[Any, Any]:
    """Computes attention within each sequence.

    Args:
        q, k, v: torch tensors [rows, heads, dim].
        rule: its slopes are [heads] or [sequences, heads].

    Returns:
        out [rows, heads, dim] and lse float32 [rows, heads]; (0, -inf) for rows that are not used.
    """
    if compiling():
        from hilbert_ring._torch_ops import traced_sequences
        return traced_sequences(q, k, v, sequences, rule, client)
    return compute_sequences(q, k, v, sequences, rule, client)


def compute_sequences(q: Any, k: Any, v: Any, sequences: Sequences, rule: Rule, client: Optional[Client]) -> Tuple[Any, Any]:
    import torch

    begins_q, lengths_q = _rows("cu_seqlens_q", sequences.ends_q, "seqused_q", sequences.used_q, q.shape[0])
    begins_k, lengths_k = _rows("cu_seqlens_k", sequences.ends_k, "seqused_k", sequences.used_k, k.shape[0])
    if len(lengths_q) != len(lengths_k):
        raise InvalidArgumentError(f"cu_seqlens_k is of {len(lengths_k)} sequences, cu_seqlens_q of {len(lengths_q)}",
                                   field="cu_seqlens_k")
    if sequences.skipped_k is not None:
        skipped = _values("cache_leftpad", sequences.skipped_k, lengths_k)
        begins_k, lengths_k = begins_k + skipped, lengths_k - skipped
    if lengths_k.sum() < len(k):
        chosen = torch.from_numpy(ranges(begins_k, lengths_k)).to(k.device)
        k, v = k[chosen], v[chosen]
    if lengths_q.sum() == len(q):
        return _attend(q, k, v, lengths_q, lengths_k, rule, client)
    chosen = torch.from_numpy(ranges(begins_q, lengths_q)).to(q.device)
    out = torch.zeros((*q.shape[:2], v.shape[2]), dtype=q.dtype, device=q.device)
    lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
    out[chosen], lse[chosen] = _attend(q[chosen], k, v, lengths_q, lengths_k, rule, client)
    return out, lse


def int_tensor(field: str, values: Any) -> Any:
    """Returns a 1-d tensor of the integers of a list, an array or a tensor."""
    import torch

    if isinstance(values, torch.Tensor) and values.ndim == 1 and not (
            values.is_floating_point() or values.is_complex() or values.dtype == torch.bool):
        return values
    if isinstance(values, (list, tuple)):  # may hold PyTorch's scalars
        values = [value.item() if isinstance(value, torch.Tensor) else value for value in values]
    elif isinstance(values, torch.Tensor):
        values = values.tolist()
    return torch.tensor(integers(field, values))


def _attend(q: Any, k: Any, v: Any, lengths_q: Numbers, lengths_k: Numbers, rule: Rule,
            client: Optional[Client]) -> Tuple[Any, Any]:
    import torch

    if rule.slopes is None or rule.slopes.ndim == 1:
        return attend_packed(q, k, v, lengths_q, lengths_k, rule, client)
    if len(rule.slopes) != len(lengths_q):
        raise InvalidArgumentError(f"alibi_slopes are of {len(rule.slopes)} sequences, must be of {len(lengths_q)}",
                                   field="alibi_slopes")
    if (rule.slopes == rule.slopes[:1]).all():
        return attend_packed(q, k, v, lengths_q, lengths_k, replace(rule, slopes=rule.slopes[0]), client)
    ends_q, ends_k = np.cumsum(lengths_q), np.cumsum(lengths_k)  # a job has one slope for each head
    made: List[Tuple[Any, Any]] = []
    for slopes, queries, end_q, keys, end_k in zip(rule.slopes, lengths_q, ends_q, lengths_k, ends_k):
        own_q, own_k = slice(end_q - queries, end_q), slice(end_k - keys, end_k)
        made.append(attend_packed(q[own_q], k[own_k], v[own_k], [queries], [keys], replace(rule, slopes=slopes), client))
    out, lse = (torch.cat(parts) for parts in zip(*made))
    return out, lse


def _rows(field: str, ends: Any, field_used: str, used: Any, total: int) -> Tuple[Numbers, Numbers]:
    """Returns the first row and the number of rows of each sequence."""
    listed = ends.detach().cpu().numpy().astype(np.int64)
    lengths = listed[1:] - listed[:-1]
    if len(listed) == 0 or listed[0] != 0 or listed[-1] != total or (lengths < 0).any():
        raise InvalidArgumentError(
            f"{field} must begin with 0, not fall, and end with {total}, the number of rows", field=field)
    return listed[:-1], lengths if used is None else _values(field_used, used, lengths)


def _values(field: str, given: Any, most: Numbers) -> Numbers:
    values: Numbers = given.detach().cpu().numpy().astype(np.int64)
    if values.shape != most.shape or (values < 0).any() or (values > most).any():
        raise InvalidArgumentError(f"{field} must be of {len(most)} sequences, each at least 0 and at most the sequence's rows",
                                   field=field)
    return values

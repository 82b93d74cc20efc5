"""Custom operators of PyTorch, which are single nodes in the graphs of torch.compile.

torch.ops.hilbert_ring.sequences and torch.ops.hilbert_ring.masked compute attention. An operator takes numbers and
tensors alone, so `_number` keeps the other arguments by number.
"""
from typing import Any, List, Optional, Tuple

import torch

from hilbert_ring._masked import compute_masked
from hilbert_ring._packed import Rule
from hilbert_ring._sequences import Sequences, compute_sequences

_kept: List[Tuple[Any, Any]] = [(None, {})]  # client and pattern


@torch.library.custom_op("hilbert_ring::sequences", mutates_args=())
def _sequences(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ends_q: torch.Tensor, ends_k: torch.Tensor,
               used_q: Optional[torch.Tensor], used_k: Optional[torch.Tensor], skipped_k: Optional[torch.Tensor],
               causal: bool, left: Optional[int], right: Optional[int], scale: Optional[float], softcap: Optional[float],
               sinks: Optional[torch.Tensor], slopes: Optional[torch.Tensor], kept: int) -> Tuple[torch.Tensor, torch.Tensor]:
    client, pattern = _kept[kept]
    out, lse = compute_sequences(q, k, v, Sequences(ends_q, ends_k, used_q, used_k, skipped_k),
                                 Rule(causal, (left, right), scale, softcap, sinks, slopes, pattern), client)
    return out.contiguous(), lse.contiguous()


@_sequences.register_fake
def _(q: Any, k: Any, v: Any, *_: Any) -> Any:
    return q.new_empty((*q.shape[:2], v.shape[2])), q.new_empty(q.shape[:2], dtype=torch.float32)


@torch.library.custom_op("hilbert_ring::masked", mutates_args=())
def _masked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Optional[torch.Tensor], causal: bool,
            left: Optional[int], right: Optional[int], scale: Optional[float], softcap: Optional[float],
            sinks: Optional[torch.Tensor], align: str, kept: int) -> torch.Tensor:
    client, pattern = _kept[kept]
    rule = Rule(causal, (left, right), scale, softcap, sinks, pattern=pattern, align=align)
    out: torch.Tensor = compute_masked(query, key, value, mask, rule, client)
    return out.contiguous()


@_masked.register_fake
def _(query: Any, key: Any, value: Any, *_: Any) -> Any:
    batch, heads, queries, _dim = query.shape
    return query.new_empty((batch, queries, heads, value.shape[3]))


def traced_sequences(q: Any, k: Any, v: Any, rows: Sequences, rule: Rule, client: Any) -> Tuple[Any, Any]:
    out, lse = _sequences(q, k, v, rows.ends_q, rows.ends_k, rows.used_q, rows.used_k, rows.skipped_k, rule.causal,
                          *rule.window, rule.scale, rule.softcap, rule.sinks, rule.slopes, _number(client, rule.pattern))
    return out, lse


def traced_masked(query: Any, key: Any, value: Any, mask: Any, rule: Rule, client: Any) -> Any:
    return _masked(query, key, value, mask, rule.causal, *rule.window, rule.scale, rule.softcap, rule.sinks,
                   rule.align, _number(client, rule.pattern))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _number(client: Any, pattern: Any) -> int:
    for number, (one, other) in enumerate(_kept):
        if one is client and (other is pattern or not (other or pattern)):
            return number
    _kept.append((client, pattern))
    return len(_kept) - 1

"""Custom operators of PyTorch, which are single nodes in the graphs of torch.compile.

torch.ops.hilbert_ring.sequences and torch.ops.hilbert_ring.masked compute attention. torch.ops.hilbert_ring.checked
returns numbers that it has checked. An operator takes numbers and tensors alone, so `_number` keeps the client and the
pattern by number, as long as their owners do.
"""
import itertools
from typing import Any, MutableMapping, Optional, Tuple
from weakref import WeakValueDictionary

import torch

from hilbert_ring._kv_cache import check_range
from hilbert_ring._masked import compute_masked
from hilbert_ring._packed import Rule
from hilbert_ring._sequences import Sequences, compute_sequences
from hilbert_ring.errors import InvalidArgumentError

_kept: MutableMapping[int, Any] = WeakValueDictionary()  # clients and patterns; 0 is the default of both
_next = itertools.count(1)


@torch.library.custom_op("hilbert_ring::sequences", mutates_args=())
def _sequences(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ends_q: torch.Tensor, ends_k: torch.Tensor,
               used_q: Optional[torch.Tensor], used_k: Optional[torch.Tensor], skipped_k: Optional[torch.Tensor],
               causal: bool, left: Optional[int], right: Optional[int], scale: Optional[float], softcap: Optional[float],
               sinks: Optional[torch.Tensor], slopes: Optional[torch.Tensor], client: int,
               pattern: int) -> Tuple[torch.Tensor, torch.Tensor]:
    out, lse = compute_sequences(q, k, v, Sequences(ends_q, ends_k, used_q, used_k, skipped_k),
                                 Rule(causal, (left, right), scale, softcap, sinks, slopes, _pattern_of(pattern)),
                                 _client_of(client))
    return out.contiguous(), lse.contiguous()


@_sequences.register_fake
def _(q: Any, k: Any, v: Any, *_: Any) -> Any:
    return q.new_empty((*q.shape[:2], v.shape[2])), q.new_empty(q.shape[:2], dtype=torch.float32)


@torch.library.custom_op("hilbert_ring::masked", mutates_args=())
def _masked(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Optional[torch.Tensor], causal: bool,
            left: Optional[int], right: Optional[int], scale: Optional[float], softcap: Optional[float],
            sinks: Optional[torch.Tensor], align: str, field: str, client: int, pattern: int) -> torch.Tensor:
    rule = Rule(causal, (left, right), scale, softcap, sinks, pattern=_pattern_of(pattern), align=align)
    out: torch.Tensor = compute_masked(query, key, value, mask, rule, _client_of(client), field)
    return out.contiguous()


@_masked.register_fake
def _(query: Any, key: Any, value: Any, *_: Any) -> Any:
    batch, heads, queries, _dim = query.shape
    return query.new_empty((batch, queries, heads, value.shape[3]))


@torch.library.custom_op("hilbert_ring::checked", mutates_args=())
def checked(values: torch.Tensor, most: torch.Tensor, field: str) -> torch.Tensor:
    """Returns the values, which must be 0 to `most`."""
    check_range(field, values, most)
    return values.clone()


@checked.register_fake
def _(values: Any, *_: Any) -> Any:
    return torch.empty_like(values)


def traced_sequences(q: Any, k: Any, v: Any, rows: Sequences, rule: Rule, client: Any) -> Tuple[Any, Any]:
    out, lse = _sequences(q, k, v, rows.ends_q, rows.ends_k, rows.used_q, rows.used_k, rows.skipped_k, rule.causal,
                          *rule.window, rule.scale, rule.softcap, rule.sinks, rule.slopes, _number(client), _number(rule.pattern or None))
    return out, lse


def traced_masked(query: Any, key: Any, value: Any, mask: Any, rule: Rule, client: Any, field: str) -> Any:
    return _masked(query, key, value, mask, rule.causal, *rule.window, rule.scale, rule.softcap, rule.sinks,
                   rule.align, field, _number(client), _number(rule.pattern or None))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _number(one: Any) -> int:
    if one is None:
        return 0
    for number, other in list(_kept.items()):
        if other is one:
            return number
    number = next(_next)
    _kept[number] = one
    return number


def _client_of(number: int) -> Any:
    return _of("client", number)


def _pattern_of(number: int) -> Any:
    return _of("segments", number) or {}


def _of(field: str, number: int) -> Any:
    one = _kept.get(number)
    if number and one is None:
        raise InvalidArgumentError(f"{field} of a compiled graph is deleted, must be kept as long as the graph", field=field)
    return one

"""Attention with flash-attn's signatures, computed by the service.

    from hilbert_ring import flash_attn_func            # instead of: from flash_attn import ...
    out = flash_attn_func(q, k, v, causal=True)         # [batch, tokens, heads, head_dim]

The functions refuse dropout, windows that hide keys, softcap, ALiBi and paged keys. They have no backward passes. Fewer
queries than keys are padded to the number of keys. More queries are computed in blocks of that number, each with all
keys.
"""
from numbers import Real
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from hilbert_ring._model_tensors import attend, check_tensors
from hilbert_ring._spec import boolean, integers
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError


def flash_attn_func(q: Any, k: Any, v: Any, dropout_p: Optional[float] = 0.0,
                    softmax_scale: Optional[float] = None, causal: bool = False,
                    window_size: Optional[Tuple[int, int]] = (-1, -1), softcap: Optional[float] = 0.0,
                    alibi_slopes: Any = None, deterministic: bool = False,
                    return_attn_probs: bool = False, *, client: Optional[Client] = None) -> Any:
    """Computes attention within each sequence of a batch.

    Args:
        q: torch tensor [batch, queries, heads, head_dim].
        k, v: [batch, keys, kv_heads, head_dim]; kv_heads divides heads.
        softmax_scale: None: 1 / sqrt(head_dim).
        causal: the mask is aligned to the bottom right: query i sees keys up to i + keys - queries.
        window_size: (left, right), keys before and after that key; -1 or None: all. A window must hide no key. A
            right side of 0 is the causal mask.
        dropout_p, softcap: must be 0 or None.
        alibi_slopes: must be None.
        return_attn_probs: whether to return the log-sum-exp, too.
        deterministic: no effect: results are always deterministic on the same workers.
        client: None: the client of hilbert_ring.use, or a new one connected to HILBERT_RING_SERVER.

    Returns:
        out [batch, queries, heads, head_dim]; with return_attn_probs (out, lse float32 [batch, heads, queries], None).

    Raises:
        InvalidArgumentError: the service does not compute an argument, or shapes do not agree.
    """
    _refuse(dropout_p, softcap, alibi_slopes)
    boolean("deterministic", deterministic)
    return_attn_probs = boolean("return_attn_probs", return_attn_probs)
    check_tensors(q, k, v, ("batch", "tokens", "heads", "dim"))
    if k.shape[0] != q.shape[0]:
        raise InvalidArgumentError(f"k has a batch of {k.shape[0]}, must be {q.shape[0]}, that of q",
                                   field="k", limit=q.shape[0])
    batch, queries, heads = q.shape[:3]
    keys = k.shape[1]
    causal = _is_causal(causal, window_size, queries, keys)
    out, lse = attend_packed(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), [queries] * batch,
                             [keys] * batch, softmax_scale, causal, client)
    out = out.unflatten(0, (batch, queries))
    if not return_attn_probs:
        return out
    return out, lse.reshape(batch, queries, heads).transpose(1, 2).contiguous(), None


def flash_attn_varlen_func(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
                           max_seqlen_q: int, max_seqlen_k: int, dropout_p: Optional[float] = 0.0,
                           softmax_scale: Optional[float] = None, causal: bool = False,
                           window_size: Optional[Tuple[int, int]] = (-1, -1),
                           softcap: Optional[float] = 0.0,
                           alibi_slopes: Any = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: Any = None, *,
                           client: Optional[Client] = None) -> Any:
    """Computes attention within packed sequences.

    Args:
        q: torch tensor [all queries, heads, head_dim].
        k, v: [all keys, kv_heads, head_dim].
        cu_seqlens_q, cu_seqlens_k: integers [sequences + 1], the begin of each sequence and the end of the last.
        max_seqlen_q, max_seqlen_k: ignored.
        block_table: must be None.
        others: see flash_attn_func.

    Returns:
        out [all queries, heads, head_dim]; with return_attn_probs (out, lse float32 [heads, all queries], None).
    """
    _refuse(dropout_p, softcap, alibi_slopes)
    boolean("deterministic", deterministic)
    return_attn_probs = boolean("return_attn_probs", return_attn_probs)
    check_tensors(q, k, v, ("tokens", "heads", "dim"))
    if block_table is not None:
        raise InvalidArgumentError("block_table must be None: keys are not paged",
                                   field="block_table")
    lengths_q = _lengths("cu_seqlens_q", cu_seqlens_q, q.shape[0])
    lengths_k = _lengths("cu_seqlens_k", cu_seqlens_k, k.shape[0])
    if len(lengths_q) != len(lengths_k):
        raise InvalidArgumentError(
            f"cu_seqlens_k is of {len(lengths_k)} sequences, cu_seqlens_q of {len(lengths_q)}",
            field="cu_seqlens_k")
    causal = _is_causal(causal, window_size, max(lengths_q, default=0), max(lengths_k, default=0))
    out, lse = attend_packed(q, k, v, lengths_q, lengths_k, softmax_scale, causal, client)
    return (out, lse.transpose(0, 1).contiguous(), None) if return_attn_probs else out


def attend_packed(q: Any, k: Any, v: Any, lengths_q: Sequence[int], lengths_k: Sequence[int],
                  scale: Optional[float], causal: bool, client: Optional[Client]) -> Any:
    """Computes full or bottom-right causal attention within packed sequences.

    Args:
        q, k, v: torch tensors [tokens, heads, dim].
        lengths_q, lengths_k: tokens of each sequence.

    Returns:
        out [queries, heads, value_dim] and lse float32 [queries, heads]; (0, -inf) for queries that see no key.
    """
    import torch

    rows = _place(lengths_q, lengths_k, causal)
    count = sum(rows.sequences)
    as_they_are = count == len(q) == len(rows.source)
    out = torch.zeros((len(q), q.shape[1], v.shape[2]), dtype=q.dtype, device=q.device)
    lse = torch.full(out.shape[:2], -torch.inf, dtype=torch.float32, device=q.device)
    if not rows.source:
        return out, lse
    source, place = torch.tensor(rows.source), torch.tensor(rows.place)
    padded = q
    if not as_they_are:
        padded = torch.zeros((count, *q.shape[1:]), dtype=q.dtype, device=q.device)
        padded[place.to(q.device)] = q[source.to(q.device)]
    if count > len(k):
        again = torch.cat([torch.arange(block.start, block.stop) for block in rows.keys]).to(k.device)
        k, v = k[again], v[again]
    made = attend(padded, k, v, client, scale=scale, segments=[max(rows.sequences)], causal=causal,
                  sequence_lengths=rows.sequences if len(rows.sequences) > 1 else None)
    if as_they_are:
        return made
    out[source.to(q.device)], lse[source.to(q.device)] = (rows[place.to(q.device)] for rows in made)
    return out, lse


class _Rows(NamedTuple):
    """The rows of the job. It has a sequence for each block of queries, with the length of its keys."""

    keys: List[range]  # of each sequence
    source: List[int]  # queries that see keys
    place: List[int]   # the row of each such query: a block's queries lie at its last keys

    @property
    def sequences(self) -> List[int]:
        return [len(keys) for keys in self.keys]


def _place(lengths_q: Sequence[int], lengths_k: Sequence[int], causal: bool) -> _Rows:
    rows = _Rows([], [], [])
    query = key = row = 0
    for queries, keys in zip(lengths_q, lengths_k):
        end = query + queries
        if causal:  # the first of more queries than keys see nothing
            query = max(query, end - keys)
        # A sequence without queries has a block too, so that the keys of all sequences can stay in place.
        for block in range(query, max(end, query + 1), keys) if keys > 0 else ():
            count = min(keys, end - block)
            row += keys
            rows.keys.append(range(key, key + keys))
            rows.source.extend(range(block, block + count))
            rows.place.extend(range(row - count, row))
        query, key = end, key + keys
    return rows


def _lengths(field: str, cumulative: Any, total: int) -> List[int]:
    listed = cumulative.tolist() if hasattr(cumulative, "tolist") else cumulative
    if isinstance(listed, (list, tuple)):  # may hold PyTorch scalars
        listed = [end.tolist() if hasattr(end, "tolist") else end for end in listed]
    ends = integers(field, listed)
    lengths = [end - begin for begin, end in zip(ends, ends[1:])]
    if not ends or ends[0] != 0 or ends[-1] != total or min(lengths, default=0) < 0:
        raise InvalidArgumentError(
            f"{field} must begin with 0, not fall, and end with {total}, the number of rows", field=field)
    return lengths


def _is_causal(causal: bool, window_size: Any, queries: int, keys: int) -> bool:
    """Returns whether `causal` or the window gives a causal mask. queries, keys: of the longest sequences.

    Raises:
        InvalidArgumentError: the window hides keys that the causal mask does not hide.
    """
    causal = boolean("causal", causal)
    if window_size is None:
        return causal
    if isinstance(window_size, (list, tuple)):
        window_size = [-1 if side is None else side for side in window_size]
    sides = integers("window_size", window_size)
    if len(sides) != 2 or min(sides) < -1:
        raise InvalidArgumentError(f"window_size is {window_size}, must be two numbers of keys or -1", field="window_size")
    left, right = sides[0], 0 if causal else sides[1]
    if 0 <= left < keys - 1 or 0 < right < queries - 1:
        raise InvalidArgumentError(
            f"window_size is {window_size}, must hide no key: left -1 or at least {keys - 1}, right -1, 0 (causal) or at "
            f"least {queries - 1}", field="window_size")
    return causal or right == 0


def _refuse(dropout_p: Any, softcap: Any, alibi_slopes: Any) -> None:
    for field, value in (("dropout_p", dropout_p), ("softcap", softcap)):
        if value is not None and not (isinstance(value, Real) and value == 0):
            raise InvalidArgumentError(f"{field} is {value!r:.80}, must be 0 or None: the service does not compute it",
                                       field=field)
    if alibi_slopes is not None:
        raise InvalidArgumentError(f"alibi_slopes is of type {type(alibi_slopes).__name__}, must be None: the service "
                                   "does not compute it", field="alibi_slopes")

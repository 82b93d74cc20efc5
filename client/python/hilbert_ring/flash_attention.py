"""Attention with flash-attn's signatures, computed by the service.

    from hilbert_ring import flash_attn_func            # instead of: from flash_attn import ...
    out = flash_attn_func(q, k, v, causal=True)         # [batch, tokens, heads, head_dim]

Arguments have flash-attn's meanings: the causal mask and windows are aligned to the bottom right, so the last query has
the position of the last key. The functions refuse dropout and paged keys. They have no backward passes.
"""
from numbers import Real
from typing import Any, Optional, Tuple

from hilbert_ring._kv_cache import Cache
from hilbert_ring._model_tensors import check_tensors
from hilbert_ring._packed import Rule
from hilbert_ring._sequences import Sequences, attend_batch, attend_sequences, int_tensor
from hilbert_ring._spec import boolean, integers, number
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError

WindowSize = Optional[Tuple[int, int]]


def flash_attn_func(q: Any, k: Any, v: Any, dropout_p: Optional[float] = 0.0, softmax_scale: Optional[float] = None,
                    causal: bool = False, window_size: WindowSize = (-1, -1), softcap: Optional[float] = 0.0,
                    alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False, *,
                    client: Optional[Client] = None) -> Any:
    """Computes attention within each sequence of a batch.

    Args:
        q: torch tensor [batch, queries, heads, head_dim].
        k, v: [batch, keys, kv_heads, head_dim]; kv_heads divides heads.
        dropout_p: must be 0 or None.
        softmax_scale: None: 1 / sqrt(head_dim).
        causal: query i sees keys up to i + keys - queries.
        window_size: (left, right), keys before and after that key; -1 or None: all. A right side of 0 is the causal
            mask.
        softcap: c: a score s becomes c * tanh(s / c); 0 or None: no cap.
        alibi_slopes: [heads] or [batch, heads]: a score loses the slope times |i + keys - queries - j|.
        deterministic: no effect: results are always deterministic on the same workers.
        return_attn_probs: whether to return the log-sum-exp, too.
        client: None: the client of hilbert_ring.use, or a new one connected to HILBERT_RING_SERVER.

    Returns:
        out [batch, queries, heads, head_dim]; with return_attn_probs (out, lse float32 [batch, heads, queries], None).

    Raises:
        InvalidArgumentError: the service does not compute an argument, or shapes do not agree.
    """
    check_tensors(q, k, v, ("batch", "tokens", "heads", "dim"))
    rule = _rule(q, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic)
    return_attn_probs = boolean("return_attn_probs", return_attn_probs)
    out, lse = attend_batch(q, k, v, rule, client)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_qkvpacked_func(qkv: Any, dropout_p: Optional[float] = 0.0, softmax_scale: Optional[float] = None,
                              causal: bool = False, window_size: WindowSize = (-1, -1), softcap: Optional[float] = 0.0,
                              alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False, *,
                              client: Optional[Client] = None) -> Any:
    """flash_attn_func of qkv [batch, tokens, 3, heads, head_dim]."""
    q, k, v = _unpacked("qkv", qkv, 5, 3)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs, client=client)


def flash_attn_kvpacked_func(q: Any, kv: Any, dropout_p: Optional[float] = 0.0, softmax_scale: Optional[float] = None,
                             causal: bool = False, window_size: WindowSize = (-1, -1), softcap: Optional[float] = 0.0,
                             alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False, *,
                             client: Optional[Client] = None) -> Any:
    """flash_attn_func of kv [batch, keys, 2, kv_heads, head_dim]."""
    k, v = _unpacked("kv", kv, 5, 2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs, client=client)


def flash_attn_varlen_func(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int,
                           max_seqlen_k: int, dropout_p: Optional[float] = 0.0, softmax_scale: Optional[float] = None,
                           causal: bool = False, window_size: WindowSize = (-1, -1), softcap: Optional[float] = 0.0,
                           alibi_slopes: Any = None, deterministic: bool = False, return_attn_probs: bool = False,
                           block_table: Any = None, *, seqused_q: Any = None, seqused_k: Any = None,
                           client: Optional[Client] = None) -> Any:
    """Computes attention within packed sequences.

    Args:
        q: torch tensor [all queries, heads, head_dim].
        k, v: [all keys, kv_heads, head_dim].
        cu_seqlens_q, cu_seqlens_k: integers [sequences + 1], the begin of each sequence and the end of the last.
        max_seqlen_q, max_seqlen_k: ignored.
        alibi_slopes: [heads] or [sequences, heads].
        block_table: must be None.
        seqused_q, seqused_k: integers [sequences], the first rows of each sequence that are used; None: all. Queries
            that are not used have results of 0.
        others: see flash_attn_func.

    Returns:
        out [all queries, heads, head_dim]; with return_attn_probs (out, lse float32 [heads, all queries], None).
    """
    check_tensors(q, k, v, ("tokens", "heads", "dim"))
    rule = _rule(q, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic)
    return_attn_probs = boolean("return_attn_probs", return_attn_probs)
    if block_table is not None:
        raise InvalidArgumentError("block_table must be None: keys are not paged", field="block_table")
    sequences = Sequences(int_tensor("cu_seqlens_q", cu_seqlens_q), int_tensor("cu_seqlens_k", cu_seqlens_k),
                          None if seqused_q is None else int_tensor("seqused_q", seqused_q),
                          None if seqused_k is None else int_tensor("seqused_k", seqused_k))
    out, lse = attend_sequences(q, k, v, sequences, rule, client)
    return (out, lse.transpose(0, 1).contiguous(), None) if return_attn_probs else out


def flash_attn_varlen_qkvpacked_func(qkv: Any, cu_seqlens: Any, max_seqlen: int, dropout_p: Optional[float] = 0.0,
                                     softmax_scale: Optional[float] = None, causal: bool = False,
                                     window_size: WindowSize = (-1, -1), softcap: Optional[float] = 0.0,
                                     alibi_slopes: Any = None, deterministic: bool = False,
                                     return_attn_probs: bool = False, *, client: Optional[Client] = None) -> Any:
    """flash_attn_varlen_func of qkv [all tokens, 3, heads, head_dim]."""
    q, k, v = _unpacked("qkv", qkv, 4, 3)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal,
                                  window_size, softcap, alibi_slopes, deterministic, return_attn_probs, client=client)


def flash_attn_varlen_kvpacked_func(q: Any, kv: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int,
                                    max_seqlen_k: int, dropout_p: Optional[float] = 0.0,
                                    softmax_scale: Optional[float] = None, causal: bool = False,
                                    window_size: WindowSize = (-1, -1), softcap: Optional[float] = 0.0,
                                    alibi_slopes: Any = None, deterministic: bool = False,
                                    return_attn_probs: bool = False, *, client: Optional[Client] = None) -> Any:
    """flash_attn_varlen_func of kv [all keys, 2, kv_heads, head_dim]."""
    k, v = _unpacked("kv", kv, 4, 2)
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale,
                                  causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs, client=client)


def flash_attn_with_kvcache(q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, rotary_cos: Any = None,
                            rotary_sin: Any = None, cache_seqlens: Any = None, cache_batch_idx: Any = None,
                            cache_leftpad: Any = None, block_table: Any = None, softmax_scale: Optional[float] = None,
                            causal: bool = False, window_size: WindowSize = (-1, -1), softcap: Optional[float] = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: Any = None, num_splits: int = 0,
                            return_softmax_lse: bool = False, *, client: Optional[Client] = None) -> Any:
    """Computes attention over the filled part of a cache, after new keys are written to it.

    Args:
        q: torch tensor [batch, queries, heads, head_dim].
        k_cache, v_cache: [rows, capacity, kv_heads, head_dim].
        k, v: None, or [batch, new, kv_heads, head_dim], which are written to the cache, after its filled part.
        rotary_cos, rotary_sin: None, or [positions, rotary_dim / 2]. A key has the position of its place in the cache.
            Queries have the positions of new keys with a causal mask or a window, and the first of them without.
        cache_seqlens: an integer or integers [batch], the filled part before the call; None: all.
        cache_batch_idx: integers [batch], the cache's row of each sequence; None: in order.
        cache_leftpad: integers [batch], the first keys of the cache's row that are not used; None: 0.
        block_table: must be None.
        rotary_interleaved: whether pairs are neighbours, instead of lying half of rotary_dim apart.
        num_splits: ignored.
        others: see flash_attn_func.

    Returns:
        out [batch, queries, heads, head_dim]; with return_softmax_lse (out, lse float32 [batch, heads, queries]).
    """
    check_tensors(q, k_cache, v_cache, ("batch", "tokens", "heads", "dim"), ("q", "k_cache", "v_cache"))
    rule = _rule(q, 0.0, softmax_scale, causal, window_size, softcap, alibi_slopes, False)
    return_softmax_lse = boolean("return_softmax_lse", return_softmax_lse)
    if block_table is not None:
        raise InvalidArgumentError("block_table must be None: keys are not paged", field="block_table")
    cache = Cache(k_cache, v_cache, q.shape[0], cache_seqlens, cache_batch_idx, cache_leftpad)
    if k is not None or v is not None:
        cache.check_new(k, v)
    if rotary_cos is not None or rotary_sin is not None:
        along = rule.causal or any(side is not None and side < k_cache.shape[1] for side in rule.window)
        q, k = cache.rotated(q, k, rotary_cos, rotary_sin, boolean("rotary_interleaved", rotary_interleaved), along)
    if k is not None:
        cache.append(k, v)
    keys, values = cache.rows()
    out, lse = attend_batch(q, keys, values, rule, client, cache.filled, cache.leftpad)
    return (out, lse) if return_softmax_lse else out


def _unpacked(name: str, packed: Any, axes: int, count: int) -> Tuple[Any, ...]:
    shape = tuple(getattr(packed, "shape", ()))
    if len(shape) != axes or shape[-3] != count:
        raise InvalidArgumentError(f"{name} has shape {shape}, must have {axes} axes with {count} tensors along the last but "
                                   "two", field=name)
    return tuple(packed.unbind(-3))


def _rule(q: Any, dropout_p: Any, scale: Optional[float], causal: bool, window_size: Any, softcap: Any, slopes: Any,
          deterministic: bool) -> Rule:
    if dropout_p is not None and not (isinstance(dropout_p, Real) and dropout_p == 0):
        raise InvalidArgumentError(f"dropout_p is {dropout_p!r:.80}, must be 0 or None: the service does not compute it",
                                   field="dropout_p")
    boolean("deterministic", deterministic)
    causal = boolean("causal", causal)
    left, right = _window(window_size)
    if causal or right == 0:
        causal, right = True, None
    capped = softcap is not None and not (isinstance(softcap, Real) and softcap == 0)
    if slopes is not None and (getattr(slopes, "ndim", 0) not in (1, 2) or slopes.shape[-1] != q.shape[-2]):
        raise InvalidArgumentError(f"alibi_slopes has shape {tuple(getattr(slopes, 'shape', ()))}, must be [heads] or "
                                   f"[batch, heads], with {q.shape[-2]} heads", field="alibi_slopes")
    return Rule(causal, (left, right), scale, number("softcap", softcap) if capped else None, slopes=slopes)


def _window(window_size: Any) -> Tuple[Optional[int], Optional[int]]:
    if window_size is None:
        return None, None
    if isinstance(window_size, (list, tuple)):
        window_size = [-1 if side is None else side for side in window_size]
    sides = integers("window_size", window_size)
    if len(sides) != 2 or min(sides) < -1:
        raise InvalidArgumentError(f"window_size is {window_size}, must be two numbers of keys or -1", field="window_size")
    left, right = (None if side == -1 else side for side in sides)
    return left, right

"""Attention with the signature of torch.nn.functional.scaled_dot_product_attention, computed by the service."""
from typing import Any, Optional

from hilbert_ring._masked import attend_masked
from hilbert_ring._model_tensors import check_tensors
from hilbert_ring._packed import Rule
from hilbert_ring._spec import boolean
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError


def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False, *,
                                 client: Optional[Client] = None) -> Any:
    """Computes attention within each sequence of a batch.

    Args:
        query: torch tensor [..., heads, queries, head_dim]; the heads of 3 axes may be a batch.
        key, value: [..., kv_heads, keys, head_dim].
        attn_mask: None, or a mask that expands to [..., heads, queries, keys]: bool, True if a query sees a key, or
            numbers that are added to scores. It must be causal, a window, padding, or sequences one after the other.
        dropout_p: must be 0.
        is_causal: query i sees keys up to i, aligned to the top left.
        scale: None: 1 / sqrt(head_dim).
        enable_gqa: whether heads may be a multiple of kv_heads.
        client: None: the client of hilbert_ring.use, or a new one connected to HILBERT_RING_SERVER.

    Returns:
        out [..., heads, queries, value_dim].

    Raises:
        InvalidArgumentError: the service does not compute an argument, or shapes do not agree.
    """
    if dropout_p != 0:
        raise InvalidArgumentError(f"dropout_p is {dropout_p}, must be 0", field="dropout_p")
    is_causal = boolean("is_causal", is_causal)
    if is_causal and attn_mask is not None:
        raise InvalidArgumentError("attn_mask is set, must be None with is_causal", field="attn_mask")
    axes = getattr(query, "ndim", 0)
    if axes < 3:
        raise InvalidArgumentError("query must have at least the axes batch, tokens and dim", field="query")
    outer = query.shape[:-3]
    q, k, v = (_of_4_axes(tensor) if getattr(tensor, "ndim", 0) == axes else tensor for tensor in (query, key, value))
    check_tensors(q, k, v, ("batch", "heads", "tokens", "dim"), ("query", "key", "value"))
    if key.shape[:-3] != outer or not boolean("enable_gqa", enable_gqa) and key.shape[-3] != query.shape[-3]:
        raise InvalidArgumentError(f"key has shape {tuple(key.shape)}, must have the outer axes of query, "
                                   f"{tuple(query.shape)}, and its heads without enable_gqa", field="key")
    mask = None if attn_mask is None else _expanded(attn_mask, axes, outer)
    if axes == 3 and mask is not None and mask.shape[1] > 1 and k.shape[1] == q.shape[1]:  # a batch
        q, k, v, mask = (tensor.transpose(0, 1) for tensor in (q, k, v, mask))
    if is_causal:  # no query sees a key after the last query's position
        k, v = k[:, :, :q.shape[2]], v[:, :, :q.shape[2]]
    rule = Rule(is_causal, scale=scale, align="start" if is_causal else "end")
    out = attend_masked(q, k, v, mask, rule, client, "attn_mask")
    return out.transpose(1, 2).reshape(*query.shape[:-1], value.shape[-1])


def _of_4_axes(tensor: Any) -> Any:
    return tensor.flatten(0, -4) if tensor.ndim > 4 else tensor.reshape(*[1] * (4 - tensor.ndim), *tensor.shape)


def _expanded(mask: Any, axes: int, outer: Any) -> Any:
    """Returns the mask with 4 axes: the outer ones as one, heads, queries, keys."""
    if not 2 <= getattr(mask, "ndim", 0) <= axes:
        raise InvalidArgumentError(f"attn_mask has {getattr(mask, 'ndim', 0)} axes, must have 2 to {axes}", field="attn_mask")
    mask = mask.reshape(*[1] * (axes - mask.ndim), *mask.shape)
    if any(size not in (1, whole) for size, whole in zip(mask.shape, outer)):
        raise InvalidArgumentError(f"attn_mask has shape {tuple(mask.shape)}, must expand to the outer axes of query, "
                                   f"{tuple(outer)}", field="attn_mask")
    return _of_4_axes(mask.expand(*outer, *mask.shape[-3:]))

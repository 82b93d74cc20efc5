"""Hugging Face transformers on the service.

    import hilbert_ring.transformers
    hilbert_ring.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="hilbert_ring")
    with torch.no_grad():
        model(tokens)

Causal and full attention, over padded batches too, whose tokens travel as packed sequences. Any
other mask is refused when it is made. Where a cache holds earlier keys, fewer queries than keys
are computed as if there were as many.
"""
from typing import Any, Callable, Optional, Tuple

from hilbert_ring._default_client import client_or_default
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError
from hilbert_ring.flash_attention import attend_packed

# Arguments of a model's that change what attention computes.
_REFUSED = ("softcap", "s_aux", "position_bias", "head_mask", "cu_seq_lens_q", "cu_seq_lens_k",
            "output_attentions")


def register(name: str = "hilbert_ring", client: Optional[Client] = None) -> None:
    """Makes attn_implementation=`name` work in transformers' models.

    Args:
        client: None: that of hilbert_ring.use, or one that is connected to HILBERT_RING_SERVER.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, _attention_by(client))
    AttentionMaskInterface.register(name, mask)


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
         mask_function: Optional[Callable[..., Any]] = None, attention_mask: Any = None,
         allow_is_causal_skip: bool = True, **_: Any) -> Any:
    """What a model is given as its mask: None, or where tokens are padding, bool [batch, keys].

    Raises:
        InvalidArgumentError: a mask that is neither causal nor full.
    """
    from transformers import masking_utils

    full = mask_function is masking_utils.bidirectional_mask_function
    if not full and mask_function is not masking_utils.causal_mask_function:
        raise _refused("mask_function", "a mask other than causal or full, such as a sliding "
                       "window or packed positions")
    if not full and not allow_is_causal_skip:
        raise _refused("allow_is_causal_skip", "a causal mask that the model changes")
    if kv_offset != 0 or (not full and int(q_offset) + q_length != kv_length):
        raise _refused("past_key_values", "a cache whose keys do not end with the queries' (static "
                       "or sliding)")
    if attention_mask is None or bool(attention_mask.all()):
        return None
    if attention_mask.shape[-1] != kv_length:
        raise _refused("attention_mask", f"{attention_mask.shape[-1]} tokens of {kv_length} keys")
    return attention_mask.bool()


def _attention_by(client: Optional[Client]) -> Callable[..., Tuple[Any, None]]:
    def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any,
                  scaling: Optional[float] = None, dropout: float = 0.0,
                  is_causal: Optional[bool] = None, **more: Any) -> Tuple[Any, None]:
        """[batch, heads, tokens, dim] in, kv heads not repeated; [batch, tokens, heads, dim] out.
        """
        _check(dropout, attention_mask, key.shape[2], more)
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
        if attention_mask is None:
            out = _unpadded(q, k, v, scaling, causal, client_or_default(client))
        else:
            out = _padded(q, k, v, attention_mask, scaling, causal, client_or_default(client))
        return out, None
    return attention


def _unpadded(q: Any, k: Any, v: Any, scale: Optional[float], causal: bool, client: Client) -> Any:
    batch, queries = q.shape[:2]
    out, _ = attend_packed(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), [queries] * batch,
                           [k.shape[1]] * batch, scale, causal, client)
    return out.unflatten(0, (batch, queries))


def _padded(q: Any, k: Any, v: Any, seen: Any, scale: Optional[float], causal: bool,
            client: Client) -> Any:
    """seen: bool [batch, keys]; rows of queries that are padding are 0."""
    import torch

    asking = seen[:, k.shape[1] - q.shape[1]:]  # the queries are the last of the keys' tokens
    out = torch.zeros((*q.shape[:3], v.shape[3]), dtype=q.dtype, device=q.device)
    out[asking], _ = attend_packed(q[asking], k[seen], v[seen], asking.sum(1).tolist(),
                                   seen.sum(1).tolist(), scale, causal, client)
    return out


def _check(dropout: float, attention_mask: Any, keys: int, more: Any) -> None:
    if dropout:
        raise _refused("dropout", f"dropout of {dropout}")
    if attention_mask is not None and attention_mask.ndim != 2:
        raise _refused("attention_mask", f"a mask of shape {tuple(attention_mask.shape)}")
    for field in _REFUSED:
        if more.get(field) is not None and more[field] is not False:
            raise _refused(field, field)
    window = more.get("sliding_window")
    if window is not None and keys > window:
        raise _refused("sliding_window", f"a window of {window} over {keys} keys")


def _refused(field: str, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{field}: the service does not compute {what}", field=field)

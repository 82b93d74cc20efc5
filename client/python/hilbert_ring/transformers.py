"""Runs the attention of Hugging Face transformers on the service.

    import hilbert_ring.transformers
    hilbert_ring.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="hilbert_ring")
    with torch.no_grad():
        model(tokens)

Attention may be causal, full or cross-attention; other masks are refused by name. A padded batch travels as packed
sequences without the keys of padding. With a causal mask the results of padding are 0. Fewer queries than keys are
padded to the number of keys; more queries are computed in blocks, each with all keys.
"""
from typing import Any, Callable, Optional, Tuple

from hilbert_ring._attention_mask import Seen, check_seen, seen_by
from hilbert_ring._model_tensors import check_tensors
from hilbert_ring._spec import boolean
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError
from hilbert_ring.flash_attention import attend_packed

# A model's arguments that change attention.
_REFUSED = ("softcap", "s_aux", "position_bias", "head_mask", "cu_seq_lens_q", "cu_seq_lens_k",
            "output_attentions")


def register(name: str = "hilbert_ring", client: Optional[Client] = None) -> None:
    """Makes attn_implementation=`name` work in transformers' models.

    Args:
        client: None: the client of hilbert_ring.use, or a new one connected to HILBERT_RING_SERVER.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(name, _attention_by(client))
    AttentionMaskInterface.register(name, mask)


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
         mask_function: Optional[Callable[..., Any]] = None, attention_mask: Any = None,
         allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = True,
         device: Any = "cpu", **_: Any) -> Any:
    """Makes a model's mask: a ModelMask, from which attention reads its kind.

    Raises:
        InvalidArgumentError: the mask is neither causal nor full.
    """
    import torch
    from transformers import masking_utils
    from hilbert_ring._model_mask import ModelMask

    full = mask_function is masking_utils.bidirectional_mask_function
    if not full and mask_function is not masking_utils.causal_mask_function:
        raise _refused("mask_function", "a mask other than causal or full, such as a sliding "
                       "window or packed positions")
    if not (allow_is_bidirectional_skip if full else allow_is_causal_skip):
        raise _refused("allow_is_bidirectional_skip" if full else "allow_is_causal_skip",
                       "a mask that the model changes")
    if kv_offset != 0 or (not full and int(q_offset) + q_length != kv_length):
        raise _refused("past_key_values", "a cache whose keys do not end with the queries' (static "
                       "or sliding)")
    if attention_mask is not None and tuple(attention_mask.shape) != (batch_size, kv_length):
        raise _refused("attention_mask", f"a mask of {tuple(attention_mask.shape)} for "
                       f"{batch_size} rows of {kv_length} keys")
    if attention_mask is None:
        attention_mask = torch.ones((batch_size, kv_length), dtype=torch.bool, device=device)
    return ModelMask.of(attention_mask.bool(), not full)


def _attention_by(client: Optional[Client]) -> Callable[..., Tuple[Any, None]]:
    def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any,
                  scaling: Optional[float] = None, dropout: float = 0.0,
                  is_causal: Optional[bool] = None, **more: Any) -> Tuple[Any, None]:
        """Takes [batch, heads, tokens, dim], kv heads not repeated; returns [batch, tokens, heads, dim]."""
        check_tensors(query, key, value, ("batch", "heads", "tokens", "dim"))
        _check(dropout, query, key, more)
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
        if attention_mask is None:
            seen, causal = None, _is_causal(module, is_causal, q.shape[1], k.shape[1])
        else:
            found = _seen_in(attention_mask, (*query.shape[:3], key.shape[2]))
            seen, causal = None if found.keys.all() else found.keys, found.causal
        return _attended(q, k, v, seen, scaling, causal, client), None
    return attention


def _is_causal(module: Any, given: Optional[bool], queries: int, keys: int) -> bool:
    """Returns whether attention without a mask is causal, by the call or by the module."""
    causal = getattr(module, "is_causal", None) if given is None else given
    if causal is None:
        raise InvalidArgumentError("is_causal is not set, must be True or False without "
                                   "attention_mask", field="is_causal")
    causal = boolean("is_causal", causal)
    if causal and queries > keys:
        raise _refused("is_causal", f"a causal mask for {queries} queries over {keys} keys")
    return causal


def _seen_in(attention_mask: Any, shape: Tuple[int, int, int, int]) -> Seen:
    from hilbert_ring._model_mask import ModelMask

    if isinstance(attention_mask, ModelMask):
        seen = Seen(attention_mask.causal, attention_mask.keys.cpu().numpy())
    else:
        given = attention_mask.detach().cpu()  # NumPy has no bfloat16
        seen = seen_by((given.float() if given.is_floating_point() else given).numpy(), shape)
    check_seen(seen, shape)
    return seen


def _attended(q: Any, k: Any, v: Any, seen: Any, scale: Optional[float], causal: bool,
              client: Optional[Client]) -> Any:
    """seen: bool [batch, keys], False if a key is padding; None: no key is padding."""
    import torch

    batch, queries = q.shape[:2]
    lengths_q, lengths_k = [queries] * batch, [k.shape[1]] * batch
    if seen is not None:
        lengths_k = seen.sum(1).tolist()
        chosen = torch.from_numpy(seen).to(k.device)
        k, v = k[chosen], v[chosen]
    else:
        k, v = k.flatten(0, 1), v.flatten(0, 1)
    if seen is None or not causal:
        out, _ = attend_packed(q.flatten(0, 1), k, v, lengths_q, lengths_k, scale, causal, client)
        return out.unflatten(0, (batch, queries))
    asking = seen[:, seen.shape[1] - queries:]  # the queries are the last of the keys' tokens
    chosen = torch.from_numpy(asking).to(q.device)
    out = torch.zeros((*q.shape[:3], v.shape[2]), dtype=q.dtype, device=q.device)
    out[chosen], _ = attend_packed(q[chosen], k, v, asking.sum(1).tolist(), lengths_k, scale, causal,
                                   client)
    return out


def _check(dropout: float, query: Any, key: Any, more: Any) -> None:
    if dropout:
        raise _refused("dropout", f"dropout of {dropout}")
    if key.shape[0] != query.shape[0]:
        raise _refused("key", f"keys of {key.shape[0]} rows for queries of {query.shape[0]}")
    for field in _REFUSED:
        if more.get(field) is not None and more[field] is not False:
            raise _refused(field, field)
    window = more.get("sliding_window")
    if window is not None and key.shape[2] > window:
        raise _refused("sliding_window", f"a window of {window} over {key.shape[2]} keys")


def _refused(field: str, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{field}: the service does not compute {what}", field=field)

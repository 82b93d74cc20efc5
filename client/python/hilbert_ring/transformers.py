"""Runs the attention of Hugging Face transformers on the service.

    import hilbert_ring.transformers
    hilbert_ring.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="hilbert_ring")
    with torch.no_grad():
        model(tokens)

Attention may be causal, full or cross-attention, with a window, a softcap, sinks, packed or chunked sequences, and any
cache; other masks are refused by name. A padded batch travels as packed sequences without the keys of padding. With a
causal mask or a window the results of padding are 0.
"""
from dataclasses import replace
from typing import Any, Callable, Optional, Sequence, Tuple

import numpy as np

from hilbert_ring._attention_mask import Seen, banded, every_query
from hilbert_ring._masked import attend_masked
from hilbert_ring._model_tensors import check_tensors, compiling
from hilbert_ring._packed import Pattern, Rule
from hilbert_ring._sequences import Sequences, attend_sequences, int_tensor
from hilbert_ring._spec import boolean, integer
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError
from hilbert_ring.ordering import Ordering

# A model's arguments that change attention.
_REFUSED = ("position_bias", "head_mask", "output_attentions", "cache", "indices", "block_indices", "sinks")


def register(name: str = "hilbert_ring", client: Optional[Client] = None, *, segments: Optional[Sequence[int]] = None,
             dilations: Optional[Sequence[int]] = None, mixing: str = "head_groups",
             ordering: Optional[Ordering] = None) -> None:
    """Makes attn_implementation=`name` work in transformers' models.

    Args:
        client: None: the client of hilbert_ring.use, or a new one connected to HILBERT_RING_SERVER.
        segments, dilations, mixing, ordering: of Client.attend, in all layers of the model. Layers with a window that
            hides keys are refused. The default of segments is the whole sequence.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    pattern = Pattern()
    if segments is not None:
        pattern = Pattern(segments=segments, dilations=dilations, mixing=mixing, ordering=ordering)
    elif (dilations, mixing, ordering) != (None, "head_groups", None):
        raise InvalidArgumentError("segments must be set with dilations, mixing and ordering", field="segments")
    AttentionInterface.register(name, _attention_by(client, pattern))
    AttentionMaskInterface.register(name, mask)


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
         mask_function: Optional[Callable[..., Any]] = None, attention_mask: Any = None, device: Any = "cpu",
         **_: Any) -> Any:
    """Makes a model's mask: a ModelMask, from which attention reads what each query sees.

    While torch.compile traces, it is transformers' own mask, a table of queries and keys.

    Raises:
        InvalidArgumentError: the service does not compute the mask.
    """
    from transformers import masking_utils

    function = masking_utils.causal_mask_function if mask_function is None else mask_function
    if compiling():
        if attention_mask is not None and function is not masking_utils.bidirectional_mask_function:
            padding = attention_mask
            function = masking_utils.and_masks(function, lambda batch, head, query, key: padding[batch, query])
        return masking_utils.sdpa_mask(
            batch_size, q_length, kv_length, q_offset, kv_offset, function, attention_mask, allow_is_causal_skip=False,
            allow_is_bidirectional_skip=False, device=device)
    from hilbert_ring._mask_function import read
    from hilbert_ring._model_mask import ModelMask

    keys = np.ones((batch_size, kv_length), np.bool_)
    if attention_mask is not None:
        if attention_mask.ndim != 2 or len(attention_mask) != batch_size:
            raise _refused("attention_mask", f"a mask of {tuple(attention_mask.shape)} for a batch of {batch_size}")
        given = attention_mask.bool().cpu().numpy()[:, kv_offset:kv_offset + kv_length]
        keys = np.pad(given, ((0, 0), (0, kv_length - given.shape[1])))
    found = read(function, np.broadcast_to(np.arange(kv_offset, kv_offset + kv_length), keys.shape))
    if found.causal or found.window != (None, None) or found.ids is not None:
        seen = banded(keys, q_length, int(q_offset) - kv_offset, found.causal, found.window, found.ids)
    else:
        seen = every_query(keys, q_length)
    return ModelMask.of(seen, device)


def _attention_by(client: Optional[Client], pattern: Pattern) -> Callable[..., Tuple[Any, None]]:
    def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: Optional[float] = None,
                  dropout: float = 0.0, is_causal: Optional[bool] = None, sliding_window: Optional[int] = None,
                  softcap: Optional[float] = None, s_aux: Any = None, cu_seq_lens_q: Any = None, cu_seq_lens_k: Any = None,
                  **more: Any) -> Tuple[Any, None]:
        """Takes [batch, heads, tokens, dim], kv heads not repeated; returns [batch, tokens, heads, dim].

        Without attention_mask the module is causal or full, and may have a sliding_window.
        """
        check_tensors(query, key, value, ("batch", "heads", "tokens", "dim"))
        if dropout:
            raise _refused("dropout", f"dropout of {dropout}")
        for field in _REFUSED:
            if more.get(field) is not None and more[field] is not False:
                raise _refused(field, field)
        rule = Rule(scale=scaling, softcap=softcap, sinks=s_aux, pattern=pattern)
        if attention_mask is None:
            rule = _without_mask(rule, module, is_causal, sliding_window, query.shape[2], key.shape[2])
        if cu_seq_lens_q is not None or cu_seq_lens_k is not None:
            return _packed(query, key, value, attention_mask, cu_seq_lens_q, cu_seq_lens_k, rule, client), None
        return attend_masked(query, key, value, attention_mask, rule, client), None
    return attention


def _without_mask(rule: Rule, module: Any, given: Optional[bool], sliding_window: Optional[int], queries: int,
                  keys: int) -> Rule:
    """Returns the rule with the causal mask of the call or the module, and its window."""
    causal = getattr(module, "is_causal", None) if given is None else given
    if causal is None:
        raise InvalidArgumentError("is_causal is not set, must be True or False without attention_mask", field="is_causal")
    causal = boolean("is_causal", causal)
    if causal and queries > keys:
        raise _refused("is_causal", f"a causal mask for {queries} queries over {keys} keys")
    if sliding_window is None or sliding_window >= max(queries, keys):
        return replace(rule, causal=causal)
    if not causal:  # models differ in what the number means
        raise _refused("sliding_window", f"a window of {sliding_window} over {keys} keys without attention_mask")
    return replace(rule, causal=True, window=(integer("sliding_window", sliding_window) - 1, None))


def _packed(query: Any, key: Any, value: Any, attention_mask: Any, ends_q: Any, ends_k: Any, rule: Rule,
            client: Optional[Client]) -> Any:
    """Computes one row of the batch that holds sequences."""
    if ends_q is None or ends_k is None or query.shape[0] != 1:
        raise _refused("cu_seq_lens_q", f"a batch of {query.shape[0]} with cu_seq_lens_q or cu_seq_lens_k: both, of one row")
    ends_q, ends_k = int_tensor("cu_seq_lens_q", ends_q), int_tensor("cu_seq_lens_k", ends_k)
    if attention_mask is not None:
        seen: Optional[Seen] = getattr(attention_mask, "seen", None)
        whole = seen is not None and seen.queries.all() and seen.keys.all()
        if seen is None or not whole or len(seen.lengths_k) > 1 and seen.lengths_k.tolist() != ends_k.diff().tolist():
            raise _refused("cu_seq_lens_q", "a mask of padding or of other sequences with cu_seq_lens_q")
        rule = replace(rule, causal=seen.causal, window=seen.window)
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return attend_sequences(q, k, v, Sequences(ends_q, ends_k), rule, client)[0][None]


def _refused(field: str, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{field}: the service does not compute {what}", field=field)

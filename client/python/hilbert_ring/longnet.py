"""The dilated attention of LongNet's encoders as one job for all branches.

    out = hilbert_ring.longnet.dilated_attention(q, k, v, [1024, 5792], [1, 2])

computes the core of a LongNet-style encoder between its projections: every head runs every (segment length, dilated
ratio), zero keys fill up short segments, and softmax denominators mix the branches.
"""
from typing import Any, Optional, Sequence

from hilbert_ring._model_tensors import attend, check_tensors
from hilbert_ring._spec import boolean, integers
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError


def dilated_attention(q: Any, k: Any, v: Any, segment_length: Sequence[int],
                      dilated_ratio: Sequence[int], *, is_causal: bool = False,
                      scale: Optional[float] = None, client: Optional[Client] = None) -> Any:
    """Computes dilated attention within each sequence of a batch.

    Args:
        q, k, v: torch tensors [batch, tokens, heads, head_dim].
        segment_length: tokens of a segment, for each branch.
        dilated_ratio: dilation of each branch.
        is_causal: whether a query sees only keys of its own and earlier tokens.
        scale: None: 1 / sqrt(head_dim).
        client: None: the client of hilbert_ring.use, or a new one connected to HILBERT_RING_SERVER.

    Returns:
        out [batch, tokens, heads, head_dim].
    """
    check_tensors(q, k, v, ("batch", "tokens", "heads", "dim"))
    if k.shape[:3] != q.shape[:3]:
        raise InvalidArgumentError(f"k has batch, tokens, heads {tuple(k.shape[:3])}, must be {tuple(q.shape[:3])}, "
                                   "those of q", field="k")
    batch, tokens = q.shape[:2]
    out, _ = attend(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), client, segments=integers("segment_length", segment_length),
        dilations=integers("dilated_ratio", dilated_ratio), mixing="lse", causal=boolean("is_causal", is_causal),
        scale=scale, tail="zero", sequence_lengths=[tokens] * batch if batch > 1 else None, lse=False)
    return out.unflatten(0, (batch, tokens))

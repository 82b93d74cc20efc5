"""The dilated attention of LongNet's encoders, as one job for all branches.

    out = hilbert_ring.longnet.dilated_attention(q, k, v, [1024, 5792], [1, 2])

computes what the core of a LongNet-style encoder does between its projections: every head runs
every (segment length, dilated ratio), zero keys make up short segments, and the branches are mixed
by their softmax denominators.
"""
from typing import Any, Optional, Sequence

from hilbert_ring._default_client import client_or_default
from hilbert_ring._spec import boolean, integers
from hilbert_ring._torch_streams import torch_if_loaded
from hilbert_ring.client import Client
from hilbert_ring.errors import InvalidArgumentError


def dilated_attention(q: Any, k: Any, v: Any, segment_length: Sequence[int],
                      dilated_ratio: Sequence[int], *, is_causal: bool = False,
                      scale: Optional[float] = None, client: Optional[Client] = None) -> Any:
    """Dilated attention within each sequence of a batch.

    Args:
        q, k, v: torch tensors [batch, tokens, heads, head_dim].
        segment_length: tokens; one a branch.
        dilated_ratio: one a branch.
        scale: None: 1 / sqrt(head_dim).
        client: None: that of hilbert_ring.use, or one that is connected to HILBERT_RING_SERVER.

    Returns:
        out [batch, tokens, heads, head_dim].
    """
    torch = torch_if_loaded()
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if torch is None or not isinstance(tensor, torch.Tensor) or tensor.ndim != 4:
            shape = tuple(getattr(tensor, "shape", ()))
            raise InvalidArgumentError(f"{name} is a {type(tensor).__name__} of shape {shape}, must be a torch tensor "
                                       "[batch, tokens, heads, head_dim]", field=name)
    if not q.shape[:3] == k.shape[:3] == v.shape[:3]:
        raise InvalidArgumentError(
            f"q, k and v have shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}, "
            "expected the same batch, tokens and heads", field="k")
    batch, tokens = q.shape[:2]
    result = client_or_default(client).attend(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), segments=integers("segment_length", segment_length),
        dilations=integers("dilated_ratio", dilated_ratio), mixing="lse", causal=boolean("is_causal", is_causal),
        scale=scale, tail="zero", sequence_lengths=[tokens] * batch if batch > 1 else None,
        lse=False, progress=False)
    return result.out.unflatten(0, (batch, tokens))

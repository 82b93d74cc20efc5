"""The mask that a transformers model gets from `hilbert_ring.transformers.mask`."""
from typing import Any

import torch

from hilbert_ring._attention_mask import Seen
from hilbert_ring.errors import InvalidArgumentError

# Functions that do not look at the mask's numbers.
_ALLOWED = frozenset((torch.Tensor.size, torch.Tensor.dim, *(
    getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim"))))
# Functions that return the mask itself, whatever device or type they name: its numbers are not read.
_SAME = frozenset((torch.Tensor.to, torch.Tensor.contiguous, torch.Tensor.clone, torch.Tensor.detach))


class ModelMask(torch.Tensor):
    """A mask of shape [batch, 1, 1, keys], which a model must pass to attention unchanged.

    A model that computes attention itself adds the mask to scores, or changes it. Such functions raise an error.

    Attributes:
        seen: what the queries see.
    """

    seen: Seen

    @classmethod
    def of(cls, seen: Seen, device: Any) -> "ModelMask":
        mask = torch.from_numpy(seen.keys).to(device)[:, None, None].as_subclass(cls)
        mask.seen = seen
        return mask

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _ALLOWED:
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        if func in _SAME:
            return args[0]
        raise InvalidArgumentError(
            f"attention_mask is used by the model ({getattr(func, '__name__', func)}), must reach attention "
            "unchanged: the model does not compute it by transformers' AttentionInterface",
            field="attention_mask")

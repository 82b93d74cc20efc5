"""The mask that a transformers model gets from `hilbert_ring.transformers.mask`."""
from typing import Any

import torch

from hilbert_ring.errors import InvalidArgumentError

# Functions that do not look at the mask's numbers.
_ALLOWED = frozenset((torch.Tensor.size, torch.Tensor.dim, *(
    getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim"))))


class ModelMask(torch.Tensor):
    """A mask of shape [batch, 1, 1, keys], which a model must pass to attention unchanged.

    A model that computes attention itself adds the mask to scores, or changes it. Such functions raise an error.

    Attributes:
        causal: whether a query sees keys up to its own token alone.
        keys: bool [batch, keys], False if a key is padding.
    """

    causal: bool
    keys: torch.Tensor

    @classmethod
    def of(cls, keys: torch.Tensor, causal: bool) -> "ModelMask":
        mask = keys[:, None, None].as_subclass(cls)
        mask.causal, mask.keys = causal, keys
        return mask

    def to(self, *arguments: Any, **more: Any) -> "ModelMask":
        return ModelMask.of(self.keys.to(*arguments, **more), self.causal)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _ALLOWED:
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        raise InvalidArgumentError(
            f"attention_mask is used by the model ({getattr(func, '__name__', func)}), must reach attention "
            "unchanged: the model does not compute it by transformers' AttentionInterface",
            field="attention_mask")

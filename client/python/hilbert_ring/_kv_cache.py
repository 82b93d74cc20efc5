"""The cache of flash_attn_with_kvcache."""
from typing import Any, Tuple

from hilbert_ring._model_tensors import check_tensors, compiling
from hilbert_ring._sequences import int_tensor
from hilbert_ring.errors import InvalidArgumentError


class Cache:
    """Keys and values [rows, capacity, kv_heads, head_dim], and the part of each row that is filled."""

    def __init__(self, k: Any, v: Any, batch: int, seqlens: Any, batch_idx: Any, leftpad: Any) -> None:
        """seqlens, batch_idx, leftpad: as of flash_attn_with_kvcache."""
        import torch

        self._k, self._v, self._batch, self._counted = k, v, batch, seqlens is not None
        if seqlens is None:
            seqlens = k.shape[1]
        if isinstance(seqlens, int):
            seqlens = torch.full((batch,), seqlens)
        self.filled = self._numbers("cache_seqlens", seqlens, k.shape[1])
        self._row = None if batch_idx is None else self._numbers("cache_batch_idx", batch_idx, k.shape[0] - 1)
        self.leftpad = None if leftpad is None else self._numbers("cache_leftpad", leftpad, self.filled)

    def rows(self) -> Tuple[Any, Any]:
        """Returns the keys and values of each sequence of the batch."""
        return (self._k, self._v) if self._row is None else (self._k[self._row], self._v[self._row])

    def check_new(self, k: Any, v: Any) -> None:
        check_tensors(k, k, v, ("batch", "tokens", "heads", "dim"), ("k", "k", "v"))
        if not self._counted:
            raise InvalidArgumentError("cache_seqlens must be set with k and v", field="cache_seqlens")
        for name, new, cache in (("k", k, self._k), ("v", v, self._v)):
            if new.dtype != cache.dtype or new.shape[0] != self._batch or new.shape[2:] != cache.shape[2:]:
                raise InvalidArgumentError(
                    f"{name} is {new.dtype} {tuple(new.shape)}, must be {cache.dtype} and fit {name}_cache "
                    f"{tuple(cache.shape)} and a batch of {self._batch}", field=name)

    def append(self, k: Any, v: Any) -> None:
        """Writes new keys and values behind the filled part, in place."""
        import torch

        rows = torch.arange(self._batch, device=k.device) if self._row is None else self._row
        self.filled = self._numbers("cache_seqlens", self.filled + k.shape[1], self._k.shape[1])
        places = self._new_positions(k.shape[1]) - k.shape[1]
        self._k[rows[:, None], places], self._v[rows[:, None], places] = k, v

    def rotated(self, q: Any, k: Any, cos: Any, sin: Any, interleaved: bool, along: bool) -> Tuple[Any, Any]:
        """Returns q and k with rotary embeddings. along: queries have positions of their own."""
        if k is None or cos is None or sin is None:
            raise InvalidArgumentError("rotary_cos, rotary_sin and k must be set together", field="rotary_cos")
        if cos.shape != sin.shape or cos.ndim != 2 or 2 * cos.shape[1] > q.shape[-1]:
            raise InvalidArgumentError(f"rotary_cos has shape {tuple(cos.shape)}, rotary_sin {tuple(sin.shape)}, must be "
                                       f"[positions, at most {q.shape[-1] // 2}]", field="rotary_cos")
        new = max(k.shape[1], q.shape[1] if along else 1)
        if not compiling() and int(self.filled.max()) + new > cos.shape[0]:
            raise InvalidArgumentError(f"rotary_cos has {cos.shape[0]} positions, must have {int(self.filled.max()) + new}",
                                       field="rotary_cos")
        at_q = self._new_positions(q.shape[1] if along else 1)
        return (_rotate(q, cos[at_q], sin[at_q], interleaved),
                _rotate(k, cos[self._new_positions(k.shape[1])], sin[self._new_positions(k.shape[1])], interleaved))

    def _new_positions(self, count: int) -> Any:
        import torch

        return self.filled[:, None] + torch.arange(count, device=self._k.device)

    def _numbers(self, field: str, values: Any, most: Any) -> Any:
        values = int_tensor(field, values).to(self._k.device)
        if tuple(values.shape) != (self._batch,):
            raise InvalidArgumentError(f"{field} has {len(values)} entries, must have {self._batch}, the batch", field=field)
        if compiling():  # the result comes from the check, so the check is before its use
            from hilbert_ring._torch_ops import checked
            return checked(values, values.new_zeros(self._batch) + most, field)
        check_range(field, values, most)
        return values


def check_range(field: str, values: Any, most: Any) -> None:
    """values: integers. most: an integer, or integers beside the values."""
    if ((values < 0) | (values > most)).any():
        raise InvalidArgumentError(f"{field} is {values.tolist()}, must be 0 to "
                                   f"{most if isinstance(most, int) else most.tolist()}", field=field)


def _rotate(x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """Turns the first rotary_dim numbers of x [batch, tokens, heads, dim] in pairs. cos: [batch, tokens or 1, pairs]."""
    import torch

    cos, sin = cos[:, :, None].float(), sin[:, :, None].float()
    turned = 2 * cos.shape[-1]
    one, other = ((x[..., 0:turned:2], x[..., 1:turned:2]) if interleaved else
                  (x[..., :turned // 2], x[..., turned // 2:turned]))
    one, other = one.float(), other.float()
    pair = (one * cos - other * sin, one * sin + other * cos)
    made = torch.stack(pair, -1).flatten(-2, -1) if interleaved else torch.cat(pair, -1)
    return torch.cat((made.to(x.dtype), x[..., turned:]), -1)

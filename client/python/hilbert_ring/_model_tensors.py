"""Attention over a model's PyTorch tensors in functions that replace another library's, and their default client."""
import threading
from typing import Any, Optional, Sequence, Tuple

from hilbert_ring._spec import ELEMENT_BYTES
from hilbert_ring._torch_streams import torch_if_loaded
from hilbert_ring.client import Client, connect
from hilbert_ring.errors import InvalidArgumentError

_MOST_DIM = 256
_DIM_STEP = 8  # the service computes multiples of it
_lock = threading.Lock()
_client: Optional[Client] = None


def use(client: Optional[Client]) -> None:
    """Sets the default client of functions that replace another library's.

    Args:
        client: None: the first call connects one with connect().
    """
    global _client
    with _lock:
        _client = client


def client_or_default(client: Optional[Client]) -> Any:
    """Returns the given client, or the default one, which is connected now if `use` has set none."""
    global _client
    if client is not None:
        return client
    with _lock:
        if _client is None:
            _client = connect()
        return _client


def compiling() -> bool:
    """Returns whether torch.compile traces the caller."""
    import torch

    return bool(torch.compiler.is_compiling())


def check_tensors(q: Any, k: Any, v: Any, axes: Sequence[str], names: Sequence[str] = ("q", "k", "v")) -> None:
    torch = torch_if_loaded()
    for name, tensor in zip(names, (q, k, v)):
        if torch is None or not isinstance(tensor, torch.Tensor):
            raise InvalidArgumentError(f"{name} is of type {type(tensor).__name__}, must be a torch.Tensor", field=name)
        if tensor.ndim != len(axes):
            raise InvalidArgumentError(f"{name} has shape {tuple(tensor.shape)}, must be [{', '.join(axes)}]", field=name)
        if str(tensor.dtype).replace("torch.", "") not in ELEMENT_BYTES:
            raise InvalidArgumentError(f"{name} is {tensor.dtype}, must be float32, bfloat16 or float16: model.float() "
                                       "converts a model", field=name)
        if tensor.dtype != q.dtype:
            raise InvalidArgumentError(f"{name} is {tensor.dtype}, must be {q.dtype}, as {names[0]}: model.to(dtype) without "
                                       "torch.autocast gives one type", field=name)
        if not 1 <= tensor.shape[-1] <= _MOST_DIM:
            raise InvalidArgumentError(f"{name} has head_dim {tensor.shape[-1]}, must be 1 to {_MOST_DIM}", field=name,
                                       limit=_MOST_DIM)
        if tensor.shape[axes.index("heads")] == 0:
            raise InvalidArgumentError(f"{name} has 0 heads, must have at least 1", field=name, limit=1)
    if k.shape[-1] != q.shape[-1]:
        raise InvalidArgumentError(f"{names[1]} has head_dim {k.shape[-1]}, must be {q.shape[-1]}, that of {names[0]}",
                                   field=names[1], limit=q.shape[-1])
    if v.shape[:-1] != k.shape[:-1]:
        raise InvalidArgumentError(f"{names[2]} has {', '.join(axes[:-1])} {tuple(v.shape[:-1])}, must be "
                                   f"{tuple(k.shape[:-1])}, those of {names[1]}", field=names[2])


def attend(q: Any, k: Any, v: Any, client: Optional[Client], *, scale: Optional[float], **options: Any) -> Tuple[Any, Any]:
    """Returns out and lse of Client.attend. Pads head_dim with zeros to a multiple of 8, which changes no score."""
    dim, value_dim = q.shape[-1], v.shape[-1]
    if scale is None and dim % _DIM_STEP:
        scale = dim**-0.5
    result = client_or_default(client).attend(*map(_padded, (q, k, v)), scale=scale, progress=False, **options)
    return result.out if value_dim % _DIM_STEP == 0 else result.out[..., :value_dim], result.lse


def _padded(tensor: Any) -> Any:
    missing = -tensor.shape[-1] % _DIM_STEP
    return torch_if_loaded().nn.functional.pad(tensor, (0, missing)) if missing else tensor

"""Tensors of any library as rows of bytes, and outputs of the same kind.

    q = read_tensor("q", array)                 # numpy, torch, DLPack, buffer, or sliceable
    q.rows(first, count)                        # bytes of those rows; copied if not contiguous
    out = q.like((tokens, heads, dim), q.dtype)  # an output of q's kind
    out.bytes[token] = ...                      # uint8 [tokens, bytes of a row]
    out.result()                                # the caller's array

Inputs are not copied as a whole: rows are read when they are sent.
"""
import math
import sys
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._files import python_map
from hilbert_ring._mapped_rows import blocks_of, rows_of, take_room
from hilbert_ring._spec import ELEMENT_BYTES, coordinate_values
from hilbert_ring._torch_streams import CallerStreams, streams_of_call, torch_if_loaded
from hilbert_ring.errors import InvalidArgumentError, OutOfRangeError

_NUMPY_NAMES = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}
_NATIVE: Dict["np.dtype[Any]", str] = {np.dtype(name): name for name in ("float32", "float16")}
_RAW: Dict[int, "np.dtype[Any]"] = {4: np.dtype("<u4"), 2: np.dtype("<u2")}
_COORDINATE_LIMIT = {2: 2**32 - 1, 3: 2**21 - 1}
_MOST_BIAS_COORDINATE = 2.0**60


@dataclass(frozen=True)
class Tensor:
    """A caller's input [rows, ...]."""

    name: str
    shape: Tuple[int, ...]
    dtype: str                                     # of the job: "float32", "bfloat16", "float16"
    read: Callable[[int, int], "NDArray[Any]"]     # gives rows [first, end), of any strides
    like: Callable[[Tuple[int, ...], str], "Output"]  # makes an output of this kind, of a shape and dtype

    def rows(self, first: int, count: int) -> memoryview:
        """Returns the bytes of rows first .. first + count - 1, little-endian."""
        part = self.read(first, first + count)
        return np.ascontiguousarray(part).reshape(-1).view(np.uint8).data


@dataclass(frozen=True)
class Output:
    """The bytes of an output, and the function that turns them into the caller's result."""

    bytes: "NDArray[np.uint8]"  # [rows, bytes of a row]
    result: Callable[[], Any]
    # Makes an output of the same kind over given bytes; None: the output is the caller's own array.
    over: Optional[Callable[["NDArray[np.uint8]"], "Output"]] = None

    @property
    def nbytes(self) -> int:
        return self.bytes.nbytes


def refuse_masked(name: str, value: Any) -> None:
    """Raises InvalidArgumentError for a masked array of NumPy, because a job ignores masks."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidArgumentError(f"{name} is a masked array, and its mask would be lost: "
                                   "give its .filled(...) or its .data", field=name)


def read_tensor(name: str, value: Any, dtype: Optional[str] = None,
                streams: Optional[CallerStreams] = None) -> Tensor:
    """Reads a caller's q, k or v.

    Args:
        dtype: the job's type; an array of raw 16-bit numbers needs it.
        streams: CUDA streams that write the value; default: those current at the call.
    """
    torch = torch_if_loaded()
    if torch is not None and isinstance(value, torch.Tensor):
        return _read_torch(name, value, torch, streams or streams_of_call())
    refuse_masked(name, value)
    if isinstance(value, np.ndarray):
        return _read_numpy(name, value, dtype)
    if hasattr(value, "__dlpack__"):
        return _read_dlpack(name, value, dtype, streams or streams_of_call())
    try:
        view = memoryview(value)
    except TypeError:
        return _read_slices(name, value, dtype)
    return _read_numpy(name, np.asarray(view), dtype, finish=lambda result: result.data)


def is_in_memory(value: Any) -> bool:
    """Returns whether a value is a plain array of NumPy, or a tensor of PyTorch."""
    torch = torch_if_loaded()
    return type(value) is np.ndarray or torch is not None and type(value) is torch.Tensor


def plain_rows(value: Any) -> Optional[Callable[[int, int], memoryview]]:
    """Returns Tensor.rows of a plain array of a known type in memory; None: it needs read_tensor."""
    if type(value) is not np.ndarray or value.dtype not in _NATIVE or sys.byteorder == "big" or python_map(value):
        return None
    return lambda first, count: np.ascontiguousarray(value[first:first + count]).reshape(-1).view(np.uint8).data


def _type_of(name: str, found: "np.dtype[Any]", given: Optional[str]) -> str:
    native = _NATIVE.get(found)  # dtype.name takes longer than all other checks
    if native is not None and (given is None or given == native):
        return native
    if found.names is not None or found.subdtype is not None:  # such an element is several numbers
        raise InvalidArgumentError(f"{name} has dtype {found}, must be a type without fields", field=name)
    if found.name in _NUMPY_NAMES and (given is None or given == found.name):
        return found.name
    raw = found.itemsize == 2 and found.type in (np.void, np.uint16, np.int16)
    if raw and (given == "bfloat16" or (given is None and found.kind == "V")):
        return "bfloat16"
    if given is not None:
        raise InvalidArgumentError(f"{name} has dtype {found}, the job's is {given}", field=name)
    hint = "; if these are bits of bfloat16, say dtype=\"bfloat16\"" if raw else ""
    raise InvalidArgumentError(
        f"{name} has dtype {found}, expected float32, bfloat16 or float16{hint}", field=name)


def _little(array: "NDArray[Any]", dtype: str) -> "NDArray[Any]":
    """Returns the numbers as raw little-endian words."""
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
        array = array.astype(array.dtype.newbyteorder("<"))
    words: "NDArray[Any]" = array.view(_RAW[ELEMENT_BYTES[dtype]])
    return words


def _read_numpy(name: str, array: "NDArray[Any]", given: Optional[str],
                finish: Callable[["NDArray[Any]"], Any] = lambda array: array) -> Tensor:
    dtype = _type_of(name, array.dtype, given)
    read = rows_of(name, array)
    return Tensor(name, array.shape, dtype,
                  lambda first, end: _little(read(first, end), dtype),
                  _like_numpy(array.dtype, dtype, finish))


def _like_numpy(found: "np.dtype[Any]", dtype: str,
                finish: Callable[["NDArray[Any]"], Any]) -> Callable[[Tuple[int, ...], str], Output]:
    """Returns `like` of an input of type `found`. Outputs have this machine's byte order.

    dtype: the job's name of `found`.
    """
    own = found.newbyteorder("=")
    return lambda shape, wanted: _new_numpy_output(shape, own if wanted == dtype else np.dtype(wanted), finish)


def _new_numpy_output(shape: Tuple[int, ...], dtype: "np.dtype[Any]",
                      finish: Callable[["NDArray[Any]"], Any]) -> Output:
    def over(data: "NDArray[np.uint8]") -> Output:
        return _numpy_output(np.ndarray(shape, dtype, data.data), finish)

    return _numpy_output(np.empty(shape, dtype), finish, over)


def _numpy_output(array: "NDArray[Any]", finish: Callable[["NDArray[Any]"], Any],
                  over: Optional[Callable[["NDArray[np.uint8]"], Output]] = None) -> Output:
    rows = array.shape[0]
    row_bytes = array.itemsize * math.prod(array.shape[1:])
    # asarray makes a plain array of a memory map. Its bytes stay those of the file.
    raw = np.asarray(array).reshape(-1).view(np.uint8).reshape(rows, row_bytes)
    return Output(raw, lambda: finish(array), over)


def _read_slices(name: str, value: Any, given: Optional[str]) -> Tensor:
    """Reads an array by slices, such as a dataset of an HDF5 file."""
    if not all(hasattr(value, needed) for needed in ("shape", "dtype", "__getitem__")):
        raise InvalidArgumentError(
            f"{name} is of type {type(value).__name__}, expected an array or a tensor", field=name)
    found = np.dtype(value.dtype)
    dtype = _type_of(name, found, given)

    def read(first: int, end: int) -> "NDArray[Any]":
        part = value[first:end]
        if np.ma.is_masked(part):  # datasets may give masked arrays without masked values
            raise InvalidArgumentError(f"{name} has masked values in rows {first} to {end - 1}, "
                                       "and their mask would be lost", field=name)
        return _little(np.asarray(part), dtype)

    return Tensor(name, tuple(value.shape), dtype, read,
                  _like_numpy(found, dtype, lambda array: array))


def _read_dlpack(name: str, value: Any, given: Optional[str], streams: CallerStreams) -> Tensor:
    """Reads a tensor by NumPy if NumPy has the type and reaches the memory, else by PyTorch.

    Without PyTorch, the tensor's own library converts it to NumPy, and may know bfloat16.
    """
    def of_kind(make: str, result: Any) -> Any:
        if hasattr(value, "__array_namespace__"):
            return getattr(value.__array_namespace__(), make)(result)
        return result

    finish = partial(of_kind, "from_dlpack")
    try:
        return _read_numpy(name, np.from_dlpack(value), given, finish)
    except InvalidArgumentError:
        raise
    except Exception as error:  # libraries raise different types
        reason = error
    try:
        torch: Any = import_module("torch")
    except ImportError:
        array = _array_of(value)
        if array is not None:
            return _read_numpy(name, array, given, partial(of_kind, "asarray"))
        raise InvalidArgumentError(f"{name}: NumPy does not take this DLPack tensor ({reason}), "
                                   "and PyTorch is not installed", field=name) from reason
    with streams.current():  # from_dlpack makes the current stream wait for the stream of the tensor's library
        tensor = torch.from_dlpack(value)
    return _read_torch(name, tensor, torch, streams, finish)


def _array_of(value: Any) -> "Optional[NDArray[Any]]":
    """Returns the library's own conversion to NumPy; None: it has no such conversion."""
    if not hasattr(value, "__array__"):
        return None
    try:
        return np.asarray(value)
    except Exception:  # libraries raise different types
        return None


def _read_torch(name: str, tensor: Any, torch: Any, streams: CallerStreams,
                finish: Callable[[Any], Any] = lambda tensor: tensor) -> Tensor:
    dtype = str(tensor.dtype).replace("torch.", "")
    if dtype not in ELEMENT_BYTES:
        raise InvalidArgumentError(
            f"{name} has dtype {tensor.dtype}, expected float32, bfloat16 or float16", field=name)
    if tensor.requires_grad and torch.is_grad_enabled():
        raise InvalidArgumentError(
            f"{name} requires a gradient, and there are no backward passes: "
            "call under torch.no_grad(), or detach it", field=name)
    words = tensor.detach().view({4: torch.int32, 2: torch.int16}[ELEMENT_BYTES[dtype]])
    await_rows = streams.written(tensor)

    def read(first: int, end: int) -> "NDArray[Any]":
        await_rows()
        array: "NDArray[Any]" = words[first:end].cpu().numpy()
        return array

    def placed(out: Any) -> Any:
        with streams.placing(tensor.device):  # the caller's later work on this stream comes after the copy
            return finish(out.to(tensor.device))

    def like(shape: Tuple[int, ...], wanted: str) -> Output:
        kind = getattr(torch, wanted)

        def output(made: Any) -> Output:
            return _torch_output(made, torch, placed)

        return replace(output(torch.empty(shape, dtype=kind)), over=lambda data: output(
            torch.frombuffer(data.data, dtype=kind).reshape(shape)))

    return Tensor(name, tuple(tensor.shape), dtype, read, like)


def _torch_output(tensor: Any, torch: Any, finish: Callable[[Any], Any]) -> Output:
    words = tensor.view({4: torch.int32, 2: torch.int16}[tensor.element_size()])
    return _numpy_output(words.numpy(), lambda _: finish(tensor))


def given_output(name: str, value: Any, shape: Sequence[int], dtype: str) -> Output:
    """Checks a caller's own array or tensor for an output."""
    refuse_masked(name, value)
    torch = torch_if_loaded()
    array: Optional["NDArray[Any]"] = None
    if torch is not None and isinstance(value, torch.Tensor):
        given, found, fits = value.shape, str(value.dtype).replace("torch.", ""), value.is_contiguous()
        if value.device.type != "cpu":
            raise InvalidArgumentError(f"{name} is on {value.device}, expected the CPU", field=name)
    else:
        try:
            array = value if isinstance(value, np.ndarray) else np.asarray(memoryview(value))
        except TypeError:
            raise InvalidArgumentError(f"{name} is of type {type(value).__name__}, must be a path or a writable array",
                                       field=name) from None
        given = array.shape
        found = _type_of(name, array.dtype, dtype if array.dtype.name not in _NUMPY_NAMES else None)
        fits = array.flags.c_contiguous and array.flags.writeable
        if not array.dtype.isnative:
            raise InvalidArgumentError(f"{name} has dtype {array.dtype}, must be in this machine's byte order",
                                       field=name)
    if tuple(given) != tuple(shape) or found != dtype:
        raise InvalidArgumentError(
            f"{name} is {found} {tuple(given)}, the job's is {dtype} {tuple(shape)}",
            field=name)
    if not fits:
        raise InvalidArgumentError(f"{name} must be writable and in C order", field=name)
    if array is None:
        return _torch_output(value.detach(), torch, lambda _: value)
    take_room(name, array)
    return _numpy_output(array, lambda _: value)


def read_coordinates(coords: Any, keys: int) -> Callable[[int, int], memoryview]:
    """Returns a function of first and count that gives the bytes of coordinates: uint32 [count, axes]."""
    refuse_masked("ordering.coords", coords)
    array = coordinate_values("ordering.coords", coords, "integers")
    if array.dtype.kind not in "iu":
        raise InvalidArgumentError(f"ordering.coords has dtype {array.dtype}, expected integers",
                                   field="ordering.coords")
    if array.ndim != 2 or array.shape[0] != keys:
        raise InvalidArgumentError(f"ordering.coords has shape {array.shape}, the job has "
                                   f"{keys} keys", field="ordering.coords")
    limit = _COORDINATE_LIMIT[array.shape[1]]
    read = rows_of("ordering.coords", array)
    for _, block in blocks_of(read, keys):
        for found in (block.min(), block.max()):
            if not 0 <= found <= limit:
                raise OutOfRangeError(
                    f"ordering.coords: coordinate {found} is outside [0, {limit}], the range with "
                    f"{array.shape[1]} axes", field="ordering.coords", limit=limit)
    return lambda first, count: (
        read(first, first + count).astype("<u4", order="C").reshape(-1).view(np.uint8).data)


def read_bias_coordinates(coords: Any, keys: int) -> Callable[[int, int], memoryview]:
    """Returns a function of first and count that gives the bytes of coordinates: float32 [count, axes]."""
    field = "bias_coords"
    refuse_masked(field, coords)
    array = coordinate_values(field, coords, "float32")
    if array.dtype.name != "float32":
        raise InvalidArgumentError(f"{field} has dtype {array.dtype}, must be float32", field=field)
    if array.ndim != 2 or array.shape[0] != keys:
        raise InvalidArgumentError(f"{field} has shape {array.shape}, the job has {keys} keys", field=field)
    read = rows_of(field, array)
    for first, block in blocks_of(read, keys):
        far = np.abs(block) > _MOST_BIAS_COORDINATE  # false for NaN
        if far.any():
            row, axis = np.argwhere(far)[0]
            raise OutOfRangeError(f"{field}[{first + row}][{axis}] is {block[row, axis]}, must be NaN or at most 2^60 in "
                                  "magnitude", field=field)
    return lambda first, count: (
        read(first, first + count).astype("<f4", order="C").reshape(-1).view(np.uint8).data)

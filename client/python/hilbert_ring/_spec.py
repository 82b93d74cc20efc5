"""Makes the proto's JobSpec of a call's arguments.

This module checks names and kinds of values, which the proto cannot express. The service checks the values' limits,
and refuses a job before the client sends any row.
"""
import operator
import sys
from numbers import Real
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._files import opened
from hilbert_ring.errors import InvalidArgumentError
from hilbert_ring.ordering import Ordering
from hilbert_ring.v1 import attention_pb2 as pb

_MIXINGS: Dict[str, Any] = {"head_groups": pb.MIXING_HEAD_GROUPS, "lse": pb.MIXING_LSE}
_ALIGNS: Dict[str, Any] = {"end": pb.ALIGN_END, "start": pb.ALIGN_START}
_TAILS: Dict[str, Any] = {"mask": pb.TAIL_MASK, "zero": pb.TAIL_ZERO}
_SCOPES: Dict[str, Any] = {"qkv": pb.ORDER_SCOPE_QKV, "kv": pb.ORDER_SCOPE_KV}
_CURVES: Dict[str, Any] = {"hilbert": pb.CURVE_HILBERT, "morton": pb.CURVE_MORTON,
                           "auto": pb.CURVE_AUTO}
_DISTANCES: Dict[str, Any] = {"tokens": pb.ALIBI_DISTANCE_TOKENS, "coords": pb.ALIBI_DISTANCE_COORDS}
DTYPES: Dict[str, Any] = {"float32": pb.DATA_TYPE_FLOAT32, "bfloat16": pb.DATA_TYPE_BFLOAT16,
                          "float16": pb.DATA_TYPE_FLOAT16}
Window = Tuple[Optional[int], Optional[int]]
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def choice(field: str, value: Any, known: Dict[str, Any]) -> Any:
    """Returns the value of a name in `known`."""
    if not isinstance(value, str) or value not in known:
        raise InvalidArgumentError(
            f"{field} is {value!r}, expected one of {', '.join(map(repr, known))}", field=field)
    return known[value]


def check_text(field: str, value: Any) -> None:
    """Raises InvalidArgumentError if the value is no str, or cannot be UTF-8 in a message."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{field} is {value!r}, must be a text", field=field)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{field} is {value!r}, which is no Unicode text: {error.reason}",
                                   field=field) from None


def boolean(field: str, value: Any, default: bool = False) -> bool:
    """Returns a bool of Python or NumPy; `default` for None."""
    if value is None:
        return default
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidArgumentError(f"{field} is {value!r}, must be True or False", field=field)
    return bool(value)


def number(field: str, value: Any, kind: str = "a number") -> float:
    """Returns a number of Python or NumPy that is no bool. kind: the required kind, in errors."""
    try:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError
        return float(value)
    except (TypeError, OverflowError):
        raise InvalidArgumentError(f"{field} is {value!r}, must be {kind}", field=field) from None


def coordinate_values(field: str, value: Any, kind: str) -> "NDArray[Any]":
    """Returns NumPy's array of a value, or raises InvalidArgumentError. kind: the required numbers, in errors."""
    try:
        return np.asarray(value)
    except Exception as error:  # each library raises its own: ragged rows, a type, a device, a gradient
        found = type(value).__name__ + (f" of {value.dtype}" if hasattr(value, "dtype") else "")
        raise InvalidArgumentError(f"{field} is a {found}, must be an array of {kind} that NumPy can read: {error}",
                                   field=field) from None


def integer(field: str, value: Any, bits: int = 64) -> int:
    """Returns an integer of a field with `bits` bits that is no bool."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"{field} is {value!r}, expected an integer",
                                   field=field) from None
    if not -2**(bits - 1) <= found < 2**(bits - 1):
        raise InvalidArgumentError(f"{field} is {found}, beyond {bits} bits", field=field)
    return found


def integers(field: str, values: Any) -> List[int]:
    """Returns the values of a repeated 64-bit field. values: a list, a tuple, or another sequence, as a 1-d array."""
    listed = _listed(field, values, "a list of integers")
    if type(listed) is np.ndarray and listed.ndim == 1 and listed.dtype.kind in "iu":  # not a masked array
        numbers: List[int] = listed.tolist()
        if np.can_cast(listed.dtype, np.int64):
            return numbers
        listed = numbers
    if set(map(type, listed)) == {int} and -2**63 <= min(listed) and max(listed) < 2**63:
        return list(listed)
    return [integer(f"{field}[{i}]", value) for i, value in enumerate(listed)]


def numbers(field: str, values: Any) -> List[float]:
    """Returns the values of a repeated field of numbers. values: as of `integers`, or a tensor; not empty."""
    torch = sys.modules.get("torch")
    if torch is not None and getattr(values, "requires_grad", False) and torch.is_grad_enabled():
        raise InvalidArgumentError(f"{field} requires a gradient, and there are no backward passes: call under "
                                   "torch.no_grad(), or detach it", field=field)
    if hasattr(values, "tolist"):  # an array or a tensor
        values = values.tolist()
    found = [number(f"{field}[{i}]", value) for i, value in enumerate(_listed(field, values, "a list of numbers"))]
    if not found:
        raise InvalidArgumentError(f"{field} has 0 entries, must have one for each head", field=field)
    return found


def _listed(field: str, values: Any, kind: str) -> Any:
    """Returns a list, a tuple, or another sequence, as a 1-d array. kind: what it must be, in errors."""
    try:
        listed = hasattr(values, "__getitem__") and len(values) >= 0
    except TypeError:  # an array without axes
        listed = False
    if not listed or isinstance(values, (str, bytes, bytearray, Mapping)):
        raise InvalidArgumentError(f"{field} is {values!r}, must be {kind}", field=field)
    return values


def make_spec(*, tokens: int, heads: int, kv_heads: Optional[int], head_dim: int,
              value_dim: Optional[int], dtype: str, segments: Sequence[int],
              dilations: Optional[Sequence[int]], mixing: str, causal: bool,
              scale: Optional[float], tail: str, average_groups: bool,
              ordering: Optional[Ordering],
              sequence_lengths: Optional[Sequence[int]], key_tokens: Optional[int] = None,
              key_sequence_lengths: Optional[Sequence[int]] = None, align: str = "end",
              window: Optional[Window] = None, softcap: Optional[float] = None, alibi: Any = None,
              sinks: Any = None, bias_coords: Any = None) -> pb.JobSpec:
    """Makes a job's message of the arguments of Client.plan."""
    lengths = integers("segments", segments)
    rates = [1] * len(lengths) if dilations is None else integers("dilations", dilations)
    if len(rates) != len(lengths):
        raise InvalidArgumentError(
            f"dilations has {len(rates)} entries, segments has {len(lengths)}", field="dilations",
            limit=len(lengths))
    spec = pb.JobSpec(
        tokens=integer("tokens", tokens), heads=integer("heads", heads),
        kv_heads=integer("kv_heads", heads if kv_heads is None else kv_heads),
        head_dim=integer("head_dim", head_dim),
        value_dim=integer("value_dim", head_dim if value_dim is None else value_dim),
        dtype=choice("dtype", dtype, DTYPES), segments=lengths, dilations=rates,
        mixing=choice("mixing", mixing, _MIXINGS), causal=boolean("causal", causal),
        tail=choice("tail", tail, _TAILS),
        average_groups=boolean("average_groups", average_groups, True),
        sequence_lengths=integers("sequence_lengths",
                                  () if sequence_lengths is None else sequence_lengths),
        key_sequence_lengths=integers("key_sequence_lengths",
                                      () if key_sequence_lengths is None else key_sequence_lengths),
        align=choice("align", align, _ALIGNS))
    if key_tokens is not None and integer("key_tokens", key_tokens) != spec.tokens:
        spec.key_tokens = integer("key_tokens", key_tokens)
    if scale is not None:
        spec.scale = number("scale", scale)
    if window is not None:
        spec.window.CopyFrom(_window(window))
    if softcap is not None:
        spec.softcap = number("softcap", softcap)
    if alibi is not None:
        spec.alibi.CopyFrom(_alibi(alibi, bias_coords))
    elif bias_coords is not None:
        raise InvalidArgumentError("alibi is missing, must be slopes with bias_coords", field="alibi")
    if sinks is not None:
        spec.sinks.extend(numbers("sinks", sinks))
    if ordering is not None:
        spec.ordering.CopyFrom(_ordering(ordering))
    return spec


def _window(window: Any) -> pb.Window:
    sides = _listed("window", window, "(left, right), each an integer or None")
    if len(sides) != 2:
        raise InvalidArgumentError(f"window has {len(sides)} entries, must be (left, right)", field="window")
    left, right = (None if side is None else integer(f"window[{i}]", side) for i, side in enumerate(sides))
    return pb.Window(left=left, right=right)


def _alibi(alibi: Any, bias_coords: Any) -> pb.Alibi:
    if not isinstance(alibi, Mapping):
        alibi = {"slopes": alibi}
    for name in alibi:
        if name not in ("slopes", "distance", "axes"):
            raise InvalidArgumentError(f"alibi has the unknown field {name!r}, must have slopes, distance and axes",
                                       field="alibi")
    distance, axes = alibi.get("distance"), alibi.get("axes")
    if distance is None:
        distance = "tokens" if bias_coords is None else "coords"
    made = pb.Alibi(slopes=numbers("alibi.slopes", alibi.get("slopes")),
                    distance=choice("alibi.distance", distance, _DISTANCES),
                    axes=(2 if distance == "coords" else 0) if axes is None else integer("alibi.axes", axes, 32))
    if bias_coords is None:
        return made
    if distance != "coords":
        raise InvalidArgumentError(f"alibi.distance is {distance!r}, must be 'coords' with bias_coords", field="alibi.distance")
    shape = _shape_of_coordinates("bias_coords", bias_coords, "float32 numbers")
    if axes is not None and made.axes != shape[1]:
        raise InvalidArgumentError(f"alibi.axes is {axes}, must be {shape[1]} as in bias_coords", field="alibi.axes")
    made.axes = shape[1]
    return made


def _shape_of_coordinates(field: str, value: Any, kind: str) -> Tuple[int, ...]:
    """Returns the shape [keys, 2 or 3] of an array, or of the path of one. kind: the required numbers, in errors."""
    coords = opened(field, value)
    if not hasattr(coords, "shape"):
        coords = coordinate_values(field, coords, kind)
    shape = tuple(coords.shape)
    if len(shape) != 2 or shape[1] not in (2, 3):
        raise InvalidArgumentError(f"{field} has shape {shape}, expected [tokens, 2] or [tokens, 3]", field=field)
    return shape


def _ordering(ordering: Ordering) -> pb.Ordering:
    if not isinstance(ordering, Ordering):
        raise InvalidArgumentError(
            f"ordering is {ordering!r}, expected hilbert_ring.Hilbert, Morton or Auto",
            field="ordering")
    axes = 0
    if ordering.coords is not None:
        axes = _shape_of_coordinates("ordering.coords", ordering.coords, "integers")[1]
    return pb.Ordering(curve=choice("ordering.curve", ordering.curve, _CURVES),
                       scope=choice("ordering.scope", ordering.scope, _SCOPES),
                       window=integer("ordering.window", ordering.window),
                       grid=integers("ordering.grid",
                                     () if ordering.grid is None else ordering.grid),
                       coordinate_axes=axes)


def key_tokens_of(spec: pb.JobSpec) -> int:
    return int(spec.key_tokens if spec.HasField("key_tokens") else spec.tokens)


def key_lengths_of(spec: pb.JobSpec) -> List[int]:
    """Returns the keys of each sequence."""
    if spec.key_sequence_lengths:
        return list(spec.key_sequence_lengths)
    square = key_tokens_of(spec) == spec.tokens
    return list(spec.sequence_lengths) if square and spec.sequence_lengths else [key_tokens_of(spec)]


def row_bytes(spec: pb.JobSpec, tensor: int) -> int:
    element = {pb.DATA_TYPE_FLOAT32: 4}.get(spec.dtype, 2)
    sizes: Dict[Any, int] = {
        pb.TENSOR_COORDS: 4 * spec.ordering.coordinate_axes,
        pb.TENSOR_BIAS_COORDS: 4 * spec.alibi.axes,
        pb.TENSOR_Q: spec.heads * spec.head_dim * element,
        pb.TENSOR_K: spec.kv_heads * spec.head_dim * element,
        pb.TENSOR_V: spec.kv_heads * spec.value_dim * element,
        pb.TENSOR_OUT: spec.heads * spec.value_dim * element,
        pb.TENSOR_LSE: spec.heads * 4,
    }
    return sizes[tensor]

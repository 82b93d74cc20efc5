"""Makes a job of the arguments of `attend`, and a result of its report."""
import math
import secrets
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Optional, Sequence, Tuple, Union

import numpy as np

from hilbert_ring._conversation import JobCall, Progress
from hilbert_ring._channel import SERVICE
from hilbert_ring._by_reference import CHOICES
from hilbert_ring._chunks import Inputs, Reader
from hilbert_ring._distinct import check_distinct
from hilbert_ring._files import FileOutput, checked_path, given_file, is_path, opened
from hilbert_ring._retry import Retries
from hilbert_ring._spec import (Window, boolean, check_text, choice, integer, key_tokens_of, make_spec, number,
                                row_bytes)
from hilbert_ring._tensors import (Output, Tensor, given_output, read_bias_coordinates, read_coordinates,
                                   read_tensor)
from hilbert_ring._warn import warn_of_rows, warn_of_spec
from hilbert_ring.errors import InvalidArgumentError
from hilbert_ring.ordering import Hilbert, Morton, Ordering
from hilbert_ring.v1 import attention_pb2 as pb

ProgressOption = Union[None, bool, Callable[[Progress], None]]
_MOST_ATTEMPTS = 1000
_MOST_SECONDS = 10**9


@dataclass(frozen=True, eq=False)
class AttendResult:
    """The result of a job.

    Attributes:
        out: [tokens, heads, value_dim], of the kind and type of q; if a path was given, the file's array, mapped for
            reading.
        lse: float32 [tokens, heads], of q's kind or mapped like `out`: natural logarithm of the softmax denominators,
            -inf if a row saw no key; None if not requested.
        report: the service's figures: seconds, bytes, memory of each worker (message Report of
            proto/hilbert_ring/v1/attention.proto).
        ordering: Hilbert(...) or Morton(...) of the job; None: the given order of tokens.
        ordering_why: why Auto(...) chose it.
    """

    out: Any
    lse: Optional[Any]
    report: pb.Report
    ordering: Optional[Ordering] = None
    ordering_why: str = ""


@dataclass
class AttendOptions:
    """The arguments of Client.attend about the call; see there."""

    job_id: Optional[str] = None
    deadline: Optional[float] = None
    outage_timeout: Optional[float] = None
    max_attempts: int = 10
    chunk_bytes: int = 4 << 20
    progress: ProgressOption = None
    by_reference: str = "auto"

    def __post_init__(self) -> None:
        if self.job_id is not None:
            check_text("job_id", self.job_id)
        choice("by_reference", self.by_reference, dict.fromkeys(CHOICES))
        if not callable(self.progress):
            boolean("progress", self.progress)
        for field in ("chunk_bytes", "max_attempts"):
            given = integer(field, getattr(self, field))
            if given < 1:
                raise InvalidArgumentError(f"{field} is {given}, must be at least 1", field=field, limit=1)
            setattr(self, field, given)
        if self.max_attempts > _MOST_ATTEMPTS:
            raise InvalidArgumentError(f"max_attempts is {self.max_attempts}, must be at most {_MOST_ATTEMPTS}",
                                       field="max_attempts", limit=_MOST_ATTEMPTS)
        for field, least in (("deadline", 0.001), ("outage_timeout", 0)):
            if getattr(self, field) is not None:
                setattr(self, field, _seconds(field, getattr(self, field), least))

    def name(self) -> str:
        """Returns the given job_id, or a random one."""
        return f"job-{secrets.token_hex(8)}" if self.job_id is None else self.job_id

    def retries(self, begun: Optional[float] = None) -> Retries:
        """Returns the retries of a call that starts now. Its deadline counts from `begun`, by default now."""
        return Retries(self.max_attempts, math.inf if self.deadline is None else self.deadline, begun, self.outage_timeout)


def cancel_request(job_id: str, caller: Optional[str]) -> pb.CancelJobRequest:
    """Raises InvalidArgumentError."""
    check_text("job_id", job_id)
    if caller is not None:
        check_text("caller", caller)
    return pb.CancelJobRequest(job_id=job_id, caller=caller or "")


def _seconds(field: str, value: Any, least: float) -> float:
    """Applies the command line's limits to a time."""
    kind = f"a number of seconds from {least:g} to {_MOST_SECONDS:g}"
    seconds = number(field, value, kind)
    if not least <= seconds <= _MOST_SECONDS:
        raise InvalidArgumentError(f"{field} is {value}, must be {kind}", field=field, limit=_MOST_SECONDS)
    return seconds


def prepare(q: Any, k: Any, v: Any, *, dtype: Optional[str], lse: Any, out: Any,
            options: AttendOptions, ordering: Optional[Ordering],
            pattern: Dict[str, Any]) -> JobCall:
    """Checks the arguments and makes room for the outputs, without a call to the service."""
    given = [opened(name, value) for name, value in zip("qkv", (q, k, v))]
    tensors = [read_tensor(name, value, dtype) for name, value in zip("qkv", given)]
    for tensor in tensors:
        if 0 in tensor.shape[0 if tensor.name == "q" else 1:]:  # there may be no keys
            raise InvalidArgumentError(f"{tensor.name} has shape {tensor.shape}, must have axes of at least 1",
                                       field=tensor.name, limit=1)
    arrays: Dict[Any, Any] = dict(zip((pb.TENSOR_Q, pb.TENSOR_K, pb.TENSOR_V), given))
    spec = make_spec(dtype=tensors[0].dtype, ordering=ordering, **shape_of(*tensors), **pattern)
    readers: Dict[Any, Reader] = {tensor: read.rows for tensor, read in
               zip((pb.TENSOR_Q, pb.TENSOR_K, pb.TENSOR_V), tensors)}
    if ordering is not None and ordering.coords is not None:
        coords = arrays[pb.TENSOR_COORDS] = opened("ordering.coords", ordering.coords)
        readers[pb.TENSOR_COORDS] = read_coordinates(coords, key_tokens_of(spec))
    bias_coords = pattern.get("bias_coords")
    if bias_coords is not None:
        coords = arrays[pb.TENSOR_BIAS_COORDS] = opened("bias_coords", bias_coords)
        readers[pb.TENSOR_BIAS_COORDS] = read_bias_coordinates(coords, key_tokens_of(spec))
    elif spec.alibi.distance == pb.ALIBI_DISTANCE_COORDS:
        raise InvalidArgumentError("bias_coords are missing: alibi.distance is 'coords'", field="bias_coords")
    inputs = attention_inputs(spec, readers)
    out_shape = (spec.tokens, spec.heads, spec.value_dim)
    outputs: Dict[Any, Union[Output, FileOutput]] = {}
    outputs[pb.TENSOR_OUT] = output_of("out", out, tensors[0], out_shape, tensors[0].dtype,
                                       like=given[0])
    if lse is None or isinstance(lse, (bool, int, float, np.bool_, np.number)):
        lse = boolean("lse", lse, not is_path(out))
    if lse is not False:
        outputs[pb.TENSOR_LSE] = output_of("lse", None if lse is True else lse, tensors[0],
                                           out_shape[:2], "float32")
    check_distinct({"q": q, "k": k, "v": v, "ordering.coords": ordering and ordering.coords, "bias_coords": bias_coords},
                   {"out": out, "lse": lse})
    warn_of_spec(spec)
    return JobCall(SERVICE + "Attend", pb.Open(spec=spec, want_lse=pb.TENSOR_LSE in outputs),
                   inputs, outputs,
                   {**dict.fromkeys(arrays, spec.dtype), pb.TENSOR_OUT: spec.dtype,
                    pb.TENSOR_LSE: pb.DATA_TYPE_FLOAT32},
                   options.name(), options.chunk_bytes, spec.tokens, options.by_reference, arrays)


def output_of(name: str, value: Any, beside: Tensor, shape: Tuple[int, ...], dtype: str,
              like: Any = None) -> Union[Output, FileOutput]:
    """Returns the output of a given path or array; None gives a new array of the kind of `beside`."""
    if value is None:
        return beside.like(shape, dtype)
    if is_path(value):
        return given_file(checked_path(name, value), shape, dtype, like)
    return given_output(name, value, shape, dtype)


def attention_inputs(spec: pb.JobSpec, readers: Dict[Any, Reader]) -> Inputs:
    rows = {tensor: spec.tokens if tensor == pb.TENSOR_Q else key_tokens_of(spec) for tensor in readers}
    return Inputs(rows, {tensor: row_bytes(spec, tensor) for tensor in readers}, readers,
                  tuple(tensor for tensor in (pb.TENSOR_COORDS, pb.TENSOR_BIAS_COORDS) if tensor in readers))


def shape_of(q: Tensor, k: Tensor, v: Tensor) -> Dict[str, Any]:
    """Checks that the three agree and returns tokens, heads and dims."""
    for tensor, axes in ((q, "[tokens, heads, head_dim]"), (k, "[key_tokens, kv_heads, head_dim]"),
                         (v, "[key_tokens, kv_heads, value_dim]")):
        if len(tensor.shape) != 3:
            raise InvalidArgumentError(
                f"{tensor.name} has shape {tensor.shape}, expected {axes}", field=tensor.name)
        if tensor.dtype != q.dtype:
            raise InvalidArgumentError(
                f"{tensor.name} is {tensor.dtype}, q is {q.dtype}", field=tensor.name)
    if k.shape[2] != q.shape[2]:
        raise InvalidArgumentError(f"k has head_dim {k.shape[2]}, q has {q.shape[2]}", field="k",
                                   limit=q.shape[2])
    if v.shape[0] != k.shape[0]:
        raise InvalidArgumentError(f"v has {v.shape[0]} rows, k has {k.shape[0]}", field="v", limit=k.shape[0])
    if v.shape[1] != k.shape[1]:
        raise InvalidArgumentError(f"v has {v.shape[1]} heads, k has {k.shape[1]}", field="v",
                                   limit=k.shape[1])
    return {"tokens": q.shape[0], "key_tokens": k.shape[0], "heads": q.shape[1], "kv_heads": k.shape[1],
            "head_dim": q.shape[2], "value_dim": v.shape[2]}


def curve_request(call: JobCall) -> Optional[pb.PlanRequest]:
    """Returns the request for the curve that suits a job; None: its curve is known."""
    spec = call.open.spec
    return pb.PlanRequest(spec=spec, workers=1) if spec.ordering.curve == pb.CURVE_AUTO else None


def with_curve(call: JobCall, plan: pb.PlanResponse) -> JobCall:
    """Returns the job with the curve that the service chose, or without an ordering."""
    opening = pb.Open()
    opening.CopyFrom(call.open)
    readers = dict(call.inputs.readers)
    if plan.curve == pb.CURVE_UNSPECIFIED:
        opening.spec.ClearField("ordering")
        readers.pop(pb.TENSOR_COORDS, None)
    else:
        opening.spec.ordering.curve = plan.curve
    return replace(call, open=opening, inputs=attention_inputs(opening.spec, readers))


def result_of(call: JobCall, report: pb.Report, ordering: Optional[Ordering] = None,
              why: str = "") -> AttendResult:
    """Returns the result of a finished job. ordering: the caller's."""
    curve = call.open.spec.ordering.curve
    if ordering is not None:
        kind = {pb.CURVE_HILBERT: Hilbert, pb.CURVE_MORTON: Morton}.get(curve)
        ordering = kind and kind(ordering.grid, ordering.window, ordering.coords, ordering.scope)
    result = AttendResult(call.result(pb.TENSOR_OUT), call.result(pb.TENSOR_LSE), report, ordering,
                          why)
    warn_of_rows(report)
    return result


def pattern_of(segments: Sequence[int], dilations: Optional[Sequence[int]], mixing: str,
               causal: bool, scale: Optional[float], tail: str, average_groups: bool,
               sequence_lengths: Optional[Sequence[int]], key_sequence_lengths: Optional[Sequence[int]], align: str,
               window: Optional[Window], softcap: Optional[float], alibi: Any, sinks: Any,
               bias_coords: Any = None) -> Dict[str, Any]:
    return {"segments": segments, "dilations": dilations, "mixing": mixing, "causal": causal,
            "scale": scale, "tail": tail, "average_groups": average_groups,
            "sequence_lengths": sequence_lengths, "key_sequence_lengths": key_sequence_lengths, "align": align,
            "window": window, "softcap": softcap, "alibi": alibi, "sinks": sinks, "bias_coords": bias_coords}

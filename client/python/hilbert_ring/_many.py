"""Packs many small jobs into few calls, and collects their results.

    call = ManyCall(jobs, options, common)
    pack = call.next()                     # jobs joined as packed sequences; None: no jobs are left
    call.done(pack, report)                # or call.failed(pack, error)
    call.ended()                           # the jobs' results

This module does not wait. The client (blocking or asyncio) runs call.lanes lanes: tasks that send packs in parallel.
"""
import time
from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter
from threading import Lock
from typing import Any, Deque, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._assembled_rows import AssembledRows
from hilbert_ring._conversation import JobCall
from hilbert_ring._chunks import MAX_PAYLOAD_BYTES, Reader, tensor_name
from hilbert_ring._distinct import Places, later_that_meet
from hilbert_ring._files import is_path
from hilbert_ring._job import AttendOptions, AttendResult, attention_inputs, pattern_of, prepare
from hilbert_ring._retry import Retries
from hilbert_ring._spec import key_lengths_of, key_tokens_of
from hilbert_ring._tensors import Output, is_in_memory, plain_rows, read_tensor
from hilbert_ring._warn import notes_on, warn_of_rows
from hilbert_ring.errors import HilbertRingError, InvalidArgumentError, OutOfRangeError
from hilbert_ring.ordering import Ordering
from hilbert_ring.v1 import attention_pb2 as pb

_AT_ONCE = 4            # calls
_MOST_SEQUENCES = 1024  # a pack
# Messages of a pack. Over one packed job, 256 jobs of 64 tokens took 2.0 times as long in packs of 1 MiB, 1.3 times in
# packs of 16 MiB and 2.1 times in one pack (two cores of an AMD EPYC, Zen 4).
_MESSAGES = 4
# A single job of the pack may have caused the error.
_MAY_BE_ONE = {"INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION", "DATA_LOSS", "RESOURCE_EXHAUSTED"}
_OF_ALL = {"UNAVAILABLE", "UNAUTHENTICATED", "PERMISSION_DENIED"}
# The service has no room for another call at the same time.
_BUSY = frozenset({"QUOTA", "QUEUE_FULL", "TOO_MANY_CALLS"})

SmallJob = Union[Tuple[Any, Any, Any], Mapping[str, Any]]
ManyResult = Union[AttendResult, HilbertRingError]

_INPUTS = (pb.TENSOR_Q, pb.TENSOR_K, pb.TENSOR_V)
_PATTERN: Dict[str, Any] = {"segments": None, "dilations": None, "mixing": "head_groups", "causal": False,
                            "scale": None, "tail": "mask", "average_groups": True, "sequence_lengths": None,
                            "key_sequence_lengths": None, "align": "end", "window": None, "softcap": None,
                            "alibi": None, "sinks": None, "bias_coords": None}
_OTHERS: Dict[str, Any] = {"ordering": None, "dtype": None, "lse": True, "out": None, "job_id": None}
_KNOWN = {"q", "k", "v", *_PATTERN, *_OTHERS}
_OF_SPEC = itemgetter(*_PATTERN, "dtype", "ordering")  # arguments that a job's spec depends on, beside its tensors


def _places_of(values: Mapping[str, Any]) -> Places:
    ordering = values["ordering"]
    return ({**{name: values[name] for name in "qkv"}, "ordering.coords": ordering and ordering.coords,
             "bias_coords": values["bias_coords"]},
            {name: values[name] for name in ("out", "lse")})


class PreparedJob:
    def __init__(self, values: Mapping[str, Any], chunk_bytes: int) -> None:
        self.ordering: Optional[Ordering] = values["ordering"]
        self.job_id: Optional[str] = values["job_id"]  # such a job has no pack with others
        if values["segments"] is None:
            raise InvalidArgumentError("segments of a job are neither its own nor the call's",
                                       field="segments")
        if self.ordering is not None and self.ordering.curve == "auto":
            raise InvalidArgumentError(
                "ordering: a small job has Hilbert(...) or Morton(...), not Auto", field="ordering")
        for output in ("out", "lse"):
            if is_path(values[output]):
                raise InvalidArgumentError(f"{output} of a small job is an array, not a path", field=output)
        self.call: JobCall = prepare(
            *(values.get(name) for name in "qkv"), dtype=values["dtype"], lse=values["lse"], out=values["out"],
            options=AttendOptions(self.job_id, chunk_bytes=chunk_bytes, by_reference="never"),
            ordering=self.ordering, pattern=pattern_of(*(values[name] for name in _PATTERN)))
        self.places = _places_of(values)
        self.readers = dict(self.call.inputs.readers)
        self._placed: Dict[Any, Output] = {}  # by tensor
        spec = self.call.open.spec
        self.bytes = max(self.call.inputs.total_bytes(), sum(output.nbytes for output in self.call.outputs.values()))
        if self.bytes > MAX_PAYLOAD_BYTES:
            raise OutOfRangeError(f"rows of the job, or its results, take {self.bytes} bytes, must be at most "
                                  f"{MAX_PAYLOAD_BYTES}: call attend", limit=MAX_PAYLOAD_BYTES)
        self.sequences = list(spec.sequence_lengths) or [spec.tokens]  # queries of each
        self.key_sequences = key_lengths_of(spec)
        self.alike = b""  # equal for jobs that share packs; empty: the job is a pack of its own
        adds_up = (min(self.sequences + self.key_sequences) >= 0 and sum(self.sequences) == spec.tokens
                   and sum(self.key_sequences) == key_tokens_of(spec)
                   and len(self.sequences) == len(self.key_sequences))
        if self.job_id is None and not self.call.inputs.ahead and adds_up:
            common = pb.Open()
            common.CopyFrom(self.call.open)
            for field in ("tokens", "key_tokens", "sequence_lengths", "key_sequence_lengths"):
                common.spec.ClearField(field)
            self.alike = common.SerializeToString()
        self.report: Optional[pb.Report] = None

    def again(self, values: Mapping[str, Any], readers: Sequence[Reader]) -> "PreparedJob":
        """Returns the job of other rows, with the same arguments and kinds of arrays, and with outputs of its own."""
        job: PreparedJob = object.__new__(PreparedJob)
        job.__dict__.update(self.__dict__)
        job.places = _places_of(values)
        job.readers = dict(zip(_INPUTS, readers))
        job._placed = {}
        return job

    def place(self, outputs: Mapping[Any, "NDArray[np.uint8]"], report: pb.Report) -> None:
        """Takes the job's rows of each output, and the report of the pack. New arrays are views of these rows."""
        self.report = pb.Report()
        self.report.CopyFrom(report)
        self.report.tokens = self.call.tokens
        for tensor, rows in outputs.items():
            output = self.call.outputs[tensor]
            assert isinstance(output, Output)
            if output.over is None:
                output.bytes[:] = rows
            self._placed[tensor] = output.over(rows.reshape(-1)) if output.over else output
        if report.rows_not_finite:
            out = AssembledRows(tensor_name(pb.TENSOR_OUT), outputs[pb.TENSOR_OUT], self.call.dtypes[pb.TENSOR_OUT])
            out.count_not_finite(outputs[pb.TENSOR_OUT], slice(0, self.call.tokens))
            self.report.rows_not_finite = out.rows_not_finite
            self.report.first_row_not_finite = out.first_not_finite

    def result(self) -> Optional[AttendResult]:
        """Returns the job's result; None: it was not computed."""
        if self.report is None:
            return None
        warn_of_rows(self.report)
        out, lse = (self._placed.get(tensor) for tensor in (pb.TENSOR_OUT, pb.TENSOR_LSE))
        return AttendResult(out and out.result(), lse and lse.result(), self.report, self.ordering)


class _Prepared:
    """Prepares the jobs of a call. Jobs that differ only in their rows are checked once."""

    def __init__(self, common: Mapping[str, Any], chunk_bytes: int) -> None:
        self._common = common
        self._chunk_bytes = chunk_bytes
        self._models: Dict[Tuple[Any, ...], Tuple[PreparedJob, Mapping[str, Any]]] = {}

    def job(self, given: SmallJob) -> PreparedJob:
        values = {**self._common, **_by_name(given)}
        for name in values.keys() - _KNOWN:
            raise InvalidArgumentError(f"{name} is no argument of a small job", field=name)
        rows: List[Any] = [values.get(name) for name in "qkv"]
        if not (values["out"] is None and values["job_id"] is None and type(values["lse"]) is bool
                and all(map(is_in_memory, rows))):
            return PreparedJob(values, self._chunk_bytes)
        # A known job's values are kept, so that no other object has their ids.
        alike = (*map(id, _OF_SPEC(values)), values["lse"],
                 *((type(value), value.shape, value.dtype, getattr(value, "device", None)) for value in rows))
        if alike in self._models:
            try:
                return self._models[alike][0].again(values, [
                    plain_rows(value) or read_tensor(name, value, values["dtype"]).rows
                    for name, value in zip("qkv", rows)])
            except HilbertRingError:  # or an earlier check's error
                pass
        job = PreparedJob(values, self._chunk_bytes)
        if not job.call.inputs.ahead and not any(notes_on(job.call.open.spec)):  # each job warns of its notes
            self._models[alike] = job, values
        return job


@dataclass(frozen=True)
class Pack:
    """Jobs that are computed as one, by number."""

    jobs: Dict[int, PreparedJob]
    call: JobCall
    final: FrozenSet[str]  # reasons of failure after which another lane runs the pack


class ManyCall:
    """The jobs of a call, and their results. Thread-safe."""

    def __init__(self, jobs: Sequence[SmallJob], options: AttendOptions, common: Dict[str, Any]) -> None:
        """common: default arguments of jobs. An error about a job is the job's result."""
        self._options, self._begun = options, time.monotonic()
        self._jobs: List[Union[PreparedJob, HilbertRingError]] = []
        prepared = _Prepared({**_PATTERN, **_OTHERS, **common}, options.chunk_bytes)
        for given in jobs:
            try:
                self._jobs.append(prepared.job(given))
            except HilbertRingError as error:
                self._jobs.append(error)
        places = [job.places if isinstance(job, PreparedJob) else None for job in self._jobs]
        self._jobs = [met or job for job, met in zip(self._jobs, later_that_meet(places))]
        self._waiting = self._packs()
        self._over: Optional[HilbertRingError] = None  # why no other call is made
        self._lock = Lock()
        self._reading = Lock()  # a caller's datasets are read by one thread at a time
        self.lanes = min(_AT_ONCE, len(self._waiting))

    def _packs(self) -> Deque[List[int]]:
        limit = _MESSAGES * min(self._options.chunk_bytes, MAX_PAYLOAD_BYTES)
        packs: Deque[List[int]] = deque()
        last: Dict[bytes, Tuple[List[int], int, int]] = {}  # by `alike`: the newest pack, its bytes and sequences
        for number, job in enumerate(self._jobs):
            if isinstance(job, HilbertRingError):
                continue
            pack, size, sequences = last.get(job.alike, ([], 0, 0))
            if not (job.alike and pack and size + job.bytes <= limit
                    and sequences + len(job.sequences) <= _MOST_SEQUENCES):
                pack, size, sequences = [], 0, 0
                packs.append(pack)
            pack.append(number)
            last[job.alike] = pack, size + job.bytes, sequences + len(job.sequences)
        return packs

    def retries(self) -> Retries:
        """Returns the retries of a pack that is called now."""
        return self._options.retries(self._begun)

    def next(self) -> Optional[Pack]:
        """Reads the rows of the lane's next pack; None: the lane ends. Errors of the caller's arrays pass through."""
        while True:
            with self._lock:
                if not self._waiting or self._over is not None:
                    self.lanes -= 1
                    return None
                numbers = self._waiting.popleft()
                final: FrozenSet[str] = _BUSY if self.lanes > 1 else frozenset()
            jobs: Dict[int, PreparedJob] = {}
            rows: List[Dict[Any, memoryview]] = []
            with self._reading:
                for number in numbers:
                    job = self._jobs[number]
                    assert isinstance(job, PreparedJob)
                    count = job.call.inputs.rows
                    try:
                        rows.append({tensor: read(0, count[tensor]) for tensor, read in job.readers.items()})
                        jobs[number] = job
                    except HilbertRingError as error:
                        self._jobs[number] = error
            if jobs:
                return Pack(jobs, _joined(list(jobs.values()), rows), final)

    def done(self, pack: Pack, call: JobCall, report: pb.Report) -> None:
        """Takes the pack's call as it was done, with its report."""
        first = 0
        for job in pack.jobs.values():
            end = first + job.call.tokens
            job.place({tensor: output.bytes[first:end] for tensor, output in call.outputs.items()}, report)
            first = end

    def failed(self, pack: Pack, error: HilbertRingError) -> bool:
        """Returns whether the lane goes on. Splits the pack into halves if one of its jobs may be the cause."""
        numbers = list(pack.jobs)
        with self._lock:
            if error.reason in pack.final:
                self._waiting.appendleft(numbers)
                if self.lanes == 1:
                    return True
                self.lanes -= 1
                return False
            if len(numbers) > 1 and error.code in _MAY_BE_ONE and error.retry_after is None:
                middle = len(numbers) // 2
                self._waiting.extendleft([numbers[middle:], numbers[:middle]])
                return True
            for number in numbers:
                self._jobs[number] = error
            if error.code in _OF_ALL:
                self._over = error
            return True

    def stop(self, error: HilbertRingError) -> None:
        with self._lock:
            self._over = self._over or error

    def ended(self) -> List[ManyResult]:
        """Returns all results after the last lane has ended."""
        results: List[ManyResult] = []
        for job in self._jobs:
            result = job.result() or self._over if isinstance(job, PreparedJob) else job
            assert result is not None
            results.append(result)
        return results


def _joined(jobs: Sequence[PreparedJob], rows: Sequence[Dict[Any, memoryview]]) -> JobCall:
    """Returns the call of the jobs: several become packed sequences."""
    first = jobs[0].call
    spec = pb.JobSpec()
    spec.CopyFrom(first.open.spec)
    if len(jobs) > 1:
        spec.sequence_lengths[:] = [length for job in jobs for length in job.sequences]
        spec.key_sequence_lengths[:] = [length for job in jobs for length in job.key_sequences]
        spec.tokens = sum(spec.sequence_lengths)
        spec.key_tokens = sum(spec.key_sequence_lengths)
    readers: Dict[Any, Reader] = {
        tensor: _reader([of[tensor] for of in rows], first.inputs.row_bytes[tensor])
        for tensor in first.inputs.readers}
    return replace(first, open=pb.Open(spec=spec, want_lse=first.open.want_lse), tokens=spec.tokens,
                   inputs=attention_inputs(spec, readers), arrays=_stand_ins(spec),
                   by_reference="auto" if len(jobs) > 1 else "never", job_id=AttendOptions(jobs[0].job_id).name(),
                   outputs={tensor: _rows_output(spec.tokens, output.bytes.shape[1])
                            for tensor, output in first.outputs.items()})


def _stand_ins(spec: pb.JobSpec) -> Dict[Any, Any]:
    """Returns arrays of the shapes of q, k and v that lie in no file."""
    keys = key_tokens_of(spec)
    shapes = ((spec.tokens, spec.heads, spec.head_dim), (keys, spec.kv_heads, spec.head_dim),
              (keys, spec.kv_heads, spec.value_dim))
    return {tensor: np.broadcast_to(np.uint8(0), shape) for tensor, shape in zip(_INPUTS, shapes)}


def _rows_output(rows: int, row_bytes: int) -> Output:
    """Returns an output that is cut into those of jobs."""
    def over(data: "NDArray[np.uint8]") -> Output:
        return Output(data.reshape(rows, row_bytes), lambda: None, over)

    return over(np.empty(rows * row_bytes, np.uint8))


def _reader(pieces: Sequence[memoryview], row_bytes: int) -> Reader:
    """Returns a reader of rows that lie in pieces."""
    ends = list(accumulate(len(piece) for piece in pieces))

    def read(first: int, count: int) -> memoryview:
        begin, end = first * row_bytes, (first + count) * row_bytes
        low, high = bisect_right(ends, begin), bisect_left(ends, end)
        taken = list(pieces[low:high + 1])
        taken[-1] = taken[-1][:len(taken[-1]) + end - ends[high]]
        taken[0] = taken[0][begin - (ends[low] - len(pieces[low])):]
        return memoryview(taken[0] if len(taken) == 1 else b"".join(taken))

    return read


def _by_name(given: SmallJob) -> Mapping[str, Any]:
    if isinstance(given, (tuple, list)) and len(given) == 3:
        return dict(zip("qkv", given))
    if not isinstance(given, Mapping):
        raise InvalidArgumentError("a small job must be a tuple (q, k, v), or the arguments of attend by name",
                                   field="jobs")
    return given

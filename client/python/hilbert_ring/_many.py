"""Many small jobs in one call, as messages: what to send, and what to make of what comes.

Nothing here waits: a client (blocking or asyncio) carries the messages.
"""
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

from crc32c import crc32c

from hilbert_ring._assembled_rows import AssembledRows
from hilbert_ring._attempt import JobCall
from hilbert_ring._chunks import MAX_PAYLOAD_BYTES, tensor_name
from hilbert_ring._distinct import Places, later_that_meet
from hilbert_ring._files import is_path
from hilbert_ring._job import AttendOptions, AttendResult, pattern_of, prepare, result_of
from hilbert_ring._protocol import broken, parsed
from hilbert_ring._retry import AttemptFailure
from hilbert_ring.errors import HilbertRingError, InvalidArgumentError, OutOfRangeError, error_of_status
from hilbert_ring.ordering import Ordering
from hilbert_ring.v1 import attention_pb2 as pb
from hilbert_ring.v1 import many_pb2 as many_pb

SMALL_JOBS_SERVICE = "/hilbert_ring.v1.SmallJobsService/"
MOST_SMALL_JOBS = 1024  # of a message

SmallJob = Union[Tuple[Any, Any, Any], Mapping[str, Any]]
ManyResult = Union[AttendResult, HilbertRingError]

_PATTERN: Dict[str, Any] = {"segments": None, "dilations": None, "mixing": "head_groups", "causal": False,
                            "scale": None, "tail": "mask", "average_groups": True, "sequence_lengths": None}
_OTHERS: Dict[str, Any] = {"ordering": None, "dtype": None, "lse": True, "out": None, "job_id": None}


class PreparedJob:
    """A job that was checked."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """
        Raises:
            InvalidArgumentError, OutOfRangeError: naming the argument.
        """
        for name in values:
            if name not in ("q", "k", "v") and name not in _PATTERN and name not in _OTHERS:
                raise InvalidArgumentError(f"{name} is no argument of a small job", field=name)
        self.ordering: Optional[Ordering] = values["ordering"]
        self.named = values["job_id"] is not None
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
            options=AttendOptions(values["job_id"], by_reference="never"), ordering=self.ordering,
            pattern=pattern_of(*(values[name] for name in _PATTERN)))
        arrays = self.call.arrays
        inputs = {name: (values[name], arrays[tensor]) for name, tensor in
                  zip("qkv", (pb.TENSOR_Q, pb.TENSOR_K, pb.TENSOR_V))}
        if self.ordering is not None and pb.TENSOR_COORDS in arrays:
            inputs["ordering.coords"] = self.ordering.coords, arrays[pb.TENSOR_COORDS]
        self.places = Places(inputs, {name: values[name] for name in ("out", "lse")})
        self.bytes = self.call.inputs.total_bytes()
        if self.bytes > MAX_PAYLOAD_BYTES:
            raise OutOfRangeError(f"rows of the job take {self.bytes} bytes, a call of many jobs sends at most "
                                  f"{MAX_PAYLOAD_BYTES} of each: call attend", limit=MAX_PAYLOAD_BYTES)

    def message(self, attempt: int) -> Any:
        """As it is sent."""
        call, inputs = self.call, self.call.inputs
        job = many_pb.SmallJob(open=call.open)
        if self.named:
            job.open.job_id = call.job_id
            job.open.attempt = attempt
        for tensor in ([] if inputs.ahead is None else [inputs.ahead]) + inputs.bands:
            payload = inputs.readers[tensor](0, inputs.rows)
            job.rows.add(tensor=tensor, rows=inputs.rows, payload=bytes(payload), crc32c=crc32c(payload))
        return job

    def result(self, result: Any) -> ManyResult:
        """Of what came."""
        if result.error:
            return error_of_status(result.error)
        try:
            return self._placed(result)
        except HilbertRingError as error:
            return error

    def _placed(self, result: Any) -> AttendResult:
        outputs = {tensor: AssembledRows(tensor_name(tensor), output.bytes, self.call.dtypes[tensor])
                   for tensor, output in self.call.outputs.items()}
        for chunk in result.outputs:
            outputs[chunk.tensor].place(chunk)
        for rows in outputs.values():
            rows.check_complete()
        out = outputs[pb.TENSOR_OUT]
        result.report.rows_not_finite = out.rows_not_finite
        result.report.first_row_not_finite = out.first_not_finite
        return result_of(self.call, result.report, self.ordering)


class ManyCall:
    """The jobs of a call, and what became of them."""

    def __init__(self, jobs: Sequence[SmallJob], options: AttendOptions, common: Dict[str, Any]) -> None:
        """common: arguments of jobs that do not have their own.

        Raises:
            InvalidArgumentError, OutOfRangeError: of the call. Of a job they are its result.
        """
        self.options = options
        self.results: List[Optional[ManyResult]] = []
        self._jobs: List[Optional[PreparedJob]] = []
        for given in jobs:
            job, error = _prepared(given, {**_PATTERN, **_OTHERS, **common})
            self._jobs.append(job)
            self.results.append(error)
        for number, met in enumerate(later_that_meet([None if job is None else job.places for job in self._jobs])):
            self.results[number] = met or self.results[number]

    def waiting(self) -> List[int]:
        """Jobs that have not ended."""
        return [number for number, result in enumerate(self.results) if result is None]

    def end(self, number: int, result: Any) -> Optional[HilbertRingError]:
        """One has ended. The error of one that is to be sent again, and waits on."""
        job = self._jobs[number]
        assert job is not None
        ended = job.result(result)
        if result.error and isinstance(ended, HilbertRingError) and _passes(ended):
            return ended
        self.results[number] = ended
        return None

    def ended(self) -> List[ManyResult]:
        """All results, once all are there."""
        return [result for result in self.results if result is not None]

    def fail(self, error: HilbertRingError) -> List[ManyResult]:
        """The call has failed for good: so have the jobs that have not ended."""
        return [error if result is None else result for result in self.results]

    def messages(self, numbers: Sequence[int], attempt: int, sent: List[int]) -> Iterator[bytes]:
        """Full requests of these jobs, which are added to `sent`. A job whose rows cannot be read has ended."""
        limit = min(self.options.chunk_bytes, MAX_PAYLOAD_BYTES)
        request, size = many_pb.AttendManyRequest(), 0
        for number in numbers:
            job = self._jobs[number]
            assert job is not None
            try:
                message = job.message(attempt)
            except HilbertRingError as error:
                self.results[number] = error
                continue
            more = message.ByteSize()
            if request.jobs and (size + more > limit or len(request.jobs) == MOST_SMALL_JOBS):
                yield request.SerializeToString()
                request, size = many_pb.AttendManyRequest(), 0
            request.jobs.append(message)
            sent.append(number)  # before the service can answer
            size += more
        if request.jobs:
            yield request.SerializeToString()


def _passes(error: HilbertRingError) -> bool:
    """Whether a call of the job alone would be made again: no worker is there, or the service stops."""
    return error.code == "UNAVAILABLE" or error.reason == "WORKER_LOST"


def _prepared(given: SmallJob, common: Dict[str, Any]
              ) -> Tuple[Optional[PreparedJob], Optional[HilbertRingError]]:
    if isinstance(given, (tuple, list)) and len(given) == 3:
        given = dict(zip("qkv", given))
    try:
        if not isinstance(given, Mapping):
            raise InvalidArgumentError("a small job must be a tuple (q, k, v), or the arguments of attend by name",
                                       field="jobs")
        return PreparedJob({**common, **given}), None
    except HilbertRingError as error:
        return None, error


class ManyAttempt:
    """The messages of one AttendMany call."""

    def __init__(self, call: ManyCall, number: int) -> None:
        self._call = call
        self._number = number
        self._waiting = call.waiting()
        self._sent: List[int] = []  # of these
        self._come: Set[int] = set()
        self._passing: Optional[HilbertRingError] = None  # of a job that is to be sent again
        self.taken = False  # some job has ended

    def messages(self) -> Iterator[bytes]:
        """All that is sent."""
        return self._call.messages(self._waiting, self._number, self._sent)

    def handle(self, message: bytes) -> None:
        """Takes a message of the service.

        Raises:
            InternalError: the service broke the protocol.
        """
        for result in parsed(many_pb.AttendManyResponse, message).results:
            number = self._sent[result.job]
            self._come.add(number)
            passing = self._call.end(number, result)
            self._passing = passing or self._passing
            self.taken = self.taken or passing is None

    def finish(self) -> None:
        """The call has ended well.

        Raises:
            InternalError: some job has no result.
            HilbertRingError: of a job that is to be sent again.
        """
        if not self._come.issuperset(self._call.waiting()):
            raise broken("the call ended well before all jobs had")
        if self._passing is not None:
            raise self._passing


Outcome = Optional[AttemptFailure]  # None: it ended well

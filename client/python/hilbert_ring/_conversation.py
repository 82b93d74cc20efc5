"""A client's side of one call of a job, message by message: what to send, and how to take what comes.

Nothing here reads, writes or waits: a carrier (_carrier_aio.py, _carrier_blocking.py) carries the messages. As
client/cpp/conversation.h.
"""
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Callable, Dict, Optional, Tuple, Union

from hilbert_ring._chunks import MAX_PAYLOAD_BYTES, Inputs, Rows, SendQueue, payload_limit, tensor_name
from hilbert_ring._assembled_rows import AssembledRows
from hilbert_ring._files import FileOutput
from hilbert_ring._tensors import Output
from hilbert_ring.errors import HilbertRingError, InternalError
from hilbert_ring.v1 import attention_pb2 as pb

# Input that is not longer follows its Open at once: the service reads as much ahead.
_EAGER_BYTES = 1 << 20


@dataclass(frozen=True)
class Progress:
    """How far an attempt of a job is.

    Attributes:
        job_id: of the job.
        attempt: from 0.
        last_failure: the error of the attempt before; None in the first.
        wait: seconds between that failure and this attempt, at least.
        admitted: the service has the job's memory, and takes rows.
        jobs_before: jobs in the queue before this one, until it is admitted.
        workers: that share the job, once it is admitted.
        bytes_sent: payload bytes, of bytes_to_send.
        bytes_to_send: grows when the service asks for rows again.
        compute_fraction: 0 to 1, as the service last said.
        layer: of an encoder, those that are computed.
        rows_placed: rows of the first output that are in place, of `rows`.
        rows: tokens, or pooled slides.
        tokens: rows of the job.
        by_reference: no row is sent: the workers read and write files. Of encoders whose slides
            are pooled, rows still come.
    """

    job_id: str
    attempt: int = 0
    last_failure: Optional[Exception] = None
    wait: float = 0.0
    admitted: bool = False
    jobs_before: int = 0
    workers: int = 0
    bytes_sent: int = 0
    bytes_to_send: int = 0
    compute_fraction: float = 0.0
    layer: int = 0
    rows_placed: int = 0
    rows: int = 0
    tokens: int = 0
    by_reference: bool = False


class ProgressTeller:
    """What sender and receiver know of the progress, told as one. Thread-safe."""

    def __init__(self, tell: Optional[Callable[[Progress], None]], start: Progress) -> None:
        self._tell = tell
        self._lock = Lock()
        self._progress = start

    def update(self, **changes: Any) -> None:
        """Tells of the new values."""
        if self._tell is not None:
            with self._lock:
                self._progress = replace(self._progress, **changes)
                self._tell(self._progress)

    def add(self, *, sent: int = 0, to_send: int = 0) -> None:
        """More bytes were sent, or are to be."""
        if self._tell is not None:
            with self._lock:
                self._progress = replace(
                    self._progress, bytes_sent=self._progress.bytes_sent + sent,
                    bytes_to_send=self._progress.bytes_to_send + to_send)
                self._tell(self._progress)


@dataclass(frozen=True)
class JobCall:
    """A job that was checked, and how it is to be called. Each attempt runs the same."""

    method: str                 # of a service: "/hilbert_ring.v1.AttentionService/Attend"
    open: pb.Open               # but for what an attempt says of itself
    inputs: Inputs
    outputs: Dict[Any, Union[Output, FileOutput]]  # by tensor; progress counts the first's rows
    dtypes: Dict[Any, Any]      # of their numbers
    job_id: str
    chunk_bytes: int
    tokens: int
    by_reference: str = "never"  # or "auto", "always": whether tensors are named (_by_reference.py)
    arrays: Dict[Any, Any] = field(default_factory=dict)  # what `inputs` reads, as the caller has it
    files: Dict[Any, Union[Output, FileOutput]] = field(default_factory=dict)  # that the workers write

    @property
    def named(self) -> bool:
        """Nothing is sent: the tensors lie in files."""
        return len(self.open.files) > 0

    @property
    def first_output(self) -> Any:
        """Its tensor; None where none comes."""
        return next(iter(self.outputs), None)

    def result(self, tensor: Any) -> Any:
        """What a caller gets of an output; None where it was not asked for."""
        output = self.outputs.get(tensor) or self.files.get(tensor)
        return None if output is None else output.result()

    def make_room(self) -> None:
        """Makes the files of outputs that this process writes, at their full size, which may take a while.

        Raises:
            InvalidArgumentError, ResourceExhaustedError: as of FileOutput.bytes.
        """
        for output in self.outputs.values():
            len(output.bytes)

    def close(self) -> None:
        """Removes files of outputs that did not become whole."""
        for output in self.outputs.values():
            if isinstance(output, FileOutput):
                output.discard()

    def progress(self, attempt: int, last_failure: Optional[Exception] = None,
                 wait: float = 0.0) -> Progress:
        return Progress(self.job_id, attempt, last_failure, wait,
                        rows=len(self.outputs[self.first_output].bytes) if self.outputs else 0,
                        tokens=self.tokens, bytes_to_send=self.inputs.total_bytes(),
                        by_reference=self.named)


class JobConversation:
    """The messages of one Attend or Encode stream.

    `next_rows` and `message` belong to whoever sends, `handle` and `finish` to whoever receives;
    `handle` and `next_rows` must not run at the same time.

    Attributes:
        wants_block: rows are to be asked of the caller: a job has all of them.
    """

    wants_block = False

    def __init__(self, call: JobCall, number: int, progress: ProgressTeller) -> None:
        self._call = call
        self._number = number
        self._progress = progress
        self._outputs = {
            tensor: AssembledRows(tensor_name(tensor), output.bytes, call.dtypes[tensor])
            for tensor, output in call.outputs.items()}
        self._queue: Optional[SendQueue] = None
        self._report: Optional[pb.Report] = None
        self.admitted = False
        self._eager = not call.named and call.inputs.total_bytes() <= _EAGER_BYTES
        if self._eager:
            self._queue = SendQueue(call.inputs, call.chunk_bytes, MAX_PAYLOAD_BYTES)

    @property
    def method(self) -> str:
        return self._call.method

    def open(self) -> bytes:
        request = pb.AttendRequest(open=self._call.open)
        request.open.job_id = self._call.job_id
        request.open.attempt = self._number
        request.open.can_resend = True
        request.open.input_follows = self._eager
        request.open.one_answer = self._eager
        message: bytes = request.SerializeToString()
        return message

    def next_rows(self) -> Optional[Rows]:
        """What is sent next; None: nothing for now, see `ended`."""
        return None if self._queue is None or self.ended else self._queue.next()

    @property
    def ended(self) -> bool:
        """The report has come: nothing is sent any more."""
        return self._report is not None

    def message(self, rows: Rows) -> bytes:
        return self._call.inputs.chunk(rows)

    def sent(self, rows: Rows) -> None:
        self._progress.add(sent=rows[2] * self._call.inputs.row_bytes[rows[0]])

    def handle(self, response: pb.AttendResponse) -> Tuple[()]:
        """Takes a message of the service. A job's results come at its end alone.

        Raises:
            DataLossError: damaged output.
        """
        kind = response.WhichOneof("message")
        if kind == "queued":
            self._progress.update(jobs_before=response.queued.position)
        elif kind == "admitted":
            self._admit(response.admitted)
        elif kind == "progress":
            if response.progress.phase == pb.Progress.PHASE_COMPUTE:
                self._progress.update(layer=response.progress.layer, compute_fraction=response.progress.fraction)
        elif kind == "output":
            self._place(response.output)
        elif kind == "report":
            if not self.admitted:
                self._note_admitted(len(response.report.workers))
            for output in response.outputs:
                self._place(output)
            self._report = response.report
        elif kind == "resend" and self._queue is not None:
            self._progress.add(to_send=self._queue.resend(response.resend))
        return ()

    def _admit(self, admitted: pb.Admitted) -> None:
        self._note_admitted(admitted.workers)
        if self._queue is None and not self._call.named:
            self._queue = SendQueue(self._call.inputs, self._call.chunk_bytes, payload_limit(admitted))

    def _note_admitted(self, workers: int) -> None:
        self.admitted = True
        self._progress.update(admitted=True, workers=workers)

    def _place(self, chunk: pb.OutputChunk) -> None:
        rows = self._outputs[chunk.tensor]
        rows.place(chunk)
        if chunk.tensor == self._call.first_output:
            self._progress.update(rows_placed=rows.rows_placed)

    def finish(self) -> pb.Report:
        """The stream has ended well: the report, if all is there.

        Raises:
            DataLossError: rows are missing.
            InternalError: there was no report.
        """
        if self._report is None:
            raise InternalError("the service ended the call without a report")
        for rows in self._outputs.values():
            rows.check_complete()
        if not self._outputs:
            return self._report  # the workers have counted
        first = self._outputs[self._call.first_output]
        self._report.rows_not_finite = first.rows_not_finite
        self._report.first_row_not_finite = first.first_not_finite
        return self._report


class JobConversations:
    """Those of a job's attempts, one after the other, and the progress that is told of them."""

    def __init__(self, call: JobCall, tell: Optional[Callable[[Progress], None]]) -> None:
        self._call = call
        self._tell = tell
        self._number = 0
        self._progress = ProgressTeller(tell, call.progress(0))

    def begin(self) -> JobConversation:
        return JobConversation(self._call, self._number, self._progress)

    def tell(self, error: HilbertRingError, wait: float) -> None:
        """Another attempt follows."""
        self._number += 1
        self._progress = ProgressTeller(self._tell, self._call.progress(self._number, error, wait))
        self._progress.update()

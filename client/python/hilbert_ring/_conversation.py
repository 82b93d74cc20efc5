"""The client's side of one call of a job: makes each request and handles each response.

A carrier (_carrier.py) reads, writes and waits. client/cpp/conversation.h does the same.
"""
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Callable, Dict, Optional, Tuple, Union

from hilbert_ring._chunks import MAX_PAYLOAD_BYTES, Inputs, Rows, SendQueue, payload_limit, tensor_name
from hilbert_ring._assembled_rows import AssembledRows
from hilbert_ring._files import FileOutput
from hilbert_ring._tensors import Output
from hilbert_ring.errors import InternalError
from hilbert_ring.v1 import attention_pb2 as pb

# Input up to this size follows its Open at once: the service reads this much ahead.
_EAGER_BYTES = 1 << 20


@dataclass(frozen=True)
class Progress:
    """The progress of one attempt of a job.

    Attributes:
        job_id: the job's name.
        attempt: number of the attempt, from 0.
        last_failure: the error of the previous attempt; None in the first.
        wait: least seconds between that failure and this attempt.
        admitted: the service has memory for the job and takes its rows.
        jobs_before: jobs in the queue before this one, until it is admitted.
        workers: workers that share the job, after it is admitted.
        bytes_sent: payload bytes sent, of bytes_to_send.
        bytes_to_send: grows if the service requests rows again.
        compute_fraction: 0 to 1, by the service's last message.
        layer: layers of an encoder that are computed.
        rows_placed: rows of the first output that have come, of `rows`.
        rows: tokens, or pooled slides.
        tokens: rows of the job.
        by_reference: the client sends no row: the workers read and write files. An encoder that pools slides still
            sends its results.
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


class ProgressReporter:
    """Joins the progress of an attempt's sender and receiver, and passes it to the caller's function. Thread-safe."""

    def __init__(self, show: Optional[Callable[[Progress], None]], start: Progress) -> None:
        self.attempt = start.attempt
        self._show = show
        self._lock = Lock()
        self._progress = start

    def update(self, *, sent: int = 0, to_send: int = 0, **changes: Any) -> None:
        """sent, to_send: further bytes; changes: new values of fields."""
        if self._show is not None:
            with self._lock:
                self._progress = replace(
                    self._progress, bytes_sent=self._progress.bytes_sent + sent,
                    bytes_to_send=self._progress.bytes_to_send + to_send, **changes)
                self._show(self._progress)


@dataclass(frozen=True)
class JobCall:
    """A checked job and its call, the same in each attempt."""

    method: str                 # path: "/hilbert_ring.v1.AttentionService/Attend"
    open: pb.Open               # without the fields of an attempt
    inputs: Inputs
    outputs: Dict[Any, Union[Output, FileOutput]]  # by tensor; progress counts the first's rows
    dtypes: Dict[Any, Any]      # by tensor
    job_id: str
    chunk_bytes: int
    tokens: int
    by_reference: str = "never"  # or "auto", "always": whether tensors are passed by path (_by_reference.py)
    arrays: Dict[Any, Any] = field(default_factory=dict)  # the caller's arrays behind `inputs`
    files: Dict[Any, Union[Output, FileOutput]] = field(default_factory=dict)  # outputs that the workers write

    @property
    def named(self) -> bool:
        """The tensors are passed by path and are not sent."""
        return len(self.open.files) > 0

    @property
    def first_output(self) -> Any:
        """The tensor of the first output that is received; None: no output is."""
        return next(iter(self.outputs), None)

    def result(self, tensor: Any) -> Any:
        """Returns an output for the caller; None: the caller did not request it."""
        output = self.outputs.get(tensor) or self.files.get(tensor)
        return None if output is None else output.result()

    def make_room(self) -> None:
        """Creates the files of received outputs at their full size, which may take a while.

        Raises:
            InvalidArgumentError, ResourceExhaustedError: see FileOutput.bytes.
        """
        for output in self.outputs.values():
            len(output.bytes)

    def close(self) -> None:
        """Removes incomplete files of outputs."""
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

    The sender calls `next_rows` and `message`, the receiver `handle` and `finish`. `handle` and `next_rows` must not
    run at the same time.

    Attributes:
        wants_block: the caller must give the next block: never of a job, which has all its rows.
    """

    wants_block = False

    def __init__(self, call: JobCall, progress: ProgressReporter) -> None:
        """progress: of this attempt."""
        self._call = call
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
        request.open.attempt = self._progress.attempt
        request.open.can_resend = True
        request.open.input_follows = self._eager
        request.open.one_answer = self._eager
        message: bytes = request.SerializeToString()
        return message

    def next_rows(self) -> Optional[Rows]:
        """Returns the rows to send next; None: no rows are due now, see `ended`."""
        return None if self._queue is None or self.ended else self._queue.next()

    @property
    def ended(self) -> bool:
        """The report has come: the client sends no more rows."""
        return self._report is not None

    def message(self, rows: Rows) -> bytes:
        return self._call.inputs.chunk(rows)

    def sent(self, rows: Rows) -> None:
        self._progress.update(sent=rows[2] * self._call.inputs.row_bytes[rows[0]])

    def handle(self, response: pb.AttendResponse) -> Tuple[()]:
        """Takes a message of the service. Returns no results, which a job has at its end.

        Raises:
            DataLossError: the output is damaged.
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
            self._progress.update(to_send=self._queue.resend(response.resend))
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
        """Returns the report after the stream has ended with OK.

        Raises:
            DataLossError: rows are missing.
            InternalError: no report came.
        """
        if self._report is None:
            raise InternalError("the service ended the call without a report")
        for rows in self._outputs.values():
            rows.check_complete()
        if not self._outputs:
            return self._report  # with the workers' counts
        first = self._outputs[self._call.first_output]
        self._report.rows_not_finite = first.rows_not_finite
        self._report.first_row_not_finite = first.first_not_finite
        return self._report

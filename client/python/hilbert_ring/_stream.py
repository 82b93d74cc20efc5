"""A job without end as messages: blocks of rows in, blocks of results out.

Nothing here reads, writes or waits: a carrier (_carrier_aio.py, _carrier_blocking.py) carries the messages.
"""
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Deque, Dict, List, Optional, Tuple

import numpy as np
from crc32c import crc32c

from hilbert_ring._channel import SERVICE
from hilbert_ring._chunks import Inputs, Rows, payload_limit, tensor_name
from hilbert_ring._job import AttendOptions, shape_of
from hilbert_ring._spec import boolean, integer, make_spec, row_bytes
from hilbert_ring._tensors import Output, Tensor, read_tensor
from hilbert_ring._torch_streams import CallerStreams
from hilbert_ring.errors import DataLossError, InternalError, InvalidArgumentError
from hilbert_ring.ordering import Ordering
from hilbert_ring.v1 import attention_pb2 as pb

_INPUTS = (pb.TENSOR_Q, pb.TENSOR_K, pb.TENSOR_V)


@dataclass(frozen=True, eq=False)
class StreamedBlock:
    """Results of a block of rows, as many as it had, which may be none.

    Attributes:
        first_token: of the stream.
        out: [rows, heads, value_dim], of the kind and type of the first block's q.
        lse: float32 [rows, heads]; None if it was not asked for.
    """

    first_token: int
    out: Any
    lse: Optional[Any]


@dataclass(frozen=True)
class InputBlock:
    """Rows of q, k and v that follow those before."""

    tensors: Tuple[Tensor, Tensor, Tensor]

    @property
    def rows(self) -> int:
        return self.tensors[0].shape[0]


@dataclass(frozen=True)
class StreamCall:
    """A stream whose first block is there, and how it is to be called."""

    open: pb.Open  # but for what an attempt says of itself
    first: InputBlock
    dtype: Optional[str]  # what raw 16-bit numbers are
    options: AttendOptions
    job_id: str
    streams: CallerStreams

    def block(self, value: Any) -> InputBlock:
        """The caller's (q, k, v), which have the shapes and the type of the first block's.

        Raises:
            InvalidArgumentError: they have not.
        """
        block = read_block(value, self.dtype, self.streams)
        for new, first in zip(block.tensors, self.first.tensors):
            if new.dtype != first.dtype or new.shape[1:] != first.shape[1:]:
                raise InvalidArgumentError(
                    f"{new.name} of a block is {new.dtype} {new.shape}, that of the first was "
                    f"{first.dtype} {first.shape}", field=new.name)
        return block


@dataclass
class StreamState:
    """What a caller may ask of a stream while it runs, and after it."""

    report: Optional[pb.Report] = None
    epoch: Optional[pb.Epoch] = None


class StreamFigures:
    """What a stream, blocking or asyncio, says of itself."""

    def __init__(self, state: StreamState) -> None:
        self._state = state

    @property
    def report(self) -> Optional[pb.Report]:
        """Of the whole."""
        return self._state.report

    @property
    def epoch(self) -> Optional[pb.Epoch]:
        """The last one."""
        return self._state.epoch


def read_block(value: Any, dtype: Optional[str], streams: CallerStreams) -> InputBlock:
    """A caller's (q, k, v).

    Raises:
        InvalidArgumentError: they are no tensors of as many rows.
    """
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise InvalidArgumentError("a block must be a tuple (q, k, v)", field="blocks")
    q, k, v = (read_tensor(name, given, dtype, streams) for name, given in zip("qkv", value))
    shape_of(q, k, v)
    return InputBlock((q, k, v))


def prepare_stream(value: Any, *, dtype: Optional[str], lse: bool, epoch_tokens: Optional[int],
                   options: AttendOptions, ordering: Optional[Ordering],
                   pattern: Dict[str, Any], streams: CallerStreams) -> StreamCall:
    """Checks the arguments and the first block. Nothing is sent. streams: of the caller.

    Raises:
        InvalidArgumentError, OutOfRangeError: naming the argument.
    """
    if ordering is not None and ordering.curve == "auto":
        raise InvalidArgumentError("ordering: a stream has Hilbert(...) or Morton(...), not Auto",
                                   field="ordering")
    first = read_block(value, dtype, streams)
    shape = {**shape_of(*first.tensors), "tokens": 0}
    spec = make_spec(dtype=first.tensors[0].dtype, ordering=ordering, **shape, **pattern)
    epoch = 0 if epoch_tokens is None else integer("epoch_tokens", epoch_tokens)
    return StreamCall(pb.Open(spec=spec, want_lse=boolean("lse", lse), epoch_tokens=epoch), first, dtype,
                      options, options.name(), streams)


@dataclass
class _OpenBlock:
    """A block whose results come."""

    first: int
    rows: int
    outputs: Dict[Any, Output]
    filled: Dict[Any, int] = field(default_factory=dict)

    def complete(self) -> bool:
        return all(self.filled.get(tensor, 0) == self.rows for tensor in self.outputs)

    def result(self) -> StreamedBlock:
        lse = self.outputs.get(pb.TENSOR_LSE)
        return StreamedBlock(self.first, self.outputs[pb.TENSOR_OUT].result(),
                             None if lse is None else lse.result())


class StreamConversation:
    """The messages of one AttendStream.

    Attributes:
        ended: the caller has no more blocks; the client's side is closed then, and the service ends the stream after
            that.
    """

    method = SERVICE + "AttendStream"

    def __init__(self, call: StreamCall, number: int, state: StreamState) -> None:
        self._call = call
        self._number = number
        self._state = state
        self._spec = call.open.spec
        self._sizes = {tensor: row_bytes(self._spec, tensor)
                       for tensor in (*_INPUTS, pb.TENSOR_OUT, pb.TENSOR_LSE)}
        wanted = [pb.TENSOR_OUT] + ([pb.TENSOR_LSE] if call.open.want_lse else [])
        self._come = dict.fromkeys(wanted, 0)           # rows, so far
        self._sent: Deque[Tuple[int, int]] = deque()    # first row and rows of blocks
        self._open: Deque[_OpenBlock] = deque()
        self._rows_sent = 0   # of the blocks that were begun
        self._rows_per_chunk = 0  # once it is admitted
        self._inputs: Inputs  # of the block that is being sent
        self._queue: Deque[Rows] = deque()  # of it
        self.ended = False

    @property
    def admitted(self) -> bool:
        """Rows may be sent."""
        return self._rows_per_chunk > 0

    def open(self) -> bytes:
        request = pb.AttendRequest(open=self._call.open)
        request.open.job_id = self._call.job_id
        request.open.attempt = self._number
        message: bytes = request.SerializeToString()
        return message

    @property
    def wants_block(self) -> bool:
        """All rows of the blocks up to now were sent."""
        return self.admitted and not self._queue and not self.ended

    def add_block(self, value: Any) -> None:
        """The caller's block, whose rows follow those of the block before.

        Raises:
            InvalidArgumentError: as of StreamCall.block.
        """
        self._add(self._call.block(value))

    def _add(self, block: InputBlock) -> None:
        base = self._rows_sent
        self._rows_sent += block.rows
        self._sent.append((base, block.rows))
        self._inputs = Inputs(block.rows, self._sizes, {
            tensor: lambda first, count, read=read: read.rows(first - base, count)  # type: ignore
            for tensor, read in zip(_INPUTS, block.tensors)})
        end = base + block.rows
        self._queue.extend((tensor, first, min(self._rows_per_chunk, end - first))
                           for first in range(base, end, self._rows_per_chunk) for tensor in _INPUTS)

    def next_rows(self) -> Optional[Rows]:
        return self._queue.popleft() if self._queue else None

    def message(self, rows: Rows) -> bytes:
        return self._inputs.chunk(rows)

    def sent(self, _: Rows) -> None:
        """A stream's progress is what has come."""

    def handle(self, response: pb.AttendResponse) -> List[StreamedBlock]:
        """Takes a message of the service: the blocks whose results it completes.

        Raises:
            DataLossError: damaged output.
        """
        kind = response.WhichOneof("message")
        if kind == "admitted":
            self._admit(response.admitted)
            return []  # of a first block without rows with the next message
        if kind == "output":
            self._place(response.output)
        elif kind == "epoch":
            self._state.epoch = response.epoch
        elif kind == "report":
            self._state.report = response.report
        return self._completed()

    def _admit(self, admitted: pb.Admitted) -> None:
        widest = max(self._sizes[tensor] for tensor in _INPUTS)
        rows = min(self._call.options.chunk_bytes, payload_limit(admitted)) // widest
        self._rows_per_chunk = max(1, min(rows, admitted.epoch_tokens))
        self._add(self._call.first)

    def _place(self, chunk: pb.OutputChunk) -> None:
        tensor, payload, rows = chunk.tensor, chunk.payload, chunk.rows
        row, size = self._come[tensor], self._sizes[tensor]
        if crc32c(payload) != chunk.crc32c:
            raise DataLossError(f"{tensor_name(tensor)}: the checksum of rows from {row} on does "
                                "not match")
        values = np.frombuffer(payload, np.uint8).reshape(rows, size)
        while len(values):
            block = self._block_at(row)
            at = row - block.first
            count = min(block.rows - at, len(values))
            block.outputs[tensor].bytes[at:at + count] = values[:count]
            block.filled[tensor] = at + count
            values, row = values[count:], row + count
        self._come[tensor] = row

    def _completed(self) -> List[StreamedBlock]:
        """Blocks whose turn it is, and all of whose rows have come: none, of one without rows."""
        done: List[StreamedBlock] = []
        while True:
            if not self._open and self._sent and self._sent[0][1] == 0:
                self._begin_block()
            if not self._open or not self._open[0].complete():
                return done
            done.append(self._open.popleft().result())

    def _block_at(self, row: int) -> _OpenBlock:
        for block in self._open:
            if row < block.first + block.rows:
                return block
        block = self._begin_block()
        while row >= block.first + block.rows:
            block = self._begin_block()
        return block

    def _begin_block(self) -> _OpenBlock:
        first, rows = self._sent.popleft()
        self._open.append(_OpenBlock(first, rows, self._outputs(rows)))
        return self._open[-1]

    def _outputs(self, rows: int) -> Dict[Any, Output]:
        like, spec = self._call.first.tensors[0], self._spec
        outputs = {pb.TENSOR_OUT: like.like((rows, spec.heads, spec.value_dim), like.dtype)}
        if pb.TENSOR_LSE in self._come:
            outputs[pb.TENSOR_LSE] = like.like((rows, spec.heads), "float32")
        return outputs

    def finish(self) -> pb.Report:
        """The call has ended well: the report, if all is there.

        Raises:
            DataLossError: rows are missing.
            InternalError: there was no report, or the caller has more blocks.
        """
        if self._state.report is None:
            raise InternalError("the service ended the stream without a report")
        if not self.ended:
            raise InternalError("the service ended the stream before its input had ended")
        if self._open or self._sent:
            raise DataLossError(f"of {self._rows_sent} rows that were sent "
                                f"{self._come[pb.TENSOR_OUT]} came back")
        return self._state.report

"""The client's side of a stream without end: blocks of rows in, blocks of results out.

A carrier (_carrier.py) reads, writes and waits.
"""
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, AsyncIterable, AsyncIterator, Callable, Deque, Dict, Iterable, List, Optional, Tuple, Union

import numpy as np
from crc32c import crc32c

from hilbert_ring._carrier import Carrier
from hilbert_ring._channel import SERVICE
from hilbert_ring._chunks import Inputs, Reader, Rows, payload_limit, tensor_name
from hilbert_ring._connection import AnyConnection
from hilbert_ring._job import AttendOptions, shape_of
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._spec import boolean, integer, make_spec, row_bytes
from hilbert_ring._tensors import Output, Tensor, read_tensor
from hilbert_ring._torch_streams import CallerStreams
from hilbert_ring.errors import DataLossError, InternalError, InvalidArgumentError
from hilbert_ring.ordering import Ordering
from hilbert_ring.v1 import attention_pb2 as pb

Blocks = Union[Iterable[Tuple[Any, Any, Any]], AsyncIterable[Tuple[Any, Any, Any]]]
_END: Any = object()
MOST_HELD_SECONDS = 1.0
_INPUTS = (pb.TENSOR_Q, pb.TENSOR_K, pb.TENSOR_V)
Tensors = Tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class StreamedBlock:
    """The results of a block of rows. They have the block's number of rows, which may be 0.

    Attributes:
        first_token: the stream's token of the first row.
        out: [rows, heads, value_dim], of the kind and type of the first block's q.
        lse: float32 [rows, heads]; None if not requested.
    """

    first_token: int
    out: Any
    lse: Optional[Any]


@dataclass(frozen=True)
class StreamCall:
    """A checked stream with its first block, and its call."""

    open: pb.Open  # without the fields of an attempt
    first: Tensors
    dtype: Optional[str]  # type of raw 16-bit numbers
    options: AttendOptions
    job_id: str
    streams: CallerStreams

    def block(self, value: Any) -> Tensors:
        """Reads the caller's (q, k, v)."""
        block = read_block(value, self.dtype, self.streams)
        for new, first in zip(block, self.first):
            if new.dtype != first.dtype or new.shape[1:] != first.shape[1:]:
                raise InvalidArgumentError(
                    f"{new.name} of a block is {new.dtype} {new.shape}, must be like the first block's "
                    f"{first.dtype} {first.shape}", field=new.name)
        return block


@dataclass
class StreamState:
    """The figures of a stream, during and after it."""

    report: Optional[pb.Report] = None
    epoch: Optional[pb.Epoch] = None


def read_block(value: Any, dtype: Optional[str], streams: CallerStreams) -> Tensors:
    """Reads a caller's (q, k, v), the next rows."""
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise InvalidArgumentError("a block must be a tuple (q, k, v)", field="blocks")
    q, k, v = (read_tensor(name, given, dtype, streams) for name, given in zip("qkv", value))
    keys = shape_of(q, k, v)["key_tokens"]
    if keys != q.shape[0]:
        raise InvalidArgumentError(f"k has {keys} rows, must have those of q in a stream, {q.shape[0]}", field="k",
                                   limit=q.shape[0])
    return q, k, v


def prepare_stream(value: Any, *, dtype: Optional[str], lse: bool, epoch_tokens: Optional[int],
                   options: AttendOptions, ordering: Optional[Ordering],
                   pattern: Dict[str, Any], streams: CallerStreams) -> StreamCall:
    """Checks the arguments and the first block, without a call to the service. streams: the caller's."""
    if ordering is not None and ordering.curve == "auto":
        raise InvalidArgumentError("ordering: a stream has Hilbert(...) or Morton(...), not Auto",
                                   field="ordering")
    first = read_block(value, dtype, streams)
    shape = {**shape_of(*first), "tokens": 0, "key_tokens": None}
    spec = make_spec(dtype=first[0].dtype, ordering=ordering, **shape, **pattern)
    epoch = 0 if epoch_tokens is None else integer("epoch_tokens", epoch_tokens)
    return StreamCall(pb.Open(spec=spec, want_lse=boolean("lse", lse), epoch_tokens=epoch), first, dtype,
                      options, options.name(), streams)


@dataclass
class _OpenBlock:
    """A block whose results arrive."""

    first: int
    rows: int
    outputs: Dict[Any, Output]
    missing: int  # rows of all outputs

    def result(self) -> StreamedBlock:
        lse = self.outputs.get(pb.TENSOR_LSE)
        return StreamedBlock(self.first, self.outputs[pb.TENSOR_OUT].result(),
                             None if lse is None else lse.result())


class StreamConversation:
    """The messages of one AttendStream.

    Rows of small blocks are held until they fill a message or the epoch, because results come by epochs. A block that
    comes a second after the first held row sends them all.
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
        self._come = dict.fromkeys(wanted, 0)           # rows that have come, by tensor
        self._sent: Deque[Tuple[int, int]] = deque()    # first row and rows of blocks without results yet
        self._open: Deque[_OpenBlock] = deque()
        self._filling: Dict[Any, Deque[_OpenBlock]] = {tensor: deque() for tensor in wanted}  # blocks that miss rows
        self._rows_taken = 0  # of the blocks that were begun
        self._rows_per_chunk = 0  # 0: not admitted yet
        self._epoch_tokens = 0
        self._held: Dict[Any, List[bytes]] = {tensor: [] for tensor in _INPUTS}  # rows before those of `_queue`'s block
        self._held_since = 0.0  # when the first held row came
        self._rows_queued = 0  # the next row behind all messages
        self._inputs: Inputs  # of the block that is being sent
        self._queue: Deque[Rows] = deque()  # of that block, and its last rows without a tensor: they will be held
        self._last = False  # the caller has no more blocks

    @property
    def admitted(self) -> bool:
        return self._rows_per_chunk > 0

    def open(self) -> bytes:
        request = pb.AttendRequest(open=self._call.open)
        request.open.job_id = self._call.job_id
        request.open.attempt = self._number
        message: bytes = request.SerializeToString()
        return message

    @property
    def wants_block(self) -> bool:
        """All rows of earlier blocks were sent, and the caller must give the next block."""
        return self.admitted and not self._queue and not self._last

    @property
    def ended(self) -> bool:
        """All rows were sent. The client then closes its side, and the service ends the stream."""
        return self._last and not self._queue

    def add_block(self, value: Any) -> None:
        """Queues the caller's next block. Raises InvalidArgumentError: see StreamCall.block."""
        self._add(self._call.block(value))

    def end_blocks(self) -> None:
        """Queues the rows that are still held: the caller has no more blocks."""
        self._last = True
        left = self._rows_taken - self._rows_queued
        if left > 0:
            self._inputs = Inputs(dict.fromkeys(_INPUTS, left), self._sizes, {
                tensor: lambda *_, held=held: b"".join(held) for tensor, held in self._held.items()})  # type: ignore
            self._queue_rows(left)

    def _add(self, block: Tensors) -> None:
        base, rows = self._rows_taken, block[0].shape[0]
        if base == self._rows_queued:
            self._held_since = time.monotonic()
        self._rows_taken = base + rows
        self._sent.append((base, rows))

        def reader(tensor: Any, read: Tensor) -> Reader:
            def read_rows(first: int, count: int) -> Any:
                if first >= base:
                    return read.rows(first - base, count)
                held, self._held[tensor] = self._held[tensor], []
                return b"".join((*held, read.rows(0, first + count - base)))

            return read_rows

        self._inputs = Inputs(dict.fromkeys(_INPUTS, rows), self._sizes,
                              {tensor: reader(tensor, read) for tensor, read in zip(_INPUTS, block)})
        while (left := self._rows_taken - self._rows_queued) >= (most := self._most_rows()):
            self._queue_rows(most)
            self._held_since = time.monotonic()
        if left > 0 and time.monotonic() - self._held_since > MOST_HELD_SECONDS:
            self._queue_rows(left)
            left = 0
        if min(left, rows) > 0:
            self._queue.append((None, self._rows_taken - min(left, rows), min(left, rows)))

    def _most_rows(self) -> int:
        """Returns the rows of the next message."""
        return min(self._rows_per_chunk, self._epoch_tokens - self._rows_queued % self._epoch_tokens)

    def _queue_rows(self, count: int) -> None:
        self._queue.extend((tensor, self._rows_queued, count) for tensor in _INPUTS)
        self._rows_queued += count

    def next_rows(self) -> Optional[Rows]:
        return self._queue.popleft() if self._queue else None

    def message(self, rows: Rows) -> Optional[bytes]:
        """Returns the message of rows; None: they are held for a later one."""
        tensor, first, count = rows
        if tensor is not None:
            return self._inputs.chunk(rows)
        for tensor, read in self._inputs.readers.items():
            self._held[tensor].append(bytes(read(first, count)))
        return None

    def sent(self, _: Rows) -> None:
        """No effect: a stream does not report progress of sending."""

    def handle(self, response: pb.AttendResponse) -> List[StreamedBlock]:
        """Takes a message of the service and returns the blocks whose results it completes.

        Raises:
            DataLossError: the output is damaged.
        """
        kind = response.WhichOneof("message")
        if kind == "admitted":
            self._admit(response.admitted)
            return []  # the next message completes a first block without rows
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
        self._epoch_tokens = admitted.epoch_tokens
        self._rows_per_chunk = max(1, min(rows, admitted.epoch_tokens))
        self._add(self._call.first)

    def _place(self, chunk: pb.OutputChunk) -> None:
        tensor, payload, rows = chunk.tensor, chunk.payload, chunk.rows
        row, size = self._come[tensor], self._sizes[tensor]
        if crc32c(payload) != chunk.crc32c:
            raise DataLossError(f"{tensor_name(tensor)}: the checksum of rows from {row} on does "
                                "not match")
        values = np.frombuffer(payload, np.uint8).reshape(rows, size)
        filling = self._filling[tensor]
        self._come[tensor] = end = row + rows
        while row < end:
            while not filling:
                self._begin_block()
            block = filling[0]
            at, stop = row - block.first, min(block.rows, end - block.first)
            block.outputs[tensor].bytes[at:stop] = values[:stop - at]
            block.missing -= stop - at
            values, row = values[stop - at:], block.first + stop
            if stop == block.rows:
                filling.popleft()

    def _completed(self) -> List[StreamedBlock]:
        """Takes out the blocks that are complete, in order. A block without rows is complete at once."""
        done: List[StreamedBlock] = []
        while True:
            if not self._open and self._sent and self._sent[0][1] == 0:
                self._begin_block()
            if not self._open or self._open[0].missing:
                return done
            done.append(self._open.popleft().result())

    def _begin_block(self) -> None:
        first, rows = self._sent.popleft()
        block = _OpenBlock(first, rows, self._outputs(rows), rows * len(self._filling))
        self._open.append(block)
        if rows:
            for filling in self._filling.values():
                filling.append(block)

    def _outputs(self, rows: int) -> Dict[Any, Output]:
        like, spec = self._call.first[0], self._spec
        outputs = {pb.TENSOR_OUT: like.like((rows, spec.heads, spec.value_dim), like.dtype)}
        if pb.TENSOR_LSE in self._come:
            outputs[pb.TENSOR_LSE] = like.like((rows, spec.heads), "float32")
        return outputs

    def finish(self) -> pb.Report:
        """Returns the report after the call has ended with OK.

        Raises:
            DataLossError: rows are missing.
            InternalError: no report came, or the caller has more blocks.
        """
        if self._state.report is None:
            raise InternalError("the service ended the stream without a report")
        if not self.ended:
            raise InternalError("the service ended the stream before its input had ended")
        if self._open or self._sent:
            raise DataLossError(f"{self._come[pb.TENSOR_OUT]} of {self._rows_taken} rows came back")
        return self._state.report


async def run_stream(connection: AnyConnection, blocks: Blocks, streams: CallerStreams,
                     prepare: Callable[[Any], StreamCall], state: StreamState) -> AsyncIterator[StreamedBlock]:
    """Yields the results. prepare: makes the stream's call of its first block.

    The call is tried again like a job's until the service admits the stream, and never after that.
    """
    rest = _each(connection, blocks, streams)
    try:
        first = await rest.__anext__()
    except StopAsyncIteration:
        return
    call = prepare(first)

    carriers: List[Carrier] = []  # of the attempts

    async def begin(seconds: Optional[float]) -> Union[Carrier, AttemptFailure]:
        conversation = StreamConversation(call, len(carriers), state)
        carrier = Carrier(connection, conversation, seconds, rest)
        carriers.append(carrier)
        while not conversation.admitted:
            if await carrier.receive() is None:
                carrier.close()
                assert isinstance(carrier.outcome, AttemptFailure)  # its input has not ended
                return carrier.outcome
        return carrier

    try:
        carrier = await connection.call_with_retries(call.options.retries(), begin)
        while (results := await carrier.receive()) is not None:
            for block in results:
                yield block
    finally:
        for made in carriers:
            made.close()
    if isinstance(carrier.outcome, AttemptFailure):
        raise carrier.outcome.error


async def _each(connection: AnyConnection, blocks: Blocks, streams: CallerStreams) -> AsyncIterator[Any]:
    """Yields the caller's blocks. A plain iterator may wait."""
    if isinstance(blocks, AsyncIterable):
        async for block in blocks:
            yield block
        return
    rest = streams.iterate(blocks)
    while (block := await connection.in_thread(next, rest, _END)) is not _END:
        yield block

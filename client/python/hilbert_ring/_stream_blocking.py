"""Streams without end of the blocking client."""
import threading
from typing import Any, Callable, Generator, Iterable, Iterator, Optional, Tuple, Union

import grpc

from hilbert_ring._channel import SERVICE, failure_or_raise
from hilbert_ring._connection import Connection
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._stream import InputBlock, StreamAttempt, StreamCall, StreamedBlock, StreamFigures, StreamState
from hilbert_ring._torch_streams import CallerStreams
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb

Blocks = Iterable[Tuple[Any, Any, Any]]
_Outcome = Union[pb.Report, AttemptFailure]
_END = object()


class AttendStream(StreamFigures):
    """Results of a stream: an iterator of StreamedBlock, one for each block that went in.

    Rows are taken from the caller's blocks by a thread of the call's, as far ahead as the service
    takes them; who does not iterate stops it. Ends with its last result, with `close`, with a
    `with` block, or when nobody has it any more.

    Attributes:
        epoch: the last epoch whose results have all come (message Epoch); None before.
        report: the service's figures of the whole (message Report), after the last result; None
            before, and of a stream without blocks.
    """

    def __init__(self, results: Iterator[StreamedBlock], state: StreamState) -> None:
        super().__init__(state)
        self._results = results

    def __iter__(self) -> "AttendStream":
        return self

    def __next__(self) -> StreamedBlock:
        return next(self._results)

    def close(self) -> None:
        """Ends the stream where it is."""
        self._results.close()  # type: ignore[attr-defined]

    def __enter__(self) -> "AttendStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_stream(connection: Connection, blocks: Blocks, streams: CallerStreams, prepare: Callable[[Any], StreamCall],
               state: StreamState) -> Iterator[StreamedBlock]:
    """The results. prepare: of the first block, which says what the stream is.

    Until the service has taken the stream it is called again as a job is; then never.
    """
    rest = streams.iterate(blocks)
    first = next(rest, _END)
    if first is _END:
        return
    call = prepare(first)
    attempts = call.options.attempts(connection.timing)
    number = 0
    while True:
        attempt = StreamAttempt(call, number, state)
        outcome = yield from _Carrier(attempt, call, rest).run(connection, attempts.deadline_left())
        if not isinstance(outcome, AttemptFailure):
            return
        if outcome.admitted:
            raise outcome.error
        connection.come_back(attempts, outcome, attempts.wait_after(outcome))
        number += 1


class _Carrier:
    """Carries the messages of an attempt: rows leave in gRPC's thread, which asks for them, while the caller's thread
    takes what comes."""

    def __init__(self, attempt: StreamAttempt, call: StreamCall, rest: Iterator[Any]) -> None:
        self._attempt = attempt
        self._call = call
        self._rest = rest
        self._changed = threading.Event()  # it is admitted, or over
        self._over = False
        self._broken: Optional[Exception] = None  # the caller's blocks

    def run(self, connection: Connection, seconds: Optional[float]) -> Generator[StreamedBlock, None, _Outcome]:
        """The results; returns the report, or how the attempt failed."""
        stream = connection.stream(SERVICE + "AttendStream", self._requests(), seconds, endless=True)
        try:
            for message in stream:
                results = self._attempt.handle(message)
                if self._attempt.admitted:
                    self._changed.set()
                yield from results
            return self._attempt.finish()
        except (grpc.RpcError, HilbertRingError) as ended:
            return failure_or_raise(ended, self._attempt.admitted, self._broken, connection.closed)
        finally:
            self._over = True
            self._changed.set()
            stream.cancel()

    def _requests(self) -> Iterator[bytes]:
        try:
            yield self._attempt.open()
            self._changed.wait()  # until the call ends, which has a deadline
            for block in self._blocks():
                yield from self._attempt.chunks(block)
        except Exception as error:
            self._broken = error
            raise

    def _blocks(self) -> Iterator[InputBlock]:
        if not self._over:
            yield self._call.first
        while not self._over:
            value = next(self._rest, _END)
            if value is _END:
                self._attempt.input_ended = True
                return
            yield self._call.block(value)

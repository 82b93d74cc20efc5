"""Streams without end of the blocking client."""
from typing import Any, Callable, Iterable, Iterator, Tuple

from hilbert_ring._attempt_blocking import BlockingCarrier
from hilbert_ring._connection import Connection
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._stream import StreamAttempt, StreamCall, StreamedBlock, StreamFigures, StreamState
from hilbert_ring._torch_streams import CallerStreams

Blocks = Iterable[Tuple[Any, Any, Any]]
_END: Any = object()


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
        carrier = _Carrier(StreamAttempt(call, number, state), call, rest)
        yield from carrier.run(connection, attempts.deadline_left(), endless=True)
        failure = carrier.outcome
        if not isinstance(failure, AttemptFailure):
            return
        if failure.admitted:
            raise failure.error
        connection.come_back(attempts, failure, attempts.wait_after(failure))
        number += 1


class _Carrier(BlockingCarrier[StreamAttempt]):
    """Carries those of a stream."""

    def __init__(self, attempt: StreamAttempt, call: StreamCall, rest: Iterator[Any]) -> None:
        super().__init__(attempt)
        self._call = call
        self._rest = rest

    def _requests(self) -> Iterator[bytes]:
        yield self._attempt.open()
        with self._changed:
            # Until the call ends, which has a deadline.
            self._changed.wait_for(lambda: self._attempt.admitted or self._over)
        block = self._call.first
        while not self._over:
            yield from self._attempt.chunks(block)
            value = next(self._rest, _END)
            if value is _END:
                self._attempt.input_ended = True
                return
            block = self._call.block(value)

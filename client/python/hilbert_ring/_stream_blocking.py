"""Streams without end of the blocking client."""
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple, Union

from hilbert_ring._carrier_blocking import BlockingCarrier
from hilbert_ring._connection import Connection
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._stream import StreamCall, StreamConversation, StreamedBlock, StreamFigures, StreamState
from hilbert_ring._torch_streams import CallerStreams

Blocks = Iterable[Tuple[Any, Any, Any]]
_END: Any = object()


class AttendStream(StreamFigures):
    """The results of a stream: an iterator with a StreamedBlock for each block of the input.

    A thread takes the caller's blocks as far ahead as the service takes rows. It stops while the caller does not
    iterate. The stream ends after its last result, by `close`, after a `with` block, or when it is collected.

    Attributes:
        epoch: the last epoch whose results have all come (message Epoch); None before.
        report: the service's figures of the whole stream (message Report), after the last result; None before, and if
            the stream has no blocks.
    """

    def __init__(self, results: Iterator[StreamedBlock], state: StreamState) -> None:
        super().__init__(state)
        self._results = results

    def __iter__(self) -> "AttendStream":
        return self

    def __next__(self) -> StreamedBlock:
        return next(self._results)

    def close(self) -> None:
        """Ends the stream before its end."""
        self._results.close()  # type: ignore[attr-defined]

    def __enter__(self) -> "AttendStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_stream(connection: Connection, blocks: Blocks, streams: CallerStreams, prepare: Callable[[Any], StreamCall],
               state: StreamState) -> Iterator[StreamedBlock]:
    """Yields the results. prepare: makes the stream's call of its first block.

    The call is tried again like a job's until the service admits the stream, and never after that.
    """
    rest = streams.iterate(blocks)
    first = next(rest, _END)
    if first is _END:
        return
    call = prepare(first)

    carriers: List[BlockingCarrier] = []  # of the attempts

    def begin(seconds: Optional[float]) -> Union[BlockingCarrier, AttemptFailure]:
        conversation = StreamConversation(call, len(carriers), state)
        carrier = BlockingCarrier(connection, conversation, seconds, rest)
        carriers.append(carrier)
        while not conversation.admitted:
            if carrier.receive() is None:
                carrier.close()
                assert isinstance(carrier.outcome, AttemptFailure)  # its input has not ended
                return carrier.outcome
        return carrier

    try:
        carrier = connection.call_with_retries(call.options.retries(connection.timing), begin)
        while (results := carrier.receive()) is not None:
            yield from results
    finally:
        for made in carriers:
            made.close()
    if isinstance(carrier.outcome, AttemptFailure):
        raise carrier.outcome.error

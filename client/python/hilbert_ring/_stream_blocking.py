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

    carriers: List[BlockingCarrier] = []  # of the attempts

    def begin(seconds: Optional[float]) -> Union[BlockingCarrier, AttemptFailure]:
        conversation = StreamConversation(call, len(carriers), state)
        carrier = BlockingCarrier(connection, conversation, seconds, rest)
        carriers.append(carrier)
        while not conversation.admitted:
            if carrier.receive() is None:
                carrier.close()
                assert isinstance(carrier.outcome, AttemptFailure)  # for its input has not ended
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

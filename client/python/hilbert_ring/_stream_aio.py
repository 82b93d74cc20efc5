"""Streams without end of the asyncio client."""
import asyncio
from typing import Any, AsyncIterable, AsyncIterator, Callable, Iterable, List, Optional, Tuple, Union

from hilbert_ring._carrier_aio import AioCarrier
from hilbert_ring._connection_aio import AioConnection
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._stream import StreamCall, StreamConversation, StreamedBlock, StreamFigures, StreamState
from hilbert_ring._torch_streams import CallerStreams

Blocks = Union[Iterable[Tuple[Any, Any, Any]], AsyncIterable[Tuple[Any, Any, Any]]]
_END: Any = object()


class AttendStream(StreamFigures):
    """The asyncio variant of hilbert_ring.AttendStream, with `async for`, `aclose` and `async with`."""

    def __init__(self, results: AsyncIterator[StreamedBlock], state: StreamState) -> None:
        super().__init__(state)
        self._results = results

    def __aiter__(self) -> "AttendStream":
        return self

    async def __anext__(self) -> StreamedBlock:
        return await self._results.__anext__()

    async def aclose(self) -> None:
        """Ends the stream before its end."""
        await self._results.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> "AttendStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _each(blocks: Blocks, streams: CallerStreams) -> AsyncIterator[Any]:
    """Yields the caller's blocks. A plain iterator runs in a thread, because it may wait."""
    if isinstance(blocks, AsyncIterable):
        async for block in blocks:
            yield block
        return
    rest = streams.iterate(blocks)
    while (block := await asyncio.to_thread(next, rest, _END)) is not _END:
        yield block


async def run_stream(connection: AioConnection, blocks: Blocks, streams: CallerStreams,
                     prepare: Callable[[Any], StreamCall], state: StreamState) -> AsyncIterator[StreamedBlock]:
    """The asyncio variant of the blocking client's run_stream."""
    rest = _each(blocks, streams)
    try:
        first = await rest.__anext__()
    except StopAsyncIteration:
        return
    call = prepare(first)

    carriers: List[AioCarrier] = []  # of the attempts

    async def begin(seconds: Optional[float]) -> Union[AioCarrier, AttemptFailure]:
        conversation = StreamConversation(call, len(carriers), state)
        carrier = AioCarrier(connection, conversation, seconds, rest)
        carriers.append(carrier)
        while not conversation.admitted:
            if await carrier.receive() is None:
                carrier.close()
                assert isinstance(carrier.outcome, AttemptFailure)  # its input has not ended
                return carrier.outcome
        return carrier

    try:
        carrier = await connection.call_with_retries(call.options.retries(connection.timing), begin)
        while (results := await carrier.receive()) is not None:
            for block in results:
                yield block
    finally:
        for made in carriers:
            made.close()
    if isinstance(carrier.outcome, AttemptFailure):
        raise carrier.outcome.error

"""Streams without end of the client for asyncio."""
import asyncio
from typing import Any, AsyncIterable, AsyncIterator, Callable, Iterable, Tuple, Union

from hilbert_ring._attempt_aio import AioCarrier
from hilbert_ring._connection_aio import AioConnection
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._stream import StreamAttempt, StreamCall, StreamedBlock, StreamFigures, StreamState
from hilbert_ring._torch_streams import CallerStreams

Blocks = Union[Iterable[Tuple[Any, Any, Any]], AsyncIterable[Tuple[Any, Any, Any]]]
_END: Any = object()


class AttendStream(StreamFigures):
    """As of hilbert_ring.AttendStream, with `async for`, `aclose` and `async with`."""

    def __init__(self, results: AsyncIterator[StreamedBlock], state: StreamState) -> None:
        super().__init__(state)
        self._results = results

    def __aiter__(self) -> "AttendStream":
        return self

    async def __anext__(self) -> StreamedBlock:
        return await self._results.__anext__()

    async def aclose(self) -> None:
        """Ends the stream where it is."""
        await self._results.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> "AttendStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _each(blocks: Blocks, streams: CallerStreams) -> AsyncIterator[Any]:
    """The caller's blocks. One that is no asynchronous iterator may wait: it is asked in a thread."""
    if isinstance(blocks, AsyncIterable):
        async for block in blocks:
            yield block
        return
    rest = streams.iterate(blocks)
    while (block := await asyncio.to_thread(next, rest, _END)) is not _END:
        yield block


async def run_stream(connection: AioConnection, blocks: Blocks, streams: CallerStreams,
                     prepare: Callable[[Any], StreamCall], state: StreamState) -> AsyncIterator[StreamedBlock]:
    """As of the blocking client's run_stream."""
    rest = _each(blocks, streams)
    try:
        first = await rest.__anext__()
    except StopAsyncIteration:
        return
    call = prepare(first)
    attempts = call.options.attempts(connection.timing)
    number = 0
    while True:
        carrier = _Carrier(StreamAttempt(call, number, state), call, rest)
        async for block in carrier.run(connection, attempts.deadline_left(), endless=True):
            yield block
        failure = carrier.outcome
        if not isinstance(failure, AttemptFailure):
            return
        if failure.admitted:
            raise failure.error
        await connection.come_back(attempts, failure, attempts.wait_after(failure))
        number += 1


class _Carrier(AioCarrier[StreamAttempt]):
    """Carries those of a stream."""

    def __init__(self, attempt: StreamAttempt, call: StreamCall, rest: AsyncIterator[Any]) -> None:
        super().__init__(attempt)
        self._call = call
        self._rest = rest

    async def _requests(self) -> AsyncIterator[bytes]:
        yield self._attempt.open()
        while not self._attempt.admitted and not self._over:
            await self._change()
        block = self._call.first
        while not self._over:
            chunks = self._attempt.chunks(block)
            while (message := await asyncio.to_thread(next, chunks, None)) is not None:
                yield message
            try:
                block = self._call.block(await self._rest.__anext__())
            except StopAsyncIteration:
                self._attempt.input_ended = True
                return

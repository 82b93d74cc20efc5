"""Streams without end of the client for asyncio."""
import asyncio
from typing import Any, AsyncIterable, AsyncIterator, Callable, Iterable, Optional, Tuple, Union

import grpc.aio

from hilbert_ring._channel import SERVICE, failure_or_raise
from hilbert_ring._connection_aio import AioConnection, BrokenRequests
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._stream import StreamAttempt, StreamCall, StreamedBlock, StreamFigures, StreamState
from hilbert_ring._torch_streams import CallerStreams
from hilbert_ring.errors import HilbertRingError

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
        async for block in carrier.run(connection, attempts.deadline_left()):
            yield block
        failure = carrier.failure
        if failure is None:
            return
        if failure.admitted:
            raise failure.error
        await connection.come_back(attempts, failure, attempts.wait_after(failure))
        number += 1


class _Carrier:
    """Carries the messages of an attempt: gRPC's task asks for rows, the caller's takes what comes."""

    def __init__(self, attempt: StreamAttempt, call: StreamCall, rest: AsyncIterator[Any]) -> None:
        self._attempt = attempt
        self._call = call
        self._rest = rest
        self._changed = asyncio.Event()  # it is admitted, or over
        self._broken = BrokenRequests()
        self._over = False
        self.failure: Optional[AttemptFailure] = None

    async def run(self, connection: AioConnection, seconds: Optional[float]) -> AsyncIterator[StreamedBlock]:
        """The results; afterwards `failure` says how the attempt failed, if it did."""
        stream = connection.stream(SERVICE + "AttendStream", self._requests(), seconds, endless=True)
        with self._broken.raised(connection):
            try:
                async for message in stream:
                    results = self._attempt.handle(message)
                    if self._attempt.admitted:
                        self._changed.set()
                    for block in results:
                        yield block
                self._attempt.finish()
            except (grpc.aio.AioRpcError, HilbertRingError) as ended:
                self.failure = failure_or_raise(ended, self._attempt.admitted, self._broken.error, connection.closed)
            finally:
                self._over = True
                self._changed.set()
                stream.cancel()

    async def _requests(self) -> AsyncIterator[bytes]:
        with self._broken.noted():
            yield self._attempt.open()
            await self._changed.wait()  # until the call ends, which has a deadline
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

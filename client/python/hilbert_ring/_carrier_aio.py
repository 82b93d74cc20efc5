"""Carries conversations over streams of gRPC for the asyncio client."""
import asyncio
from contextlib import closing
from typing import Any, AsyncIterator, Optional, Sequence, Union

import grpc.aio

from hilbert_ring._channel import failure_or_raise
from hilbert_ring._connection_aio import AioConnection
from hilbert_ring._conversation import JobConversation
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._stream import StreamConversation, StreamedBlock
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb


class AioCarrier:
    """Carries the messages of a conversation: gRPC's task pulls requests, the caller's task takes responses.

    Attributes:
        outcome: set when the call is over: the report, or the failure.
    """

    def __init__(self, connection: AioConnection, conversation: Union[JobConversation, StreamConversation],
                 seconds: Optional[float], blocks: Any = None) -> None:
        """blocks: the caller's asynchronous iterator, of a stream without end."""
        self._connection = connection
        self._conversation: Any = conversation
        self._blocks = blocks
        self._changed = asyncio.Event()  # there may be rows to send, or the call is over
        self._over = False
        self._broken: Optional[Exception] = None  # an error of the caller's code, as of reading its tensors
        self.outcome: Union[pb.Report, AttemptFailure]
        self._stream = connection.stream(conversation.method, self._requests(), seconds, blocks is not None)
        self._messages = self._stream.__aiter__()

    async def receive(self) -> Optional[Sequence[StreamedBlock]]:
        """Takes a message and returns the results of a stream that it completes; None: the call is over."""
        with self._connection.reading():
            try:
                message = await self._next_message()
                if message is None:
                    self.outcome = self._conversation.finish()
                    return None
                results: Sequence[StreamedBlock] = self._conversation.handle(message)
                self._changed.set()
                return results
            except asyncio.CancelledError:
                if self._broken is None:
                    raise
                raise self._broken from None  # gRPC cancelled the call after this error
            except (grpc.aio.AioRpcError, HilbertRingError) as ended:
                self.outcome = failure_or_raise(ended, self._conversation.admitted, self._broken,
                                                self._connection.closed)
        return None

    def close(self) -> None:
        self._over = True
        self._changed.set()
        self._stream.cancel()

    async def _next_message(self) -> Optional[pb.AttendResponse]:
        try:
            return await self._messages.__anext__()
        except StopAsyncIteration:
            return None

    async def _requests(self) -> AsyncIterator[bytes]:
        conversation = self._conversation
        try:
            yield conversation.open()
            while not self._over and not conversation.ended:
                if conversation.wants_block:
                    await self._ask_block()
                elif (rows := conversation.next_rows()) is not None:
                    # In a thread, because rows of a mapped file are read from the disk.
                    yield await asyncio.to_thread(conversation.message, rows)
                    conversation.sent(rows)
                else:
                    self._changed.clear()
                    await self._changed.wait()  # until the call ends, which has a deadline
        except Exception as error:
            self._broken = error
            raise

    async def _ask_block(self) -> None:
        try:
            value = await self._blocks.__anext__()
        except StopAsyncIteration:
            self._conversation.ended = True
            return
        self._conversation.add_block(value)


async def carry(connection: AioConnection, conversation: JobConversation,
                seconds: Optional[float]) -> Union[pb.Report, AttemptFailure]:
    with closing(AioCarrier(connection, conversation, seconds)) as carrier:
        while await carrier.receive() is not None:
            pass
    return carrier.outcome

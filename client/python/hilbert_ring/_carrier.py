"""Carries conversations over streams of gRPC."""
import asyncio
from contextlib import closing
from typing import Any, AsyncIterator, Optional, Sequence, Union

import grpc

from hilbert_ring._channel import failure_or_raise
from hilbert_ring._chunks import Rows
from hilbert_ring._connection import AnyConnection
from hilbert_ring._conversation import JobConversation
from hilbert_ring._retry import AttemptFailure
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb


class Carrier:
    """Carries the messages of a conversation: gRPC's thread or task pulls requests, the caller takes responses.

    Attributes:
        outcome: set when the call is over: the report, or the failure.
    """

    def __init__(self, connection: AnyConnection, conversation: Any, seconds: Optional[float],
                 blocks: Optional[AsyncIterator[Any]] = None) -> None:
        """
        Args:
            conversation: a JobConversation or a StreamConversation.
            blocks: the caller's, of a stream without end.
        """
        self._connection = connection
        self._conversation = conversation
        self._blocks = blocks
        self._changed = connection.changed()  # guards next_rows and handle against each other
        self._over = False
        self._broken: Optional[Exception] = None  # an error of the caller's code, as of reading its tensors
        self.outcome: Union[pb.Report, AttemptFailure]
        self._stream = connection.stream(conversation.method, self._requests(), seconds, blocks is not None)

    async def receive(self) -> Optional[Sequence[Any]]:
        """Takes a message and returns the results of a stream that it completes; None: the call is over."""
        try:
            message = await self._connection.message(self._stream)
            if message is None:
                self.outcome = self._conversation.finish()
                return None
            with self._changed:
                results: Sequence[Any] = self._conversation.handle(message)
                self._changed.notify()
            return results
        except asyncio.CancelledError:
            if self._broken is None:
                raise
            raise self._broken from None  # gRPC cancelled the call after this error
        except (grpc.RpcError, HilbertRingError) as ended:
            self.outcome = failure_or_raise(ended, self._conversation.admitted, self._broken, self._connection.closed)
        return None

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._stream.cancel()

    async def _requests(self) -> AsyncIterator[bytes]:
        conversation = self._conversation
        try:
            yield conversation.open()
            while not self._over and not conversation.ended:
                if conversation.wants_block:
                    await self._ask_block()
                elif (rows := await self._await_rows()) is not None:
                    # In a thread, because rows of a mapped file are read from the disk.
                    message = await self._connection.in_thread(conversation.message, rows)
                    if message is not None:
                        yield message
                        conversation.sent(rows)
        except Exception as error:
            self._broken = error
            raise

    async def _await_rows(self) -> Optional[Rows]:
        """Returns the rows to send next; None: look again."""
        with self._changed:
            conversation = self._conversation
            if self._over or conversation.ended or conversation.wants_block:
                return None
            rows: Optional[Rows] = conversation.next_rows()
            if rows is None:
                await self._changed.wait()  # until the call ends, which has a deadline
            return rows

    async def _ask_block(self) -> None:
        assert self._blocks is not None
        try:
            value = await self._blocks.__anext__()
        except StopAsyncIteration:
            self._conversation.end_blocks()
            return
        self._conversation.add_block(value)


async def carry(connection: AnyConnection, conversation: JobConversation,
                seconds: Optional[float]) -> Union[pb.Report, AttemptFailure]:
    with closing(Carrier(connection, conversation, seconds)) as carrier:
        while await carrier.receive() is not None:
            pass
    return carrier.outcome

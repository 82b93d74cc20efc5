"""Carries conversations over streams of gRPC for the blocking client."""
import threading
from contextlib import closing
from typing import Any, Iterator, Optional, Sequence, Union

import grpc

from hilbert_ring._channel import failure_or_raise
from hilbert_ring._chunks import Rows
from hilbert_ring._connection import Connection
from hilbert_ring._conversation import JobConversation
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._stream import StreamConversation, StreamedBlock
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb

_END: Any = object()


class BlockingCarrier:
    """The blocking AioCarrier: a thread of gRPC pulls requests, the caller's thread takes responses."""

    def __init__(self, connection: Connection, conversation: Union[JobConversation, StreamConversation],
                 seconds: Optional[float], blocks: Any = None) -> None:
        self._connection = connection
        self._conversation: Any = conversation
        self._blocks = blocks
        self._changed = threading.Condition()  # guards next_rows and handle against each other
        self._over = False
        self._broken: Optional[Exception] = None  # an error of the caller's code, as of reading its tensors
        self.outcome: Union[pb.Report, AttemptFailure]
        self._stream = connection.stream(conversation.method, self._requests(), seconds, blocks is not None)

    def receive(self) -> Optional[Sequence[StreamedBlock]]:
        try:
            message = next(self._stream, None)
            if message is None:
                self.outcome = self._conversation.finish()
                return None
            with self._changed:
                results: Sequence[StreamedBlock] = self._conversation.handle(message)
                self._changed.notify()
            return results
        except (grpc.RpcError, HilbertRingError) as ended:
            self.outcome = failure_or_raise(ended, self._conversation.admitted, self._broken, self._connection.closed)
        return None

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._stream.cancel()

    def _requests(self) -> Iterator[bytes]:
        conversation = self._conversation
        try:
            yield conversation.open()
            while not self._over and not conversation.ended:
                if conversation.wants_block:
                    self._ask_block()
                elif (rows := self._await_rows()) is not None:
                    yield conversation.message(rows)
                    conversation.sent(rows)
        except Exception as error:
            self._broken = error
            raise

    def _await_rows(self) -> Optional[Rows]:
        """Returns the rows to send next; None: look again."""
        with self._changed:
            conversation = self._conversation
            if self._over or conversation.ended or conversation.wants_block:
                return None
            rows: Optional[Rows] = conversation.next_rows()
            if rows is None:
                self._changed.wait()  # until the call ends, which has a deadline
            return rows

    def _ask_block(self) -> None:
        value = next(self._blocks, _END)
        if value is _END:
            self._conversation.ended = True
        else:
            self._conversation.add_block(value)


def carry(connection: Connection, conversation: JobConversation,
          seconds: Optional[float]) -> Union[pb.Report, AttemptFailure]:
    with closing(BlockingCarrier(connection, conversation, seconds)) as carrier:
        while carrier.receive() is not None:
            pass
    return carrier.outcome

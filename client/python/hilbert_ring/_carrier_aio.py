"""An attempt's messages over a stream of gRPC, for the client for asyncio."""
import asyncio
from typing import AsyncIterator, Generic, Optional, Sequence, TypeVar, Union

import grpc.aio

from hilbert_ring._attempt import Attempt
from hilbert_ring._channel import failure_or_raise
from hilbert_ring._connection_aio import AioConnection
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._stream import StreamAttempt, StreamedBlock
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb

A = TypeVar("A", Attempt, StreamAttempt)


class AioCarrier(Generic[A]):
    """Carries the messages of an attempt: gRPC's task asks for rows, the caller's takes what comes.

    Attributes:
        outcome: once it has run: the report, or how the attempt failed.
    """

    def __init__(self, attempt: A) -> None:
        self._attempt: A = attempt
        self._changed = asyncio.Event()  # there may be rows to send, or the call is over
        self._over = False
        self._broken: Optional[Exception] = None  # the caller's own error, of reading its tensors say
        self.outcome: Union[pb.Report, AttemptFailure]

    async def run(self, connection: AioConnection, seconds: Optional[float],
                  endless: bool = False) -> AsyncIterator[StreamedBlock]:
        """A stream's results."""
        stream = connection.stream(self._attempt.method, self._noted(), seconds, endless)
        with connection.reading():
            try:
                async for message in stream:
                    results: Sequence[StreamedBlock] = self._attempt.handle(message)
                    self._changed.set()
                    for block in results:
                        yield block
                self.outcome = self._attempt.finish()
            except asyncio.CancelledError:
                if self._broken is None:
                    raise
                raise self._broken from None  # for which gRPC cancelled the call, not the caller its task
            except (grpc.aio.AioRpcError, HilbertRingError) as ended:
                self.outcome = failure_or_raise(ended, self._attempt.admitted, self._broken, connection.closed)
            finally:
                self._over = True
                self._changed.set()
                stream.cancel()

    async def _noted(self) -> AsyncIterator[bytes]:
        try:
            async for message in self._requests():
                yield message
        except Exception as error:
            self._broken = error
            raise

    def _requests(self) -> AsyncIterator[bytes]:
        raise NotImplementedError

    async def _change(self) -> None:
        """Until the call ends, which has a deadline."""
        self._changed.clear()
        await self._changed.wait()


class AioAttempt(AioCarrier[Attempt]):
    """Carries those of a job."""

    async def _requests(self) -> AsyncIterator[bytes]:
        yield self._attempt.open()
        while not self._over and not self._attempt.ended:
            rows = self._attempt.next_rows()
            if rows is None:
                await self._change()
                continue
            # In a thread, since rows of a mapped file are read from the disk.
            yield await asyncio.to_thread(self._attempt.message, rows)
            self._attempt.sent(rows)

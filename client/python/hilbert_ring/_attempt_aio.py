"""An attempt's messages over a stream of gRPC, for the client for asyncio."""
import asyncio
from typing import AsyncIterator, Optional, Union

import grpc.aio

from hilbert_ring._attempt import Attempt
from hilbert_ring._channel import failure_or_raise
from hilbert_ring._connection_aio import AioConnection, BrokenRequests
from hilbert_ring._retry import AttemptFailure
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb


class AioAttempt:
    """Carries the messages of an attempt: gRPC's task asks for rows, the caller's takes what comes."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._changed = asyncio.Event()  # there may be rows to send, or the call is over
        self._over = False
        self._broken = BrokenRequests()

    async def run(self, connection: AioConnection, seconds: Optional[float]) -> Union[pb.Report, AttemptFailure]:
        """The report, or how the attempt failed."""
        stream = connection.stream(self._attempt.method, self._requests(), seconds)
        with self._broken.raised(connection):
            try:
                async for message in stream:
                    self._attempt.handle(message)
                    self._changed.set()
                return self._attempt.finish()
            except (grpc.aio.AioRpcError, HilbertRingError) as ended:
                return failure_or_raise(ended, self._attempt.admitted, self._broken.error, connection.closed)
            finally:
                self._over = True
                self._changed.set()
                stream.cancel()

    async def _requests(self) -> AsyncIterator[bytes]:
        with self._broken.noted():
            yield self._attempt.open()
            while not self._over and not self._attempt.ended:
                rows = self._attempt.next_rows()
                if rows is None:
                    self._changed.clear()
                    await self._changed.wait()  # until the call ends, which has a deadline
                    continue
                # In a thread, since rows of a mapped file are read from the disk.
                yield await asyncio.to_thread(self._attempt.message, rows)
                self._attempt.sent(rows)

"""An attempt's messages over a stream of gRPC, for the blocking client."""
import threading
from typing import Generic, Iterator, Optional, Sequence, TypeVar, Union

import grpc

from hilbert_ring._attempt import Attempt
from hilbert_ring._channel import failure_or_raise
from hilbert_ring._chunks import Rows
from hilbert_ring._connection import Connection
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._stream import StreamAttempt, StreamedBlock
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb

A = TypeVar("A", Attempt, StreamAttempt)


class BlockingCarrier(Generic[A]):
    """Carries the messages of an attempt: rows leave in gRPC's thread, which asks for them, while the caller's thread
    takes what comes.

    Attributes:
        outcome: once it has run: the report, or how the attempt failed.
    """

    def __init__(self, attempt: A) -> None:
        self._attempt: A = attempt
        self._changed = threading.Condition()  # guards next_rows and handle against each other
        self._over = False
        self._broken: Optional[Exception] = None  # the caller's own error, of reading its tensors say
        self.outcome: Union[pb.Report, AttemptFailure]

    def run(self, connection: Connection, seconds: Optional[float], endless: bool = False) -> Iterator[StreamedBlock]:
        """A stream's results."""
        stream = connection.stream(self._attempt.method, self._noted(), seconds, endless)
        try:
            for message in stream:
                with self._changed:
                    results: Sequence[StreamedBlock] = self._attempt.handle(message)
                    self._changed.notify()
                yield from results
            self.outcome = self._attempt.finish()
        except (grpc.RpcError, HilbertRingError) as ended:
            self.outcome = failure_or_raise(ended, self._attempt.admitted, self._broken, connection.closed)
        finally:
            with self._changed:
                self._over = True
                self._changed.notify()
            stream.cancel()

    def _noted(self) -> Iterator[bytes]:
        try:
            yield from self._requests()
        except Exception as error:
            self._broken = error
            raise

    def _requests(self) -> Iterator[bytes]:
        raise NotImplementedError


class BlockingAttempt(BlockingCarrier[Attempt]):
    """Carries those of a job."""

    def _requests(self) -> Iterator[bytes]:
        yield self._attempt.open()
        while (rows := self._await_rows()) is not None:
            yield self._attempt.message(rows)
            self._attempt.sent(rows)

    def _await_rows(self) -> Optional[Rows]:
        """What is sent next; None once nothing is."""
        with self._changed:
            while not self._over and not self._attempt.ended:
                if (rows := self._attempt.next_rows()) is not None:
                    return rows
                self._changed.wait()  # until the call ends, which has the job's deadline
        return None

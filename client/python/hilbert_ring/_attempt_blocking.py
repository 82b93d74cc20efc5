"""An attempt's messages over a stream of gRPC, for the blocking client."""
import threading
from typing import Iterator, Optional, Union

import grpc

from hilbert_ring._attempt import Attempt
from hilbert_ring._channel import failure_or_raise
from hilbert_ring._chunks import Rows
from hilbert_ring._connection import Connection
from hilbert_ring._retry import AttemptFailure
from hilbert_ring.errors import HilbertRingError
from hilbert_ring.v1 import attention_pb2 as pb


class BlockingAttempt:
    """Carries the messages of an attempt: rows leave in gRPC's thread, which asks for them, while the caller's thread
    takes what comes."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._changed = threading.Condition()  # guards next_rows and handle against each other
        self._over = False
        self._broken: Optional[Exception] = None  # reading the caller's tensors failed

    def run(self, connection: Connection, seconds: Optional[float]) -> Union[pb.Report, AttemptFailure]:
        """The report, or how the attempt failed."""
        stream = connection.stream(self._attempt.method, self._requests(), seconds)
        try:
            for message in stream:
                with self._changed:
                    self._attempt.handle(message)
                    self._changed.notify()
            return self._attempt.finish()
        except (grpc.RpcError, HilbertRingError) as ended:
            return failure_or_raise(ended, self._attempt.admitted, self._broken, connection.closed)
        finally:
            with self._changed:
                self._over = True
                self._changed.notify()
            stream.cancel()

    def _requests(self) -> Iterator[bytes]:
        try:
            yield self._attempt.open()
            while (rows := self._await_rows()) is not None:
                yield self._attempt.message(rows)
                self._attempt.sent(rows)
        except Exception as error:
            self._broken = error
            raise

    def _await_rows(self) -> Optional[Rows]:
        """What is sent next; None once nothing is."""
        with self._changed:
            while not self._over and not self._attempt.ended:
                if (rows := self._attempt.next_rows()) is not None:
                    return rows
                self._changed.wait()  # until the call ends, which has the job's deadline
        return None

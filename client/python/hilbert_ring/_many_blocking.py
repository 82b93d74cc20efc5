"""A call of many small jobs over a stream of gRPC, for the blocking client."""
from typing import Iterator, List, Optional

import grpc

from hilbert_ring._channel import failure_or_raise
from hilbert_ring._connection import Connection
from hilbert_ring._many import SMALL_JOBS_SERVICE, ManyAttempt, ManyCall, ManyResult, Outcome
from hilbert_ring.errors import CancelledError, HilbertRingError


def run_many(connection: Connection, call: ManyCall) -> List[ManyResult]:
    """The jobs' results. A call that is lost is made again, with the jobs that have not ended."""
    attempts = call.options.attempts(connection.timing)
    number = 0
    while call.waiting():
        try:
            failure = _run(connection, ManyAttempt(call, number), attempts.deadline_left())
        except CancelledError as closed:
            return call.fail(closed)
        if failure is None:
            break
        try:
            connection.come_back(attempts, failure, attempts.wait_after(failure))
        except HilbertRingError as error:
            return call.fail(error)
        number += 1
    return call.ended()


def _run(connection: Connection, attempt: ManyAttempt, seconds: Optional[float]) -> Outcome:
    """Requests leave in gRPC's thread, which asks for them, while the caller's takes what comes."""
    broken: Optional[Exception] = None  # reading the caller's tensors failed

    def requests() -> Iterator[bytes]:
        nonlocal broken
        try:
            yield from attempt.messages()
        except Exception as error:
            broken = error
            raise

    stream = connection.stream(SMALL_JOBS_SERVICE + "AttendMany", requests(), seconds)
    try:
        for message in stream:
            attempt.handle(message)
        attempt.finish()
        return None
    except (grpc.RpcError, HilbertRingError) as ended:
        return failure_or_raise(ended, attempt.taken, broken, connection.closed)
    finally:
        stream.cancel()

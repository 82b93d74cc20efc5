"""A call of many small jobs over a stream of gRPC, for the client for asyncio."""
import asyncio
from typing import AsyncIterator, List, Optional

import grpc.aio

from hilbert_ring._channel import failure_or_raise
from hilbert_ring._connection_aio import AioConnection, BrokenRequests
from hilbert_ring._many import SMALL_JOBS_SERVICE, ManyAttempt, ManyCall, ManyResult, Outcome
from hilbert_ring.errors import CancelledError, HilbertRingError

_END = object()


async def run_many(connection: AioConnection, call: ManyCall) -> List[ManyResult]:
    """The jobs' results. A call that is lost is made again, with the jobs that have not ended."""
    attempts = call.options.attempts(connection.timing)
    number = 0
    while call.waiting():
        try:
            failure = await _run(connection, ManyAttempt(call, number), attempts.deadline_left())
        except CancelledError as closed:
            return call.fail(closed)
        if failure is None:
            break
        try:
            await connection.come_back(attempts, failure, attempts.wait_after(failure))
        except HilbertRingError as error:
            return call.fail(error)
        number += 1
    return call.ended()


async def _run(connection: AioConnection, attempt: ManyAttempt, seconds: Optional[float]) -> Outcome:
    """gRPC's task asks for requests, which are made in a thread, the caller's takes what comes."""
    broken = BrokenRequests()

    async def requests() -> AsyncIterator[bytes]:
        rest = attempt.messages()
        with broken.noted():
            while True:
                message = await asyncio.to_thread(next, rest, _END)
                if message is _END:
                    return
                yield message  # type: ignore[misc]

    stream = connection.stream(SMALL_JOBS_SERVICE + "AttendMany", requests(), seconds)
    with broken.raised(connection):
        try:
            async for message in stream:
                attempt.handle(message)
            attempt.finish()
            return None
        except (grpc.aio.AioRpcError, HilbertRingError) as ended:
            return failure_or_raise(ended, attempt.taken, broken.error, connection.closed)
        finally:
            stream.cancel()

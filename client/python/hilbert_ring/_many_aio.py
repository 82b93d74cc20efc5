"""A call of many small jobs over a stream of gRPC, for the client for asyncio."""
import asyncio
from typing import Any, AsyncIterator, Awaitable, Callable, List, Optional

import grpc.aio

from hilbert_ring._channel import Address, failure_or_raise
from hilbert_ring._many import SMALL_JOBS_SERVICE, ManyAttempt, ManyCall, ManyResult, Outcome
from hilbert_ring._retry import CallTiming
from hilbert_ring.errors import HilbertRingError, Metadata

_END = object()


class AioMany:
    """What a client for asyncio needs for a call of many jobs."""

    def __init__(self, channel: Any, address: Address, timing: CallTiming,
                 await_connection: Callable[[float], Awaitable[bool]]) -> None:
        self._channel = channel
        self._address = address
        self._timing = timing
        self._await_connection = await_connection

    async def run(self, call: ManyCall) -> List[ManyResult]:
        """The jobs' results. A call that is lost is made again, with the jobs that have not ended."""
        attempts = call.options.attempts(self._timing)
        number = 0
        while call.waiting():
            failure = await _run(self._channel.stream_stream(SMALL_JOBS_SERVICE + "AttendMany"),
                                 ManyAttempt(call, number), self._address.metadata(),
                                 attempts.deadline_left())
            if failure is None:
                break
            try:
                await asyncio.sleep(attempts.wait_after(failure))
                if not await self._await_connection(attempts.time_left()):
                    raise attempts.too_late(failure)
            except HilbertRingError as error:
                return call.fail(error)
            number += 1
        return call.ended()


async def _run(attend_many: Any, attempt: ManyAttempt, metadata: Metadata,
               seconds: Optional[float]) -> Outcome:
    """gRPC's task asks for requests, which are made in a thread, the caller's takes what comes."""
    broken: Optional[Exception] = None  # reading the caller's tensors failed

    async def requests() -> AsyncIterator[bytes]:
        nonlocal broken
        rest = attempt.messages()
        try:
            while True:
                message = await asyncio.to_thread(next, rest, _END)
                if message is _END:
                    return
                yield message  # type: ignore[misc]
        except Exception as error:
            broken = error
            raise

    stream = attend_many(requests(), timeout=seconds, metadata=metadata)
    try:
        async for message in stream:
            attempt.handle(message)
        attempt.finish()
        return None
    except (grpc.aio.AioRpcError, HilbertRingError) as ended:
        return failure_or_raise(ended, attempt.taken, broken)
    except asyncio.CancelledError:
        if broken is not None:  # gRPC cancels the call, not the caller its task
            raise broken from None
        raise
    finally:
        stream.cancel()

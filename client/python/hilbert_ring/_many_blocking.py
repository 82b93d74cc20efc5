"""A call of many small jobs over a stream of gRPC, for the blocking client."""
import time
from typing import Any, Callable, Iterator, List, Optional

import grpc

from hilbert_ring._channel import Address, failure_or_raise
from hilbert_ring._many import SMALL_JOBS_SERVICE, ManyAttempt, ManyCall, ManyResult, Outcome
from hilbert_ring._retry import CallTiming
from hilbert_ring.errors import HilbertRingError, Metadata


class BlockingMany:
    """What a blocking client needs for a call of many jobs."""

    def __init__(self, channel: Any, address: Address, timing: CallTiming,
                 await_connection: Callable[[float], bool]) -> None:
        self._channel = channel
        self._address = address
        self._timing = timing
        self._await_connection = await_connection

    def run(self, call: ManyCall) -> List[ManyResult]:
        """The jobs' results. A call that is lost is made again, with the jobs that have not ended."""
        attempts = call.options.attempts(self._timing)
        number = 0
        while call.waiting():
            failure = _run(self._channel.stream_stream(SMALL_JOBS_SERVICE + "AttendMany"),
                           ManyAttempt(call, number), self._address.metadata(),
                           attempts.deadline_left())
            if failure is None:
                break
            try:
                time.sleep(attempts.wait_after(failure))
                if not self._await_connection(attempts.time_left()):
                    raise attempts.too_late(failure)
            except HilbertRingError as error:
                return call.fail(error)
            number += 1
        return call.ended()


def _run(attend_many: Any, attempt: ManyAttempt, metadata: Metadata,
         seconds: Optional[float]) -> Outcome:
    """Requests leave in gRPC's thread, which asks for them, while the caller's takes what comes."""
    broken: Optional[Exception] = None  # reading the caller's tensors failed

    def requests() -> Iterator[bytes]:
        nonlocal broken
        try:
            yield from attempt.messages()
        except Exception as error:
            broken = error
            raise

    stream = attend_many(requests(), timeout=seconds, metadata=metadata)
    try:
        for message in stream:
            attempt.handle(message)
        attempt.finish()
        return None
    except (grpc.RpcError, HilbertRingError) as ended:
        return failure_or_raise(ended, attempt.taken, broken)
    finally:
        stream.cancel()

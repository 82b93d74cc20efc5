"""Retries decides whether and when a failed call is made again; AnyConnection.call_with_retries runs the loop.

client/cpp/retry.h does the same. These failures are tried again:

- UNAVAILABLE (the coordinator is away, starts, drains or stops, has no worker, or the connection is lost): backoff,
  then a wait for a connection.
- ABORTED with reason WORKER_LOST: backoff.
- RESOURCE_EXHAUSTED with a retry-after: the retry-after and up to a quarter more. Without one, from the service's
  transport: backoff.
- ALREADY_EXISTS after an UNAVAILABLE (the service has not noticed the lost connection): backoff.
- DATA_LOSS that the client found in the output: backoff, at most twice.

A retry-after replaces the backoff with every code. If it is below 50 ms the wait is at least the backoff; if it is
negative the failure is final. Backoff is random between 0 and a limit that doubles from 100 ms to 5 s (UNAVAILABLE:
to 0.4 s).

The bounds are the number of attempts, the call's deadline, and the time of an outage (UNAVAILABLE without a
retry-after).
"""
import math
import time
from dataclasses import dataclass
from random import random
from typing import Callable, Optional

from hilbert_ring.errors import HilbertRingError, error_class

_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0
_LONGEST_AWAY = 0.4  # after UNAVAILABLE, so that a job goes on within a second of the service's return
_BACKOFF_DOUBLINGS = 6
_RETRY_AFTER_JITTER = 0.25
_LEAST_RETRY_AFTER = 0.05  # half of the first backoff's limit
_RETRIES_OF_DAMAGED_OUTPUT = 2
_DEADLINE_EARLY = 0.1  # gRPC's deadline may pass this much earlier, because gRPC reads its clock first
OUTAGE_SECONDS = 30.0


@dataclass(frozen=True)
class AttemptFailure:
    """The parts of an attempt's failure that decide on another attempt."""

    error: HilbertRingError
    admitted: bool = False        # the service took the job
    output_damaged: bool = False  # the client found corrupt, repeated or missing rows
    retry_after: Optional[float] = None  # seconds; below 0: the failure is final


Final = Callable[[AttemptFailure], bool]             # whether a failure ends the call without Retries
OnRetry = Callable[[HilbertRingError, float], None]  # takes a failure, and the seconds until the next attempt


def is_reachable(failure: AttemptFailure) -> bool:
    """Returns whether the service answered. DATA_ROOT_GONE is UNAVAILABLE from a service that did."""
    return failure.error.code != "UNAVAILABLE" or failure.error.reason == "DATA_ROOT_GONE"


def is_plan_pushed_back(name: str, failure: AttemptFailure) -> bool:
    """Returns whether a call failed because the service is busy with other plans."""
    return name in ("Plan", "PlanEncode") and failure.retry_after is not None


class Retries:
    """The retries of one call, or of several calls for a job."""

    def __init__(self, max_attempts: int, deadline: float = math.inf, begun: Optional[float] = None,
                 outage_timeout: Optional[float] = None, now: Callable[[], float] = time.monotonic,
                 draw: Callable[[], float] = random) -> None:
        """
        Args:
            max_attempts: 1: a failure is final. Attempts that find the service away do not count. With a deadline,
                attempts that find it full do not count either.
            deadline: seconds from `begun`; None: from now.
            outage_timeout: seconds of one outage; None: until the deadline, or OUTAGE_SECONDS without a deadline.
            now, draw: clock, and random numbers in [0, 1), which tests replace.
        """
        self._now, self._draw = now, draw
        self._max_attempts = max_attempts
        self._deadline = deadline
        self._end = (now() if begun is None else begun) + deadline
        if outage_timeout is None:
            outage_timeout = OUTAGE_SECONDS if deadline == math.inf else math.inf
        self._outage_seconds = outage_timeout
        self._attempts = 0             # failed attempts
        self._counted = 0              # those that count towards max_attempts
        self._backoffs = 0             # in a row
        self._damaged_outputs = 0      # attempts that gave damaged output
        self._connection_lost = False  # in some attempt
        self._outage_end = math.inf    # finite: the service is away

    def deadline_left(self) -> Optional[float]:
        """Returns the seconds until the deadline; None: no deadline."""
        return None if self._end == math.inf else max(0.0, self._end - self._now())

    def time_left(self) -> float:
        """Returns the seconds until the deadline or the outage's limit."""
        return min(self._end, self._outage_end) - self._now()

    def wait_after(self, failure: AttemptFailure) -> float:
        """Returns the seconds before the next attempt. Raises HilbertRingError if the failure is final."""
        self._note(failure)
        wait = self._wait_after(failure, self._draw())
        if wait is None or self._counted >= self._max_attempts:
            raise self._gave_up(failure, "")
        if wait >= self.time_left():
            raise self.too_late(failure, wait)
        return wait

    def too_late(self, failure: AttemptFailure, wait: float = math.inf) -> HilbertRingError:
        """Returns the error of a call whose next attempt would start too late.

        wait: seconds until that attempt; infinite: no connection came in time.
        """
        if self._outage_end < self._end:
            why = f"; the service was away for its limit of {self._outage_seconds:g} s"
        elif wait == math.inf:
            why = f"; the service was away until the deadline of {self._deadline:g} s"
        else:
            why = f"; the next would start in {wait:.3g} s, the deadline is in {self.time_left():.3g} s"
        return self._gave_up(failure, why)

    def _note(self, failure: AttemptFailure) -> None:
        code, away = failure.error.code, _away(failure)
        if not away:
            self._outage_end = math.inf
        elif self._outage_end == math.inf or failure.admitted:
            self._outage_end = self._now() + self._outage_seconds
        full = code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
        self._attempts += 1
        self._counted += (failure.admitted or self._max_attempts == 1
                          or not away and (not full or self._deadline == math.inf))
        self._damaged_outputs += code == "DATA_LOSS" and failure.output_damaged
        self._connection_lost |= code == "UNAVAILABLE"

    def _wait_after(self, failure: AttemptFailure, drawn: float) -> Optional[float]:
        """Returns the seconds to wait; None: the failure is final. drawn: a random number in [0, 1)."""
        longest = _LONGEST_AWAY if failure.error.code == "UNAVAILABLE" else _LONGEST_BACKOFF
        backoff: float = drawn * min(longest, _FIRST_BACKOFF * 2 ** min(self._backoffs, _BACKOFF_DOUBLINGS))
        retry_after = failure.retry_after
        if not self._may_help(failure) or (retry_after is not None and retry_after < 0):
            return None
        self._backoffs += 1
        if retry_after is None:
            return backoff
        wait = retry_after * (1 + _RETRY_AFTER_JITTER * drawn)
        if retry_after < _LEAST_RETRY_AFTER:
            return max(wait, backoff)
        self._backoffs = 0
        return wait

    def _may_help(self, failure: AttemptFailure) -> bool:
        code = failure.error.code
        if code == "ABORTED":
            return failure.error.reason == "WORKER_LOST"
        if code == "RESOURCE_EXHAUSTED":
            return failure.retry_after is not None or _ended_by_transport(failure.error)
        if code == "ALREADY_EXISTS":
            return self._connection_lost
        if code == "DATA_LOSS":
            return failure.output_damaged and self._damaged_outputs <= _RETRIES_OF_DAMAGED_OUTPUT
        return code == "UNAVAILABLE"

    def _gave_up(self, failure: AttemptFailure, why: str) -> HilbertRingError:
        """Returns the last error with the number of attempts."""
        error, made = failure.error, self._attempts
        message = error.message
        own = error.reason in ("DEADLINE_EXCEEDED", "CLIENT_DEADLINE")  # the call's deadline, not a limit of the service
        if own and self._now() + _DEADLINE_EARLY >= self._end:
            message = f"the job's deadline of {self._deadline:g} s passed: {message}"
        if made > 1 or why:
            message += f" (after {made} attempt{'s' if made > 1 else ''}{why})"
        final = error_class(error.code)(message, reason=error.reason, field=error.field, limit=error.limit,
                                        retry_after=error.retry_after, attempts=made)
        final.code = error.code
        return final


def _ended_by_transport(error: HilbertRingError) -> bool:
    """Returns whether the service's transport ran out of memory (--transport-memory) and ended calls.

    gRPC reports HTTP/2's ENHANCE_YOUR_CALM only in the message's text.
    """
    return error.reason == error.code and "RST_STREAM with error code 11" in error.message


def _away(failure: AttemptFailure) -> bool:
    """Returns whether the service is away: UNAVAILABLE without a retry-after."""
    return failure.error.code == "UNAVAILABLE" and failure.retry_after is None

"""When a job that failed is tried again, and how long the client waits before.

- UNAVAILABLE (no coordinator, it starts, drains or stops, no worker, a connection lost): backoff,
  then as soon as there is a connection.
- ABORTED with reason WORKER_LOST: backoff.
- RESOURCE_EXHAUSTED with a pushback: the pushback and up to a quarter more. Of the service's
  transport, which has no reason: backoff.
- ALREADY_EXISTS after an UNAVAILABLE (the service has not noticed that the connection is lost):
  backoff.
- DATA_LOSS found in the output by the client: backoff, twice at most.

Anything else is final. A pushback replaces the backoff with every code; with one below 50 ms the
wait is no shorter than the backoff; one that is negative means that the service does not want another
attempt. Backoff is random between 0 and a limit that doubles from 100 ms to 5 s
(UNAVAILABLE: 0.4 s).
"""
import math
import time
from dataclasses import dataclass
from random import random
from typing import Callable, Optional

from hilbert_ring.errors import HilbertRingError, error_class

_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0
_LONGEST_AWAY = 0.4  # of a service that is away: the job goes on within a second of its return
_BACKOFF_DOUBLINGS = 6
_PUSHBACK_JITTER = 0.25
_LEAST_PUSHBACK = 0.05  # half of the first backoff's limit
_RETRIES_OF_DAMAGED_OUTPUT = 2
_DEADLINE_EARLY = 0.1  # gRPC's is reckoned from a time that was read before ours
OUTAGE_SECONDS = 30.0


@dataclass(frozen=True)
class AttemptFailure:
    """How an attempt failed, as far as another one depends on it."""

    error: HilbertRingError
    admitted: bool = False        # the service took the job
    output_damaged: bool = False  # found by the client: corrupt, repeated or missing rows
    pushback: Optional[float] = None  # seconds; below 0: the service wants no other attempt


@dataclass
class CallTiming:
    """Time and chance of a call; tests bring their own."""

    now: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random


class RetrySchedule:
    """The waits between the attempts of one call."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._connection_lost = False
        self._damaged_outputs = 0
        self._backoffs = 0  # in a row

    def wait_after(self, failure: AttemptFailure) -> Optional[float]:
        """Seconds before the next attempt; None: there must be none. Once for each failure."""
        if not self._may_help(failure):
            return None
        longest = _LONGEST_AWAY if failure.error.code == "UNAVAILABLE" else _LONGEST_BACKOFF
        if failure.pushback is None:
            return self._backoff(longest)
        if failure.pushback < 0:
            return None
        wait = failure.pushback * (1 + _PUSHBACK_JITTER * self._draw())
        if failure.pushback < _LEAST_PUSHBACK:
            return max(wait, self._backoff(longest))
        self._backoffs = 0
        return wait

    def _may_help(self, failure: AttemptFailure) -> bool:
        code = failure.error.code
        if code == "UNAVAILABLE":
            self._connection_lost = True
            return True
        if code == "ABORTED":
            return failure.error.reason == "WORKER_LOST"
        if code == "RESOURCE_EXHAUSTED":
            return failure.pushback is not None or _ended_by_transport(failure.error)
        if code == "ALREADY_EXISTS":
            return self._connection_lost
        if code == "DATA_LOSS" and failure.output_damaged:
            self._damaged_outputs += 1
            return self._damaged_outputs <= _RETRIES_OF_DAMAGED_OUTPUT
        return False

    def _backoff(self, longest: float) -> float:
        limit: float = min(longest, _FIRST_BACKOFF * 2 ** min(self._backoffs, _BACKOFF_DOUBLINGS))
        self._backoffs += 1
        return limit * self._draw()


def _ended_by_transport(error: HilbertRingError) -> bool:
    """The service had no memory for what came (--transport-memory) and ended calls: HTTP/2's
    ENHANCE_YOUR_CALM, which gRPC tells in words alone."""
    return error.reason == error.code and "RST_STREAM with error code 11" in error.message


class Attempts:
    """Decides after each failed attempt of a call whether another one follows, and when."""

    def __init__(self, *, max_attempts: int, deadline: Optional[float],
                 outage_timeout: Optional[float], timing: CallTiming, begun: Optional[float] = None) -> None:
        """begun: since when the deadline runs; None: now."""
        self._max_attempts = max_attempts
        self._deadline = math.inf if deadline is None else deadline
        self._outage_timeout = outage_timeout
        self._now = timing.now
        self._end = (timing.now() if begun is None else begun) + self._deadline
        self._schedule = RetrySchedule(timing.random)
        self._outage_end = math.inf  # finite: the service is away
        self._counted = 0            # attempts that max_attempts bounds
        self.made = 1                # or under way

    def deadline_left(self) -> Optional[float]:
        """Seconds for the attempt that starts now; None: no deadline."""
        return None if self._end == math.inf else max(0.0, self._end - self._now())

    def time_left(self) -> float:
        """Seconds until the deadline or the end of what an outage may take."""
        return min(self._end, self._outage_end) - self._now()

    def wait_after(self, failure: AttemptFailure) -> float:
        """Seconds before the next attempt.

        Raises:
            HilbertRingError: of the attempt, and how many there were, when none may follow.
        """
        wait = self._schedule.wait_after(failure)
        self._note_outage(failure)
        if self._counts(failure):
            self._counted += 1
        if wait is None or self._counted >= self._max_attempts:
            raise self._final(failure, "")
        if wait >= self.time_left():
            raise self.too_late(failure, wait)
        self.made += 1
        return wait

    def too_late(self, failure: AttemptFailure, wait: float = math.inf) -> HilbertRingError:
        """The error of a call whose next attempt, after `wait`, would not be in time."""
        if self._outage_end < self._end:
            return self._final(
                failure, f"; the service was away for its limit of {self._outage_seconds():g} s")
        if wait == math.inf:
            return self._final(
                failure, f"; the service was away until the deadline of {self._deadline:g} s")
        left = self._end - self._now()
        return self._final(
            failure, f"; the next would start in {wait:.3g} s, the deadline is in {left:.3g} s")

    @staticmethod
    def _away(failure: AttemptFailure) -> bool:
        return failure.error.code == "UNAVAILABLE" and failure.pushback is None

    def _counts(self, failure: AttemptFailure) -> bool:
        """Whether it counts against max_attempts. An outage is bounded by its time."""
        if failure.admitted or self._max_attempts == 1:
            return True
        if self._away(failure):
            return False
        full = failure.error.code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
        return not full or self._deadline == math.inf

    def _note_outage(self, failure: AttemptFailure) -> None:
        if not self._away(failure):
            self._outage_end = math.inf
        elif failure.admitted or self._outage_end == math.inf:
            self._outage_end = self._now() + self._outage_seconds()

    def _outage_seconds(self) -> float:
        if self._outage_timeout is not None:
            return self._outage_timeout
        return OUTAGE_SECONDS if self._deadline == math.inf else math.inf

    def _final(self, failure: AttemptFailure, why: str) -> HilbertRingError:
        error = failure.error
        message = error.message
        own = error.reason in ("DEADLINE_EXCEEDED", "CLIENT_DEADLINE")  # no limit of the service
        if own and self._now() + _DEADLINE_EARLY >= self._end:
            message = f"the job's deadline of {self._deadline:g} s passed: {message}"
        if self.made > 1 or why:
            attempts = "1 attempt" if self.made == 1 else f"{self.made} attempts"
            message += f" (after {attempts}{why})"
        final = error_class(error.code)(
            message, reason=error.reason, field=error.field, limit=error.limit,
            retry_after=error.retry_after, attempts=self.made)
        final.code = error.code
        return final

"""decide_retry decides whether and when a failed call is made again; Connection.call_with_retries runs the loop.

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
from dataclasses import dataclass, replace
from random import random
from typing import Callable, Optional, Tuple

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


@dataclass
class CallTiming:
    """The clock and random numbers of a call, which tests replace."""

    now: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random


Final = Callable[[AttemptFailure], bool]             # whether a failure ends the call without decide_retry
OnRetry = Callable[[HilbertRingError, float], None]  # takes a failure, and the seconds until the next attempt


def never_final(_: AttemptFailure) -> bool:
    return False


def ignore_retry(_error: HilbertRingError, _wait: float) -> None:
    pass


def is_reachable(failure: AttemptFailure) -> bool:
    """Returns whether the service answered. DATA_ROOT_GONE is UNAVAILABLE from a service that did."""
    return failure.error.code != "UNAVAILABLE" or failure.error.reason == "DATA_ROOT_GONE"


def is_plan_pushed_back(name: str, failure: AttemptFailure) -> bool:
    """Returns whether a call failed because the service is busy with other plans."""
    return name in ("Plan", "PlanEncode") and failure.retry_after is not None


@dataclass(frozen=True)
class RetryPolicy:
    """The bounds of a call's attempts.

    Attributes:
        max_attempts: 1: a failure is final. Attempts that find the service away do not count. With a deadline,
            attempts that find it full do not count either.
        deadline: seconds, shown in messages.
        end: time of the deadline.
        outage_timeout: seconds of one outage; None: until the deadline, or OUTAGE_SECONDS without a deadline.
    """

    max_attempts: int
    deadline: float = math.inf
    end: float = math.inf
    outage_timeout: Optional[float] = None

    @property
    def outage_seconds(self) -> float:
        if self.outage_timeout is not None:
            return self.outage_timeout
        return OUTAGE_SECONDS if self.deadline == math.inf else math.inf


@dataclass(frozen=True)
class RetryHistory:
    """The failures of a call up to now."""

    attempts: int = 0              # failed attempts
    counted: int = 0               # failed attempts that count towards max_attempts
    backoffs: int = 0              # in a row
    damaged_outputs: int = 0       # attempts that gave damaged output
    connection_lost: bool = False  # in some attempt
    outage_end: float = math.inf   # finite: the service is away


@dataclass(frozen=True)
class RetryDecision:
    history: RetryHistory                     # the failure included
    wait: Optional[float] = None              # seconds before another attempt; None: the failure is final
    error: Optional[HilbertRingError] = None  # the call's error, if the failure is final


def decide_retry(policy: RetryPolicy, history: RetryHistory, failure: AttemptFailure, now: float,
                 drawn: float) -> RetryDecision:
    """drawn: a random number in [0, 1)."""
    code = failure.error.code
    outage_end = math.inf
    if _away(failure):
        goes_on = history.outage_end < math.inf and not failure.admitted
        outage_end = history.outage_end if goes_on else now + policy.outage_seconds
    history = replace(
        history, attempts=history.attempts + 1, counted=history.counted + _counts(policy, failure),
        damaged_outputs=history.damaged_outputs + (code == "DATA_LOSS" and failure.output_damaged),
        connection_lost=history.connection_lost or code == "UNAVAILABLE", outage_end=outage_end)
    wait, backoffs = _wait_after(failure, history, drawn)
    history = replace(history, backoffs=backoffs)
    if wait is None or history.counted >= policy.max_attempts:
        return RetryDecision(history, error=_gave_up(policy, history, failure, now, ""))
    if now + wait >= retry_end(policy, history):
        return RetryDecision(history, error=too_late(policy, history, failure, now, wait))
    return RetryDecision(history, wait)


def retry_end(policy: RetryPolicy, history: RetryHistory) -> float:
    """Returns the time when the deadline or the outage's limit passes."""
    return min(policy.end, history.outage_end)


def too_late(policy: RetryPolicy, history: RetryHistory, failure: AttemptFailure, now: float,
             wait: float = math.inf) -> HilbertRingError:
    """Returns the error of a call whose next attempt would start after retry_end.

    wait: seconds until that attempt; infinite: no connection came before retry_end.
    """
    if history.outage_end < policy.end:
        why = f"; the service was away for its limit of {policy.outage_seconds:g} s"
    elif wait == math.inf:
        why = f"; the service was away until the deadline of {policy.deadline:g} s"
    else:
        why = f"; the next would start in {wait:.3g} s, the deadline is in {policy.end - now:.3g} s"
    return _gave_up(policy, history, failure, now, why)


def _wait_after(failure: AttemptFailure, history: RetryHistory, drawn: float) -> Tuple[Optional[float], int]:
    """Returns the seconds to wait, None if the failure is final, and the new number of backoffs in a row."""
    longest = _LONGEST_AWAY if failure.error.code == "UNAVAILABLE" else _LONGEST_BACKOFF
    backoff: float = drawn * min(longest, _FIRST_BACKOFF * 2 ** min(history.backoffs, _BACKOFF_DOUBLINGS))
    retry_after = failure.retry_after
    if not _may_help(failure, history) or (retry_after is not None and retry_after < 0):
        return None, history.backoffs
    if retry_after is None:
        return backoff, history.backoffs + 1
    wait = retry_after * (1 + _RETRY_AFTER_JITTER * drawn)
    return (max(wait, backoff), history.backoffs + 1) if retry_after < _LEAST_RETRY_AFTER else (wait, 0)


def _may_help(failure: AttemptFailure, history: RetryHistory) -> bool:
    code = failure.error.code
    if code == "ABORTED":
        return failure.error.reason == "WORKER_LOST"
    if code == "RESOURCE_EXHAUSTED":
        return failure.retry_after is not None or _ended_by_transport(failure.error)
    if code == "ALREADY_EXISTS":
        return history.connection_lost
    if code == "DATA_LOSS":
        return failure.output_damaged and history.damaged_outputs <= _RETRIES_OF_DAMAGED_OUTPUT
    return code == "UNAVAILABLE"


def _ended_by_transport(error: HilbertRingError) -> bool:
    """Returns whether the service's transport ran out of memory (--transport-memory) and ended calls.

    gRPC reports HTTP/2's ENHANCE_YOUR_CALM only in the message's text.
    """
    return error.reason == error.code and "RST_STREAM with error code 11" in error.message


def _away(failure: AttemptFailure) -> bool:
    """Returns whether the service is away: UNAVAILABLE without a retry-after."""
    return failure.error.code == "UNAVAILABLE" and failure.retry_after is None


def _counts(policy: RetryPolicy, failure: AttemptFailure) -> bool:
    if failure.admitted or policy.max_attempts == 1:
        return True
    full = failure.error.code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
    return not _away(failure) and (not full or policy.deadline == math.inf)


def _gave_up(policy: RetryPolicy, history: RetryHistory, failure: AttemptFailure, now: float,
             why: str) -> HilbertRingError:
    """Returns the last error with the number of attempts."""
    error, made = failure.error, history.attempts
    message = error.message
    own = error.reason in ("DEADLINE_EXCEEDED", "CLIENT_DEADLINE")  # the call's deadline, not a limit of the service
    if own and now + _DEADLINE_EARLY >= policy.end:
        message = f"the job's deadline of {policy.deadline:g} s passed: {message}"
    if made > 1 or why:
        message += f" (after {made} attempt{'s' if made > 1 else ''}{why})"
    final = error_class(error.code)(message, reason=error.reason, field=error.field, limit=error.limit,
                                    retry_after=error.retry_after, attempts=made)
    final.code = error.code
    return final


class Retries:
    """The retries of one call, or of several calls for a job."""

    def __init__(self, policy: RetryPolicy, timing: CallTiming) -> None:
        self.policy = policy
        self.history = RetryHistory()
        self._timing = timing

    def deadline_left(self) -> Optional[float]:
        """Returns the seconds until the deadline; None: no deadline."""
        return None if self.policy.end == math.inf else max(0.0, self.policy.end - self._timing.now())

    def time_left(self) -> float:
        """Returns the seconds until the deadline or the outage's limit."""
        return retry_end(self.policy, self.history) - self._timing.now()

    def wait_after(self, failure: AttemptFailure) -> float:
        """Returns the seconds before the next attempt. Raises HilbertRingError if the failure is final."""
        decision = decide_retry(self.policy, self.history, failure, self._timing.now(), self._timing.random())
        self.history = decision.history
        if decision.error is not None:
            raise decision.error
        assert decision.wait is not None
        return decision.wait

    def too_late(self, failure: AttemptFailure) -> HilbertRingError:
        return too_late(self.policy, self.history, failure, self._timing.now())

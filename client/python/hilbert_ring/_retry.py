"""Whether a call that failed is made again, and when: decide_retry. Connection.call_with_retries does what it says. As
client/cpp/retry.h.

- UNAVAILABLE (no coordinator, it starts, drains or stops, no worker, a connection lost): backoff,
  then as soon as there is a connection.
- ABORTED with reason WORKER_LOST: backoff.
- RESOURCE_EXHAUSTED with a retry-after: the retry-after and up to a quarter more. Of the service's
  transport, which has no reason: backoff.
- ALREADY_EXISTS after an UNAVAILABLE (the service has not noticed that the connection is lost):
  backoff.
- DATA_LOSS found in the output by the client: backoff, twice at most.

Anything else is final. A retry-after replaces the backoff with every code; with one below 50 ms the
wait is no shorter than the backoff; one that is negative means that the service does not want another
attempt. Backoff is random between 0 and a limit that doubles from 100 ms to 5 s
(UNAVAILABLE: 0.4 s).

Attempts are bounded by their number, by the deadline of the call, and by the time that an outage (UNAVAILABLE without a
retry_after) may take.
"""
import math
import time
from dataclasses import dataclass, replace
from random import random
from typing import Callable, Optional, Tuple

from hilbert_ring.errors import HilbertRingError, error_class

_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0
_LONGEST_AWAY = 0.4  # of a service that is away: the job goes on within a second of its return
_BACKOFF_DOUBLINGS = 6
_RETRY_AFTER_JITTER = 0.25
_LEAST_RETRY_AFTER = 0.05  # half of the first backoff's limit
_RETRIES_OF_DAMAGED_OUTPUT = 2
_DEADLINE_EARLY = 0.1  # gRPC's is reckoned from a time that was read before ours
OUTAGE_SECONDS = 30.0


@dataclass(frozen=True)
class AttemptFailure:
    """How an attempt failed, as far as another one depends on it."""

    error: HilbertRingError
    admitted: bool = False        # the service took the job
    output_damaged: bool = False  # found by the client: corrupt, repeated or missing rows
    retry_after: Optional[float] = None  # seconds; below 0: the service wants no other attempt


@dataclass
class CallTiming:
    """Time and chance of a call; tests bring their own."""

    now: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random


Final = Callable[[AttemptFailure], bool]               # whether no other attempt follows, whatever decide_retry says
TellRetry = Callable[[HilbertRingError, float], None]  # of a failure, and of seconds until the next attempt


def never_final(_: AttemptFailure) -> bool:
    return False


def tell_nobody(_error: HilbertRingError, _wait: float) -> None:
    pass


def is_reachable(failure: AttemptFailure) -> bool:
    """Whether the service is there: so is one whose data root is not."""
    return failure.error.code != "UNAVAILABLE" or failure.error.reason == "DATA_ROOT_GONE"


def is_plan_pushed_back(name: str, failure: AttemptFailure) -> bool:
    """Whether a call failed because the service makes too many plans."""
    return name in ("Plan", "PlanEncode") and failure.retry_after is not None


@dataclass(frozen=True)
class RetryPolicy:
    """What bounds the attempts of a call.

    Attributes:
        max_attempts: 1: a failure is final. Attempts that find the service away do not count; with a deadline those
            that find it full do not count either.
        deadline: seconds, as messages tell it.
        end: when it passes.
        outage_timeout: seconds of one outage. None: until the deadline, or OUTAGE_SECONDS where there is none.
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
    """What the failures of a call up to now have come to."""

    attempts: int = 0              # that failed
    counted: int = 0               # of them, that max_attempts bounds
    backoffs: int = 0              # in a row
    damaged_outputs: int = 0       # attempts that ended so
    connection_lost: bool = False  # by one of them
    outage_end: float = math.inf   # finite: the service is away


@dataclass(frozen=True)
class RetryDecision:
    history: RetryHistory                     # the failure included
    wait: Optional[float] = None              # seconds before another attempt; None: none follows
    error: Optional[HilbertRingError] = None  # the call's, where none follows


def decide_retry(policy: RetryPolicy, history: RetryHistory, failure: AttemptFailure, now: float,
                 drawn: float) -> RetryDecision:
    """drawn: in [0, 1), for this failure."""
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
    """When the deadline, or the time of the outage, is over."""
    return min(policy.end, history.outage_end)


def too_late(policy: RetryPolicy, history: RetryHistory, failure: AttemptFailure, now: float,
             wait: float = math.inf) -> HilbertRingError:
    """The error of a call whose next attempt would start after retry_end: in `wait`, or, where that is infinite, because
    there was no connection until then."""
    if history.outage_end < policy.end:
        why = f"; the service was away for its limit of {policy.outage_seconds:g} s"
    elif wait == math.inf:
        why = f"; the service was away until the deadline of {policy.deadline:g} s"
    else:
        why = f"; the next would start in {wait:.3g} s, the deadline is in {policy.end - now:.3g} s"
    return _gave_up(policy, history, failure, now, why)


def _wait_after(failure: AttemptFailure, history: RetryHistory, drawn: float) -> Tuple[Optional[float], int]:
    """Seconds, and backoffs in a row then."""
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
    """The service had no memory for what came (--transport-memory) and ended calls: HTTP/2's
    ENHANCE_YOUR_CALM, which gRPC tells in words alone."""
    return error.reason == error.code and "RST_STREAM with error code 11" in error.message


def _away(failure: AttemptFailure) -> bool:
    """The service did not take the job, and did not say when to come back."""
    return failure.error.code == "UNAVAILABLE" and failure.retry_after is None


def _counts(policy: RetryPolicy, failure: AttemptFailure) -> bool:
    if failure.admitted or policy.max_attempts == 1:
        return True
    full = failure.error.code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
    return not _away(failure) and (not full or policy.deadline == math.inf)


def _gave_up(policy: RetryPolicy, history: RetryHistory, failure: AttemptFailure, now: float,
             why: str) -> HilbertRingError:
    """The last error, and how many attempts led to it."""
    error, made = failure.error, history.attempts
    message = error.message
    own = error.reason in ("DEADLINE_EXCEEDED", "CLIENT_DEADLINE")  # no limit of the service
    if own and now + _DEADLINE_EARLY >= policy.end:
        message = f"the job's deadline of {policy.deadline:g} s passed: {message}"
    if made > 1 or why:
        message += f" (after {made} attempt{'s' if made > 1 else ''}{why})"
    final = error_class(error.code)(message, reason=error.reason, field=error.field, limit=error.limit,
                                    retry_after=error.retry_after, attempts=made)
    final.code = error.code
    return final


class Retries:
    """Those of one call, or of several on behalf of a job."""

    def __init__(self, policy: RetryPolicy, timing: CallTiming) -> None:
        self.policy = policy
        self.history = RetryHistory()
        self._timing = timing

    def deadline_left(self) -> Optional[float]:
        """Seconds for the attempt that starts now; None: no deadline."""
        return None if self.policy.end == math.inf else max(0.0, self.policy.end - self._timing.now())

    def time_left(self) -> float:
        """Seconds until the deadline or the end of what an outage may take."""
        return retry_end(self.policy, self.history) - self._timing.now()

    def wait_after(self, failure: AttemptFailure) -> float:
        """Seconds before the next attempt. Raises HilbertRingError when none may follow."""
        decision = decide_retry(self.policy, self.history, failure, self._timing.now(), self._timing.random())
        self.history = decision.history
        if decision.error is not None:
            raise decision.error
        assert decision.wait is not None
        return decision.wait

    def too_late(self, failure: AttemptFailure) -> HilbertRingError:
        return too_late(self.policy, self.history, failure, self._timing.now())

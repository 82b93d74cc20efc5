"""Retries and waits of a job, without a service, by the test's own clock."""
import math

import pytest

from hilbert_ring import errors
from hilbert_ring._retry import AttemptFailure, Retries


def failure(kind, reason="", **more):
    return AttemptFailure(kind("it failed", reason=reason), **more)


AWAY = failure(errors.UnavailableError)
LOST = failure(errors.AbortedError, "WORKER_LOST", admitted=True)


class Clock:
    def __init__(self):
        self.seconds = 1000.0

    def retries(self, deadline=math.inf, outage_timeout=None, max_attempts=10, draw=1.0):
        return Retries(max_attempts, deadline, outage_timeout=outage_timeout, now=lambda: self.seconds, draw=lambda: draw)


DAMAGED = failure(errors.DataLossError, output_damaged=True)
FULL = failure(errors.ResourceExhaustedError, "QUEUE_FULL", retry_after=2)
NO_MEMORY = "Received RST_STREAM with error code 11"  # of the service's transport


@pytest.mark.parametrize("failures, drawn, waits", [
    ([LOST] * 8, 1.0, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]), ([AWAY] * 8, 1.0, [0.1, 0.2] + [0.4] * 6),
    ([FULL], 0.0, [2.0]), ([FULL], 1.0, [2.5]), ([DAMAGED] * 2, 1.0, [0.1, 0.2]),
    ([AttemptFailure(errors.ResourceExhaustedError(NO_MEMORY))], 1.0, [0.1]),
    ([AWAY, failure(errors.AlreadyExistsError, "JOB_RUNNING")], 1.0, [0.1, 0.2])])
def test_waits(failures, drawn, waits):
    retries = Clock().retries(draw=drawn)
    assert [retries.wait_after(failure) for failure in failures] == pytest.approx(waits)


@pytest.mark.parametrize("final", [
    failure(errors.InvalidArgumentError, "INVALID_SPEC"), failure(errors.CancelledError),
    failure(errors.AbortedError, "ATTEMPT_FENCED"), failure(errors.AbortedError, "ROWS_LOST"),
    failure(errors.ResourceExhaustedError, "WORKER_MEMORY"),
    failure(errors.DataLossError, "ROW_MISMATCH"), failure(errors.AlreadyExistsError),
    failure(errors.FailedPreconditionError, "DOES_NOT_FIT"), failure(errors.InternalError),
    failure(errors.UnavailableError, "DRAINING", retry_after=-0.001),
    AttemptFailure(errors.ResourceExhaustedError(NO_MEMORY, reason="OVER_LIMIT"))])
def test_what_is_final(final):
    with pytest.raises(type(final.error)):
        Clock().retries().wait_after(final)


def test_damaged_output_is_fetched_again_twice():
    retries = Clock().retries()
    retries.wait_after(DAMAGED)
    retries.wait_after(DAMAGED)
    with pytest.raises(errors.DataLossError):
        retries.wait_after(DAMAGED)


def test_max_attempts_counts_those_that_the_service_took():
    retries = Clock().retries(max_attempts=3)
    retries.wait_after(LOST)
    for _ in range(5):
        retries.wait_after(AWAY)
    retries.wait_after(LOST)
    with pytest.raises(errors.AbortedError, match=r"after 8 attempts") as raised:
        retries.wait_after(LOST)
    assert raised.value.attempts == 8
    assert raised.value.reason == "WORKER_LOST"


def test_a_job_that_was_lost_with_its_service_counts():
    retries = Clock().retries(max_attempts=2)
    lost = failure(errors.UnavailableError, admitted=True)
    retries.wait_after(lost)
    with pytest.raises(errors.UnavailableError, match="after 2 attempts"):
        retries.wait_after(lost)


def test_a_full_service_counts_only_without_a_deadline():
    full = failure(errors.ResourceExhaustedError, "QUEUE_FULL", retry_after=0.01)
    with pytest.raises(errors.ResourceExhaustedError):
        retries = Clock().retries(max_attempts=2)
        retries.wait_after(full)
        retries.wait_after(full)
    retries = Clock().retries(max_attempts=2, deadline=60)
    for _ in range(20):
        retries.wait_after(full)


def test_an_outage_has_a_limit():
    clock = Clock()
    retries = clock.retries()
    retries.wait_after(AWAY)
    clock.seconds += 29
    assert retries.time_left() == pytest.approx(1)
    retries.wait_after(AWAY)
    clock.seconds += 1
    with pytest.raises(errors.UnavailableError, match="away for its limit of 30 s"):
        retries.wait_after(AWAY)


def test_an_outage_that_ended_is_forgotten():
    clock = Clock()
    retries = clock.retries()
    retries.wait_after(AWAY)
    clock.seconds += 29
    retries.wait_after(LOST)
    assert retries.time_left() == math.inf
    retries.wait_after(AWAY)
    assert retries.time_left() == pytest.approx(30)


def test_with_a_deadline_an_outage_may_take_until_then():
    clock = Clock()
    retries = clock.retries(deadline=300)
    for _ in range(10):
        retries.wait_after(AWAY)
        clock.seconds += 29
    assert retries.deadline_left() == pytest.approx(10)
    with pytest.raises(errors.UnavailableError, match="until the deadline of 300 s"):
        raise retries.too_late(AWAY)


def test_a_wait_that_ends_after_the_deadline_is_not_begun():
    retries = Clock().retries(deadline=5)
    full = failure(errors.ResourceExhaustedError, "QUEUE_FULL", retry_after=6)
    with pytest.raises(errors.ResourceExhaustedError, match="the deadline is in 5 s"):
        retries.wait_after(full)


@pytest.mark.parametrize("reason", ["", "CLIENT_DEADLINE"])
def test_the_deadline_is_named_once_it_has_passed(reason):
    clock = Clock()
    retries = clock.retries(deadline=5)
    clock.seconds += 5
    with pytest.raises(errors.DeadlineExceededError, match="the job's deadline of 5 s passed: it failed"):
        retries.wait_after(failure(errors.DeadlineExceededError, reason))


@pytest.mark.parametrize("reason, seconds", [
    ("JOB_TIMEOUT", 1), ("JOB_TIMEOUT", 5), ("CLIENT_IDLE", 5), ("CLIENT_DEADLINE", 1), ("", 1)])
def test_a_limit_of_the_service_is_not_called_the_jobs_deadline(reason, seconds):
    clock = Clock()
    retries = clock.retries(deadline=5)
    clock.seconds += seconds
    with pytest.raises(errors.DeadlineExceededError) as raised:
        retries.wait_after(failure(errors.DeadlineExceededError, reason))
    assert raised.value.message == "it failed"

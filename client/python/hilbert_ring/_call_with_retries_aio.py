"""The one loop in which this client makes a call again, whichever call it is. As client/cpp/call_with_retries.h."""
from typing import Any, Awaitable, Callable, Optional, TypeVar, Union

from hilbert_ring._connection_aio import AioConnection
from hilbert_ring._retry import AttemptFailure, Retries, never_final
from hilbert_ring.errors import HilbertRingError

T = TypeVar("T")


async def call_with_retries(
        connection: AioConnection, retries: Retries,
        make: Callable[[int, Optional[float]], Awaitable[Union[T, AttemptFailure]]],
        final: Callable[[AttemptFailure], bool] = never_final,
        tell: Callable[[int, HilbertRingError, float], Any] = lambda *_: None) -> T:
    """Makes a call until it is done, or decide_retry says that it has failed.

    Args:
        make: one attempt, of its number, from 0, and the seconds that it may take; None: it has no deadline.
        final: failures after which there is no other attempt, whatever decide_retry says of others.
        tell: called before each wait, with the next attempt's number, the failure's error, and seconds.

    Raises:
        HilbertRingError: of the last attempt, and how many there were.
    """
    number = 0
    while True:
        outcome = await make(number, retries.deadline_left())
        if not isinstance(outcome, AttemptFailure):
            return outcome
        wait = retries.wait_after(outcome, final)
        number += 1
        tell(number, outcome.error, wait)
        await connection.pause(wait)
        if not await connection.connected_within(retries.time_left()):
            raise retries.too_late(outcome)

"""What the client for asyncio does in threads, for the blocking one: in the caller's."""
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, TypeVar

T = TypeVar("T")


def with_streams_of_call(method: T) -> T:
    """The caller's thread has its streams."""
    return method


def in_thread(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    return function(*arguments, **options)


def to_its_end(_: Callable[[], None], function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)


def side_by_side(lanes: int, lane: Callable[[], None]) -> None:
    """Runs a lane so many times. The caller's thread has one, too."""
    if lanes > 0:
        with ThreadPoolExecutor(lanes) as pool:
            others = [pool.submit(lane) for _ in range(lanes - 1)]
            lane()
        for other in others:
            other.result()

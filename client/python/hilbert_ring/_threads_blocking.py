"""The blocking client's variants of _threads_aio.py: functions run in the caller's thread."""
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, TypeVar

T = TypeVar("T")


def with_streams_of_call(method: T) -> T:
    """Returns the method itself, because it runs in the caller's thread, which has the streams."""
    return method


def in_thread(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    return function(*arguments, **options)


def to_its_end(_: Callable[[], None], function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)


def side_by_side(lanes: int, lane: Callable[[], None]) -> None:
    """Runs lane() `lanes` times at once, in the caller's thread and in others."""
    if lanes > 0:
        with ThreadPoolExecutor(lanes) as pool:
            others = [pool.submit(lane) for _ in range(lanes - 1)]
            lane()
        for other in others:
            other.result()

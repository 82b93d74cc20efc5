"""Threads and parallel tasks of the asyncio client."""
import asyncio
from typing import Any, Callable, Coroutine, TypeVar

from hilbert_ring._torch_streams import with_streams_of_call as with_streams_of_call

T = TypeVar("T")

in_thread = asyncio.to_thread


async def to_its_end(stop: Callable[[], None], function: Callable[..., T], *arguments: Any) -> T:
    """Runs a function in a thread and always awaits its end. A cancelled task calls `stop` first."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([thread])
        raise


async def side_by_side(lanes: int, lane: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs `lanes` tasks of lane() at the same time. A failed task cancels the others."""
    tasks = [asyncio.ensure_future(lane()) for _ in range(lanes)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

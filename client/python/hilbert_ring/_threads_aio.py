"""What the client for asyncio does in threads, and in tasks side by side."""
import asyncio
from typing import Any, Callable, Coroutine, TypeVar

from hilbert_ring._torch_streams import with_streams_of_call as with_streams_of_call

T = TypeVar("T")

in_thread = asyncio.to_thread


async def to_its_end(stop: Callable[[], None], function: Callable[..., T], *arguments: Any) -> T:
    """In a thread, which is awaited in any case: a task that is cancelled calls `stop` before."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([thread])
        raise


async def side_by_side(lanes: int, lane: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a lane so many times. One that fails ends the others."""
    tasks = [asyncio.ensure_future(lane()) for _ in range(lanes)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

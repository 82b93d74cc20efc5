"""Many small jobs, for the client for asyncio."""
import asyncio
from typing import Any, Callable, List

from hilbert_ring._many import ManyCall, ManyResult
from hilbert_ring.errors import HilbertRingError


async def run_many(run: Callable[..., Any], call: ManyCall) -> List[ManyResult]:
    """The jobs' results. run: of Client, a job until it ends. Rows are read in a thread."""
    async def lane() -> None:
        pack = await asyncio.to_thread(call.next)
        while pack is not None:
            try:
                call.done(pack, await run(pack.call, call.attempts(), None, pack.final))
            except HilbertRingError as error:
                if not call.failed(pack, error):
                    return
            pack = await asyncio.to_thread(call.next)

    lanes = [asyncio.ensure_future(lane()) for _ in range(call.lanes)]
    try:
        await asyncio.gather(*lanes)
    finally:
        for task in lanes:
            task.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
    return call.ended()

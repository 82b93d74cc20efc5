"""Many small jobs, for the blocking client."""
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List

from hilbert_ring._channel import closed_error
from hilbert_ring._many import ManyCall, ManyResult
from hilbert_ring.errors import HilbertRingError


def run_many(run: Callable[..., Any], call: ManyCall) -> List[ManyResult]:
    """The jobs' results. run: of Client, a job until it ends. The caller's thread has a lane, too."""
    def lane() -> None:
        try:
            pack = call.next()
            while pack is not None:
                try:
                    call.done(pack, run(pack.call, call.attempts(), None, pack.final))
                except HilbertRingError as error:
                    if not call.failed(pack, error):
                        return
                pack = call.next()
        except BaseException:
            call.stop(closed_error())
            raise

    if call.lanes > 0:
        with ThreadPoolExecutor(call.lanes) as pool:
            others = [pool.submit(lane) for _ in range(call.lanes - 1)]
            lane()
        for other in others:
            other.result()
    return call.ended()

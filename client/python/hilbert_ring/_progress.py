"""Shows a job's progress as a bar in a terminal or notebook."""
import sys
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional

from hilbert_ring._conversation import Progress
from hilbert_ring._job import ProgressOption

_SCALE = 1000  # steps of the bar
_DELAY = 0.5   # seconds


@contextmanager
def shown(option: ProgressOption) -> Iterator[Optional[Callable[[Progress], None]]]:
    """Yields the function that takes a call's progress; None: no progress is wanted."""
    if callable(option):
        yield option
        return
    wanted = option if option is not None else _seen()
    bars = _tqdm() if wanted else None
    if bars is None:
        yield None
        return
    bar: Any = None
    begin = time.monotonic() + (0 if option else _DELAY)  # by default a short job shows no bar

    def draw(progress: Progress) -> None:
        nonlocal bar
        if bar is None and time.monotonic() >= begin:
            bar = bars(total=_SCALE, leave=False, miniters=0, bar_format="{desc}{percentage:3.0f}%|{bar}| {elapsed}")
        if bar is not None:
            bar.set_description_str(f"{progress.job_id}: {phase_of(progress)} ", refresh=False)
            bar.update(int(_SCALE * fraction_of(progress)) - bar.n)

    try:
        yield draw
    finally:
        if bar is not None:
            bar.close()


def _seen() -> bool:
    """Returns whether there is a terminal or a notebook."""
    return sys.stderr is not None and sys.stderr.isatty() or "ipykernel" in sys.modules


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm


def fraction_of(progress: Progress) -> float:
    """Returns 0 to 1: sending, computing and receiving count a third each."""
    if progress.by_reference:
        return progress.compute_fraction  # outputs are written as they become final; pooled rows are few
    sent = progress.bytes_sent / max(1, progress.bytes_to_send)
    placed = progress.rows_placed / max(1, progress.rows)
    computed = max(progress.compute_fraction, placed)
    return (min(1.0, sent) + computed + placed) / 3


def phase_of(progress: Progress) -> str:
    if progress.last_failure is not None and not progress.admitted:
        return f"attempt {progress.attempt + 1}"
    if not progress.admitted:
        jobs = progress.jobs_before
        return f"{jobs} job{'' if jobs == 1 else 's'} before" if jobs else "waiting"
    if progress.bytes_sent < progress.bytes_to_send:
        return "sending"
    return "receiving" if progress.rows_placed else "computing"

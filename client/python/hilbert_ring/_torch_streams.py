"""The CUDA streams of PyTorch on which a caller writes its tensors.

    streams = CallerStreams()          # in the caller's thread, at the call
    await_rows = streams.written(q)    # a function that waits for the kernels queued before
    with streams.current():            # in any thread: makes the caller's streams current
        ...

Each thread has its own current streams: without these, a copy in another thread would not wait for the kernel that
writes the rows.
"""
import asyncio
import inspect
import sys
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Callable, Iterable, Iterator, List, Optional, TypeVar, cast

_END = object()
_Method = TypeVar("_Method", bound=Callable[..., Any])
_at_call: "ContextVar[Optional[CallerStreams]]" = ContextVar("hilbert_ring_streams", default=None)


def torch_if_loaded() -> Any:
    """Returns PyTorch's module; None: the program has not imported it, so no value is a tensor."""
    return sys.modules.get("torch")


def _cuda_if_used() -> Any:
    cuda = getattr(torch_if_loaded(), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


class CallerStreams:
    """The current streams of the thread that made it, on CUDA's (or ROCm's) devices. Thread-safe."""

    def __init__(self) -> None:
        self._cuda = _cuda_if_used()
        self._streams: List[Any] = []  # by device
        if self._cuda is not None:
            self._device = self._cuda.current_device()
            self._streams = [self._cuda.current_stream(device) for device in range(self._cuda.device_count())]

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes them the current streams of a thread whose streams are the default ones.

        Devices that the caller does not use stay untouched: a context would take their memory.
        """
        with ExitStack() as entered:
            for device, stream in enumerate(self._streams):
                if stream != self._cuda.default_stream(device):
                    entered.enter_context(self._cuda.stream(stream))
            if self._cuda is not None:
                entered.enter_context(self._cuda.device(self._device))
            yield

    @contextmanager
    def placing(self, device: Any) -> Iterator[None]:
        """Makes the caller's stream of a device current in this thread."""
        with ExitStack() as entered:
            if device.type == "cuda" and self._streams:
                entered.enter_context(self._cuda.stream(self._streams[device.index]))
            yield

    def iterate(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yields the values. The iterator runs under these streams in any thread."""
        rest = iter(values)
        while True:
            with self.current():
                value = next(rest, _END)
            if value is _END:
                return
            yield value

    def written(self, tensor: Any) -> Callable[[], None]:
        """Returns a function that waits until a tensor's rows may be read.

        It waits for all work that is queued now on the streams of the caller and of this thread.
        """
        if tensor.device.type != "cuda":
            return lambda: None
        here = torch_if_loaded().cuda.current_stream(tensor.device)
        callers = self._streams[tensor.device.index] if self._streams else here  # no streams: CUDA began after the call
        events = [stream.record_event() for stream in ([here] if callers == here else [callers, here])]

        def await_rows() -> None:
            for event in events:
                event.synchronize()

        return await_rows


def streams_of_call() -> CallerStreams:
    """Returns the streams at the time of an asyncio call, else the thread's current ones."""
    return _at_call.get() or CallerStreams()


def with_streams_of_call(method: _Method) -> _Method:
    """Gives a coroutine function the streams that are current at its call, because its task begins later."""
    @wraps(method)
    def called(*arguments: Any, **options: Any) -> Any:
        return run(CallerStreams(), arguments, options)

    async def run(streams: CallerStreams, arguments: Any, options: Any) -> Any:
        _at_call.set(streams)
        try:
            return await method(*arguments, **options)
        finally:
            _at_call.set(None)

    if hasattr(inspect, "markcoroutinefunction"):  # since Python 3.12
        return cast(_Method, inspect.markcoroutinefunction(called))
    called._is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", None)  # type: ignore[attr-defined]
    return cast(_Method, called)

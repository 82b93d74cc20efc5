"""PyTorch, where the program uses it, and the streams on which a caller's tensors are written.

    streams = CallerStreams()          # in the caller's thread, as it calls
    await_rows = streams.written(q)    # a function: what the caller has queued before is done then
    with streams.current():            # in whatever thread: the caller's streams are the current ones
        ...

A thread has current streams of its own, so that a copy in another thread than the caller's would not wait for
the kernel that writes the rows.
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
    """The module, if the program has imported it: else nothing can be a tensor of its."""
    return sys.modules.get("torch")


def _cuda_if_used() -> Any:
    cuda = getattr(torch_if_loaded(), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


class CallerStreams:
    """Of a thread on CUDA's devices (ROCm's, too), when this was made. For all threads."""

    def __init__(self) -> None:
        self._cuda = _cuda_if_used()
        self._streams: List[Any] = []  # by device
        if self._cuda is not None:
            self._device = self._cuda.current_device()
            self._streams = [self._cuda.current_stream(device) for device in range(self._cuda.device_count())]

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes them the current streams of a new thread, in which others are the default ones. Devices that the
        caller does not use are not touched: that would take their memory."""
        with ExitStack() as entered:
            for device, stream in enumerate(self._streams):
                if stream != self._cuda.default_stream(device):
                    entered.enter_context(self._cuda.stream(stream))
            if self._cuda is not None:
                entered.enter_context(self._cuda.device(self._device))
            yield

    @contextmanager
    def placing(self, device: Any) -> Iterator[None]:
        """Makes the caller's stream of a device the current one of this thread."""
        with ExitStack() as entered:
            if device.type == "cuda" and self._streams:
                entered.enter_context(self._cuda.stream(self._streams[device.index]))
            yield

    def iterate(self, values: Iterable[Any]) -> Iterator[Any]:
        """The values, each asked for under these streams, whatever thread asks."""
        rest = iter(values)
        while True:
            with self.current():
                value = next(rest, _END)
            if value is _END:
                return
            yield value

    def written(self, tensor: Any) -> Callable[[], None]:
        """A function that returns once a tensor's rows may be read: after what is queued now on the caller's
        stream of its device, and on that of this thread, which had the tensor."""
        if tensor.device.type != "cuda":
            return lambda: None
        here = torch_if_loaded().cuda.current_stream(tensor.device)
        callers = self._streams[tensor.device.index] if self._streams else here  # else it is in use since the call
        events = [stream.record_event() for stream in ([here] if callers == here else [callers, here])]

        def await_rows() -> None:
            for event in events:
                event.synchronize()

        return await_rows


def streams_of_call() -> CallerStreams:
    """Those of a call of asyncio when it was made, else the thread's as they are."""
    return _at_call.get() or CallerStreams()


def with_streams_of_call(method: _Method) -> _Method:
    """A coroutine function that has the streams that are current when it is called: a task of it begins later."""
    @wraps(method)
    def called(*arguments: Any, **options: Any) -> Any:
        return run(CallerStreams(), arguments, options)

    async def run(streams: CallerStreams, arguments: Any, options: Any) -> Any:
        _at_call.set(streams)
        try:
            return await method(*arguments, **options)
        finally:
            _at_call.set(None)

    if hasattr(inspect, "markcoroutinefunction"):  # from Python 3.12 on
        return cast(_Method, inspect.markcoroutinefunction(called))
    called._is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", None)  # type: ignore[attr-defined]
    return cast(_Method, called)

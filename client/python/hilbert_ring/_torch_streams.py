"""PyTorch, where the program uses it, and the streams on which a caller's tensors are written.

    streams = CallerStreams()          # in the caller's thread, as it calls
    await_rows = streams.written(q)    # a function: what the caller has queued before is done then
    with streams.current():            # in whatever thread: the caller's streams are the current ones
        ...

A thread has current streams of its own, so that a copy in another thread than the caller's would not wait for
the kernel that writes the rows.
"""
import inspect
import sys
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Tuple, TypeVar, cast

_KINDS = ("cuda", "xpu")  # of devices with streams; CUDA's are ROCm's, too
_END = object()
_Method = TypeVar("_Method", bound=Callable[..., Any])
_at_call: "ContextVar[Optional[CallerStreams]]" = ContextVar("hilbert_ring_streams", default=None)


def torch_if_loaded() -> Any:
    """The module, if the program has imported it: else nothing can be a tensor of its."""
    return sys.modules.get("torch")


class CallerStreams:
    """Of a thread, when this was made. For all threads."""

    def __init__(self) -> None:
        self._backends: Dict[str, Any] = {}  # modules of torch, by kind of device: those that the program uses
        self._devices: Dict[str, int] = {}  # the current one of each
        self._streams: Dict[Tuple[str, int], Any] = {}  # by kind and index of device
        for kind in _KINDS:
            backend = getattr(torch_if_loaded(), kind, None)
            if backend is not None and backend.is_initialized():
                self._backends[kind], self._devices[kind] = backend, backend.current_device()
                for index in range(backend.device_count()):
                    self._streams[kind, index] = backend.current_stream(index)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes them the current streams of a new thread, in which others are the default ones. Devices that the
        caller does not use are not touched: that would take their memory."""
        with ExitStack() as entered:
            for (kind, index), stream in self._streams.items():
                backend = self._backends[kind]
                if stream != backend.default_stream(index):
                    entered.enter_context(backend.stream(stream))
            for kind, backend in self._backends.items():
                entered.enter_context(backend.device(self._devices[kind]))
            yield

    @contextmanager
    def placing(self, device: Any) -> Iterator[None]:
        """Makes the caller's stream of a device the current one of this thread."""
        stream = self._streams.get((device.type, device.index))
        with ExitStack() as entered:
            if stream is not None:
                entered.enter_context(self._backends[device.type].stream(stream))
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
        if tensor.device.type not in _KINDS:
            return lambda: None
        backend = getattr(torch_if_loaded(), tensor.device.type)  # which may be in use since the call alone
        here = backend.current_stream(tensor.device)
        callers = self._streams.get((tensor.device.type, tensor.device.index), here)
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

    mark = getattr(inspect, "markcoroutinefunction", lambda function: function)  # from Python 3.12 on
    return cast(_Method, mark(called))

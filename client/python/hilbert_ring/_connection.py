"""A connection to a service, and its calls: what both clients share, and the blocking client's."""
import contextlib
import math
import threading
import time
import weakref
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import (Any, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Optional, Set,
                    Type, TypeVar, Union)

import grpc
from google.protobuf.message import Message

from hilbert_ring._channel import SERVICE, SHORT_CALL_SECONDS, Address, closed_error, failure_of, keep_buffers
from hilbert_ring._interrupt import LOOK_SECONDS, interrupted, leave, watch
from hilbert_ring._retry import AttemptFailure, Final, OnRetry, Retries
from hilbert_ring.v1 import attention_pb2 as pb

R = TypeVar("R")
T = TypeVar("T", bound=Message)

# A thread of gRPC watches a channel's connection for two more rounds of 0.2 s after the last future has ended. It
# dies with a traceback if the channel is closed in that time.
_WATCH_SECONDS = 0.5


class Changed(ABC):
    """Lets sender and receiver of a call wait for each other. `wait` and `notify` are for a `with` block of it."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    @abstractmethod
    async def wait(self) -> None:
        """Waits for the next `notify`."""

    @abstractmethod
    def notify(self) -> None:
        pass


class AnyConnection(ABC):
    """A channel of gRPC with the credentials of its calls, blocking or for asyncio.

    Coroutines of the blocking connection never suspend, so that `run` runs them, and all that await nothing else.
    Each function raises CancelledError after `close`, which also ends functions that wait.
    """

    changed: Type[Changed]

    def __init__(self, address: Address) -> None:
        self._address = address
        keep_buffers()

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Calls have been cancelled, or will be soon."""

    @abstractmethod
    async def close(self) -> None:
        """Cancels all calls. May be called again."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        pass

    @abstractmethod
    async def _connected_within(self, seconds: float) -> bool:
        pass

    @abstractmethod
    def stream(self, method: str, requests: AsyncIterator[bytes], seconds: Optional[float], endless: bool) -> Any:
        """Begins a call with messages both ways, the caller's as bytes.

        Args:
            seconds: until the deadline; None: no deadline.
            endless: the call has no end: unread responses take a bounded memory.
        """

    @abstractmethod
    async def message(self, stream: Any) -> Optional[pb.AttendResponse]:
        """Returns a stream's next message; None: the call has ended with OK."""

    @abstractmethod
    async def ask(self, name: str, request: Any, response: Type[T], seconds: Optional[float],
                  service: str) -> Union[T, AttemptFailure]:
        """Makes one attempt of a call of one message each way."""

    @abstractmethod
    async def in_thread(self, function: Callable[..., R], *arguments: Any, **options: Any) -> R:
        """Runs a function that may wait for a disk or for the caller's code."""

    @abstractmethod
    async def to_its_end(self, stop: Callable[[], None], function: Callable[..., R], *arguments: Any) -> R:
        """Runs a function in a thread and always awaits its end. A cancelled task calls `stop` first."""

    @abstractmethod
    async def side_by_side(self, lanes: int, lane: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs lane() `lanes` times at once."""

    async def short(self, name: str, request: Any, response: Type[T], seconds: Optional[float] = SHORT_CALL_SECONDS,
                    service: str = SERVICE) -> T:
        """Makes a call of one message each way. Raises HilbertRingError: a subclass for each status."""
        answer = await self.ask(name, request, response, seconds, service)
        if isinstance(answer, AttemptFailure):
            raise answer.error
        return answer

    async def call_with_retries(
            self, retries: Retries, make: Callable[[Optional[float]], Awaitable[Union[R, AttemptFailure]]],
            final: Final = lambda _: False, on_retry: OnRetry = lambda _error, _wait: None) -> R:
        """Makes a call until it succeeds or Retries gives up: the only loop of retries in this client.

        client/cpp/retry.h does the same.

        Args:
            make: makes one attempt; takes the seconds until the deadline, None without one.
            final: whether a failure ends the call at once, without Retries.
            on_retry: called before each wait.

        Raises:
            HilbertRingError: the last attempt's, with the number of attempts.
        """
        while isinstance(outcome := await make(retries.deadline_left()), AttemptFailure):
            if final(outcome):
                raise outcome.error
            wait = retries.wait_after(outcome)
            on_retry(outcome.error, wait)
            await self.pause(wait)
            if not await self._connected_within(retries.time_left()):
                raise retries.too_late(outcome)
        return outcome


def run(coroutine: Awaitable[R]) -> R:
    """Runs a coroutine that never suspends."""
    try:
        coroutine.send(None)  # type: ignore[attr-defined]
    except StopIteration as done:
        result: R = done.value
        return result
    raise RuntimeError("a coroutine of the blocking client was suspended")


def each(values: AsyncIterator[R]) -> Iterator[R]:
    """Yields the values of an iterator that never suspends."""
    while True:
        try:
            value = run(values.__anext__())
        except StopAsyncIteration:
            return
        yield value


class _Condition(Changed):
    def __init__(self) -> None:
        self._condition = threading.Condition()

    def __enter__(self) -> None:
        self._condition.acquire()

    def __exit__(self, *_: object) -> None:
        self._condition.release()

    async def wait(self) -> None:
        self._condition.wait()

    def notify(self) -> None:
        self._condition.notify()


class Connection(AnyConnection):
    """The blocking connection. Thread-safe.

    After an interrupt of the program, jobs and waits of all threads except the main one raise CancelledError, too
    (_interrupt.py).
    """

    changed = _Condition

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._channel = address.channel(grpc)
        self._lock = threading.RLock()  # a signal's handler or a finaliser may close it at any moment
        self._unbounded: Optional[grpc.Channel] = None  # for calls without end, once there is one
        self._closed = threading.Event()  # set under _lock
        self._connecting: Set[Any] = set()  # futures of gRPC, guarded by _lock
        self._watched = -math.inf  # when the last of them ended, guarded by _lock
        self._streams: "weakref.WeakSet[Any]" = weakref.WeakSet()  # calls, guarded by _lock

    async def close(self) -> None:
        with self._lock:
            self._closed.set()
            connecting, self._connecting = self._connecting, set()
            if connecting:
                self._watched = time.monotonic()
            watch_end = self._watched + _WATCH_SECONDS
            streams = list(self._streams)
        for call in [*streams, *connecting]:
            call.cancel()
        time.sleep(max(0.0, watch_end - time.monotonic()))
        self._channel.close()
        if self._unbounded is not None:
            self._unbounded.close()

    @property
    def closed(self) -> bool:
        return self._closed.is_set() or interrupted()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise closed_error()

    def _check_wanted(self) -> None:
        if self.closed:
            raise closed_error()

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Guards the begin of a call: gRPC raises ValueError if its channel was closed."""
        self._check_open()
        try:
            yield
        except ValueError:
            self._check_open()
            raise

    async def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.closed and (left := end - time.monotonic()) > 0:
            self._closed.wait(min(left, LOOK_SECONDS))
        self._check_wanted()

    def stream(self, method: str, requests: AsyncIterator[bytes], seconds: Optional[float], endless: bool) -> Any:
        metadata = self._address.metadata()
        with self._lock, self._calling():
            channel = self._channel
            if endless:
                channel = self._unbounded = self._unbounded or self._address.channel(grpc, endless)
            begin = channel.stream_stream(method, response_deserializer=pb.AttendResponse.FromString)
            call = begin(each(requests), timeout=seconds, metadata=metadata)
            self._streams.add(call)
            if self.closed:  # a signal's handler closed it as the call began, or the program was interrupted
                call.cancel()
                self._check_wanted()
            return _watched(call)

    async def message(self, stream: Any) -> Optional[pb.AttendResponse]:
        return next(stream, None)

    async def ask(self, name: str, request: Any, response: Type[T], seconds: Optional[float],
                  service: str) -> Union[T, AttemptFailure]:
        try:
            with self._calling():
                method = self._channel.unary_unary(service + name, request_serializer=type(request).SerializeToString,
                                                   response_deserializer=response.FromString)
                call = _watched(method.future(request, timeout=seconds, metadata=self._address.metadata()))
            try:
                answer: T = call.result()
                return answer
            finally:
                call.cancel()  # no effect, unless this thread was interrupted
        except grpc.RpcError as ended:
            return failure_of(ended, False, self.closed)
        except grpc.FutureCancelledError:
            raise closed_error() from None

    async def in_thread(self, function: Callable[..., R], *arguments: Any, **options: Any) -> R:
        return function(*arguments, **options)

    async def to_its_end(self, stop: Callable[[], None], function: Callable[..., R], *arguments: Any) -> R:
        return function(*arguments)

    async def side_by_side(self, lanes: int, lane: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if lanes > 0:
            with ThreadPoolExecutor(lanes) as pool:
                others = [pool.submit(lambda: run(lane())) for _ in range(lanes - 1)]
                run(lane())
            for other in others:
                other.result()

    async def _connected_within(self, seconds: float) -> bool:
        with self._lock:
            self._check_open()
            ready = grpc.channel_ready_future(self._channel)
            self._connecting.add(ready)
        end = time.monotonic() + seconds
        try:
            while True:
                left = max(0.0, end - time.monotonic())
                try:
                    ready.result(timeout=min(left, LOOK_SECONDS))
                    return True
                except grpc.FutureTimeoutError:
                    self._check_wanted()
                    if left <= LOOK_SECONDS:
                        return False
        except grpc.FutureCancelledError:
            raise closed_error() from None
        finally:
            with self._lock:
                ours = ready in self._connecting  # close has not cancelled it: gRPC allows that once
                self._connecting.discard(ready)
                self._watched = time.monotonic()
            if ours:
                ready.cancel()


def _watched(call: Any) -> Any:
    """Ends a call of gRPC when the program is interrupted. Later calls, which clean up, are not watched."""
    if interrupted():
        return call
    watch(call)
    if not call.add_callback(lambda: leave(call)):
        leave(call)
    return call

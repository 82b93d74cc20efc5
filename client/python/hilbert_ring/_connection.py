"""The blocking client's connection to a service, and its calls."""
import contextlib
import math
import threading
import time
import weakref
from typing import Any, Callable, Iterator, Optional, Set, Type, TypeVar, Union

import grpc
from google.protobuf.message import Message

from hilbert_ring._channel import SERVICE, SHORT_CALL_SECONDS, Address, closed_error, failure_of, keep_buffers
from hilbert_ring._interrupt import LOOK_SECONDS, interrupted, leave, watch
from hilbert_ring._retry import AttemptFailure, CallTiming, Final, Retries, OnRetry, never_final, ignore_retry
from hilbert_ring.v1 import attention_pb2 as pb

R = TypeVar("R")
T = TypeVar("T", bound=Message)

# A thread of gRPC watches a channel's connection for two more rounds of 0.2 s after the last future has ended. It
# dies with a traceback if the channel is closed in that time.
_WATCH_SECONDS = 0.5


class Connection:
    """A channel of gRPC with the credentials of its calls. Thread-safe.

    Each function raises CancelledError after `close`, which also ends functions that wait. After an interrupt of the
    program, jobs and waits of all threads except the main one raise it too (_interrupt.py).
    """

    def __init__(self, address: Address) -> None:
        self.timing = CallTiming()
        self._address = address
        keep_buffers()
        self._channel = address.channel(grpc)
        self._lock = threading.RLock()  # a signal's handler or a finaliser may close it at any moment
        self._unbounded: Optional[grpc.Channel] = None  # for calls without end, once there is one
        self._closed = threading.Event()  # set under _lock
        self._connecting: Set[Any] = set()  # futures of gRPC, guarded by _lock
        self._watched = -math.inf  # when the last of them ended, guarded by _lock
        self._streams: "weakref.WeakSet[Any]" = weakref.WeakSet()  # calls, guarded by _lock

    def close(self) -> None:
        """Cancels all calls. May be called again."""
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
        """Calls have been cancelled, or will be soon."""
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

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.closed and (left := end - time.monotonic()) > 0:
            self._closed.wait(min(left, LOOK_SECONDS))
        self._check_wanted()

    def stream(self, method: str, requests: Iterator[bytes], seconds: Optional[float], endless: bool = False) -> Any:
        """Begins a call with messages both ways, the caller's as bytes.

        Args:
            seconds: until the deadline; None: no deadline.
            endless: the call has no end: unread responses take a bounded memory.
        """
        metadata = self._address.metadata()
        with self._lock, self._calling():
            channel = self._channel
            if endless:
                channel = self._unbounded = self._unbounded or self._address.channel(grpc, endless)
            begin = channel.stream_stream(method, response_deserializer=pb.AttendResponse.FromString)
            call = begin(requests, timeout=seconds, metadata=metadata)
            self._streams.add(call)
            if self.closed:  # a signal's handler closed it as the call began, or the program was interrupted
                call.cancel()
                self._check_wanted()
            return _watched(call)

    def short(self, name: str, request: Any, response: Type[T], seconds: Optional[float] = SHORT_CALL_SECONDS,
              service: str = SERVICE) -> T:
        """Makes a call of one message each way. Raises HilbertRingError: a subclass for each status."""
        answer = self.ask(name, request, response, seconds, service)
        if isinstance(answer, AttemptFailure):
            raise answer.error
        return answer

    def ask(self, name: str, request: Any, response: Type[T], seconds: Optional[float],
            service: str) -> Union[T, AttemptFailure]:
        """Makes one attempt of a short call."""
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

    def call_with_retries(self, retries: Retries, make: Callable[[Optional[float]], Union[R, AttemptFailure]],
                          final: Final = never_final, on_retry: OnRetry = ignore_retry) -> R:
        """Makes a call until it succeeds or decide_retry gives up: the only loop of retries in this client.

        client/cpp/retry.h does the same.

        Args:
            make: makes one attempt; takes the seconds until the deadline, None without one.
            final: whether a failure ends the call at once, without decide_retry.
            on_retry: called before each wait.

        Raises:
            HilbertRingError: the last attempt's, with the number of attempts.
        """
        while isinstance(outcome := make(retries.deadline_left()), AttemptFailure):
            if final(outcome):
                raise outcome.error
            wait = retries.wait_after(outcome)
            on_retry(outcome.error, wait)
            self.pause(wait)
            if not self._connected_within(retries.time_left()):
                raise retries.too_late(outcome)
        return outcome

    def _connected_within(self, seconds: float) -> bool:
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

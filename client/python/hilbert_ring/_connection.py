"""A connection to a service, and the calls that one makes over it, for the blocking client."""
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
from hilbert_ring._retry import AttemptFailure, CallTiming, Final, Retries, TellRetry, never_final, tell_nobody
from hilbert_ring.v1 import attention_pb2 as pb

R = TypeVar("R")
T = TypeVar("T", bound=Message)

# A thread of gRPC watches a channel's connection for two rounds of 0.2 s after nobody wants to know it, and
# dies with a traceback if the channel is closed meanwhile.
_WATCH_SECONDS = 0.5


class Connection:
    """A channel of gRPC with what each call over it shows the service. Thread-safe.

    Once it is closed each function raises CancelledError, and those that wait do so at once. So do jobs and waits of
    other threads than the main one once the program was interrupted (_interrupt.py).
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
        """Ends the calls that are under way, too. May be called again."""
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
        """Calls are ended, or will be soon."""
        return self._closed.is_set() or interrupted()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise closed_error()

    def _check_wanted(self) -> None:
        if self.closed:
            raise closed_error()

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Around the begin of a call, which gRPC refuses with a ValueError once its channel is closed."""
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
        """A call with messages both ways, the caller's as bytes.

        Args:
            seconds: until its deadline; None: it has none.
            endless: its length has no bound: what comes and is not read takes a fixed memory.
        """
        metadata = self._address.metadata()
        with self._lock, self._calling():
            channel = self._channel
            if endless:
                channel = self._unbounded = self._unbounded or self._address.channel(grpc, endless)
            begin = channel.stream_stream(method, response_deserializer=pb.AttendResponse.FromString)
            call = begin(requests, timeout=seconds, metadata=metadata)
            self._streams.add(call)
            if self.closed:  # by this thread, as the call began, or the program was interrupted before
                call.cancel()
                self._check_wanted()
            return _watched(call)

    def short(self, name: str, request: Any, response: Type[T], seconds: Optional[float] = SHORT_CALL_SECONDS,
              service: str = SERVICE) -> T:
        """One message each way. Raises HilbertRingError: a subclass for each status."""
        answer = self.ask(name, request, response, seconds, service)
        if isinstance(answer, AttemptFailure):
            raise answer.error
        return answer

    def ask(self, name: str, request: Any, response: Type[T], seconds: Optional[float],
            service: str) -> Union[T, AttemptFailure]:
        """One attempt of a short call."""
        try:
            with self._calling():
                method = self._channel.unary_unary(service + name, request_serializer=type(request).SerializeToString,
                                                   response_deserializer=response.FromString)
                call = _watched(method.future(request, timeout=seconds, metadata=self._address.metadata()))
            try:
                answer: T = call.result()
                return answer
            finally:
                call.cancel()  # which ended, unless this thread was interrupted
        except grpc.RpcError as ended:
            return failure_of(ended, False, self.closed)
        except grpc.FutureCancelledError:
            raise closed_error() from None

    def call_with_retries(self, retries: Retries, make: Callable[[Optional[float]], Union[R, AttemptFailure]],
                          final: Final = never_final, tell: TellRetry = tell_nobody) -> R:
        """Makes a call until it is done, or decide_retry says that it has failed: the one loop in which this client
        makes a call again, whichever call it is. As client/cpp/retry.h.

        Args:
            make: one attempt, which may take so many seconds; None: it has no deadline.
            final: failures after which there is no other attempt, whatever decide_retry says of others.
            tell: called before each wait.

        Raises:
            HilbertRingError: of the last attempt, and how many there were.
        """
        while isinstance(outcome := make(retries.deadline_left()), AttemptFailure):
            if final(outcome):
                raise outcome.error
            wait = retries.wait_after(outcome)
            tell(outcome.error, wait)
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
                ours = ready in self._connecting  # not taken by close: gRPC lets it be cancelled once
                self._connecting.discard(ready)
                self._watched = time.monotonic()
            if ours:
                ready.cancel()


def _watched(call: Any) -> Any:
    """A call of gRPC that ends when the program is interrupted. Calls that clean up after that are let be."""
    if interrupted():
        return call
    watch(call)
    if not call.add_callback(lambda: leave(call)):
        leave(call)
    return call

"""The asyncio client's connection to a service, and its calls."""
import asyncio
import contextlib
import math
import time
from typing import Any, AsyncIterator, Awaitable, Callable, Iterator, Optional, Set, Tuple, Type, TypeVar, Union

import grpc
import grpc.aio
from google.protobuf.message import Message

from hilbert_ring._channel import SERVICE, SHORT_CALL_SECONDS, Address, closed_error, failure_of, keep_buffers
from hilbert_ring._retry import AttemptFailure, CallTiming, Final, Retries, OnRetry, never_final, ignore_retry
from hilbert_ring.v1 import attention_pb2 as pb

R = TypeVar("R")
T = TypeVar("T", bound=Message)


def _task_is_cancelled() -> bool:
    """Returns whether the caller cancelled its task. False before Python 3.11, which does not record it."""
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return cancelling is not None and cancelling() > 0


class AioConnection:
    """The asyncio Connection. It belongs to the event loop of its first call, which opens the channel."""

    def __init__(self, address: Address) -> None:
        self.timing = CallTiming()
        self._address = address
        keep_buffers()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._channel: Optional[grpc.aio.Channel] = None
        self._unbounded: Optional[grpc.aio.Channel] = None  # for calls without end, once there is one
        self._ending: Optional[asyncio.Event] = None  # set by close
        self._closed = False
        self._calls: Set[Any] = set()  # under way

    async def close(self) -> None:
        self._closed = True
        if self._ending is not None:
            self._ending.set()
        for call in list(self._calls):
            call.cancel()
        for channel in (self._channel, self._unbounded):
            if channel is not None:
                await channel.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def _check_open(self) -> None:
        if self.closed:
            raise closed_error()

    def _ready(self) -> Tuple[grpc.aio.Channel, asyncio.Event]:
        """Returns the channel, and the event that `close` sets."""
        self._check_open()
        loop = asyncio.get_running_loop()
        if self._channel is None or self._ending is None:
            self._loop, self._channel, self._ending = loop, self._address.channel(grpc.aio), asyncio.Event()
        if self._loop is not loop:
            raise RuntimeError("the client is used in a second event loop, must be used in that of its first call: "
                               "connect in each loop")
        return self._channel, self._ending

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Guards waits for a call: after `close` cancels it, gRPC raises the same error as for a cancelled task."""
        try:
            yield
        except asyncio.CancelledError:
            if not self.closed or _task_is_cancelled():
                raise
            raise closed_error() from None

    async def pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._ready()[1].wait(), seconds)
        except asyncio.TimeoutError:
            return
        self._check_open()

    def _noted(self, call: Any) -> Any:
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def stream(self, method: str, requests: AsyncIterator[bytes], seconds: Optional[float],
               endless: bool = False) -> Any:
        channel = self._ready()[0]
        if endless:
            channel = self._unbounded = self._unbounded or self._address.channel(grpc.aio, endless)
        begin = channel.stream_stream(method, response_deserializer=pb.AttendResponse.FromString)
        return self._noted(begin(requests, timeout=seconds, metadata=self._address.metadata()))

    async def short(self, name: str, request: Any, response: Type[T], seconds: Optional[float] = SHORT_CALL_SECONDS,
                    service: str = SERVICE) -> T:
        answer = await self.ask(name, request, response, seconds, service)
        if isinstance(answer, AttemptFailure):
            raise answer.error
        return answer

    async def ask(self, name: str, request: Any, response: Type[T], seconds: Optional[float],
                  service: str) -> Union[T, AttemptFailure]:
        call = self._ready()[0].unary_unary(service + name, request_serializer=type(request).SerializeToString,
                                            response_deserializer=response.FromString)
        try:
            with self.reading():
                answer: T = await self._noted(call(request, timeout=seconds, metadata=self._address.metadata()))
                return answer
        except grpc.aio.AioRpcError as ended:
            return failure_of(ended, False, self.closed)

    async def call_with_retries(
            self, retries: Retries, make: Callable[[Optional[float]], Awaitable[Union[R, AttemptFailure]]],
            final: Final = never_final, on_retry: OnRetry = ignore_retry) -> R:
        while isinstance(outcome := await make(retries.deadline_left()), AttemptFailure):
            if final(outcome):
                raise outcome.error
            wait = retries.wait_after(outcome)
            on_retry(outcome.error, wait)
            await self.pause(wait)
            if not await self._connected_within(retries.time_left()):
                raise retries.too_late(outcome)
        return outcome

    async def _connected_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while True:
            channel, ending = self._ready()
            state = channel.get_state(try_to_connect=True)
            if state == grpc.ChannelConnectivity.READY:
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            changed = asyncio.ensure_future(channel.wait_for_state_change(state))
            changed.add_done_callback(lambda task: task.cancelled() or task.exception())  # of a closed channel
            closed = asyncio.ensure_future(ending.wait())
            try:
                await asyncio.wait({changed, closed}, timeout=None if left == math.inf else left,
                                   return_when=asyncio.FIRST_COMPLETED)
            finally:
                changed.cancel()
                closed.cancel()

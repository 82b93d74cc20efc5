"""The asyncio client's connection to a service, and its calls."""
import asyncio
import contextlib
import math
import time
from typing import Any, AsyncIterator, Callable, Coroutine, Iterator, Optional, Set, Tuple, Type, TypeVar, Union

import grpc
import grpc.aio
from google.protobuf.message import Message

from hilbert_ring._channel import Address, closed_error, failure_of
from hilbert_ring._connection import AnyConnection, Changed
from hilbert_ring._retry import AttemptFailure
from hilbert_ring.v1 import attention_pb2 as pb

R = TypeVar("R")
T = TypeVar("T", bound=Message)


def _task_is_cancelled() -> bool:
    """Returns whether the caller cancelled its task. False before Python 3.11, which does not record it."""
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return cancelling is not None and cancelling() > 0


class _Event(Changed):
    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self) -> None:
        self._event.clear()
        await self._event.wait()

    def notify(self) -> None:
        self._event.set()


class AioConnection(AnyConnection):
    """The connection for asyncio. It belongs to the event loop of its first call, which opens the channel."""

    changed = _Event

    def __init__(self, address: Address) -> None:
        super().__init__(address)
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
    def _reading(self) -> Iterator[None]:
        """After `close` cancels a call, gRPC raises the same error as for a cancelled task."""
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

    def stream(self, method: str, requests: AsyncIterator[bytes], seconds: Optional[float], endless: bool) -> Any:
        channel = self._ready()[0]
        if endless:
            channel = self._unbounded = self._unbounded or self._address.channel(grpc.aio, endless)
        begin = channel.stream_stream(method, response_deserializer=pb.AttendResponse.FromString)
        return self._noted(begin(requests, timeout=seconds, metadata=self._address.metadata()))

    async def message(self, stream: Any) -> Optional[pb.AttendResponse]:
        with self._reading():
            message = await stream.read()
            return None if message is grpc.aio.EOF else message

    async def ask(self, name: str, request: Any, response: Type[T], seconds: Optional[float],
                  service: str) -> Union[T, AttemptFailure]:
        call = self._ready()[0].unary_unary(service + name, request_serializer=type(request).SerializeToString,
                                            response_deserializer=response.FromString)
        try:
            with self._reading():
                answer: T = await self._noted(call(request, timeout=seconds, metadata=self._address.metadata()))
                return answer
        except grpc.aio.AioRpcError as ended:
            return failure_of(ended, False, self.closed)

    async def in_thread(self, function: Callable[..., R], *arguments: Any, **options: Any) -> R:
        return await asyncio.to_thread(function, *arguments, **options)

    async def to_its_end(self, stop: Callable[[], None], function: Callable[..., R], *arguments: Any) -> R:
        thread = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            stop()
            await asyncio.wait([thread])
            raise

    async def side_by_side(self, lanes: int, lane: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A failed task cancels the others."""
        tasks = [asyncio.ensure_future(lane()) for _ in range(lanes)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

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

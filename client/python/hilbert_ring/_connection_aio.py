"""A connection to a service, and the calls that one makes over it, for the client for asyncio."""
import asyncio
import contextlib
import math
import time
from typing import Any, AsyncIterator, Callable, Iterator, Optional, Tuple, TypeVar

import grpc
import grpc.aio

from hilbert_ring._channel import (ENCODER_SERVICE, SERVICE, SHORT_CALL_SECONDS, STREAM_OPTIONS, Address, PushedBack,
                                   keep_buffers, short_failure)
from hilbert_ring._retry import AttemptFailure, Attempts, CallTiming
from hilbert_ring.errors import UnavailableError
from hilbert_ring.v1 import attention_pb2 as pb

T = TypeVar("T")


class BrokenRequests:
    """Why a call's requests broke off: the caller's own error, of reading its tensors say. gRPC cancels the call
    then, which is not the caller's cancelling its task."""

    def __init__(self) -> None:
        self.error: Optional[Exception] = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Around the requests."""
        try:
            yield
        except Exception as error:
            self.error = error
            raise

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Around the reading of what comes."""
        try:
            yield
        except asyncio.CancelledError:
            if self.error is None:
                raise
            raise self.error from None


class AioConnection:
    """As of Connection, for one event loop."""

    def __init__(self, address: Address) -> None:
        self.timing = CallTiming()
        self._address = address
        keep_buffers()
        self._channel = self._open()
        self._unbounded: Optional[grpc.aio.Channel] = None  # for calls without end, once there is one

    def _open(self, *further: Tuple[str, int]) -> grpc.aio.Channel:
        address = self._address
        options = [*address.options, *further]
        if address.credentials is None:
            return grpc.aio.insecure_channel(address.server, options=options)
        return grpc.aio.secure_channel(address.server, address.credentials, options=options)

    async def close(self) -> None:
        """As of Connection.close."""
        await self._channel.close()
        if self._unbounded is not None:
            await self._unbounded.close()

    def stream(self, method: str, requests: AsyncIterator[bytes], seconds: Optional[float]) -> Any:
        """As of Connection.stream."""
        return self._channel.stream_stream(method)(requests, timeout=seconds,
                                                   metadata=self._address.metadata())

    def endless(self, method: str, requests: AsyncIterator[bytes], seconds: Optional[float]) -> Any:
        """As of Connection.endless."""
        if self._unbounded is None:
            self._unbounded = self._open(*STREAM_OPTIONS)
        return self._unbounded.stream_stream(method)(requests, timeout=seconds,
                                                     metadata=self._address.metadata())

    async def short(self, name: str, request: Any, response: Callable[[], T],
                    seconds: Optional[float] = SHORT_CALL_SECONDS, service: str = SERVICE) -> T:
        """As of Connection.short."""
        call = self._channel.unary_unary(
            service + name, request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString)  # type: ignore[attr-defined]
        try:
            answer: T = await call(request, timeout=seconds, metadata=self._address.metadata())
            return answer
        except grpc.aio.AioRpcError as ended:
            raise short_failure(name, ended) from None

    async def ask(self, name: str, request: Any, response: Callable[[], T], attempts: Attempts,
                  service: str = SERVICE) -> T:
        """As of Connection.ask."""
        while True:
            left = attempts.deadline_left()
            seconds = SHORT_CALL_SECONDS if left is None else min(left, SHORT_CALL_SECONDS)
            try:
                return await self.short(name, request, response, seconds, service)
            except PushedBack as pushed:
                await asyncio.sleep(attempts.wait_after(pushed.failure))
            except UnavailableError as error:
                if error.reason == "DATA_ROOT_GONE":
                    raise
                await asyncio.sleep(attempts.wait_after(AttemptFailure(error, admitted=False)))

    async def plan(self, request: Any, attempts: Attempts) -> pb.PlanResponse:
        """As of Connection.plan."""
        name, service = (("Plan", SERVICE) if isinstance(request, pb.PlanRequest)
                         else ("PlanEncode", ENCODER_SERVICE))
        while True:
            try:
                return await self.short(name, request, pb.PlanResponse, attempts.deadline_left(), service)
            except PushedBack as pushed:
                await asyncio.sleep(attempts.wait_after(pushed.failure))

    async def come_back(self, attempts: Attempts, failure: AttemptFailure, wait: float) -> None:
        """As of Connection.come_back."""
        await asyncio.sleep(wait)
        if not await self._connected_within(attempts.time_left()):
            raise attempts.too_late(failure)

    async def _connected_within(self, seconds: float) -> bool:
        """Works on the connection meanwhile."""
        end = time.monotonic() + seconds
        while True:
            state = self._channel.get_state(try_to_connect=True)
            if state == grpc.ChannelConnectivity.READY:
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            try:
                await asyncio.wait_for(self._channel.wait_for_state_change(state),
                                       None if left == math.inf else left)
            except asyncio.TimeoutError:
                return False

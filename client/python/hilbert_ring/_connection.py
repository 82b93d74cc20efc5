"""A connection to a service, and the calls that one makes over it, for the blocking client."""
import threading
import time
from typing import Any, Callable, Iterator, Optional, Tuple, TypeVar

import grpc

from hilbert_ring._channel import (ENCODER_SERVICE, SERVICE, SHORT_CALL_SECONDS, STREAM_OPTIONS, Address, PushedBack,
                                   keep_buffers, short_failure)
from hilbert_ring._retry import AttemptFailure, Attempts, CallTiming
from hilbert_ring.errors import UnavailableError
from hilbert_ring.v1 import attention_pb2 as pb

T = TypeVar("T")


class Connection:
    """A channel of gRPC with what each call over it shows the service. Thread-safe."""

    def __init__(self, address: Address) -> None:
        self.timing = CallTiming()
        self._address = address
        keep_buffers()
        self._channel = self._open()
        self._lock = threading.Lock()
        self._unbounded: Optional[grpc.Channel] = None  # for calls without end, once there is one

    def _open(self, *further: Tuple[str, int]) -> grpc.Channel:
        address = self._address
        options = [*address.options, *further]
        if address.credentials is None:
            return grpc.insecure_channel(address.server, options=options)
        return grpc.secure_channel(address.server, address.credentials, options=options)

    def close(self) -> None:
        """Ends the calls that are under way, too."""
        self._channel.close()
        with self._lock:
            if self._unbounded is not None:
                self._unbounded.close()

    def stream(self, method: str, requests: Iterator[bytes], seconds: Optional[float]) -> Any:
        """A call with messages both ways, as bytes. seconds: until its deadline; None: it has none."""
        return self._channel.stream_stream(method)(requests, timeout=seconds,
                                                   metadata=self._address.metadata())

    def endless(self, method: str, requests: Iterator[bytes], seconds: Optional[float]) -> Any:
        """As stream, of a call whose length has no bound: what comes and is not read takes a fixed memory."""
        with self._lock:
            if self._unbounded is None:
                self._unbounded = self._open(*STREAM_OPTIONS)
            channel = self._unbounded
        return channel.stream_stream(method)(requests, timeout=seconds, metadata=self._address.metadata())

    def short(self, name: str, request: Any, response: Callable[[], T],
              seconds: Optional[float] = SHORT_CALL_SECONDS, service: str = SERVICE) -> T:
        """One message each way.

        Raises:
            PushedBack: the service has too much to do, and says when it is to be asked again.
            HilbertRingError: a subclass for each other status.
        """
        call = self._channel.unary_unary(
            service + name, request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString)  # type: ignore[attr-defined]
        try:
            return call(request, timeout=seconds, metadata=self._address.metadata())  # type: ignore
        except grpc.RpcError as ended:
            raise short_failure(name, ended) from None

    def ask(self, name: str, request: Any, response: Callable[[], T], attempts: Attempts,
            service: str = SERVICE) -> T:
        """A short call on behalf of a job: waits for a service that is away, as the job's call does."""
        while True:
            left = attempts.deadline_left()
            seconds = SHORT_CALL_SECONDS if left is None else min(left, SHORT_CALL_SECONDS)
            try:
                return self.short(name, request, response, seconds, service)
            except PushedBack as pushed:
                time.sleep(attempts.wait_after(pushed.failure))
            except UnavailableError as error:
                if error.reason == "DATA_ROOT_GONE":
                    raise
                time.sleep(attempts.wait_after(AttemptFailure(error, admitted=False)))

    def plan(self, request: Any, attempts: Attempts) -> pb.PlanResponse:
        """Of a PlanRequest or PlanEncodeRequest. Waits for a service that makes too many plans."""
        name, service = (("Plan", SERVICE) if isinstance(request, pb.PlanRequest)
                         else ("PlanEncode", ENCODER_SERVICE))
        while True:
            try:
                return self.short(name, request, pb.PlanResponse, attempts.deadline_left(), service)
            except PushedBack as pushed:
                time.sleep(attempts.wait_after(pushed.failure))

    def come_back(self, attempts: Attempts, failure: AttemptFailure, wait: float) -> None:
        """Returns when the next attempt may start: after `wait`, and with a connection.

        Raises:
            HilbertRingError: of the failure; there was no connection in time.
        """
        time.sleep(wait)
        if not self._connected_within(attempts.time_left()):
            raise attempts.too_late(failure)

    def _connected_within(self, seconds: float) -> bool:
        """Works on the connection meanwhile."""
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout=None if seconds == float("inf") else max(0.0, seconds))
            return True
        except grpc.FutureTimeoutError:
            return False
        finally:
            ready.cancel()

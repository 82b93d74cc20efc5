"""The blocking client: runs the coroutines of aio.py over a connection that never suspends them."""
from __future__ import annotations

import inspect
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Optional, TypeVar

from hilbert_ring import aio
from hilbert_ring._channel import Address
from hilbert_ring._connection import Connection, run
from hilbert_ring._files import PathLike
from hilbert_ring._stream import StreamedBlock
from hilbert_ring.v1 import attention_pb2 as pb

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec
    P = ParamSpec("P")

__all__ = ["AttendStream", "Client", "connect"]

T = TypeVar("T")
_SHOWN = ("__name__", "__qualname__", "__doc__")  # pickle looks functions up in their own __module__


def _blocking(method: Callable[Concatenate[aio.Client, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Client, P], T]:
    function: Any = inspect.unwrap(method)  # runs at the call, in the thread whose streams are the caller's

    @wraps(function, _SHOWN)
    def called(self: Client, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = run(function(self._calls, *arguments, **options))
        return result

    return called


def _connecting(function: Callable[P, aio.Client]) -> Callable[P, Client]:
    @wraps(function, _SHOWN)
    def called(*arguments: P.args, **options: P.kwargs) -> Client:
        calls = function(*arguments, **options)
        return Client(calls._address, calls._data_root)

    return called


def _streaming(method: Callable[Concatenate[aio.Client, P], aio.AttendStream]
               ) -> Callable[Concatenate[Client, P], AttendStream]:
    @wraps(method, _SHOWN)
    def called(self: Client, /, *arguments: P.args, **options: P.kwargs) -> AttendStream:
        return AttendStream(method(self._calls, *arguments, **options))

    return called


class AttendStream:
    """The results of a stream: an iterator with a StreamedBlock for each block of the input.

    A thread takes the caller's blocks as far ahead as the service takes rows. It stops while the caller does not
    iterate. The stream ends after its last result, by `close`, after a `with` block, or when it is collected.

    Attributes:
        epoch: the last epoch whose results have all come (message Epoch); None before.
        report: the service's figures of the whole stream (message Report), after the last result; None before, and if
            the stream has no blocks.
    """

    def __init__(self, stream: aio.AttendStream) -> None:
        self._stream = stream

    @property
    def report(self) -> Optional[pb.Report]:
        return self._stream.report

    @property
    def epoch(self) -> Optional[pb.Epoch]:
        return self._stream.epoch

    def __iter__(self) -> AttendStream:
        return self

    def __next__(self) -> StreamedBlock:
        try:
            return run(self._stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Ends the stream before its end."""
        run(self._stream.aclose())

    def __enter__(self) -> AttendStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """A connection to a service. Thread-safe; `close` or a `with` block ends it."""

    def __init__(self, address: Address, data_root: Optional[PathLike] = None) -> None:
        self.server = address.server
        self._calls = aio.Client(address, data_root, Connection)

    def __reduce__(self) -> Any:
        """Pickles the client's arguments: another process makes its own connection."""
        return partial(connect, **self._calls.pickled()), ()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    close = _blocking(aio.Client.close)
    attend = _blocking(aio.Client.attend)
    attend_stream = _streaming(aio.Client.attend_stream)
    attend_many = _blocking(aio.Client.attend_many)  # type: ignore[arg-type]  # its **common may hold "self"
    encode = _blocking(aio.Client.encode)
    plan_encode = _blocking(aio.Client.plan_encode)
    models = _blocking(aio.Client.models)
    model = _blocking(aio.Client.model)
    plan = _blocking(aio.Client.plan)
    jobs = _blocking(aio.Client.jobs)
    cancel = _blocking(aio.Client.cancel)
    status = _blocking(aio.Client.status)


connect = _connecting(aio.connect)

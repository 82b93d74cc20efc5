"""What a service says is read here as messages; one that says what it must not breaks the protocol."""
from typing import Any, Callable, TypeVar

from google.protobuf.message import DecodeError

from hilbert_ring.errors import InternalError

T = TypeVar("T")


def broken(what: str) -> InternalError:
    """The error of a service that breaks the protocol."""
    return InternalError(f"the service broke the protocol: {what}")


def parsed(kind: Callable[[], T], message: Any) -> T:
    """The message of a kind that these bytes are.

    Raises:
        InternalError: they are none.
    """
    try:
        found: T = kind.FromString(message)  # type: ignore[attr-defined]
        return found
    except DecodeError:
        raise broken("a message that is malformed") from None

"""The errors of calls, a class for each status code. docs/errors.md of the repository lists the reasons.

    try:
        result = client.attend(q, k, v, segments=[4096])
    except hilbert_ring.ResourceExhaustedError as error:
        ...  # error.reason == "QUEUE_FULL", error.retry_after == 2.5
"""
from typing import Any, Dict, Iterable, Optional, Tuple, Type

import grpc

from hilbert_ring._descriptors import names_of

_DOMAIN = "hilbert-ring"
_RETRY_AFTER = "grpc-retry-pushback-ms"
_Status = names_of("google/rpc/status.proto")["Status"]
_ErrorInfo = names_of("google/rpc/error_details.proto")["ErrorInfo"]


class HilbertRingError(Exception):
    """A call that failed.

    Attributes:
        message: a text with field, value and limit.
        code: the name of the gRPC status code, such as "INVALID_ARGUMENT".
        reason: a reason of docs/errors.md, such as "INVALID_SPEC"; the code's name if the service gave no reason.
        field: the wrong argument or field of the job, such as "segments[1]"; None if unknown.
        limit: the most or least that the field's value may be; None if unknown.
        retry_after: seconds after which another attempt may succeed; None if the service gave no time.
        attempts: number of attempts of the call.
    """

    code = "UNKNOWN"

    def __init__(self, message: str, *, reason: str = "", field: Optional[str] = None,
                 limit: Optional[float] = None, retry_after: Optional[float] = None,
                 attempts: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.code
        self.field = field
        self.limit = limit
        self.retry_after = retry_after
        self.attempts = attempts

    def __str__(self) -> str:
        shown = self.code if self.reason == self.code else f"{self.code} ({self.reason})"
        return f"{shown}: {self.message}"


class InvalidArgumentError(HilbertRingError, ValueError):
    """The spec, a shape or a type is wrong."""

    code = "INVALID_ARGUMENT"


class OutOfRangeError(HilbertRingError, ValueError):
    """A value is over a limit."""

    code = "OUT_OF_RANGE"


class FailedPreconditionError(HilbertRingError):
    """The job cannot fit this deployment; the message states the limit."""

    code = "FAILED_PRECONDITION"


class ResourceExhaustedError(HilbertRingError):
    """The service is full for now, or a disk has no room for an output."""

    code = "RESOURCE_EXHAUSTED"


class UnavailableError(HilbertRingError, ConnectionError):
    """The service cannot be reached, starts, stops, or has no workers."""

    code = "UNAVAILABLE"


class DeadlineExceededError(HilbertRingError, TimeoutError):
    """The deadline passed, or the service's limit of the job's time."""

    code = "DEADLINE_EXCEEDED"


class CancelledError(HilbertRingError):
    """The job was cancelled, or the client was closed."""

    code = "CANCELLED"


class AbortedError(HilbertRingError):
    """Workers were lost again and again, or a newer attempt has the job."""

    code = "ABORTED"


class AlreadyExistsError(HilbertRingError):
    """This attempt of the job is running."""

    code = "ALREADY_EXISTS"


class NotFoundError(HilbertRingError, LookupError):
    """No job of the caller has this id, or a file or its folder is missing."""

    code = "NOT_FOUND"


class DataLossError(HilbertRingError):
    """Bytes were damaged in transfer, or a row differs from the definition."""

    code = "DATA_LOSS"


class UnauthenticatedError(HilbertRingError, PermissionError):
    """The token is missing or wrong."""

    code = "UNAUTHENTICATED"


class PermissionDeniedError(HilbertRingError, PermissionError):
    """The caller may not do this."""

    code = "PERMISSION_DENIED"


class InternalError(HilbertRingError):
    """The service broke the protocol, or has a bug."""

    code = "INTERNAL"


class UnimplementedError(HilbertRingError):
    """The service does not know this call."""

    code = "UNIMPLEMENTED"


_BY_CODE: Dict[str, Type[HilbertRingError]] = {
    kind.code: kind for kind in HilbertRingError.__subclasses__()}

Metadata = Iterable[Tuple[str, Any]]


def error_class(code: str) -> Type[HilbertRingError]:
    """Returns the class of a status code's name; HilbertRingError for codes without a class."""
    return _BY_CODE.get(code, HilbertRingError)


def error_of(code: grpc.StatusCode, details: Optional[str],
             trailing: Optional[Metadata]) -> HilbertRingError:
    """Returns the error of a call that ended with this status."""
    values = {"reason": "", "field": None, "limit": None}
    metadata = list(trailing or ())
    for key, value in metadata:
        if key == "grpc-status-details-bin":
            values.update(_info_of(value))
    kind = error_class(code.name)
    message = _with_brackets(details or "") or "the service gave no reason"
    retry_after = retry_after_of(metadata)
    error = kind(message, retry_after=retry_after if retry_after is not None and retry_after >= 0 else None,
                 **values)  # type: ignore[arg-type]
    if kind is HilbertRingError:
        error.code = code.name
        error.reason = str(values["reason"] or code.name)
    return error


def _with_brackets(text: str) -> str:
    """Decodes gRPC's IPv6 addresses: "ipv6:%5B::1%5D:8001" becomes "[::1]:8001"."""
    if "ipv6:%5B" not in text:
        return text
    return text.replace("ipv6:%5B", "[").replace("%5D", "]").replace("%25", "%")


def _info_of(details: bytes) -> Dict[str, Any]:
    """Returns reason, field and limit of a serialized google.rpc.Status."""
    info = _ErrorInfo()
    for detail in _Status.FromString(details).details:
        if detail.Unpack(info) and info.domain == _DOMAIN:
            limit = info.metadata.get("limit")
            return {"reason": info.reason, "field": info.metadata.get("field"), "limit": limit and int(limit)}
    return {}


def retry_after_of(trailing: Metadata) -> Optional[float]:
    """Returns the seconds until another attempt; below 0: the failure is final; None: the service gave no time."""
    return next((int(value) / 1000 for key, value in trailing if key == _RETRY_AFTER), None)

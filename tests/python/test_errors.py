"""Statuses of the service as exceptions."""
import re
import subprocess
import sys
from pathlib import Path

import grpc

import hilbert_ring
from hilbert_ring import errors
from hilbert_ring._channel import failure_of

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


def status_of(reason, code=3, domain="hilbert-ring", **metadata):
    status = errors._Status(code=code, message="m")
    info = errors._ErrorInfo(reason=reason, domain=domain, metadata=metadata)
    status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo",
                       value=info.SerializeToString())
    return ("grpc-status-details-bin", status.SerializeToString())


class Ended:
    def __init__(self, code, *trailing, details="what happened"):
        self._code, self._trailing, self._details = code, trailing, details

    def code(self):
        return self._code

    def details(self):
        return self._details

    def trailing_metadata(self):
        return self._trailing


def test_each_code_has_its_class():
    for code in grpc.StatusCode:
        error = errors.error_of(code, "x", ())
        assert error.code == error.reason == code.name
        assert code in (grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN) or (
            type(error) is not errors.HilbertRingError)
        assert type(error).__name__ in hilbert_ring.__all__


def test_each_code_of_the_document_has_its_class():
    codes = set(re.findall(r"^\| `\w+` \| (\w+) \|", DOCUMENT.read_text(), re.M))
    assert len(codes) > 8
    assert codes <= set(errors._BY_CODE)


def test_reason_field_and_limit():
    error = errors.error_of(grpc.StatusCode.OUT_OF_RANGE, "heads is 9000", [
        status_of("INVALID_SPEC", field="heads", limit="4096"),
        ("grpc-retry-pushback-ms", "1500")])
    assert isinstance(error, hilbert_ring.OutOfRangeError) and isinstance(error, ValueError)
    assert (error.reason, error.field, error.limit, error.retry_after) == (
        "INVALID_SPEC", "heads", 4096, 1.5)
    assert str(error) == "OUT_OF_RANGE (INVALID_SPEC): heads is 9000"


def test_a_service_that_stops_says_cancelled_and_nothing_else():
    failure = failure_of(Ended(grpc.StatusCode.CANCELLED), True)
    assert isinstance(failure.error, hilbert_ring.UnavailableError) and failure.admitted
    closed = failure_of(Ended(grpc.StatusCode.CANCELLED), True, closed=True).error
    assert type(closed) is hilbert_ring.CancelledError and "the client was closed" in str(closed)
    by_caller = failure_of(Ended(grpc.StatusCode.CANCELLED, status_of("CANCELLED_BY_CALLER")), True)
    assert isinstance(by_caller.error, hilbert_ring.CancelledError)


def test_a_stream_that_never_began_may_begin_again():
    failure = failure_of(Ended(grpc.StatusCode.INTERNAL, details="Internal error from Core"), False)
    assert isinstance(failure.error, hilbert_ring.UnavailableError)
    ours = failure_of(Ended(grpc.StatusCode.INTERNAL, status_of("INTERNAL", 13)), False)
    assert isinstance(ours.error, hilbert_ring.InternalError)


def test_a_python_without_grpc_is_an_error_with_a_hint(tmp_path):
    # A folder with this package alone, because an installed package lies beside grpc.
    (tmp_path / "hilbert_ring").symlink_to(Path(hilbert_ring.__file__).parent)
    done = subprocess.run([sys.executable, "-S", "-m", "hilbert_ring", "draw"],  # -S: no packages
                          env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "needs the package grpcio" in done.stderr and sys.executable in done.stderr

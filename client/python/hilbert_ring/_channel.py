"""How a connection is made: address, credentials, transport."""
import ipaddress
import os
import re
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from pickle import PicklingError
from typing import Any, Dict, List, Optional, Tuple, Union

import grpc

from hilbert_ring._files import PathLike, checked_path, is_path
from hilbert_ring._interrupt import interrupted
from hilbert_ring._pem import PemText, check_tls
from hilbert_ring._retry import AttemptFailure
from hilbert_ring._server_address import checked_server
from hilbert_ring._spec import boolean
from hilbert_ring.errors import (CancelledError, DataLossError, HilbertRingError, InvalidArgumentError,
                                 UnavailableError, error_of, retry_after_of)

SERVICE = "/hilbert_ring.v1.AttentionService/"
ENCODER_SERVICE = "/hilbert_ring.v1.EncoderService/"
SHORT_CALL_SECONDS = 60.0
# Details that grpc.aio gives a stream whose connection is lost before it begins, instead of UNAVAILABLE
# (github.com/grpc/grpc/issues/36066).
_NEVER_BEGAN = "Internal error from Core"

Pem = Union[PathLike, bytes]  # a path of a file, or its content

_MAX_MESSAGE_BYTES = 4 << 20
_MOST_NAME = 253  # characters of a host's name
_LARGEST_KEPT = 31 << 20  # bytes; glibc keeps no block above 32 MiB
OPTIONS: List[Tuple[str, int]] = [
    # Chunks have at most 4 MiB; a plan of tens of thousands of workers is longer.
    ("grpc.max_receive_message_length", 256 << 20),
    # A chunk is one frame instead of 64 of 16 KiB, and is read in few calls.
    ("grpc.http2.max_frame_size", _MAX_MESSAGE_BYTES),
    ("grpc.experimental.tcp_min_read_chunk_size", 64 << 10),
    ("grpc.experimental.tcp_max_read_chunk_size", _MAX_MESSAGE_BYTES),
    # gRPC checks the length of a message after inflating it (wire/transport.h). These options forbid compression, and
    # leave a message as it is that is marked as compressed in a call without compression.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.per_message_decompression", 0),
    # The service is in the same network, to which a web proxy does not lead.
    ("grpc.enable_http_proxy", 0),
    # gRPC's own backoff must not keep a call from a service that is back. gRPC tries an unanswered connection again
    # after 5 s, and looks a name up again after 1 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    # A service whose machine is gone sends no end of its connection.
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
]
# Seconds of silence until a call is pinged. A stream without end may be idle for long: servers and proxies with gRPC's
# defaults end the connection of a client that pings an idle call more often than every 5 minutes.
_KEEPALIVE_SECONDS = 10.0
_IDLE_KEEPALIVE_SECONDS = 330.0
_LEAST_KEEPALIVE, _MOST_KEEPALIVE = 10, 86_400
# Bytes that a stream without end reads ahead of its caller at most. Other channels read more and more ahead of the
# caller if the service sends fast.
STREAM_AHEAD_BYTES = 4 << 20
STREAM_OPTIONS: List[Tuple[str, int]] = [
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", STREAM_AHEAD_BYTES),
]


def keep_buffers() -> None:
    """Makes malloc keep the memory of chunks.

    glibc maps and unmaps each block of a MiB until the program has freed a larger block once. A client took 0.8
    instead of 1.0 seconds of processor for a job of 0.5 GB (mean of eight, AMD EPYC, gRPC 1.51).
    """
    bytes(_LARGEST_KEPT)


@dataclass(frozen=True)
class Address:
    """The service's address and the caller's credentials."""

    credentials: Optional[grpc.ChannelCredentials]
    options: List[Tuple[str, Union[int, str]]]
    arguments: Dict[str, Any] = field(repr=False)  # of address_of, checked

    @property
    def server(self) -> str:
        server: str = self.arguments["server"]
        return server

    @property
    def files(self) -> Dict[str, PathLike]:
        """The paths given as token_file, ca, cert and key."""
        return {name: self.arguments[name] for name in ("token_file", "ca", "cert", "key") if is_path(self.arguments[name])}

    def pickled(self) -> Dict[str, Any]:
        """Returns the arguments for a client of another process.

        Raises:
            PicklingError: an argument is a secret, which the pickle would hold.
        """
        for name, secret, file in (("token", str, "token_file"), ("key", bytes, "key as a path")):
            if isinstance(self.arguments[name], secret):
                raise PicklingError(f"{name} is a secret in memory, must be in a file ({file}) in a client that is pickled")
        return self.arguments

    def channel(self, kind: Any, endless: bool = False) -> Any:
        """kind: the module grpc or grpc.aio."""
        options = self.channel_options(endless)
        if self.credentials is None:
            return kind.insecure_channel(self.server, options=options)
        return kind.secure_channel(self.server, self.credentials, options=options)

    def channel_options(self, endless: bool = False) -> List[Tuple[str, Union[int, str]]]:
        """endless: the channel carries streams without end."""
        silence = self.arguments["keepalive_interval"]
        if silence is None:
            silence = _IDLE_KEEPALIVE_SECONDS if endless else _KEEPALIVE_SECONDS
        return [*self.options, *(STREAM_OPTIONS if endless else ()), ("grpc.keepalive_time_ms", round(silence * 1000))]

    def metadata(self) -> Tuple[Tuple[str, str], ...]:
        """Returns the metadata of a call. Reads a token's file each time, so that it can be replaced."""
        token, file = self.arguments["token"], self.arguments["token_file"]
        if file is not None:
            token = _token_of(file)
        shown = () if token is None else (("authorization", f"Bearer {token}"),)
        return (*shown, *_trace())


def _trace() -> Tuple[Tuple[str, str], ...]:
    """Returns TRACEPARENT of the environment (W3C trace context), which the service logs with the job."""
    given = os.environ.get("TRACEPARENT", "")
    return (("traceparent", given),) if re.fullmatch("[0-9a-f-]+", given) else ()  # gRPC would refuse other text


def default_server() -> str:
    """Returns HILBERT_RING_SERVER, or localhost:8001."""
    return checked_server("HILBERT_RING_SERVER", os.environ.get("HILBERT_RING_SERVER") or "localhost:8001")


def address_of(server: Optional[str], *, token: Optional[str], token_file: Optional[PathLike],
               tls: Optional[bool], ca: Optional[Pem], cert: Optional[Pem], key: Optional[Pem],
               server_name: Optional[str], insecure: bool, keepalive_interval: Optional[float] = None) -> Address:
    """Checks the arguments of hilbert_ring.connect."""
    server = default_server() if server is None else checked_server("server", server)
    if (cert is None) != (key is None):
        raise InvalidArgumentError("cert and key go together", field="cert" if key else "key")
    if token is not None and token_file is not None:
        raise InvalidArgumentError("token and token_file are given, only one may be",
                                   field="token_file")
    # gRPC 1.51 aborts the process if the name is empty or too long.
    if server_name is not None and not (isinstance(server_name, str) and 1 <= len(server_name) <= _MOST_NAME):
        raise InvalidArgumentError(f"server_name is {server_name!r:.80}, must be a name of 1 to {_MOST_NAME} characters",
                                   field="server_name")
    if keepalive_interval is not None and not (isinstance(keepalive_interval, Real) and
                                               _LEAST_KEEPALIVE <= keepalive_interval <= _MOST_KEEPALIVE):
        raise InvalidArgumentError(f"keepalive_interval is {keepalive_interval!r:.80}, must be {_LEAST_KEEPALIVE} to "
                                   f"{_MOST_KEEPALIVE} seconds", field="keepalive_interval")
    files = ca is not None or cert is not None or server_name is not None
    encrypted, insecure = boolean("tls", tls, files), boolean("insecure", insecure)
    if files and not encrypted:
        raise InvalidArgumentError("ca, cert, key and server_name need tls", field="tls")
    shown = token is not None or token_file is not None
    if shown and not encrypted and not insecure and not _on_this_host(server):
        raise InvalidArgumentError(
            f"a token would go to {server} in clear text: tls=True or ca=... encrypts it, "
            "insecure=True sends it", field="tls")
    options: List[Tuple[str, Union[int, str]]] = list(OPTIONS)
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    roots, private_key, chain = _pem("ca", ca), _pem("key", key), _pem("cert", cert)
    check_tls(roots, chain, private_key)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=roots and roots.text, private_key=private_key and private_key.text,
        certificate_chain=chain and chain.text) if encrypted else None
    # A pipe, as of <(...), can be read once.
    if token_file is not None and Path(checked_path("token_file", token_file)).is_fifo():
        token, token_file = _token_of(token_file), None
    if token is not None:
        _check_token("token", token)
    address = Address(credentials, options, {
        "server": server, "token": token, "token_file": token_file, "tls": encrypted, "ca": ca, "cert": cert, "key": key,
        "server_name": server_name, "insecure": insecure, "keepalive_interval": keepalive_interval})
    address.metadata()  # raises if the token's file cannot be read
    return address


def _on_this_host(server: str) -> bool:
    host = server.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return server.startswith("unix:")


def _check_token(name: str, token: Any) -> None:
    if not isinstance(token, str) or not token or not all("!" <= character <= "~" for character in token):
        raise InvalidArgumentError(f"{name} must hold one token of printable ASCII characters", field=name)


def _token_of(path: PathLike) -> str:
    token = _read("token_file", path).decode("ascii", "replace").strip()
    _check_token("token_file", token)
    return token


def _read(name: str, path: PathLike) -> bytes:
    try:
        return Path(checked_path(name, path)).read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{name}: {error}", field=name) from None


def _pem(name: str, value: Optional[Pem]) -> Optional[PemText]:
    if value is None:
        return None
    if isinstance(value, bytes):
        return PemText(name, name, value)
    return PemText(name, f"{name}: {value}", _read(name, value))


def closed_error() -> CancelledError:
    """The error of calls of a closed client or an interrupted program."""
    return CancelledError("the program was interrupted" if interrupted() else "the client was closed")


def failure_of(ended: Any, admitted: bool, closed: bool = False) -> AttemptFailure:
    """The failure of a call that an RpcError ended. closed: the client was closed, which cancels its calls."""
    code = ended.code()
    trailing = [(key, value) for key, value in ended.trailing_metadata() or ()]
    error = error_of(code, ended.details(), trailing)
    if code == grpc.StatusCode.CANCELLED and error.reason == "CANCELLED":
        # A service that stops also cancels its calls, without details.
        error = closed_error() if closed else UnavailableError("the service ended the call")
    if code == grpc.StatusCode.INTERNAL and ended.details() == _NEVER_BEGAN:
        error = UnavailableError("the connection was lost before the call began")
    return AttemptFailure(error, admitted, retry_after=retry_after_of(trailing))


def failure_or_raise(ended: Exception, admitted: bool,
                     broken: Optional[Exception], closed: bool) -> AttemptFailure:
    """The failure of an attempt that an RpcError, or an error of this client, ended.

    broken: the error of the caller's own tensors or blocks, which is raised if it ended the call.
    """
    if isinstance(ended, HilbertRingError):
        return AttemptFailure(ended, admitted, output_damaged=isinstance(ended, DataLossError))
    if broken is not None:
        raise broken from None
    return failure_of(ended, admitted, closed)

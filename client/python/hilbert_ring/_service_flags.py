"""Flags and variables that select a command's service, the same as of `hilbert-ring`'s other commands."""
import argparse
import os
import re
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional

from hilbert_ring._command_line import workers as workers_of_a_job
from hilbert_ring.client import Client, connect
from hilbert_ring.errors import InvalidArgumentError
from hilbert_ring.local_service import local


def add_service_flags(parser: argparse.ArgumentParser, workers: int = 2) -> None:
    """Adds the access flags and --workers."""
    add_access_flags(parser, "without it the command starts a service of its own")
    parser.add_argument("--workers", type=workers_of_a_job, default=workers, metavar="N",
                        help="that share a job")


def add_access_flags(parser: argparse.ArgumentParser, without_server: str) -> None:
    parser.add_argument("--server", metavar="HOST:PORT",
                        default=_variable("--server"),
                        help=f"of the coordinator (HILBERT_RING_SERVER); {without_server}")
    parser.add_argument("--tls", action="store_true",
                        help="speak TLS with the service (HILBERT_RING_TLS)")
    _add_file(parser, "--ca", "certificates in PEM that the service's is checked with")
    _add_file(parser, "--cert", "your certificate in PEM, where one is asked for")
    _add_file(parser, "--key", "its key in PEM")
    parser.add_argument("--server-name", metavar="NAME", default=_variable("--server-name"),
                        help="in the service's certificate (HILBERT_RING_SERVER_NAME)")
    _add_file(parser, "--token-file", "your token; HILBERT_RING_TOKEN may hold the token itself")
    parser.add_argument("--keepalive-interval", metavar="SEC", default=_variable("--keepalive-interval"),
                        help="seconds of silence after which the service of an open call is pinged, 10 to 86400 "
                             "(HILBERT_RING_KEEPALIVE_INTERVAL)")
    parser.add_argument("--insecure", action="store_true",
                        help="send a token to another host without TLS")


def _name(flag: str) -> str:
    return "HILBERT_RING_" + flag[2:].replace("-", "_").upper()


def _variable(flag: str) -> Optional[str]:
    return os.environ.get(_name(flag)) or None


def _switch(flag: str) -> bool:
    value = _variable(flag)
    if value not in (None, "true", "false"):
        raise InvalidArgumentError(f"{_name(flag)} is {value}, must be true or false", field=_name(flag))
    return value == "true"


def _seconds(text: Optional[str]) -> Optional[float]:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise InvalidArgumentError(f"--keepalive-interval is {text:.80}, must be a number of seconds",
                                   field="keepalive_interval")
    return float(text)


def _add_file(parser: argparse.ArgumentParser, flag: str, meaning: str) -> None:
    parser.add_argument(flag, metavar="FILE", default=_variable(flag),
                        help=f"{meaning} ({_name(flag)})")


def files_shown(arguments: argparse.Namespace) -> Dict[str, str]:
    """Returns the paths of the caller's credentials, by flag."""
    given = {name: getattr(arguments, name.replace("-", "_"), None) for name in ("ca", "cert", "key", "token-file")}
    return {f"--{name}": path for name, path in given.items() if path}


@contextmanager
def service_of(arguments: argparse.Namespace, **settings: Any) -> Iterator[Client]:
    """Yields a client of the given service, or of a new local one with `settings`."""
    if arguments.server:
        with connected(arguments) as client:
            yield client
    else:
        with local(**{"workers": 1, **settings}) as client:
            yield client


def connected(arguments: argparse.Namespace) -> Client:
    token = None if arguments.token_file else os.environ.get("HILBERT_RING_TOKEN") or None
    return connect(arguments.server, token=token, token_file=arguments.token_file,
                   tls=arguments.tls or _switch("--tls") or None, ca=arguments.ca, cert=arguments.cert, key=arguments.key,
                   server_name=arguments.server_name, insecure=arguments.insecure,
                   keepalive_interval=_seconds(arguments.keepalive_interval))

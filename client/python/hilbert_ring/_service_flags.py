"""The service that a command asks: one that runs, or one of its own."""
import argparse
import os
from contextlib import contextmanager
from typing import Any, Iterator

from hilbert_ring.client import Client, connect
from hilbert_ring.local_service import local


def add_service_flags(parser: argparse.ArgumentParser, workers: int = 2) -> None:
    """--server and --workers."""
    parser.add_argument("--server", metavar="HOST:PORT",
                        default=os.environ.get("HILBERT_RING_SERVER"),
                        help="of the coordinator (HILBERT_RING_SERVER); without it the command "
                        "starts a service of its own")
    parser.add_argument("--workers", type=int, default=workers, metavar="N",
                        help="that share a job")


@contextmanager
def service_of(arguments: argparse.Namespace, **settings: Any) -> Iterator[Client]:
    """A client of it. `settings` are of a service of one's own."""
    if arguments.server:
        with connect(arguments.server) as client:
            yield client
    else:
        with local(**{"workers": 1, **settings}) as client:
            yield client

"""Clients, programs, waits and inputs of several tests."""
import asyncio
import os
import socket
import subprocess
import sys
import time

import numpy as np

import hilbert_ring
from hilbert_ring.local_service import find_program

UNTIL = 120  # seconds, far above the expected wait
NO_SERVICE = "127.0.0.1:1"


class ByAsyncio:
    """The asyncio client with blocking calls. Each call has a client and an event loop of its own."""

    def __init__(self, server, **options):
        self.server, self.options = server, options

    def __getattr__(self, name):
        def call(*arguments, **given):
            async def run():
                async with hilbert_ring.aio.connect(self.server, **self.options) as client:
                    return await getattr(client, name)(*arguments, **given)
            return asyncio.run(run())
        return call


def until(condition):
    """Waits for a condition, and returns whether it came true."""
    end = time.monotonic() + UNTIL
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def no_jobs(client):
    return until(lambda: client.jobs() == [])


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def normal(*shape):
    """Returns q, k and v of the same shape."""
    random = np.random.default_rng(3)
    return tuple(random.standard_normal(shape, dtype="f4") for _ in "qkv")


def program(*words, environment=(), **options):
    """Runs the program hilbert-ring, whose output is text by default."""
    return subprocess.run([find_program("hilbert-ring"), *map(str, words)], **{
        "capture_output": True, "text": True, "timeout": UNTIL, "check": False,
        "env": {**os.environ, "HILBERT_RING_PYTHON": sys.executable, **dict(environment)}, **options})


def certificate(certificate, key, *more):
    """Makes a certificate and its key. more: options of openssl."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "1", "-keyout", key, "-out", certificate, *more], check=True, capture_output=True)

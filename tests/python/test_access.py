"""A caller's credentials, checked by a server of the test."""
import asyncio
import json
import os
import pickle
import subprocess
import sys
import threading
from concurrent import futures
from pathlib import Path

import grpc
import pytest

import hilbert_ring
from client_rig import ByAsyncio, certificate
import hilbert_ring.aio
from hilbert_ring._channel import address_of
from hilbert_ring.v1 import attention_pb2 as pb

# Cases shared with tests/unit/wire/server_address_test.cc.
ADDRESSES = json.loads((Path(__file__).parents[1] / "unit/wire/server_addresses.json").read_text())


class Listener(grpc.GenericRpcHandler):
    """Lists no jobs, and keeps the metadata of each call."""

    def __init__(self):
        self.calls = []

    def service(self, details):
        self.calls.append(dict(details.invocation_metadata))
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: pb.ListJobsResponse().SerializeToString())

    def shown(self):
        return self.calls[-1].get("authorization")


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pem")
    certificate(folder / "ca.pem", folder / "key.pem", "-subj", "/CN=ring.test", "-addext", "subjectAltName=DNS:ring.test")
    return folder


@pytest.fixture(params=["plain", "tls", "mutual"])
def server(request, pem):
    listener = Listener()
    made = grpc.server(futures.ThreadPoolExecutor(4), handlers=[listener])
    if request.param == "plain":
        port = made.add_insecure_port("127.0.0.1:0")
    else:
        key, chain = ((pem / name).read_bytes() for name in ("key.pem", "ca.pem"))
        mutual = request.param == "mutual"
        port = made.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(
            [(key, chain)], chain if mutual else None, mutual))
    made.start()
    options = {"plain": {}, "tls": {"ca": pem / "ca.pem", "server_name": "ring.test"},
               "mutual": {"ca": (pem / "ca.pem").read_bytes(), "server_name": "ring.test",
                          "cert": str(pem / "ca.pem"), "key": pem / "key.pem"}}
    yield listener, f"127.0.0.1:{port}", options[request.param]
    made.stop(None)


def test_a_token_is_shown_with_each_call(server, tmp_path):
    listener, address, options = server
    with hilbert_ring.connect(address, token="secret-1", **options) as client:
        assert client.jobs() == []
        assert listener.shown() == "Bearer secret-1"
    file = tmp_path / "token"
    file.write_text("secret-2\n")
    with hilbert_ring.connect(address, token_file=file, **options) as client:
        client.jobs()
        assert listener.shown() == "Bearer secret-2"
        file.write_text("secret-3\n")
        client.jobs()
        assert listener.shown() == "Bearer secret-3"
    file.unlink()
    os.mkfifo(file)  # as of <(...)
    writer = threading.Thread(target=file.write_text, args=("secret-4\n",))
    writer.start()
    with hilbert_ring.connect(address, token_file=file, **options) as client:
        writer.join()
        for _ in range(2):
            client.jobs()
            assert listener.shown() == "Bearer secret-4"
    with hilbert_ring.connect(address, **options) as client:
        client.jobs()
        assert listener.shown() is None


def test_the_trace_of_the_environment_is_sent(server, monkeypatch):
    listener, address, options = server
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    for given, sent in ((trace, trace), ("", None), ("no\ntrace", None)):
        monkeypatch.setenv("TRACEPARENT", given)
        with hilbert_ring.connect(address, **options) as client:
            client.jobs()
        assert listener.calls[-1].get("traceparent") == sent
        ByAsyncio(address, **options).jobs()
        assert listener.calls[-1].get("traceparent") == sent


def test_a_client_is_pickled_as_its_arguments(server, tmp_path):
    listener, address, options = server
    file = tmp_path / "token"
    file.write_text("secret-7")
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).jobs())"
    with hilbert_ring.connect(address, token_file=file, data_root=tmp_path, **options) as client:
        pickled = pickle.dumps(client)
        done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=True)
    assert done.stdout == b"[]\n" and listener.shown() == "Bearer secret-7"
    assert b"secret-7" not in pickled
    assert pickle.loads(pickled)._calls._data_root == tmp_path

    async def run():
        async with pickle.loads(pickle.dumps(hilbert_ring.aio.connect(address, token_file=file, **options))) as client:
            return await client.jobs()

    assert asyncio.run(run()) == []


@pytest.mark.parametrize("connect", [hilbert_ring.connect, hilbert_ring.aio.connect])
def test_a_client_with_a_secret_in_memory_is_not_pickled(connect, pem):
    chain, key = ((pem / name).read_bytes() for name in ("ca.pem", "key.pem"))
    for secret, fault in (({"token": "secret-8"}, r"token is a secret in memory, must be in a file \(token_file\)"),
                          ({"cert": chain, "key": key}, r"key is a secret in memory, must be in a file \(key as a path\)")):
        with pytest.raises(pickle.PicklingError, match=fault):
            pickle.dumps(connect("localhost:1", **secret))


def test_a_service_whose_certificate_is_anothers_is_not_called(server, pem):
    listener, address, options = server
    if not options:
        wrong = {"ca": pem / "ca.pem"}  # TLS to a plain service
    else:
        wrong = {**options, "server_name": "another.test"}
    with hilbert_ring.connect(address, token="secret-5", **wrong) as client:
        with pytest.raises(hilbert_ring.UnavailableError):
            client.jobs()
    assert listener.calls == []


@pytest.mark.parametrize("wrong, field", [
    ({"token": ""}, "token"), ({"token": "a b"}, "token"), ({"token": "a\nb"}, "token"),
    ({"token": "ü"}, "token"), ({"token_file": "/no/such"}, "token_file"),
    ({"token_file": "/dev/null"}, "token_file"),
    ({"server_name": ""}, "server_name"), ({"server_name": b"x"}, "server_name"),
    ({"server_name": "x" * 254}, "server_name"),
    *(({"keepalive_interval": wrong}, "keepalive_interval") for wrong in (0, 9.9, 86401, float("nan"), True, "10")),
    ({"token": "a", "token_file": "/dev/null"}, "token_file"), ({"ca": "/no/such.pem"}, "ca"),
    ({"cert": b"x"}, "key"), ({"key": b"x"}, "cert"), ({"ca": b"x", "tls": False}, "tls")])
def test_what_is_refused(wrong, field):
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        hilbert_ring.connect("localhost:1", **wrong)
    assert raised.value.field == field


@pytest.mark.parametrize("given, of_jobs, of_streams", [(None, 10_000, 330_000), (10, 10_000, 10_000), (600.5, 600_500, 600_500)])
def test_how_often_a_service_is_pinged(given, of_jobs, of_streams):
    address = address_of("localhost:1", token=None, token_file=None, tls=None, ca=None, cert=None, key=None,
                         server_name=None, insecure=False, keepalive_interval=given)
    for endless, expected in ((False, of_jobs), (True, of_streams)):
        assert dict(address.channel_options(endless))["grpc.keepalive_time_ms"] == expected


@pytest.mark.parametrize("address", ["ring.example:8001", "10.0.0.1:8001", "[2001:db8::1]:8001",
                                     "localhost.example:1"])
def test_a_token_goes_to_no_other_host_in_the_clear(address):
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="in clear text"):
        hilbert_ring.connect(address, token="secret")
    hilbert_ring.connect(address, token="secret", insecure=True).close()
    hilbert_ring.connect(address, token="secret", tls=True).close()


@pytest.mark.parametrize("connect", [hilbert_ring.connect, hilbert_ring.aio.connect])
def test_a_server_is_an_address(connect, monkeypatch):
    for address in ADDRESSES["taken"]:
        assert hilbert_ring.connect(address).server == address
    for address, fault in ADDRESSES["refused"].items():
        with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
            connect(address)
        assert raised.value.field == "server", address
        assert ': server: "' in str(raised.value) and fault in str(raised.value), address
        if address and "\0" not in address:  # an empty variable is not set
            monkeypatch.setenv("HILBERT_RING_SERVER", address)
            with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
                connect()
            assert raised.value.field == "HILBERT_RING_SERVER", address
            assert fault in str(raised.value), address
    for odd in (8001, b"localhost:8001", Path("localhost:8001")):
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="server is .*, must be a str"):
            connect(odd)

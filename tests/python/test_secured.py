"""A service with TLS and tokens."""
import json
import subprocess

import numpy as np
import pytest

import hilbert_ring
from client_rig import certificate, program

TOKENS, HEADS, DIM = 64, 2, 16
SECRETS = {name: f"token-of-{name}-0123456789" for name in ("lab", "small", "eye", "root")}


def line(name, role, **quota):
    return json.dumps({"name": name, "role": role, "token": SECRETS[name], **quota}) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("secured")
    for name in ("service", "stranger"):
        certificate(made / f"{name}.pem", made / f"{name}.key", "-subj", f"/CN={name}", "-addext",
                    "subjectAltName=IP:127.0.0.1")
    (made / "tokens").write_text(line("lab", "submit") + line("small", "submit", tokens=TOKENS - 1)
                                 + line("eye", "observe") + line("root", "admin"))
    return made


@pytest.fixture(scope="module")
def service(folder):
    made = hilbert_ring.LocalService(workers=1, tls_cert=folder / "service.pem",
                                     tls_key=folder / "service.key",
                                     auth_token_file=folder / "tokens")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def connected(service, folder):
    """Connects with the name of a token, or with arguments of hilbert_ring.connect."""
    clients = []

    def connect(name=None, **more):
        token = {} if name is None else {"token": SECRETS[name]}
        clients.append(hilbert_ring.connect(service.server, **{"ca": folder / "service.pem", **token,
                                                               **more}))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def mean_of_v(client, **more):
    """Runs a job of equal scores, whose outputs are the mean of v."""
    q = np.zeros((TOKENS, HEADS, DIM), "f4")
    v = np.broadcast_to(np.arange(TOKENS, dtype="f4")[:, None, None], q.shape)
    result = client.attend(q, q, v, segments=[TOKENS], **more)
    np.testing.assert_allclose(result.out, (TOKENS - 1) / 2, rtol=1e-5)


def test_a_job_by_tls_with_a_token(connected, folder, tmp_path):
    mean_of_v(connected("lab"))
    mean_of_v(connected("root", ca=(folder / "service.pem").read_bytes()))
    file = tmp_path / "token"
    file.write_text(SECRETS["lab"] + "\n")
    client = connected(token_file=file)
    mean_of_v(client)
    file.write_text("token-of-nobody-0123456789\n")
    with pytest.raises(hilbert_ring.UnauthenticatedError):
        mean_of_v(client)


@pytest.mark.parametrize("shown", [{}, {"token": "token-of-nobody-0123456789"}])
def test_an_unauthenticated_caller_gets_nothing(connected, shown):
    client = connected(**shown)
    for call in (client.status, client.jobs, lambda: client.cancel("job"),
                 lambda: client.plan(tokens=8, heads=1, head_dim=16, segments=[8]),
                 lambda: mean_of_v(client)):
        with pytest.raises(hilbert_ring.UnauthenticatedError) as raised:
            call()
        assert raised.value.reason == "AUTH_TOKEN"
        assert "nobody" not in str(raised.value)


def test_a_service_that_is_not_trusted_is_not_called(connected, folder):
    for wrong in ({"ca": folder / "stranger.pem"}, {"server_name": "another.host"}):
        with pytest.raises(hilbert_ring.UnavailableError):
            connected("lab", **wrong).status()


def test_what_is_no_certificate_or_key_is_named_at_once(connected, folder, tmp_path):
    pem, key, other = folder / "service.pem", folder / "service.key", folder / "stranger.key"
    (tmp_path / "words").write_text("no certificate\n")
    (tmp_path / "cut").write_bytes(pem.read_bytes() + pem.read_bytes()[:300])
    (tmp_path / "locked").write_bytes(subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-passout", "pass:secret", "-in", key], check=True, capture_output=True).stdout)
    rsa = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True).stdout
    assert connected(cert=pem, key=key.read_bytes())
    for given, why in (({"ca": tmp_path / "words"}, "ca: {} holds no certificate in PEM"),
                       ({"ca": b""}, "ca holds no certificate in PEM"),
                       ({"ca": b"\x30\x82\x01\xff"}, "ca holds no certificate in PEM"),
                       ({"ca": key}, "ca: {} holds no certificate in PEM"),
                       ({"ca": tmp_path / "cut"}, "ca: {} holds a certificate that is damaged or cut off"),
                       ({"ca": 3}, "ca is of type int, must be a path"), ({"ca": "no\0path"}, "ca: "),
                       ({"cert": tmp_path / "words", "key": key}, "cert: {} holds no certificate in PEM"),
                       ({"key": tmp_path / "words", "cert": pem}, "key: {} holds no key in PEM without a passphrase"),
                       ({"key": tmp_path / "locked", "cert": pem}, "key: {} holds no key in PEM without a passphrase"),
                       ({"key": other, "cert": pem}, f"key: {{}} is not the key of the certificate in cert: {pem}"),
                       ({"key": rsa, "cert": pem}, f"key is not the key of the certificate in cert: {pem}"),
                       ({"key": other.read_bytes(), "cert": pem.read_bytes()},
                        "key is not the key of the certificate in cert")):
        with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
            connected(**given)
        field, value = next(iter(given.items()))
        assert raised.value.field == field
        assert why.format(value) in str(raised.value)


def test_roles(connected):
    assert connected("eye").status().ready
    with pytest.raises(hilbert_ring.PermissionDeniedError) as raised:
        mean_of_v(connected("eye"))
    assert raised.value.reason == "ROLE"
    with pytest.raises(hilbert_ring.PermissionDeniedError):
        connected("lab").cancel("job", caller="small")
    with pytest.raises(hilbert_ring.NotFoundError):
        connected("root").cancel("job", caller="small")


def test_a_benchmark_of_the_command_line_shows_the_callers_token(service, folder, tmp_path):
    (folder / "token").write_text(SECRETS["lab"] + "\n")
    ca = ["--ca", folder / "service.pem"]
    load = ["bench", "load", "--callers", "1", "--seconds", "0.1", "--of-capacity", "--out", tmp_path]
    before = ["--server", service.server, *ca, "--token-file", folder / "token", *load]
    behind = [*load, "--server", service.server, *ca]
    for line, token, code in ((before, "", 0), (behind, SECRETS["lab"], 0), (behind, "", 1)):
        done = program(*line, environment={"HILBERT_RING_TOKEN": token})
        assert done.returncode == code, done.stderr
    assert "UNAUTHENTICATED: the service takes calls with a token alone" in done.stderr

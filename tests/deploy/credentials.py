"""Makes certificates and tokens of a service on a test's hosts, with openssl.

    credentials = Credentials(work, {host: address})
    credentials.coordinator(1)       # variables of the environment; also worker(2) and client()
"""
import subprocess

TOKEN = "a-token-of-the-callers-of-this-test"
COORDINATOR_NAME, WORKER_NAME = "coordinator", "worker"


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, text=True)


class Credentials:
    def __init__(self, work, addresses):
        self._folder, self._addresses = work / "credentials", addresses
        self._folder.mkdir()
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30,
                "-subj", "/CN=authority", "-keyout", self._folder / "ca.key", "-out", self._folder / "ca.crt")
        (self._folder / "tokens").write_text(f'{{"name": "lab", "role": "submit", "token": "{TOKEN}"}}\n')
        (self._folder / "token").write_text(TOKEN + "\n")

    def _issue(self, host, name):
        cert, key, request = (self._folder / f"{host}.{end}" for end in ("crt", "key", "csr"))
        if not cert.exists():
            (self._folder / f"{host}.ext").write_text(
                f"subjectAltName=DNS:{name},IP:{self._addresses[host]}\n")
            openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-subj", f"/CN={name}", "-keyout", key, "-out", request)
            openssl("x509", "-req", "-in", request, "-CA", self._folder / "ca.crt",
                    "-CAkey", self._folder / "ca.key", "-CAcreateserial", "-days", 30,
                    "-extfile", self._folder / f"{host}.ext", "-out", cert)
        for file in self._folder.iterdir():
            file.chmod(0o644)  # the processes run as an ordinary user
        return {"HILBERT_RING_TLS_CERT": str(cert), "HILBERT_RING_TLS_KEY": str(key),
                "HILBERT_RING_TLS_CA": str(self._folder / "ca.crt")}

    def coordinator(self, host):
        return {**self._issue(host, COORDINATOR_NAME), "HILBERT_RING_TLS_PEER_NAME": WORKER_NAME,
                "HILBERT_RING_AUTH_TOKEN_FILE": str(self._folder / "tokens")}

    def worker(self, host):
        return {**self._issue(host, WORKER_NAME), "HILBERT_RING_TLS_PEER_NAME": COORDINATOR_NAME}

    def client(self):
        return {"HILBERT_RING_TLS": "true", "HILBERT_RING_CA": str(self._folder / "ca.crt"),
                "HILBERT_RING_TOKEN_FILE": str(self._folder / "token")}


class ClearText:
    """Allows clear text in a network, by a variable, so that the command lines stay unchanged."""

    INSECURE = {"HILBERT_RING_INSECURE": "true"}

    def __init__(self, *_):
        pass

    def coordinator(self, _):
        return self.INSECURE

    def worker(self, _):
        return self.INSECURE

    def client(self):
        return {}

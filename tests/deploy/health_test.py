"""The image's health check, with services that answer and services that do not."""
import ctypes
import http.server
import os
import ssl
import socket
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

SOURCE = Path(os.environ["HILBERT_RING_SOURCE"])
HEALTH = SOURCE / "deploy/image/hilbert-ring-health"
PR_SET_CHILD_SUBREAPER = 36


class Ipv6Server(http.server.HTTPServer):
    address_family = socket.AF_INET6


def server(status, host="127.0.0.1"):
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/livez" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    return (Ipv6Server if ":" in host else http.server.HTTPServer)((host, 0), Answer)


def health(port, **variables):
    """Runs the check and returns its exit code.

    This process becomes the parent of processes that the check leaves behind, like a container's first process.
    """
    code = subprocess.run([HEALTH], env={**os.environ, "HILBERT_RING_HTTP_PORT": str(port),
                                         **variables}, capture_output=True).returncode
    try:
        left = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return code
    raise AssertionError(f"the check left a process behind: {left}")


class Health(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")

    def serve(self, status, context=None, host="127.0.0.1"):
        serving = server(status, host)
        if context:
            serving.socket = context.wrap_socket(serving.socket, server_side=True)
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(serving.server_close)
        self.addCleanup(serving.shutdown)
        return serving.server_address[1]

    def test_a_service_that_lives(self):
        self.assertEqual(health(self.serve(200)), 0)
        self.assertEqual(health(self.serve(200), HILBERT_RING_HTTP_HOST="0.0.0.0"), 0)
        port = self.serve(200, host="::1")
        for host in ("::1", "[::1]", "::", "[::]", "0.0.0.0"):
            self.assertEqual(health(port, HILBERT_RING_HTTP_HOST=host), 0, host)
        self.assertEqual(health(port), 0)

    def test_a_service_that_does_not(self):
        self.assertNotEqual(health(self.serve(503)), 0)
        self.assertNotEqual(health(self.serve(404)), 0)

    def test_a_port_without_a_server_or_an_answer(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.assertNotEqual(health(silent.getsockname()[1]), 0)
        self.assertNotEqual(health(1), 0)

    def test_the_image_has_a_first_process_that_takes_ended_ones_away(self):
        lines = (SOURCE / "Dockerfile").read_text().splitlines()
        self.assertIn('ENTRYPOINT ["tini", "--"]', lines)
        self.assertTrue(any("apt-get install" in line and " tini " in line for line in lines))

    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            key, certificate = f"{folder}/key", f"{folder}/certificate"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
                            "1", "-subj", "/CN=test", "-keyout", key, "-out", certificate],
                           check=True, capture_output=True)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self.assertEqual(health(self.serve(200, context), HILBERT_RING_TLS_CERT=certificate),
                             0)
            self.assertEqual(
                health(self.serve(200, context), HILBERT_RING_HTTP_TLS_CERT=certificate), 0)
            self.assertEqual(health(self.serve(200, context, "::1"), HILBERT_RING_HTTP_HOST="[::1]",
                                    HILBERT_RING_TLS_CERT=certificate), 0)
            self.assertNotEqual(
                health(self.serve(503, context), HILBERT_RING_TLS_CERT=certificate), 0)


if __name__ == "__main__":
    unittest.main()

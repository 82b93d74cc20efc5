"""The log as text and as JSON: a line for each job, with its trace, at coordinator and workers."""
import json
import socket
import subprocess
import tempfile
import unittest

from running_service import await_true
from service_under_test import ServiceUnderTest

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Logs(unittest.TestCase):
    def lines(self, service):
        return [json.loads(line) for line in service.log.read_text().splitlines()]

    def test_json_has_an_object_a_line_and_one_for_each_job(self):
        arguments = ["--log-format=json", "--log-level=debug"]
        with tempfile.TemporaryDirectory() as folder, \
                ServiceUnderTest(folder, arguments=arguments) as service:
            report = service.attend(tokens=2048, environment={"TRACEPARENT": TRACE})
            refused = service.client(
                "attend", "--segments=0", "--dilations=1", *[f"--{n}={folder}/{n}.npy" for n in "qkv"],
                f"--out={folder}/none.npy", "--json")
            self.assertNotEqual(refused.returncode, 0)
            # The worker logs its line once it has freed its memory.
            await_true("both workers' lines", lambda: len(
                [line for line in self.lines(service) if line.get("traceparent") == TRACE]) == 3)
            lines = self.lines(service)
        for line in lines:
            self.assertLessEqual({"time", "level", "process", "pid", "message"}, set(line))
        own = [line for line in lines if line["message"] == "job ended"
               and line["job"] == report["job_id"]]
        self.assertEqual(len(own), 1)
        row_bytes = 2048 * 4 * 32 * 4
        expected = {"level": "info", "process": "coordinator", "code": "OK", "caller": "",
                    "tokens": 2048, "workers": 2, "bytes_received": 3 * row_bytes,
                    "bytes_sent": row_bytes, "bytes_exchanged": int(report["bytes_exchanged"]),
                    "retries": 0, "traceparent": TRACE}
        self.assertEqual(expected, {key: own[0].get(key) for key in expected})
        self.assertGreaterEqual(own[0]["seconds"], own[0]["compute_seconds"])
        runs = [line for line in lines if line["message"] == "run ended"
                and line["job"] == report["job_id"]]
        self.assertEqual(sorted(line["rank"] for line in runs), [0, 1])
        self.assertEqual({line["traceparent"] for line in runs}, {TRACE})
        self.assertEqual({line["process"] for line in runs}, {"worker"})

    def test_grpc_errors_of_unauthenticated_callers_are_logged_once(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = f"{folder}/tls.crt", f"{folder}/tls.key"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                            "-nodes", "-days", "1", "-subj", "/CN=test", "-keyout", key, "-out", cert],
                           check=True, capture_output=True)
            arguments = ["--log-format=json", f"--tls-cert={cert}", f"--tls-key={key}"]
            with ServiceUnderTest(folder, arguments=arguments) as service:
                for _ in range(20):
                    with socket.create_connection(("127.0.0.1", service.ports["grpc_port"]), 10) as other:
                        other.sendall(b"GET / HTTP/1.0\r\n\r\n")
                        other.shutdown(socket.SHUT_WR)
                warnings = await_true("the warning is logged", lambda: [
                    line for line in self.lines(service) if line["message"].startswith("gRPC: ")])
        self.assertEqual([(line["level"], line["process"]) for line in warnings], [("warning", "coordinator")])


if __name__ == "__main__":
    unittest.main()

"""The service is ready once a checked job has passed through all workers, and not before."""
import os
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

from running_service import await_true, stop_with_parent
from service_under_test import Exposition, ServiceUnderTest


class Coordinator(ServiceUnderTest):
    """One that waits for workers from elsewhere: it is started, and not awaited."""

    def _ready(self):
        # What the ready file says only later; the log says it at once.
        for line in self.log.read_text().splitlines():
            if " HTTP on 127.0.0.1:" in line:
                http, workers = (line.split(f" {what} on 127.0.0.1:")[1].split(",")[0].split()[0]
                                 for what in ("HTTP", "workers"))
                return {"http_port": int(http), "membership_port": int(workers)}
        return None

    def readyz(self):
        try:
            return 200, self.get("/readyz").strip()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode().strip()


class WarmUp(unittest.TestCase):
    def start(self, folder, *arguments):
        return Coordinator(folder, workers=0,
                           arguments=["--membership-host=127.0.0.1", "--min-workers=1", *arguments])

    def worker(self, service, program):
        process = subprocess.Popen(
            [program, f"--coordinator=127.0.0.1:{service.ports['membership_port']}", "--port=0",
             "--threads=1"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, preexec_fn=stop_with_parent)
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.terminate)

    def test_a_worker_that_errs_keeps_the_service_from_being_ready(self):
        with tempfile.TemporaryDirectory() as folder, self.start(folder) as service:
            self.assertEqual(service.readyz(), (503, "not enough workers"))
            self.worker(service, os.environ["WRONG_WORKER_BINARY"])
            await_true("the warm-up job failed",
                       lambda: "the warm-up job over 1 workers failed" in service.log.read_text())
            self.assertIn("computed again in float64", service.log.read_text())
            self.assertEqual(service.readyz(), (503, "warming up"))
            seen = Exposition(service.get("/metrics"))
            self.assertEqual(seen.total("hilbert_ring_ready"), 0)
            self.assertEqual(seen.total("hilbert_ring_workers_up"), 1)
            self.assertEqual(sum(value for name, _, value in seen.samples
                                 if name == "hilbert_ring_jobs_total"), 0)

    def test_limits_for_callers_are_none_for_the_warm_up(self):
        with tempfile.TemporaryDirectory() as folder, \
                self.start(folder, "--max-heads=1", "--max-tokens=16") as service:
            self.worker(service, os.environ["WORKER_BINARY"])
            await_true("the service is ready", lambda: service.readyz() == (200, "ok"))

    def test_a_worker_that_computes_right_makes_it_ready(self):
        with tempfile.TemporaryDirectory() as folder, self.start(folder) as service:
            self.worker(service, os.environ["WORKER_BINARY"])
            await_true("the service is ready", lambda: service.readyz() == (200, "ok"))

    def test_without_a_warm_up_whoever_is_there_is_enough(self):
        with tempfile.TemporaryDirectory() as folder, \
                self.start(folder, "--warm-up=false") as service:
            self.worker(service, os.environ["WRONG_WORKER_BINARY"])
            await_true("the service is ready", lambda: service.readyz() == (200, "ok"))


if __name__ == "__main__":
    unittest.main()

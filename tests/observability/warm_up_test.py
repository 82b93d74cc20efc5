"""The service is ready once a checked job has passed through all workers, and not before."""
import os
import tempfile
import unittest
import urllib.error

from running_service import ListeningService, await_true
from service_under_test import Exposition


def readyz(service):
    try:
        return 200, service.get("/readyz").strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()


class WarmUp(unittest.TestCase):
    def start(self, folder, *arguments):
        return ListeningService(os.environ["COORDINATOR_BINARY"], folder, arguments=arguments)

    def test_a_worker_that_errs_keeps_the_service_from_being_ready(self):
        with tempfile.TemporaryDirectory() as folder, self.start(folder) as service:
            self.assertEqual(readyz(service), (503, "not enough workers"))
            service.start_worker(os.environ["WRONG_WORKER_BINARY"])
            await_true("the warm-up job failed",
                       lambda: "the warm-up job over 1 workers failed" in service.log.read_text())
            self.assertIn("computed again in float64", service.log.read_text())
            ready, seen = readyz(service), Exposition(service.get("/metrics"))
            self.assertEqual(seen.total("hilbert_ring_ready"), 0)
            if service.log.read_text().count("the warm-up job over 1 workers failed") == 1:
                self.assertEqual(ready, (503, "warming up"))
                self.assertEqual(seen.total("hilbert_ring_workers_up"), 1)
            # The next try, half a second later, fails as well, and the worker gets no more jobs.
            await_true("it is distrusted", lambda: readyz(service) == (503, "not enough workers"))
            self.assertEqual(sum(value for name, _, value in seen.samples
                                 if name == "hilbert_ring_jobs_total"), 0)

    def test_limits_for_callers_are_none_for_the_warm_up(self):
        with tempfile.TemporaryDirectory() as folder, \
                self.start(folder, "--max-tokens=16") as service:
            service.start_worker(os.environ["WORKER_BINARY"])
            await_true("the service is ready", lambda: readyz(service) == (200, "ok"))

    def test_without_a_warm_up_whoever_is_there_is_enough(self):
        with tempfile.TemporaryDirectory() as folder, \
                self.start(folder, "--warm-up=false") as service:
            service.start_worker(os.environ["WRONG_WORKER_BINARY"])
            await_true("the service is ready", lambda: readyz(service) == (200, "ok"))


if __name__ == "__main__":
    unittest.main()

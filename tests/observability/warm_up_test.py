"""The service is ready once a checked job has passed through all workers, and not before."""
import os
import tempfile
import time
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
    def start(self, folder, *arguments, workers=1):
        return ListeningService(os.environ["COORDINATOR_BINARY"], folder, workers, arguments)

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

    def test_one_of_two_workers_that_errs_is_replaced_before_the_service_is_ready(self):
        with tempfile.TemporaryDirectory() as folder, self.start(folder, workers=2) as service:
            service.start_worker(os.environ["WORKER_BINARY"])
            self.assertEqual(readyz(service), (503, "not enough workers"))
            wrong = service.start_worker(os.environ["WRONG_WORKER_BINARY"])
            await_true("the warm-up job failed",
                       lambda: "the warm-up job over 2 workers failed" in service.log.read_text())
            self.assertEqual(readyz(service)[0], 503)
            wrong.kill()
            wrong.wait(30)
            await_true("it has left", lambda: readyz(service) == (503, "not enough workers"))
            service.start_worker(os.environ["WORKER_BINARY"])
            await_true("the service is ready", lambda: readyz(service) == (200, "ok"))

    def test_a_worker_that_no_job_fits_is_tried_again_less_and_less_often(self):
        with tempfile.TemporaryDirectory() as folder, self.start(folder) as service:
            begin = time.monotonic()
            service.start_worker(os.environ["WORKER_BINARY"], "--memory-limit=8MiB")
            await_true("the warm-up job failed", lambda: "worker 1 of 1 would need" in
                       service.log.read_text())
            before = begin
            tries = []  # of each: when the log was without it, and when it was there
            while len(tries) < 4:
                looked = time.monotonic()
                count = service.log.read_text().count("job=warm-up")
                tries += [(before, time.monotonic())] * (count - len(tries))
                before = looked
                time.sleep(0.02)
            # Pauses of 0.5, 1 and 2 seconds.
            self.assertGreater(tries[3][1] - tries[2][0], 1.5)

    def test_limits_for_callers_are_none_for_the_warm_up(self):
        with tempfile.TemporaryDirectory() as folder, \
                self.start(folder, "--max-heads=1", "--max-tokens=16") as service:
            service.start_worker(os.environ["WORKER_BINARY"])
            await_true("the service is ready", lambda: readyz(service) == (200, "ok"))

    def test_a_worker_that_computes_right_makes_it_ready(self):
        with tempfile.TemporaryDirectory() as folder, self.start(folder) as service:
            service.start_worker(os.environ["WORKER_BINARY"])
            await_true("the service is ready", lambda: readyz(service) == (200, "ok"))

    def test_without_a_warm_up_whoever_is_there_is_enough(self):
        with tempfile.TemporaryDirectory() as folder, \
                self.start(folder, "--warm-up=false") as service:
            service.start_worker(os.environ["WRONG_WORKER_BINARY"])
            await_true("the service is ready", lambda: readyz(service) == (200, "ok"))


if __name__ == "__main__":
    unittest.main()

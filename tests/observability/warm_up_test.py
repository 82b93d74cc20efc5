"""The service is ready once its workers have passed their self-test and shared a checked job."""
import os
import re
import shutil
import signal
import tempfile
import unittest
import urllib.error
from pathlib import Path
from unittest import mock

from running_service import ListeningService, RunningService, await_true
from service_under_test import Exposition

AT_ONCE = {"HILBERT_RING_FAULT_AT_ONCE": "1"}
FAILED = r"worker 127\.0\.0\.1:\d+ failed its self-test"

# The first worker that starts is wrong, later ones are right.
SPAWNED = """#!/bin/sh
mkdir '{folder}/started' 2>/dev/null || exec '{right}' "$@"
echo $$ >'{folder}/wrong'
HILBERT_RING_FAULT_AT_ONCE=1 exec '{wrong}' "$@"
"""


class SpawningService(ListeningService):
    """Spawns two workers and does not wait for them."""

    def __init__(self, coordinator, folder):
        RunningService.__init__(self, coordinator, folder, 2)


def readyz(service):
    try:
        return 200, service.get("/readyz").strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()


class WarmUp(unittest.TestCase):
    def start(self, folder, *arguments):
        return ListeningService(os.environ["COORDINATOR_BINARY"], folder, arguments=arguments)

    def test_a_worker_whose_self_test_fails_is_excluded_and_named(self):
        with tempfile.TemporaryDirectory() as folder, self.start(folder) as service:
            self.assertEqual(readyz(service), (503, "not enough workers"))
            with mock.patch.dict(os.environ, AT_ONCE):
                service.start_worker(os.environ["WRONG_WORKER_BINARY"])
            await_true("it is named", lambda: re.fullmatch(
                rf"not enough workers\n{FAILED}: OUT of token .*", readyz(service)[1]))
            service.start_worker(os.environ["WORKER_BINARY"])
            await_true("the service is ready", lambda: readyz(service)[0] == 200)
            self.assertRegex(readyz(service)[1], rf"ok\n{FAILED}")
            self.assertRegex(service.log.read_text(), rf"{FAILED} and gets no jobs: OUT of token")
            self.assertIn("failed its self-test", service.get("/"))
            seen = Exposition(service.get("/metrics"))
            self.assertEqual(seen.total("hilbert_ring_workers", state="quarantined"), 1)
            self.assertEqual(seen.total("hilbert_ring_workers_up"), 1)
            self.assertEqual(seen.total("hilbert_ring_jobs_total"), 0)

    def test_spawned_workers_must_all_pass(self):
        with tempfile.TemporaryDirectory() as folder:
            coordinator = shutil.copy(os.environ["COORDINATOR_BINARY"], f"{folder}/hilbert-ring-coordinator")
            worker = Path(folder, "hilbert-ring-worker")
            worker.write_text(SPAWNED.format(
                folder=folder, wrong=os.environ["WRONG_WORKER_BINARY"], right=os.environ["WORKER_BINARY"]))
            worker.chmod(0o755)
            with SpawningService(coordinator, folder) as service:
                await_true("both are there", lambda: service.log.read_text().count("worker joined") == 2)
                code, text = readyz(service)
                self.assertEqual(code, 503)
                self.assertRegex(text, rf"not enough workers\n{FAILED}")
                os.kill(int(Path(folder, "wrong").read_text()), signal.SIGTERM)
                await_true("the service is ready", lambda: readyz(service) == (200, "ok"))

    def test_callers_limits_do_not_apply_to_the_warm_up(self):
        with tempfile.TemporaryDirectory() as folder, \
                self.start(folder, "--max-tokens=16") as service:
            service.start_worker(os.environ["WORKER_BINARY"])
            await_true("the service is ready", lambda: readyz(service) == (200, "ok"))

    def test_without_a_warm_up_any_workers_are_enough(self):
        with tempfile.TemporaryDirectory() as folder, \
                self.start(folder, "--warm-up=false") as service:
            service.start_worker(os.environ["WRONG_WORKER_BINARY"])
            await_true("the service is ready", lambda: readyz(service) == (200, "ok"))


if __name__ == "__main__":
    unittest.main()

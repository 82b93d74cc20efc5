"""The load of the rolling restart counts every job that did not end well, however it ended."""
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import mean_job
from rolling_restart_check import SEGMENT, TOKENS, Load

SECONDS = 120  # until a job has ended, at most
SAID = "echo '  attempts 1, retries by the service 0'"
RIGHT = f"""
import numpy, sys
(out,) = [word[6:] for word in sys.argv if word.startswith("--out=")]
numpy.save(out, numpy.full(({TOKENS}, {mean_job.HEADS}, {mean_job.DIM}), VALUE, "f4"))
"""


class ThisHost:
    """Runs what a client's host would; tells the load to stop after its first job."""

    def __init__(self):
        self.load = None

    def address(self, _):
        return "127.0.0.1"

    def start(self, _, words, _environment=None, **options):
        self.load._stop.set()
        return subprocess.Popen(words, **options)


class RollingRestart(unittest.TestCase):
    def lost(self, script):
        """Failures of a load whose client is the script."""
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            client = work / "hilbert-ring"
            client.write_text(f"#!/bin/sh\n{script}\n")
            client.chmod(0o755)
            host = ThisHost()
            load = host.load = Load(host, work, work)
            with load:
                deadline = time.monotonic() + SECONDS
                while not load.jobs and time.monotonic() < deadline:
                    time.sleep(0.01)
            self.assertGreater(len(load.jobs), 0)
            return load.failures

    def output(self, value):
        code = RIGHT.replace("VALUE", value).replace('"', "'")
        return f'{SAID}; exec /usr/bin/python3 -c "{code}" "$@"'

    def test_a_right_output_is_none(self):
        self.assertEqual(self.lost(self.output(str((SEGMENT - 1) / 2))), [])

    def test_a_wrong_output_is_lost(self):
        self.assertIn("off by 1.0", self.lost(self.output(str((SEGMENT + 1) / 2)))[0])
        self.assertIn("off by nan", self.lost(self.output("numpy.nan"))[0])

    def test_an_error_is_lost(self):
        self.assertEqual(self.lost("echo no worker >&2; exit 1")[0], "exit code 1: no worker\n")

    def test_a_client_that_dies_without_a_word_is_lost(self):
        self.assertEqual(self.lost("kill -SEGV $$")[0], "exit code -11: ")


if __name__ == "__main__":
    unittest.main()

"""promtool accepts the metrics, the configuration, the rules and their tests."""
import os
import tempfile
import unittest
from pathlib import Path

import skipping
from prometheus_tools import needs, promtool
from running_service import http_get
from service_under_test import ServiceUnderTest

PROMETHEUS = Path(os.environ["SOURCE_FOLDER"]) / "deploy" / "prometheus"


class Promtool(unittest.TestCase):
    @needs("promtool")
    def test_metrics_keep_the_conventions(self):
        with tempfile.TemporaryDirectory() as folder, ServiceUnderTest(folder) as service:
            service.attend()
            texts = [service.get("/metrics")]
            texts += [http_get(f"http://{target['targets'][0]}/metrics") for target in service.targets()]
        self.assertEqual(len(texts), 3)
        for text in texts:
            checked = promtool("check", "metrics", text=text)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    @needs("promtool")
    def test_configuration_and_rules_are_valid(self):
        checked = promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        linted = promtool("check", "rules", "--lint-fatal",
                          *map(str, sorted(PROMETHEUS.glob("rules/*.yml"))))
        self.assertEqual(linted.returncode, 0, linted.stdout + linted.stderr)

    @needs("promtool")
    def test_rules_do_what_their_tests_say(self):
        tested = promtool("test", "rules", *map(str, sorted(PROMETHEUS.glob("tests/*.yml"))))
        self.assertEqual(tested.returncode, 0, tested.stdout + tested.stderr)


if __name__ == "__main__":
    skipping.main()

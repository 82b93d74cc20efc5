"""The alerts against the tests that are written for them; promtool_test.py runs those."""
import os
import re
import unittest
from pathlib import Path

PROMETHEUS = Path(os.environ["SOURCE_FOLDER"]) / "deploy" / "prometheus"


class Alerts(unittest.TestCase):
    def test_every_alert_fires_in_a_rule_test(self):
        alerts = re.findall(r"- alert: (\w+)", (PROMETHEUS / "rules" / "alerts.yml").read_text())
        self.assertGreater(len(alerts), 10)
        tests = (PROMETHEUS / "tests" / "rules_test.yml").read_text()
        fired = re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n\s+- exp_labels", tests)
        self.assertEqual(sorted(alerts), sorted(set(fired)))


    def test_the_page_has_every_alert(self):
        rules = (PROMETHEUS / "rules" / "alerts.yml").read_text()
        shipped = [(name, re.search(r"severity: (\w+)", rule)[1], (re.search(r"for: (\w+)", rule) or ["", "0m"])[1])
                   for name, rule in re.findall(r"- alert: (\w+)\n(.*?)(?=\n\n|\Z)", rules, re.DOTALL)]
        page = (PROMETHEUS.parents[1] / "docs" / "metrics.md").read_text()
        self.assertEqual(re.findall(r"^\| `(HilbertRing\w+)` \| (\w+) \| (\w+) \|", page, re.MULTILINE), shipped)


if __name__ == "__main__":
    unittest.main()

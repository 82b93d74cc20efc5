"""Every query returns data: a real Prometheus with the shipped configuration, rules and dashboard, and a real
service."""
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.parse
from pathlib import Path

import skipping
from prometheus_tools import find, needs
from running_service import await_true, http_get, stop_with_parent
from service_under_test import WITH_TLS, ServiceUnderTest

DEPLOY = Path(os.environ["SOURCE_FOLDER"]) / "deploy"
# The values that Grafana would substitute: scrapes come every second here.
VARIABLES = {"$__rate_interval": "1m", "$__interval": "15s", "$__range": "5m"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def dashboard_queries():
    """(panel, query), with Grafana's variables replaced."""
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "hilbert-ring.json").read_text())
    queries = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            queries.append((panel["title"], query))
    return queries


def rule_queries(prometheus):
    """(rule, query) as Prometheus has them; an alert's query without its limit or its absent()."""
    groups = prometheus.api("rules")["groups"]
    limit = r" (?:==|>|<) (?:[\d.]+|max_over_time\(\S+\))$"
    return [(rule["name"], re.sub(rf"{limit}|^absent\((.*)\)$", r"\1", rule["query"]))
            for group in groups for rule in group["rules"]]


def secured(configuration):
    """The configuration for a service with TLS and tokens, changed according to its comment."""
    lines = re.findall(r"^#     (\w+: [^#\n]*[^#\s])", configuration, re.MULTILINE)
    assert len(lines) == 3, lines

    def indented(which, spaces):
        return "".join(f"\n{' ' * spaces}{line}" for line in which)

    of_jobs = re.sub(r"- job_name: .*", lambda job: job[0] + indented(lines, 4), configuration)
    return re.sub(r"- url: http(:.*)", lambda url: f"- url: https{url[1]}" + indented(lines[1:], 8), of_jobs)


class Prometheus:
    """The shipped configuration, with another address of the coordinator and short intervals. With files (TLS and tokens,
    beside it), it is secured()."""

    def __init__(self, folder, coordinator, files=()):
        self.folder = Path(folder)
        shutil.copytree(DEPLOY / "prometheus" / "rules", self.folder / "rules")
        shipped = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
        assert shipped.count("coordinator:8002") == 2 and shipped.count("15s") == 3
        configuration = shipped.replace("coordinator:8002", coordinator).replace("15s", "1s")
        (self.folder / "prometheus.yml").write_text(secured(configuration) if files else configuration)
        for file in files:
            shutil.copy(file, self.folder)
        self.address = f"127.0.0.1:{free_port()}"

    def __enter__(self):
        with open(self.folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                [find("prometheus"), f"--config.file={self.folder}/prometheus.yml",
                 f"--storage.tsdb.path={self.folder}/data", f"--web.listen-address={self.address}"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=stop_with_parent)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)

    def api(self, path, **arguments):
        reply = json.loads(http_get(f"http://{self.address}/api/v1/{path}?"
                                    + urllib.parse.urlencode(arguments)))
        assert reply["status"] == "success", reply
        return reply["data"]

    def query(self, expression):
        return self.api("query", query=expression)["result"]

    def value(self, expression):
        result = self.query(expression)
        return float(result[0]["value"][1]) if result else None

    def targets_up(self):
        try:
            targets = self.api("targets")["activeTargets"]
        except OSError:
            return False
        return sorted(target["labels"]["job"] for target in targets if target["health"] == "up")


class WithPrometheus(unittest.TestCase):
    @needs("prometheus")
    def test_every_query_returns_data(self):
        with tempfile.TemporaryDirectory() as folder, ServiceUnderTest(folder) as service, \
                tempfile.TemporaryDirectory() as own, Prometheus(own, service.http_address) as seen:
            jobs = ["hilbert-ring-coordinator", "hilbert-ring-worker", "hilbert-ring-worker"]
            await_true("all targets are up", lambda: seen.targets_up() == jobs)
            # A rate needs two scrapes, the second after the jobs.
            await_true("a first scrape", lambda: seen.value("sum(hilbert_ring_jobs_total)") == 0)
            for tokens in (1024, 2048, 4096):
                service.attend(tokens=tokens)
            await_true("the jobs are seen", lambda: seen.value('sum(hilbert_ring_jobs_total{code="OK"})') == 3)

            # The service has no certificates; promtool tests the alerts over them.
            queries = [(name, query) for name, query in dashboard_queries() + rule_queries(seen)
                       if not any(metric in query for metric in WITH_TLS)]
            self.assertGreater(len(queries), 60)
            deadline = time.monotonic() + 60  # rules are evaluated each second
            silent = queries
            while silent and time.monotonic() < deadline:
                silent = [(name, query) for name, query in silent if not seen.query(query)]
                time.sleep(0.5)
            self.assertEqual(silent, [], "queries without data")

            firing = [alert for alert in seen.api("alerts")["alerts"] if alert["state"] == "firing"]
            self.assertEqual(firing, [], "alerts of a service that is well")


    @needs("prometheus")
    def test_a_service_with_tls_and_tokens_is_read_as_the_configuration_says(self):
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as own:
            cert, key, ca, token, tokens = (Path(folder) / name for name in (
                "tls.crt", "tls.key", "ca.crt", "token", "tokens"))
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                            "-days", "1", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
                            "-keyout", key, "-out", cert], check=True, capture_output=True)
            shutil.copy(cert, ca)
            token.write_text("token-of-prometheus-0123456789")
            tokens.write_text(json.dumps({"name": "eye", "role": "observe", "token": token.read_text()}))
            with ServiceUnderTest(folder, arguments=[f"--tls-cert={cert}", f"--tls-key={key}",
                                                     f"--auth-token-file={tokens}"]) as service, \
                    Prometheus(own, service.http_address, files=[ca, token]) as seen:
                await_true("coordinator and workers are up", lambda: seen.targets_up() == [
                    "hilbert-ring-coordinator", "hilbert-ring-worker", "hilbert-ring-worker"])
                # This service has no certificates.
                ends = 'hilbert_ring_certificate_expiry_timestamp_seconds{certificate="http"} > time()'
                await_true("certificates of all", lambda: len(seen.query(ends)) == 3)


if __name__ == "__main__":
    skipping.main()

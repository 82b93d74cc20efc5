"""The compose file and the default limits fit the programs and each other."""
import json
import os
import re
import shlex
import sys
import unittest
from pathlib import Path

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    raise SystemExit(77)

from program_flags import ProgramFlags

SOURCE = Path(os.environ["HILBERT_RING_SOURCE"])
sys.path.insert(0, str(SOURCE / "bench"))
from published_encoder import SIZES  # noqa: E402

DEPLOY = SOURCE / "deploy"
FLAGS = ProgramFlags(Path(os.environ["HILBERT_RING_BUILD"]) / "bin")


def size(text):
    """Returns the bytes of "4g", "8Gi", "384MiB", or of the default in "${VARIABLE:-4g}"."""
    number, unit = re.fullmatch(r"(?:\$\{[A-Z_]+:-)?(\d+)([kmg])(?:ib?)?\}?", text, re.IGNORECASE).groups()
    return int(number) << {"k": 10, "m": 20, "g": 30}[unit.lower()]


class Memory(unittest.TestCase):
    """The default memory of processes fits into the limits of their containers."""
    TRANSPORT, PROCESS = 512 << 20, 128 << 20  # of a worker: its port's messages, and memory without a setting

    def setUp(self):
        self.compose = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"]
        self.limits = {("compose", name): size(service["deploy"]["resources"]["limits"]["memory"])
                       for name, service in self.compose.items() if "deploy" in service}
        self.values = yaml.safe_load((DEPLOY / "helm/hilbert-ring/values.yaml").read_text())
        for name in ("coordinator", "worker"):
            self.limits["chart", name] = size(self.values[name]["resources"]["limits"]["memory"])

    def test_a_workers_jobs_and_models(self):
        environment = self.compose["worker"]["environment"]
        share = float(re.search(r":-([0-9.]+)", environment["HILBERT_RING_MEMORY_SHARE"]).group(1))
        models = self.values["models"]
        taken = {"compose": (share, size(environment["HILBERT_RING_MODEL_MEMORY"])),
                 "chart": (models["jobsShare"], size(models["memory"]))}
        for kind, (jobs, weights) in taken.items():
            limit = self.limits[kind, "worker"]
            self.assertGreater(weights, published_weights(), kind)
            self.assertLessEqual(0.8 * jobs * limit + weights + self.TRANSPORT + self.PROCESS, limit, kind)
        self.assertLessEqual(0.8 * self.limits["chart", "worker"] + self.TRANSPORT + self.PROCESS,
                             self.limits["chart", "worker"], "without models")


def published_weights():
    """Returns the bytes of the published slide encoder's matrices in float32, as a worker holds them."""
    encoder = SIZES["published"]
    dim = encoder["embed_dim"]
    layer = 4 * dim * dim + 2 * dim * encoder["ffn_dim"]
    return 4 * (encoder["layers"] * layer + encoder["input_dim"] * dim)


class Version(unittest.TestCase):
    def test_it_is_that_of_the_programs(self):
        (version,) = re.findall(r"^project\(.* VERSION ([0-9.]+) ",
                                (DEPLOY.parent / "CMakeLists.txt").read_text(), re.MULTILINE)
        chart = yaml.safe_load((DEPLOY / "helm/hilbert-ring/Chart.yaml").read_text())
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))
        # ./dev image sets the image's version.
        self.assertIn("ARG VERSION=unknown\n", (DEPLOY.parent / "Dockerfile").read_text())


class Compose(unittest.TestCase):
    def setUp(self):
        self.services = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"]

    def test_every_setting_is_known(self):
        for name in ("coordinator", "worker"):
            service = self.services[name]
            words = service["command"]
            if words[0] == "sh":
                words = [word for word in shlex.split(words[-1]) if word != "exec"]
            self.assertEqual(FLAGS.unknown(words), [], name)

    def test_every_variable_is_known(self):
        for name in ("coordinator", "worker"):
            self.assertEqual(FLAGS.unknown([f"hilbert-ring-{name}"],
                                           self.services[name]["environment"]), [], name)

    def test_what_is_mounted_is_there(self):
        for service in self.services.values():
            for volume in service.get("volumes", []):
                source = re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", volume).split(":")[0]
                if source.startswith("."):
                    self.assertTrue((DEPLOY / "compose" / source).is_dir(), volume)

    def test_both_processes_see_the_same_models_and_files(self):
        for name in ("coordinator", "worker"):
            service = self.services[name]
            models, data = service["volumes"]
            self.assertTrue(models.endswith(f":{service['environment']['HILBERT_RING_MODEL_DIR']}:ro"), models)
            self.assertTrue(data.endswith(":/data-root"), data)
            self.assertEqual(service["environment"]["HILBERT_RING_DATA_ROOT"], "${HILBERT_RING_DATA:+/data-root}")

    def mounted(self, service):
        """Returns the repository's folders by their mount points in a service."""
        volumes = (volume.split(":") for volume in self.services[service]["volumes"])
        return {volume[1]: (DEPLOY / "compose" / volume[0]).resolve() for volume in volumes
                if volume[0].startswith(".")}

    def test_grafana_finds_its_provisioning_and_the_dashboard(self):
        mounted = self.mounted("grafana")
        provisioning = mounted["/etc/grafana/provisioning"]
        (provider,) = yaml.safe_load((provisioning / "dashboards/hilbert-ring.yml").read_text())["providers"]
        self.assertEqual(provider["type"], "file")
        folder = mounted[provider["options"]["path"]]
        self.assertEqual([path.name for path in folder.iterdir()], ["hilbert-ring.json"])

    def test_the_dashboard_uses_the_provisioned_data_source(self):
        mounted = self.mounted("grafana")
        (source,) = yaml.safe_load(
            (mounted["/etc/grafana/provisioning"] / "datasources/prometheus.yml").read_text())["datasources"]
        host, port = re.fullmatch(r"http://([a-z]+):(\d+)", source["url"]).groups()
        self.assertIn(f"127.0.0.1:{port}:{port}", self.services[host]["ports"])
        self.assertTrue(source["isDefault"], "a variable of a data source begins with the default")
        dashboard = json.loads((mounted["/var/lib/grafana/dashboards"] / "hilbert-ring.json").read_text())
        variables = {"${%s}" % variable["name"]: variable["query"]
                     for variable in dashboard["templating"]["list"] if variable["type"] == "datasource"}
        asking = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
        self.assertGreater(len(asking), 20)
        for panel in asking:
            for asked in [panel["datasource"], *(target["datasource"] for target in panel["targets"]
                                                 if "datasource" in target)]:
                self.assertEqual(asked["type"], source["type"], panel["title"])
                self.assertEqual(variables.get(asked["uid"]), source["type"], panel["title"])

    def test_jobs_have_time_to_end(self):
        for name in ("coordinator", "worker"):
            grace = self.services[name]["stop_grace_period"]
            drains = float(FLAGS.default(f"hilbert-ring-{name}", "exit-timeout"))
            self.assertGreaterEqual(int(grace.removesuffix("s")), drains + 10, name)

    def test_no_port_is_a_networks(self):
        for service in self.services.values():
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), port)


if __name__ == "__main__":
    unittest.main()

"""The manifests and the compose file fit the programs, and fit together."""
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

from bounded_memory import NotPermitted, run_with_memory
from program_flags import ProgramFlags

SOURCE = Path(os.environ["HILBERT_RING_SOURCE"])
sys.path.insert(0, str(SOURCE / "bench"))
from published_encoder import SIZES  # noqa: E402

DEPLOY = SOURCE / "deploy"
FLAGS = ProgramFlags(Path(os.environ["HILBERT_RING_BUILD"]) / "bin")


def objects():
    text = (DEPLOY / "kustomize/base/hilbert-ring.yaml").read_text()
    return {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text)}


class Manifests(unittest.TestCase):
    def setUp(self):
        self.objects = objects()
        self.pods = {
            component: self.objects[kind, f"hilbert-ring-{component}"]["spec"]["template"]
            for kind, component in (("Deployment", "coordinator"), ("StatefulSet", "worker"))}

    def container(self, component):
        (container,) = self.pods[component]["spec"]["containers"]
        return container

    def of_kind(self, kind):
        return [o for (k, _), o in self.objects.items() if k == kind]

    def selected(self, selector):
        """The one component whose pods have these labels."""
        found = [component for component, pod in self.pods.items()
                 if selector.items() <= pod["metadata"]["labels"].items()]
        self.assertEqual(len(found), 1, selector)
        return found[0]

    def port_names(self, component):
        return {port["name"] for port in self.container(component)["ports"]}

    def test_every_setting_is_known(self):
        for component in self.pods:
            container = self.container(component)
            self.assertEqual(FLAGS.unknown(container["command"]), [])

    def test_every_variable_is_known(self):
        for component in self.pods:
            container = self.container(component)
            names = [variable["name"] for variable in container.get("env", [])]
            self.assertEqual(FLAGS.unknown(container["command"][:1], names), [])

    def test_jobs_have_time_to_end(self):
        for component, pod in self.pods.items():
            (exit_timeout,) = [int(word.split("=")[1])
                               for word in self.container(component)["command"]
                               if word.startswith("--exit-timeout=")]
            self.assertGreaterEqual(pod["spec"]["terminationGracePeriodSeconds"],
                                    exit_timeout + 30)

    def test_workers_leave_one_by_one_and_the_coordinator_is_one(self):
        worker = self.objects["StatefulSet", "hilbert-ring-worker"]["spec"]
        self.assertEqual(worker["updateStrategy"], {"type": "RollingUpdate"})
        coordinator = self.objects["Deployment", "hilbert-ring-coordinator"]["spec"]
        self.assertEqual((coordinator["replicas"], coordinator["strategy"]),
                         (1, {"type": "Recreate"}))
        budgets = {self.selected(o["spec"]["selector"]["matchLabels"]): o["spec"]["maxUnavailable"]
                   for o in self.of_kind("PodDisruptionBudget")}
        self.assertEqual(budgets, {"coordinator": 1, "worker": 1})

    def test_selectors_find_pods_and_ports_have_names(self):
        for service in self.of_kind("Service"):
            component = self.selected(service["spec"]["selector"])
            for port in service["spec"]["ports"]:
                self.assertIn(port["targetPort"], self.port_names(component))
        for component in self.pods:
            for probe in ("readinessProbe", "livenessProbe"):
                for what in self.container(component)[probe].values():
                    if isinstance(what, dict) and "port" in what:
                        self.assertIn(what["port"], self.port_names(component))

    def test_workers_find_a_coordinator_that_is_not_ready_yet(self):
        (address,) = [word.split("=")[1] for word in self.container("worker")["command"]
                      if word.startswith("--coordinator=")]
        name, port = address.split(":")
        service = self.objects["Service", name]["spec"]
        self.assertTrue(service["publishNotReadyAddresses"])
        self.assertEqual(self.selected(service["selector"]), "coordinator")
        self.assertIn(int(port), [p["port"] for p in service["ports"]])

    def test_who_may_reach_which_port(self):
        allowed = {}
        for policy in self.of_kind("NetworkPolicy"):
            target = self.selected(policy["spec"]["podSelector"]["matchLabels"])
            for rule in policy["spec"]["ingress"]:
                for port in rule["ports"]:
                    if "endPort" not in port:
                        self.assertIn(port["port"], self.port_names(target))
                    allowed[target, port["port"]] = [
                        self.selected(peer["podSelector"]["matchLabels"])
                        for peer in rule.get("from", [])]
        self.assertEqual(allowed, {
            ("coordinator", "grpc"): [], ("coordinator", "membership"): ["worker"],
            ("worker", "worker"): ["coordinator"], ("worker", 32768): ["worker"]})

    def test_processes_have_no_rights(self):
        for component, pod in self.pods.items():
            self.assertTrue(pod["spec"]["securityContext"]["runAsNonRoot"])
            self.assertFalse(pod["spec"]["automountServiceAccountToken"])
            self.assertIs(pod["spec"]["enableServiceLinks"], False, "Services set no variables")
            self.assertEqual(self.container(component)["securityContext"], {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]}})

    def test_what_is_mounted_is_there(self):
        for component, pod in self.pods.items():
            volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
            mounts = {mount["name"]: mount["mountPath"]
                      for mount in self.container(component)["volumeMounts"]}
            self.assertEqual(volumes, set(mounts))
            for word in self.container(component)["command"]:
                path = word.split("=")[-1]
                if path.startswith("/"):
                    self.assertTrue(any(path.startswith(f"{at}/") for at in mounts.values()), word)


def size(text):
    """Bytes of "4g", "8Gi", "384MiB", and of the default in "${VARIABLE:-4g}"."""
    number, unit = re.fullmatch(r"(?:\$\{[A-Z_]+:-)?(\d+)([kmg])(?:ib?)?\}?", text, re.IGNORECASE).groups()
    return int(number) << {"k": 10, "m": 20, "g": 30}[unit.lower()]


class Memory(unittest.TestCase):
    """What may be taken by default fits into the limits of the containers."""
    # Of a worker: its port's messages, and what is no bound's.
    TRANSPORT, PROCESS = 512 << 20, 128 << 20

    def setUp(self):
        self.compose = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"]
        self.limits = {("compose", name): size(service["deploy"]["resources"]["limits"]["memory"])
                       for name, service in self.compose.items() if "deploy" in service}
        self.values = yaml.safe_load((DEPLOY / "helm/hilbert-ring/values.yaml").read_text())
        for name in ("coordinator", "worker"):
            self.limits["chart", name] = size(self.values[name]["resources"]["limits"]["memory"])

    def test_a_coordinators_bounds(self):
        for kind in ("compose", "chart"):
            limit = self.limits[kind, "coordinator"]
            try:
                code, said = run_with_memory(limit, FLAGS.path("hilbert-ring-coordinator"))
                self.assertEqual(code, 0, said)
                bounded, usable = map(int, re.search(r"memory is bounded to (\d+) MiB of the (\d+)", said).groups())
                self.assertEqual(usable, limit >> 20)
                self.assertTrue(limit * 0.98 <= bounded << 20 <= limit, said)
                # A stream's two epochs fit into a caller's half.
                bounds = {name: int(mib) for name, mib in re.findall(r"(--[a-z-]+)=(\d+)MiB", said)}
                self.assertGreater(bounds["--stream-memory"], 4 * bounds["--stream-epoch-memory"] - 4)
                code, said = run_with_memory(limit, FLAGS.path("hilbert-ring-coordinator"), f"--stream-memory={limit}")
                self.assertEqual(code, 2, said)
                self.assertRegex(said, f"memory of --stream-memory is {limit} bytes, must be at most [0-9]+ of the {limit} ")
            except NotPermitted as why:
                self.skipTest(str(why))

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
    """Bytes of the published slide encoder's weights as a worker holds them, in float32: its matrices."""
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
        # The image is told by ./dev image.
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
                # "${VARIABLE:-default}" is its default.
                source = re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", volume).split(":")[0]
                if source.startswith("."):
                    self.assertTrue((DEPLOY / "compose" / source).is_dir(), volume)

    def test_both_processes_read_the_same_models_and_nothing_writes_them(self):
        for name in ("coordinator", "worker"):
            service = self.services[name]
            models, _ = service["volumes"]
            self.assertTrue(
                models.endswith(f":{service['environment']['HILBERT_RING_MODEL_DIR']}:ro"), models)

    def test_both_processes_write_the_same_files_where_a_folder_is_named(self):
        for name in ("coordinator", "worker"):
            service = self.services[name]
            _, data = service["volumes"]
            self.assertTrue(data.endswith(":/data-root"), data)
            self.assertEqual(service["environment"]["HILBERT_RING_DATA_ROOT"],
                             "${HILBERT_RING_DATA:+/data-root}")

    def test_prometheus_asks_the_coordinator(self):
        config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
        targets = [target for job in config["scrape_configs"]
                   for group in job.get("static_configs", []) for target in group["targets"]]
        self.assertEqual(targets, ["coordinator:8002"])

    def mounted(self, service):
        """Folders of the repository by where the service has them."""
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

    def test_the_dashboard_asks_the_data_source_that_is_provisioned(self):
        mounted = self.mounted("grafana")
        (source,) = yaml.safe_load(
            (mounted["/etc/grafana/provisioning"] / "datasources/prometheus.yml").read_text())["datasources"]
        host, port = re.fullmatch(r"http://([a-z]+):(\d+)", source["url"]).groups()
        self.assertIn(f"127.0.0.1:{port}:{port}", self.services[host]["ports"])
        self.assertTrue(source["isDefault"], "what a variable of a data source begins with")
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

"""The chart's values are checked and documented, and its objects fit together and fit the programs, with any names.

Tests that render are skipped if tools/chart_render/render has neither helm nor the means to build its own renderer.
"""
import copy
import json
import math
import os
import re
import tempfile
import unittest
from pathlib import Path

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    raise SystemExit(77)

from chart import CHART, COMPONENTS, EVERYTHING, SOURCE, container, pod, render, rendered
from program_flags import ProgramFlags
from prometheus_tools import needs, promtool

FLAGS = ProgramFlags(Path(os.environ["HILBERT_RING_BUILD"]) / "bin")


def leaves(values, prefix=""):
    """Yields the paths of the values that a user may set."""
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in ("resources", "ringPorts", "labels"):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


class Values(unittest.TestCase):
    def test_every_value_is_documented_and_of_the_schema(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        documented = set(re.findall(r"^\| `([A-Za-z.]+)`", (CHART / "README.md").read_text(), re.MULTILINE))
        self.assertEqual(documented, set(leaves(values)))
        schema = json.loads((CHART / "values.schema.json").read_text())
        for path in documented:
            at = schema
            for key in path.split("."):
                self.assertFalse(at["additionalProperties"], f"{path} may be misspelt")
                self.assertIn(key, at["properties"], path)
                at = at["properties"][key]

    def test_a_coordinator_with_nothing_open_is_not_insecure(self):
        self.assertNotIn("env", container(render(EVERYTHING), "coordinator"))
        for key, value in (("tls", "enabled"), ("tls", "betweenProcesses"), ("auth", "enabled")):
            values = {**EVERYTHING, key: {**EVERYTHING[key], value: False}}
            self.assertEqual([v["name"] for v in container(render(values), "coordinator")["env"]],
                             ["HILBERT_RING_INSECURE"], f"without {key}.{value}")
        callers = {**EVERYTHING, "auth": {"enabled": False},
                   "tls": {**EVERYTHING["tls"], "callersNeedCertificate": True}}
        self.assertNotIn("env", container(render(callers), "coordinator"))

    def test_every_setting_is_known(self):
        for values in ({}, {**EVERYTHING, "tls": {**EVERYTHING["tls"], "callersNeedCertificate": True}}):
            objects = render(values)
            for _, component in COMPONENTS:
                found = container(objects, component)
                names = [variable["name"] for variable in found.get("env", [])]
                self.assertEqual(FLAGS.unknown(found["command"], names), [], component)

    def test_workers_figures_are_guarded_as_the_coordinators(self):
        scraped = {**EVERYTHING, "podMonitor": {"enabled": True, "tokenSecretName": "reader"}}
        for between, name in ((True, "hilbert-ring-worker"), (False, "hilbert-ring")):
            objects = render({**scraped, "tls": {"enabled": True, "betweenProcesses": between}})
            (coordinator,), (worker,) = (
                objects["PodMonitor", f"hilbert-ring-{component}"]["spec"]["podMetricsEndpoints"]
                for component in ("coordinator", "worker"))
            for key in ("authorization", "scheme"):
                self.assertEqual(worker[key], coordinator[key])
            self.assertEqual(worker["authorization"]["credentials"], {"name": "reader", "key": "token"})
            self.assertEqual(worker["tlsConfig"]["serverName"], name)
            command = container(objects, "worker")["command"]
            self.assertIn("--auth-token-file=/etc/hilbert-ring/auth/tokens", command)
            # HTTP shows the certificate of all ports, or a certificate of its own.
            shown = [word.split("=")[0] for word in command if word.endswith("tls.crt")]
            self.assertEqual(shown, ["--tls-cert" if between else "--http-tls-cert"])

    def test_workers_need_not_see_the_tokens_of_callers(self):
        def secrets(auth):
            objects = render({"auth": auth})
            return [volume["secret"]["secretName"] for component in ("worker", "coordinator")
                    for volume in pod(objects, component)["volumes"] if volume["name"] == "auth"]

        one = {"enabled": True, "secretName": "all"}
        self.assertEqual(secrets(one), ["all", "all"])
        self.assertEqual(secrets({**one, "workersSecretName": "readers"}), ["readers", "all"])

    def test_gpus_are_asked_for_and_used(self):
        worker = container(render(EVERYTHING), "worker")
        self.assertEqual(worker["resources"]["limits"], {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"})
        self.assertIn("--device=cuda:0", worker["command"])
        self.assertEqual(worker["command"][-1], "--attention-kernel=native")

    def test_both_processes_mount_a_claim_of_models_and_one_of_files(self):
        models = {"claimName": "shelf", "subPath": "slides", "memory": "3GiB", "jobsShare": 0.25}
        of_worker = {"models": ["--model-memory=3GiB", "--memory-share=0.25"]}
        plain = render()
        for key, name, given, read_only in (
                ("models", "models", models, {"readOnly": True}),
                ("dataRoot", "data-root", {"claimName": "shelf", "subPath": "slides"}, {})):
            objects = render({key: given})
            for _, component in COMPONENTS:
                own = of_worker.get(key, []) if component == "worker" else []
                found, without = (container(of, component) for of in (objects, plain))
                flag = f"--{'model-dir' if key == 'models' else name}=/{name}"
                self.assertEqual([word for word in found["command"] if word not in without["command"]], [flag, *own])
                self.assertEqual([at for at in found["volumeMounts"] if at not in without["volumeMounts"]],
                                 [{"name": name, "mountPath": f"/{name}", **read_only, "subPath": "slides"}])
                self.assertIn({"name": name, "persistentVolumeClaim": {"claimName": "shelf", **read_only}},
                              pod(objects, component)["volumes"])

    def test_ports_open_to_named_peers(self):
        peers = [{"namespaceSelector": {"matchLabels": {"name": "named"}}}]
        named = {"networkPolicy": {"monitoring": peers, "callers": peers}}
        for values, monitoring, callers in (({}, [], [None]), (named, [peers], [peers])):
            objects = render(values)
            for component, port, expected in (("coordinator", "http", monitoring), ("worker", "metrics", monitoring),
                                              ("coordinator", "grpc", callers)):
                policy = objects["NetworkPolicy", f"hilbert-ring-{component}"]["spec"]
                rules = [rule for rule in policy["ingress"] if rule["ports"] == [{"port": port}]]
                self.assertEqual([rule.get("from") for rule in rules], expected)
        code, _, errors = rendered({"podMonitor": {"enabled": True}})
        self.assertNotEqual(code, 0)
        self.assertIn("networkPolicy.monitoring", errors)

    def test_rules_and_dashboard_are_the_shipped_ones(self):
        objects = render({**EVERYTHING, "autoscaling": {"enabled": False}})
        rule = objects["PrometheusRule", "hilbert-ring"]
        self.assertEqual(rule["metadata"]["labels"]["release"], "prometheus")
        self.assertEqual(rule["spec"]["groups"], [
            group for name in ("recording", "alerts")
            for group in yaml.safe_load((SOURCE / f"deploy/prometheus/rules/{name}.yml").read_text())["groups"]])
        dashboard = objects["ConfigMap", "hilbert-ring-dashboard"]
        self.assertEqual(json.loads(dashboard["data"]["hilbert-ring.json"]),
                         json.loads((SOURCE / "deploy/grafana/dashboards/hilbert-ring.json").read_text()))

    def test_the_service_is_clear_text_to_proxies_without_tls_alone(self):
        for tls, expected in ((False, "kubernetes.io/h2c"), (True, None)):
            ports = render({"tls": {"enabled": tls}})["Service", "hilbert-ring"]["spec"]["ports"]
            (grpc,) = [port for port in ports if port["name"] == "grpc"]
            self.assertEqual(grpc.get("appProtocol"), expected)

    def test_only_the_autoscaler_sets_replicas(self):
        objects = render(EVERYTHING)
        self.assertNotIn("replicas", objects["StatefulSet", "hilbert-ring-worker"]["spec"])
        scaler = objects["HorizontalPodAutoscaler", "hilbert-ring-worker"]["spec"]
        self.assertEqual(scaler["scaleTargetRef"], {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "hilbert-ring-worker"})

    @needs("promtool")
    def test_busy_workers_and_queued_jobs_set_replicas(self):
        # Keys: queuedPerWorker, then (busy workers, queued jobs); values: replicas.
        for jobs, replicas in {2: {(8, 4): 10, (8, 0): 8, (0, 3): 2, (0, 0): 0}, 4: {(8, 4): 9}}.items():
            objects = render({**EVERYTHING, "autoscaling": {"enabled": True, "queuedPerWorker": jobs}})
            group = objects["PrometheusRule", "hilbert-ring"]["spec"]["groups"][-1]
            (metric,) = objects["HorizontalPodAutoscaler", "hilbert-ring-worker"]["spec"]["metrics"]
            scaler = metric["external"]
            self.assertEqual(scaler["target"], {"type": "AverageValue", "averageValue": "1"})
            queries = ['sum(%s{namespace="n"})' % scaler["metric"]["name"]]
            if jobs == 2:
                (keda,) = re.findall(r"```promql\n(.*)\n```", (CHART / "README.md").read_text())
                queries.append(keda.replace("NAMESPACE", "n"))
            tests = []
            for (busy, queued), wanted in replicas.items():
                load = busy + queued / jobs
                self.assertEqual(math.ceil(load), wanted)
                tests.append({
                    "interval": "1m",
                    "input_series": [
                        {"series": '%s{namespace="n",pod="c"}' % name, "values": f"{value}x5"}
                        for name, value in (("hilbert_ring_workers_busy", busy), ("hilbert_ring_jobs_queued", queued))],
                    "promql_expr_test": [
                        {"expr": query, "eval_time": "3m", "exp_samples": [{"labels": "{}", "value": load}]}
                        for query in queries]})
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "rules.yml").write_text(json.dumps({"groups": [group]}))
                Path(folder, "tests.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": tests}))
                tested = promtool("test", "rules", f"{folder}/tests.yml")
            self.assertEqual(tested.returncode, 0, tested.stdout + tested.stderr)

    @needs("promtool")
    def test_prometheus_names_a_worker_as_the_coordinator_does(self):
        (endpoint,) = render(EVERYTHING)["PodMonitor", "hilbert-ring-worker"]["spec"]["podMetricsEndpoints"]
        names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
        addresses = {"10.0.0.1": "10.0.0.1:8101", "fd00::1": "[fd00::1]:8101"}
        job = {"job_name": "pods",
               "static_configs": [{"targets": ["pod:8102"], "labels": {"__meta_kubernetes_pod_ip": address}}
                                  for address in addresses],
               "relabel_configs": [{names.get(key, key): value for key, value in step.items()}
                                   for step in endpoint["relabelings"]]}
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            json.dump({"scrape_configs": [job]}, file)
            file.flush()
            found = promtool("check", "service-discovery", "--timeout=1s", file.name, "pods")
        self.assertEqual(found.returncode, 0, found.stderr)
        named = {target["discoveredLabels"]["__meta_kubernetes_pod_ip"]: target["labels"]["worker"]
                 for target in json.loads(found.stdout)}
        self.assertEqual(named, addresses)


class Objects(unittest.TestCase):
    """The default rendering."""

    def setUp(self):
        self.objects = render()
        self.pods = {component: self.objects[kind, f"hilbert-ring-{component}"]["spec"]["template"]
                     for kind, component in COMPONENTS}

    def container(self, component):
        return container(self.objects, component)

    def of_kind(self, kind):
        return [o for (k, _), o in self.objects.items() if k == kind]

    def selected(self, selector):
        """Returns the component whose pods have these labels."""
        (found,) = [component for component, found in self.pods.items()
                    if selector.items() <= found["metadata"]["labels"].items()]
        return found

    def port_names(self, component):
        return {port["name"] for port in self.container(component)["ports"]}

    def test_jobs_have_time_to_end(self):
        for component, found in self.pods.items():
            (exit_timeout,) = [int(word.split("=")[1]) for word in self.container(component)["command"]
                               if word.startswith("--exit-timeout=")]
            self.assertGreaterEqual(found["spec"]["terminationGracePeriodSeconds"], exit_timeout + 30)

    def test_workers_leave_one_by_one_and_the_coordinator_is_one(self):
        worker = self.objects["StatefulSet", "hilbert-ring-worker"]["spec"]
        self.assertEqual(worker["updateStrategy"], {"type": "RollingUpdate"})
        coordinator = self.objects["Deployment", "hilbert-ring-coordinator"]["spec"]
        self.assertEqual((coordinator["replicas"], coordinator["strategy"]), (1, {"type": "Recreate"}))
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
                        self.selected(peer["podSelector"]["matchLabels"]) for peer in rule.get("from", [])]
        self.assertEqual(allowed, {
            ("coordinator", "grpc"): [], ("coordinator", "membership"): ["worker"],
            ("worker", "worker"): ["coordinator"], ("worker", 32768): ["worker"]})

    def test_processes_have_no_rights(self):
        for component, found in self.pods.items():
            self.assertTrue(found["spec"]["securityContext"]["runAsNonRoot"])
            self.assertFalse(found["spec"]["automountServiceAccountToken"])
            self.assertIs(found["spec"]["enableServiceLinks"], False, "Services set no variables")
            self.assertEqual(self.container(component)["securityContext"], {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}})

    def test_what_is_mounted_is_there(self):
        for component, found in self.pods.items():
            volumes = {volume["name"] for volume in found["spec"]["volumes"]}
            mounts = {mount["name"]: mount["mountPath"] for mount in self.container(component)["volumeMounts"]}
            self.assertEqual(volumes, set(mounts))
            for word in self.container(component)["command"]:
                path = word.split("=")[-1]
                if path.startswith("/"):
                    self.assertTrue(any(path.startswith(f"{at}/") for at in mounts.values()), word)


SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
LONGEST_LABEL = 63
# Kubernetes labels a StatefulSet's pods with its name, "-" and a hash.
REVISION = "-" + 10 * "f"
READ_AS_OTHERS = ["1234", "true", "null", "1e3", "0x10", "1.5", "0o17"]
RELEASES = ["hilbert-ring", "ring", "a.b", "a-b", "9lives", 27 * "a", 28 * "a", 33 * "a", 53 * "a", 52 * "a" + "b",
            53 * "1", "hilbert-ring-" + 40 * "x", 30 * "a" + "--" + 9 * "b", 26 * "a." + "z", *READ_AS_OTHERS]


class Reader(yaml.CSafeLoader):
    """Reads the same words as numbers as Kubernetes' reader. PyYAML reads these as text."""


Reader.add_implicit_resolver("!number", re.compile(r"[-+]?[0-9]+e[-+]?[0-9]+$|0o[0-7]+$"), list("-+0123456789"))
Reader.add_constructor("!number", lambda _, node: ("a number", node.value))


def documents_of(values, *release):
    code, documents, errors = rendered(values, *release)
    if code != 0:
        raise AssertionError(errors)
    return [o for o in yaml.load_all(documents, Reader) if o]


def nodes(value, path=()):
    """Yields (path, value) of all nodes of a document."""
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from nodes(child, (*path, key))


def named(word):
    """Returns EVERYTHING with the word as every name that a user may give."""
    values = copy.deepcopy(EVERYTHING)
    values["image"] = {"repository": word, "tag": word, "pullSecrets": [{"name": word}]}
    values["joinToken"] = {"secretName": word}
    values["auth"].update(secretName=word, workersSecretName=word)
    values["tls"].update(secretName=word, workerName=word)
    values["podMonitor"].update(tokenSecretName=word, labels={"a": word})
    for claim in ("models", "dataRoot"):
        values[claim] = {"claimName": word, "subPath": word}
    for component in ("coordinator", "worker"):
        values.setdefault(component, {}).update(
            priorityClassName=word, annotations={"a": word}, nodeSelector={"a": word})
    values["worker"].update(runtimeClassName=word, gpuResource=word, topologySpread={"topologyKey": word})
    return values


def replaced(value, old, new):
    if isinstance(value, dict):
        return {replaced(key, old, new): replaced(child, old, new) for key, child in value.items()}
    if isinstance(value, list):
        return [replaced(child, old, new) for child in value]
    return value.replace(old, new) if isinstance(value, str) else value


class Names(unittest.TestCase):
    """Kubernetes accepts the names and labels with any name of the release and of its values."""

    def check_labels(self, labels):
        for key, value in labels.items():
            self.assertIsInstance(value, str, key)
            self.assertTrue(LABEL.fullmatch(value), value)
            self.assertLessEqual(len(value), LONGEST_LABEL)

    def check(self, documents):
        services = {document["metadata"]["name"] for document in documents if document["kind"] == "Service"}
        for document in documents:
            kind, name = document["kind"], document["metadata"]["name"]
            self.assertTrue((SERVICE if kind == "Service" else SUBDOMAIN).fullmatch(name), name)
            self.assertLessEqual(len(name + REVISION if kind == "StatefulSet" else name), LONGEST_LABEL, name)
            for path, value in nodes(document):
                if path and path[-1] in ("labels", "matchLabels") and isinstance(value, dict):
                    self.check_labels(value)
                if path and path[-1] == "serviceName":
                    self.assertIn(value, services)
        (address,) = {value for document in documents for _, value in nodes(document)
                      if isinstance(value, str) and value.startswith("--coordinator=")}
        self.assertIn(re.split("[=:]", address)[1], services)

    def test_kubernetes_takes_the_names_of_every_release(self):
        names = []
        for release in RELEASES:
            with self.subTest(release=release):
                documents = documents_of(EVERYTHING, release, "1234")
                self.check(documents)
                names += [o["metadata"]["name"] for o in documents if o["kind"] == "ServiceAccount"]
                (scaler,) = [o for o in documents if o["kind"] == "HorizontalPodAutoscaler"]
                self.assertEqual(scaler["spec"]["metrics"][0]["external"]["metric"]["selector"],
                                 {"matchLabels": {"namespace": "1234"}})
        self.assertEqual(len(set(names)), len(RELEASES), "each release has names of its own")
        self.assertEqual(names[:2], ["hilbert-ring", "ring-hilbert-ring"])

    def test_a_name_stays_text(self):
        word = "some-word"
        documents = documents_of(named(word))
        for odd in READ_AS_OTHERS:
            with self.subTest(odd=odd):
                self.assertEqual(documents_of(named(odd)), replaced(documents, word, odd))


if __name__ == "__main__":
    unittest.main()

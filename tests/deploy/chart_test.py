"""The chart: its default rendering is the kustomize base, its values are checked and documented.

Tests that render are skipped where tools/chart_render/render finds neither helm nor what it builds its own from.
"""
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    raise SystemExit(77)

from program_flags import ProgramFlags
from prometheus_tools import needs, promtool

SOURCE = Path(os.environ["HILBERT_RING_SOURCE"])
CHART = SOURCE / "deploy/helm/hilbert-ring"
BASE = SOURCE / "deploy/kustomize/base"
RENDER = SOURCE / "tools/chart_render/render"
NOT_THERE = 77

EVERYTHING = {
    "image": {"tag": "cuda", "pullSecrets": [{"name": "registry"}]},
    "tls": {"enabled": True, "betweenProcesses": True},
    "auth": {"enabled": True},
    "models": {"claimName": "models", "subPath": "of/slides"},
    "dataRoot": {"claimName": "tensors", "subPath": "of/jobs"},
    "worker": {"gpus": 1, "runtimeClassName": "nvidia", "priorityClassName": "high",
               "extraArgs": ["--attention-kernel=native"]},
    "networkPolicy": {"monitoring": [{"namespaceSelector": {}}]},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "grafanaDashboard": {"enabled": True},
    "autoscaling": {"enabled": True},
}


def rendered(values=None, *release):
    """The renderer's exit status, output and errors. `release` is a name, and a namespace."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values or {}, file)
        file.flush()
        done = subprocess.run([RENDER, file.name, *release], capture_output=True, text=True)
    if done.returncode == NOT_THERE:
        raise unittest.SkipTest(done.stderr.strip())
    return done.returncode, done.stdout, done.stderr


def render(values=None):
    """Objects of the chart."""
    code, documents, said = rendered(values)
    if code != 0:
        raise AssertionError(said)
    return by_name(documents)


def by_name(documents):
    """Objects by kind and name."""
    return {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(documents) if o}


def base():
    """The kustomize base."""
    return by_name((BASE / "hilbert-ring.yaml").read_text())


def leaves(values, prefix=""):
    """Paths of the values that a user may set."""
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in ("resources", "ringPorts", "labels"):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def container(objects, kind, name):
    (found,) = objects[kind, name]["spec"]["template"]["spec"]["containers"]
    return found


class Chart(unittest.TestCase):
    def test_the_kustomize_base_is_the_default_rendering(self):
        self.assertEqual(base(), render(), "./dev manifests writes it anew")

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_kustomize_takes_the_base(self):
        said = subprocess.run(["kubectl", "kustomize", BASE], capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(by_name(said.stdout), render())

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_the_documented_overlay_gives_image_and_secret(self):
        (overlay,) = re.findall(r"```yaml\n(.*?)```", (SOURCE / "docs/deploy.md").read_text(), re.DOTALL)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(BASE, Path(folder) / "base")
            mine = Path(folder) / "mine"
            mine.mkdir()
            (mine / "kustomization.yaml").write_text(overlay)
            (mine / "join-token").write_text("a-token-for-this-test-alone")
            said = subprocess.run(["kubectl", "kustomize", mine], capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        objects = by_name(said.stdout)
        (secret,) = [name for kind, name in objects if kind == "Secret"]
        for kind, name in (("Deployment", "hilbert-ring-coordinator"),
                           ("StatefulSet", "hilbert-ring-worker")):
            self.assertEqual(container(objects, kind, name)["image"], "REGISTRY/hilbert-ring:cpu")
            volumes = objects[kind, name]["spec"]["template"]["spec"]["volumes"]
            self.assertIn(secret, [volume.get("secret", {}).get("secretName") for volume in volumes])

    def test_every_value_is_documented_and_of_the_schema(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        documented = set(re.findall(r"^\| `([A-Za-z.]+)`", (CHART / "README.md").read_text(),
                                    re.MULTILINE))
        self.assertEqual(documented, set(leaves(values)))
        schema = json.loads((CHART / "values.schema.json").read_text())
        for path in documented:
            at = schema
            for key in path.split("."):
                self.assertFalse(at["additionalProperties"], f"{path} may be misspelt")
                self.assertIn(key, at["properties"], path)
                at = at["properties"][key]

    def test_a_coordinator_with_nothing_open_is_not_insecure(self):
        name = ("Deployment", "hilbert-ring-coordinator")
        self.assertNotIn("env", container(render(EVERYTHING), *name))
        for key, value in (("tls", "enabled"), ("tls", "betweenProcesses"), ("auth", "enabled")):
            values = {**EVERYTHING, key: {**EVERYTHING[key], value: False}}
            self.assertEqual([v["name"] for v in container(render(values), *name)["env"]],
                             ["HILBERT_RING_INSECURE"], f"without {key}.{value}")
        callers = {**EVERYTHING, "auth": {"enabled": False},
                   "tls": {**EVERYTHING["tls"], "callersNeedCertificate": True}}
        self.assertNotIn("env", container(render(callers), *name))

    def test_every_setting_is_known(self):
        flags = ProgramFlags(Path(os.environ["HILBERT_RING_BUILD"]) / "bin")
        callers = {**EVERYTHING, "tls": {**EVERYTHING["tls"], "callersNeedCertificate": True}}
        for kind, component in (("Deployment", "coordinator"), ("StatefulSet", "worker")):
            command = container(render(callers), kind, f"hilbert-ring-{component}")["command"]
            self.assertEqual(flags.unknown(command), [], component)

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
            command = container(objects, "StatefulSet", "hilbert-ring-worker")["command"]
            self.assertIn("--auth-token-file=/etc/hilbert-ring/auth/tokens", command)
            # HTTP shows one certificate: that of all ports, or one of its own.
            shown = [word.split("=")[0] for word in command if word.endswith("tls.crt")]
            self.assertEqual(shown, ["--tls-cert" if between else "--http-tls-cert"])
        (worker,) = render({**scraped, "tls": {"enabled": False}})[
            "PodMonitor", "hilbert-ring-worker"]["spec"]["podMetricsEndpoints"]
        self.assertNotIn("scheme", worker)

    def test_workers_need_not_see_the_tokens_of_callers(self):
        def secret_of(kind, name, auth):
            volumes = render({"auth": auth})[kind, name]["spec"]["template"]["spec"]["volumes"]
            return [volume["secret"]["secretName"] for volume in volumes if volume["name"] == "auth"]

        coordinator, worker = (("Deployment", "hilbert-ring-coordinator"),
                               ("StatefulSet", "hilbert-ring-worker"))
        one = {"enabled": True, "secretName": "all"}
        apart = {**one, "workersSecretName": "readers"}
        self.assertEqual([secret_of(*worker, one), secret_of(*coordinator, one)], [["all"], ["all"]])
        self.assertEqual([secret_of(*worker, apart), secret_of(*coordinator, apart)],
                         [["readers"], ["all"]])
        self.assertEqual(secret_of(*worker, {"enabled": False}), [])

    def test_gpus_are_asked_for_and_used(self):
        worker = container(render(EVERYTHING), "StatefulSet", "hilbert-ring-worker")
        self.assertEqual(worker["resources"]["limits"],
                         {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"})
        self.assertIn("--device=cuda:0", worker["command"])
        self.assertEqual(worker["command"][-1], "--attention-kernel=native")

    def test_both_processes_read_the_models_of_one_claim(self):
        models = {"claimName": "shelf", "subPath": "slides", "memory": "3GiB", "jobsShare": 0.25}
        objects = render({"models": models})
        for kind, component, own in (
                ("Deployment", "coordinator", []),
                ("StatefulSet", "worker", ["--model-memory=3GiB", "--memory-share=0.25"])):
            name = f"hilbert-ring-{component}"
            pod = container(objects, kind, name)
            without = container(render(), kind, name)
            self.assertEqual([word for word in pod["command"] if word not in without["command"]],
                             ["--model-dir=/models", *own])
            self.assertEqual([at for at in pod["volumeMounts"] if at not in without["volumeMounts"]],
                             [{"name": "models", "mountPath": "/models", "readOnly": True,
                               "subPath": "slides"}])
            volumes = objects[kind, name]["spec"]["template"]["spec"]["volumes"]
            self.assertIn({"name": "models", "persistentVolumeClaim": {
                "claimName": "shelf", "readOnly": True}}, volumes)

    def test_both_processes_write_the_files_of_one_claim(self):
        objects = render({"dataRoot": {"claimName": "shelf", "subPath": "jobs"}})
        for kind, component in (("Deployment", "coordinator"), ("StatefulSet", "worker")):
            name = f"hilbert-ring-{component}"
            pod, without = (container(of, kind, name) for of in (objects, render()))
            self.assertEqual([word for word in pod["command"] if word not in without["command"]],
                             ["--data-root=/data-root"])
            self.assertEqual([at for at in pod["volumeMounts"] if at not in without["volumeMounts"]],
                             [{"name": "data-root", "mountPath": "/data-root", "subPath": "jobs"}])
            volumes = objects[kind, name]["spec"]["template"]["spec"]["volumes"]
            self.assertIn({"name": "data-root", "persistentVolumeClaim": {"claimName": "shelf"}}, volumes)

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_components_give_what_the_chart_gives(self):
        values = {"models": {"models": {"claimName": "hilbert-ring-models"}},
                  "data-root": {"dataRoot": {"claimName": "hilbert-ring-data-root"}}}
        for components in (["models"], ["data-root"], ["models", "data-root"]):
            with tempfile.TemporaryDirectory() as folder:
                for part in ("base", *components):
                    shutil.copytree(BASE.parent / part, Path(folder) / part)
                mine = Path(folder) / "mine"
                mine.mkdir()
                (mine / "kustomization.yaml").write_text(yaml.safe_dump({
                    "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
                    "resources": ["../base"], "components": [f"../{part}" for part in components]}))
                said = subprocess.run(["kubectl", "kustomize", mine], capture_output=True, text=True)
            self.assertEqual(said.returncode, 0, said.stderr)
            chosen = {key: value for part in components for key, value in values[part].items()}
            self.assertEqual(by_name(said.stdout), render(chosen))

    def test_groups_over_several_nodes(self):
        objects = render({"worker": {"kind": "LeaderWorkerSet", "groupSize": 4}})
        group = objects["LeaderWorkerSet", "hilbert-ring-worker"]["spec"]["leaderWorkerTemplate"]
        self.assertEqual(group["size"], 4)
        stateful = render()["StatefulSet", "hilbert-ring-worker"]["spec"]["template"]
        self.assertEqual(group["workerTemplate"], stateful)
        self.assertNotIn(("StatefulSet", "hilbert-ring-worker"), objects)

    def test_nobody_reads_metrics_who_is_not_named(self):
        monitoring = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
        for values, expected in (({}, None), ({"networkPolicy": {"monitoring": monitoring}}, monitoring)):
            objects = render(values)
            for component, port in (("coordinator", "http"), ("worker", "metrics")):
                policy = objects["NetworkPolicy", f"hilbert-ring-{component}"]["spec"]
                rules = [rule for rule in policy["ingress"] if rule["ports"] == [{"port": port}]]
                self.assertEqual([rule["from"] for rule in rules], [expected] if expected else [])
        code, _, said = rendered({"podMonitor": {"enabled": True}})
        self.assertNotEqual(code, 0)
        self.assertIn("networkPolicy.monitoring", said)

    def test_rules_and_dashboard_are_the_shipped_ones(self):
        self.assertFalse({"PrometheusRule", "ConfigMap"} & {kind for kind, _ in render()})
        objects = render({**EVERYTHING, "autoscaling": {"enabled": False}})
        rule = objects["PrometheusRule", "hilbert-ring"]
        self.assertEqual(rule["metadata"]["labels"]["release"], "prometheus")
        self.assertEqual(rule["spec"]["groups"], [
            group for name in ("recording", "alerts")
            for group in yaml.safe_load((SOURCE / f"deploy/prometheus/rules/{name}.yml").read_text())["groups"]])
        dashboard = objects["ConfigMap", "hilbert-ring-dashboard"]
        self.assertEqual(dashboard["metadata"]["labels"]["grafana_dashboard"], "1")
        self.assertEqual(json.loads(dashboard["data"]["hilbert-ring.json"]),
                         json.loads((SOURCE / "deploy/grafana/dashboards/hilbert-ring.json").read_text()))

    def test_both_processes_log_as_they_are_told(self):
        for given, expected in ((None, "text"), ("json", "json")):
            objects = render({"logFormat": given} if given else {})
            for kind, component in (("Deployment", "coordinator"), ("StatefulSet", "worker")):
                command = container(objects, kind, f"hilbert-ring-{component}")["command"]
                self.assertIn(f"--log-format={expected}", command)

    def test_callers_are_those_that_are_named(self):
        callers = [{"podSelector": {"matchLabels": {"app": "caller"}}}]
        for values, expected in (({}, None), ({"networkPolicy": {"callers": callers}}, callers)):
            policy = render(values)["NetworkPolicy", "hilbert-ring-coordinator"]["spec"]
            (rule,) = [rule for rule in policy["ingress"] if rule["ports"] == [{"port": "grpc"}]]
            self.assertEqual(rule.get("from"), expected)

    def test_the_service_is_clear_text_to_proxies_without_tls_alone(self):
        for tls, expected in ((False, "kubernetes.io/h2c"), (True, None)):
            ports = render({"tls": {"enabled": tls}})["Service", "hilbert-ring"]["spec"]["ports"]
            (grpc,) = [port for port in ports if port["name"] == "grpc"]
            self.assertEqual(grpc.get("appProtocol"), expected)

    def test_the_autoscaler_alone_says_how_many(self):
        objects = render(EVERYTHING)
        self.assertNotIn("replicas", objects["StatefulSet", "hilbert-ring-worker"]["spec"])
        scaler = objects["HorizontalPodAutoscaler", "hilbert-ring-worker"]["spec"]
        self.assertEqual(scaler["scaleTargetRef"], {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "hilbert-ring-worker"})

    @needs("promtool")
    def test_busy_workers_and_queued_jobs_say_how_many(self):
        # Jobs a worker, workers a replica: replicas by busy workers and queued jobs.
        cases = {(2, 1): {(8, 4): 10, (8, 0): 8, (7, 1): 8, (0, 3): 2, (0, 0): 0}, (4, 1): {(8, 4): 9},
                 (2, 4): {(8, 4): 3, (8, 0): 2}}
        for (jobs, workers), replicas in cases.items():
            kind = "StatefulSet" if workers == 1 else "LeaderWorkerSet"
            objects = render({**EVERYTHING, "autoscaling": {"enabled": True, "queuedPerWorker": jobs},
                              "worker": {"kind": kind, "groupSize": workers}})
            group = objects["PrometheusRule", "hilbert-ring"]["spec"]["groups"][-1]
            (metric,) = objects["HorizontalPodAutoscaler", "hilbert-ring-worker"]["spec"]["metrics"]
            scaler = metric["external"]
            self.assertEqual(scaler["target"]["type"], "AverageValue")
            queries = ['sum(%s{namespace="n"})' % scaler["metric"]["name"]]
            if (jobs, workers) == (2, 1):
                (keda,) = re.findall(r"```promql\n(.*)\n```", (CHART / "README.md").read_text())
                queries.append(keda.replace("NAMESPACE", "n"))
            tests = []
            for (busy, queued), wanted in replicas.items():
                load = busy + queued / jobs
                self.assertEqual(math.ceil(load / int(scaler["target"]["averageValue"])), wanted)
                tests.append({
                    "interval": "1m",
                    "input_series": [
                        {"series": '%s{namespace="n",pod="c"}' % name, "values": f"{value}x5"}
                        for name, value in (("hilbert_ring_workers_busy", busy),
                                            ("hilbert_ring_jobs_queued", queued))],
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
        addresses = {"10.0.0.1": "10.0.0.1:8101", "fd00::1": "[fd00::1]:8101",
                     "2001:db8:1:2:3:4:5:6": "[2001:db8:1:2:3:4:5:6]:8101"}
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


if __name__ == "__main__":
    unittest.main()

"""The chart: its default rendering is the kustomize base, its values are checked and documented.

With helm where it is installed, else with tools/chart_render, which ./dev manifests builds. Exit code
77: neither is there.
"""
import json
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

SOURCE = Path(os.environ["HILBERT_RING_SOURCE"])
CHART = SOURCE / "deploy/helm/hilbert-ring"
BASE = SOURCE / "deploy/kustomize/base"
RENDERER = SOURCE / "build/chart_render"

EVERYTHING = {
    "image": {"tag": "cuda", "pullSecrets": [{"name": "registry"}]},
    "tls": {"enabled": True, "betweenProcesses": True},
    "auth": {"enabled": True},
    "worker": {"gpus": 1, "runtimeClassName": "nvidia", "priorityClassName": "high",
               "extraArgs": ["--attention-kernel=native"]},
    "podMonitor": {"enabled": True},
    "autoscaling": {"enabled": True},
}


def render(values=None):
    """Objects of the chart by kind and name."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values or {}, file)
        file.flush()
        if shutil.which("helm"):
            command = ["helm", "template", "hilbert-ring", CHART, "--values", file.name]
        else:
            command = [RENDERER, "-values", file.name, CHART]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    found = [o for o in yaml.safe_load_all(done.stdout) if o]
    return {(o["kind"], o["metadata"]["name"]): o for o in found}


def leaves(values, prefix=""):
    """Paths of the values that a user may set."""
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in ("resources", "ringPorts"):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def container(objects, kind, name):
    (found,) = objects[kind, name]["spec"]["template"]["spec"]["containers"]
    return found


class Chart(unittest.TestCase):
    def test_the_kustomize_base_is_the_default_rendering(self):
        text = (BASE / "hilbert-ring.yaml").read_text()
        base = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text)}
        self.assertEqual(base, render(), "./dev manifests writes it anew")

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_kustomize_takes_the_base(self):
        said = subprocess.run(["kubectl", "kustomize", BASE], capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        built = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(said.stdout)}
        self.assertEqual(built, render())

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

    def test_gpus_are_asked_for_and_used(self):
        worker = container(render(EVERYTHING), "StatefulSet", "hilbert-ring-worker")
        self.assertEqual(worker["resources"]["limits"],
                         {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"})
        self.assertIn("--device=cuda:0", worker["command"])
        self.assertEqual(worker["command"][-1], "--attention-kernel=native")

    def test_groups_over_several_nodes(self):
        objects = render({"worker": {"kind": "LeaderWorkerSet", "groupSize": 4}})
        group = objects["LeaderWorkerSet", "hilbert-ring-worker"]["spec"]["leaderWorkerTemplate"]
        self.assertEqual(group["size"], 4)
        stateful = render()["StatefulSet", "hilbert-ring-worker"]["spec"]["template"]
        self.assertEqual(group["workerTemplate"], stateful)
        self.assertNotIn(("StatefulSet", "hilbert-ring-worker"), objects)

    def test_the_autoscaler_alone_says_how_many(self):
        objects = render(EVERYTHING)
        self.assertNotIn("replicas", objects["StatefulSet", "hilbert-ring-worker"]["spec"])
        scaler = objects["HorizontalPodAutoscaler", "hilbert-ring-worker"]["spec"]
        self.assertEqual(scaler["scaleTargetRef"], {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "hilbert-ring-worker"})


if __name__ == "__main__":
    if not shutil.which("helm") and not RENDERER.exists():
        print("skipped: neither helm is here nor tools/chart_render built (./dev manifests)")
        raise SystemExit(77)
    unittest.main()

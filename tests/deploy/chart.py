"""Renders the chart with tools/chart_render/render."""
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import yaml

SOURCE = Path(__file__).resolve().parents[2]
CHART = SOURCE / "deploy/helm/hilbert-ring"
NOT_THERE = 77
COMPONENTS = (("Deployment", "coordinator"), ("StatefulSet", "worker"))

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
    """Returns the renderer's exit status, output and errors. release: a name, and a namespace."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values or {}, file)
        file.flush()
        done = subprocess.run([SOURCE / "tools/chart_render/render", file.name, *release], capture_output=True,
                              text=True)
    if done.returncode == NOT_THERE:
        raise unittest.SkipTest(done.stderr.strip())
    return done.returncode, done.stdout, done.stderr


def render(values=None):
    """Returns the chart's objects by kind and name."""
    code, documents, errors = rendered(values)
    if code != 0:
        raise AssertionError(errors)
    return {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(documents) if o}


def pod(objects, component):
    return objects[dict(map(reversed, COMPONENTS))[component], f"hilbert-ring-{component}"]["spec"]["template"]["spec"]


def container(objects, component):
    (found,) = pod(objects, component)["containers"]
    return found

"""Checks renderings of the chart, with many settings, against Kubernetes' own schemas, without a cluster.

    ./dev manifests --check

The schemas come from kubernetes-validate. Kinds outside of Kubernetes are printed and skipped. values.schema.json must
refuse wrong values.
"""
import copy
import json

import jsonschema
import kubernetes_validate
import yaml

from chart import CHART, EVERYTHING, render

# The oldest version of Chart.yaml, and the current one.
VERSIONS = ("1.27", "1.37")
OTHERS = {"PodMonitor", "PrometheusRule"}
SETTINGS = {
    "defaults": {},
    "everything": EVERYTHING,
    "placed": {part: {"nodeSelector": {"pool": "gpu"}, "annotations": {"a": "b"},
                      "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                      "affinity": {"nodeAffinity": {}}} for part in ("coordinator", "worker")},
    "closed": {"networkPolicy": {
        "callers": [{"podSelector": {}}],
        "monitoring": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]}},
    "bare": {"networkPolicy": {"enabled": False}, "podDisruptionBudget": {"enabled": False},
             "worker": {"topologySpread": {"enabled": False}}},
}
WRONG = [
    {"wokrer": {}},
    {"worker": {"replica": 3}},
    {"worker": {"gpus": 2}},
    {"coordinator": {"exitTimeoutSeconds": 0}},
    {"coordinator": {"extraArgs": ["max-queue=1"]}},
    {"tls": {"enabled": "yes"}},
    {"logFormat": "yaml"},
    {"grafanaDashboard": {"labels": {"grafana_dashboard": 1}}},
    {"models": {"subPath": "/etc"}},
    {"models": {"memory": "1Gi"}},
    {"models": {"jobsShare": 0}},
    {"dataRoot": {"subPath": "/etc"}},
    {"dataRoot": {"claimName": "Not A Name"}},
    {"autoscaling": {"metricName": "not-a-metric"}},
    {"autoscaling": {"metricName": "hilbert_ring_workers_busy"}},
    {"autoscaling": {"metricName": "hilbert_ring_jobs_queued"}},
]


def merged(base, over):
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            merged(base[key], value)
        else:
            base[key] = value
    return base


def main():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    checked, passed_over = 0, set()
    for name, settings in SETTINGS.items():
        jsonschema.validate(merged(copy.deepcopy(values), settings), schema)
        for (kind, _), document in render(settings).items():
            if kind in OTHERS:
                passed_over.add(kind)
                continue
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)
                checked += 1
        print(f"{name}: valid")
    for settings in WRONG:
        try:
            jsonschema.validate(merged(copy.deepcopy(values), settings), schema)
        except jsonschema.ValidationError:
            continue
        raise SystemExit(f"values.schema.json lets {settings} pass")
    print(f"{checked} checks against Kubernetes {' and '.join(VERSIONS)}; "
          f"{len(WRONG)} wrong values refused; no schema for {', '.join(sorted(passed_over))}")


if __name__ == "__main__":
    main()

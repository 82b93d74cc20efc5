"""A running service with two workers, its jobs and its pages.

    with ServiceUnderTest(folder) as service:
        report = service.attend(tokens=4096)
        text = service.get("/metrics")

COORDINATOR_BINARY and CLIENT_BINARY name the programs.
"""
import json
import os
import re
import subprocess

import numpy

from running_service import RunningService

CALL_SECONDS = 300
HEADS, HEAD_DIM = 4, 32

# Metrics that need certificates; tests/security/tls_test.cc asserts them.
WITH_TLS = {"hilbert_ring_certificate_expiry_timestamp_seconds"}


class ServiceUnderTest(RunningService):
    def __init__(self, folder, workers=2, arguments=()):
        super().__init__(os.environ["COORDINATOR_BINARY"], folder, workers,
                         [f"--job-workers={workers}", *arguments])
        self.jobs = 0

    def targets(self):
        return json.loads(self.get("/targets"))

    def client(self, *arguments, environment=None):
        command = [os.environ["CLIENT_BINARY"], arguments[0],
                   f"--server={self.address}", *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS,
                              env={**os.environ, **(environment or {})})

    def attend(self, tokens=4096, arguments=(), environment=None):
        """Runs a job over all workers, with an exchange. Returns its report."""
        self.jobs += 1
        random = numpy.random.default_rng(self.jobs)
        for name in "qkv":
            numpy.save(self.folder / f"{name}.npy",
                       random.standard_normal((tokens, HEADS, HEAD_DIM), dtype="f4"))
        files = [f"--{name}={self.folder}/{name}.npy" for name in "qkv"]
        done = self.client("attend", f"--segments=256,{tokens}", "--dilations=1,2", "--mixing=lse",
                           "--curve=hilbert", *files, f"--out={self.folder}/out.npy",
                           f"--report={self.folder}/report.json", "--json", *arguments,
                           environment=environment)
        if done.returncode != 0:
            raise RuntimeError(f"attend ended with {done.returncode}: {done.stderr}")
        return json.loads((self.folder / "report.json").read_text())


class Exposition:
    """Prometheus's text format: kinds and helps by family, samples by series."""

    def __init__(self, text):
        self.helps, self.kinds, self.samples = {}, {}, []
        sample = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
        label = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
        for line in text.splitlines():
            if line.startswith("# HELP "):
                _, _, name, self.helps[name] = line.split(" ", 3)
            elif line.startswith("# TYPE "):
                _, _, name, self.kinds[name] = line.split(" ", 3)
            elif line:
                name, labels, value = sample.match(line).groups()
                self.samples.append((name, dict(label.findall(labels or "")), float(value)))

    def labels(self, family):
        found = set()
        for name, labels, _ in self.samples:
            if name == family or name in (f"{family}_bucket", f"{family}_sum", f"{family}_count"):
                found |= set(labels)
        return found - {"le"}

    def total(self, name, **labels):
        return sum(value for sampled, has, value in self.samples
                   if sampled == name and labels.items() <= has.items())

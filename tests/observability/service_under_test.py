"""A real coordinator with two workers for the time of a `with` block, jobs on it, and what it serves.

    with ServiceUnderTest(folder) as service:
        report = service.attend(tokens=4096)
        text = service.get("/metrics")

The programs are named by COORDINATOR_BINARY and CLIENT_BINARY.
"""
import ctypes
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy

START_SECONDS = 60
STOP_SECONDS = 30
CALL_SECONDS = 300
HEADS, HEAD_DIM = 4, 32


def stop_with_parent():
    """Runs in the child: it gets SIGTERM should this process die."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)


def await_true(what, condition, seconds=START_SECONDS):
    """Returns the condition's first value that is true; fails with `what` after so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise TimeoutError(f"{what}: not within {seconds} s")


def http_get(url):
    with urllib.request.urlopen(url, timeout=30) as reply:
        return reply.read().decode()


class ServiceUnderTest:
    def __init__(self, folder, workers=2, arguments=()):
        self.folder = Path(folder)
        self.workers = workers
        self.arguments = list(arguments)
        self.log = self.folder / "service.log"
        self.ready_file = self.folder / "ready.json"
        self.jobs = 0

    def __enter__(self):
        command = [os.environ["COORDINATOR_BINARY"], f"--spawn-workers={self.workers}",
                   f"--job-workers={self.workers}", "--worker-threads=1", "--device=cpu",
                   "--grpc-host=127.0.0.1", "--http-host=127.0.0.1", "--grpc-port=0", "--http-port=0",
                   "--membership-port=0", f"--ready-file={self.ready_file}", *self.arguments]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=stop_with_parent)
        try:
            self.ports = await_true("the service is ready", self._ready)
        except BaseException:
            print(self.log.read_text(errors="replace"))
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def _ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"the coordinator ended with {self.process.returncode}")
        try:
            return json.loads(self.ready_file.read_text())
        except (OSError, ValueError):
            return None

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    @property
    def http_address(self):
        return f"127.0.0.1:{self.ports['http_port']}"

    def get(self, path):
        return http_get(f"http://{self.http_address}{path}")

    def targets(self):
        return json.loads(self.get("/targets"))

    def client(self, *arguments, environment=None):
        command = [os.environ["CLIENT_BINARY"], arguments[0],
                   f"--server=127.0.0.1:{self.ports['grpc_port']}", *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS,
                              env={**os.environ, **(environment or {})})

    def attend(self, tokens=4096, arguments=(), environment=None):
        """A job over all workers, with an exchange; its report."""
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

"""The image runs a job as an ordinary user on a file system that it cannot write, and holds no compiler.

    image_check.py RUNNER IMAGE      # RUNNER: docker or podman
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

START_SECONDS = 120
# Above those that the system draws.
GRPC, HTTP = "61801", "61802"
FORBIDDEN = ("cc", "c++", "gcc", "g++", "clang", "ld", "as", "cmake", "ninja", "git", "python3")


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Container:
    def __init__(self, runner, image, job):
        self._runner, self._name = runner, f"hilbert-ring-check-{os.getpid()}"
        self._process = subprocess.Popen(
            [runner, "run", "--name", self._name, "--read-only", "--cap-drop=ALL",
             "--security-opt=no-new-privileges", "--volume", f"{job}:/job",
             "--publish", f"127.0.0.1:{GRPC}:{GRPC}", "--env", f"HILBERT_RING_HTTP_PORT={HTTP}",
             "--env", f"HILBERT_RING_GRPC_PORT={GRPC}", image,
             "hilbert-ring-coordinator", "--spawn-workers=2", "--worker-threads=1",
             "--memory-limit=512MiB"])

    def try_inside(self, *words):
        return subprocess.run([self._runner, "exec", self._name, *words], capture_output=True,
                              text=True)

    def inside(self, *words):
        return run(self._runner, "exec", self._name, *words)

    def await_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            said = self.try_inside("hilbert-ring", "--json", "status", f"--server=127.0.0.1:{GRPC}")
            if said.returncode == 0 and json.loads(said.stdout).get("ready", True):
                return
            time.sleep(0.3)
        raise SystemExit(f"not ready after {START_SECONDS} s")

    def stop(self):
        """The exit code after SIGTERM, of which the program must hear."""
        run(self._runner, "stop", "--time", "30", self._name)
        return self._process.wait(40)

    def remove(self):
        subprocess.run([self._runner, "rm", "--force", self._name], capture_output=True)


def make_inputs(folder):
    """Equal scores: each output is the mean of V over its segment."""
    values = numpy.broadcast_to((numpy.arange(4096) % 1024)[:, None, None],
                                (4096, 4, 64)).astype("f4")
    for name, tensor in (("q", numpy.zeros_like(values)), ("k", numpy.ones_like(values)),
                         ("v", values)):
        numpy.save(folder / f"{name}.npy", tensor)
    folder.chmod(0o777)


def check_inside(container):
    identity = container.inside("id", "-u").strip()
    if identity != "65532":
        raise SystemExit(f"the user is {identity}, and not 65532")
    for program in FORBIDDEN:
        if container.try_inside("sh", "-c", f"command -v {program}").returncode == 0:
            raise SystemExit(f"the image holds {program}")
    if container.try_inside("test", "-e", "/etc/hilbert-ring").returncode == 0:
        raise SystemExit("the image holds /etc/hilbert-ring, and so perhaps a join token")
    if container.try_inside("touch", "/usr/bin/written").returncode == 0:
        raise SystemExit("the file system can be written")
    container.inside("hilbert-ring-health")
    wrong = container.try_inside("env", "HILBERT_RING_HTTP_PORT=1", "hilbert-ring-health")
    if wrong.returncode == 0:
        raise SystemExit("the health check is content with a port that nobody serves")


def main():
    runner, image = sys.argv[1:]
    (inspected,) = json.loads(run(runner, "image", "inspect", image))
    config = inspected["Config"]
    if not config.get("User") or "org.opencontainers.image.version" not in config["Labels"]:
        raise SystemExit(f"no user or no labels: {config}")
    if not (config.get("Healthcheck") or inspected.get("Healthcheck")):
        raise SystemExit("no health check")
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder)
        make_inputs(job)
        container = Container(runner, image, job)
        try:
            container.await_ready()
            check_inside(container)
            print(container.inside(
                "hilbert-ring", "attend", f"--server=127.0.0.1:{GRPC}", "--segments=1024",
                "--dilations=1", *(f"--{name}=/job/{name}.npy" for name in "qkv"),
                "--out=/job/out.npy"))
            off = abs(numpy.load(job / "out.npy") - 511.5).max()
            if off > 0.01:
                raise SystemExit(f"the job's output is off by {off}")
            code = container.stop()
            if code != 0:
                raise SystemExit(f"exit code on SIGTERM: {code}")
        finally:
            container.remove()
    print(f"{image}: ran a job, {inspected['Size'] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

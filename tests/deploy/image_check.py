"""The image runs a job as an ordinary user on a read-only file system, and holds no compiler.

    image_check.py RUNNER IMAGE      # RUNNER: docker or podman
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mean_job

START_SECONDS = 120
GRPC, HTTP = "61801", "61802"  # above the system's ephemeral ports
FORBIDDEN = ("cc", "c++", "gcc", "g++", "clang", "ld", "as", "cmake", "ninja", "git", "python3")


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


# (user, file): permissions alone would let root write the first, and any user the others.
UNWRITABLE = (("0", "/usr/bin/written"), ("65532", "/tmp/written"), ("65532", "/var/tmp/written"))


def read_only(runner):
    """Returns flags of a read-only container, in which podman would mount writable /tmp, /run and /var/tmp."""
    return ["--read-only", *(["--read-only-tmpfs=false"] if "podman" in Path(runner).name else [])]


class Container:
    def __init__(self, runner, image, job):
        self._runner, self._name = runner, f"hilbert-ring-check-{os.getpid()}"
        self._process = subprocess.Popen(
            [runner, "run", "--name", self._name, *read_only(runner), "--cap-drop=ALL",
             "--security-opt=no-new-privileges", "--volume", f"{job}:/job",
             "--publish", f"127.0.0.1:{GRPC}:{GRPC}", "--env", f"HILBERT_RING_HTTP_PORT={HTTP}",
             "--env", f"HILBERT_RING_GRPC_PORT={GRPC}", image,
             "hilbert-ring-coordinator", "--spawn-workers=2", "--worker-threads=1",
             "--memory-limit=512MiB"])

    def try_inside(self, *words, user=None):
        return subprocess.run([self._runner, "exec", *(["--user", user] if user else []), self._name,
                               *words], capture_output=True, text=True)

    def inside(self, *words):
        return run(self._runner, "exec", self._name, *words)

    def await_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            status = self.try_inside("hilbert-ring", "--json", "status", f"--server=127.0.0.1:{GRPC}")
            if status.returncode == 0 and json.loads(status.stdout).get("ready", True):
                return
            time.sleep(0.3)
        raise SystemExit(f"not ready after {START_SECONDS} s")

    def stop(self):
        run(self._runner, "stop", "--time", "30", self._name)
        return self._process.wait(40)

    def remove(self):
        subprocess.run([self._runner, "rm", "--force", self._name], capture_output=True)


def check_inside(container):
    identity = container.inside("id", "-u").strip()
    if identity != "65532":
        raise SystemExit(f"the user is {identity}, must be 65532")
    first = container.inside("cat", "/proc/1/comm").strip()
    if first != "tini":
        raise SystemExit(f"the first process is {first}, must be tini")
    for program in FORBIDDEN:
        if container.try_inside("sh", "-c", f"command -v {program}").returncode == 0:
            raise SystemExit(f"the image holds {program}")
    if container.try_inside("test", "-e", "/etc/hilbert-ring").returncode == 0:
        raise SystemExit("the image holds /etc/hilbert-ring, which may hold a join token")
    for user, path in UNWRITABLE:
        touched = container.try_inside("touch", path, user=user)
        if "Read-only file system" not in touched.stderr:
            raise SystemExit(f"user {user} can write {path}, or the error is not the read-only file system's: "
                             f"{touched.returncode} {touched.stderr}")
    if container.inside("find", "/usr", "-name", "libnccl.so*"):
        for part in ("libnccl2", "cuda-runtime"):
            if container.try_inside("test", "-s", f"/usr/share/doc/{part}/copyright").returncode != 0:
                raise SystemExit(f"the image holds {part} without its licence")
    container.inside("hilbert-ring-health")
    wrong = container.try_inside("env", "HILBERT_RING_HTTP_PORT=1", "hilbert-ring-health")
    if wrong.returncode == 0:
        raise SystemExit("the health check passes on a port without a service")


def main():
    runner, image = sys.argv[1:]
    (inspected,) = json.loads(run(runner, "image", "inspect", image))
    config = inspected["Config"]
    version = config["Labels"].get("org.opencontainers.image.version")
    if not config.get("User") or not version:
        raise SystemExit(f"no user or no version: {config}")
    if not (config.get("Healthcheck") or inspected.get("Healthcheck")):
        raise SystemExit("no health check")
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder)
        mean_job.write_inputs(job)
        job.chmod(0o777)
        container = Container(runner, image, job)
        try:
            container.await_ready()
            check_inside(container)
            printed = container.inside("hilbert-ring", "version").strip()
            if printed != f"hilbert-ring {version}":
                raise SystemExit(f"the label is version {version}, the program is {printed}")
            print(container.inside("hilbert-ring", "attend", f"--server=127.0.0.1:{GRPC}",
                                   *mean_job.arguments("/job")))
            wrong = mean_job.why_wrong(job / "out.npy")
            if wrong:
                raise SystemExit(wrong)
            code = container.stop()
            if code != 0:
                raise SystemExit(f"exit code on SIGTERM: {code}")
        finally:
            container.remove()
    print(f"{image}: ran a job, {inspected['Size'] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

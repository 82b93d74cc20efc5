"""A coordinator and its workers as real programs during a `with` block.

    with RunningService(programs / "hilbert-ring-coordinator", folder) as service:
        service.address   # "127.0.0.1:PORT"
    service.exit_code

Unlike hilbert_ring.local it shows the process, its whole log and its exit code, and needs no Python package.
"""
import ctypes
import json
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 30


def stop_with_parent():
    """Runs in the child, which gets SIGTERM when this process dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)


def await_true(what, condition, seconds=START_SECONDS):
    """Returns the condition's first true value; fails with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise TimeoutError(f"{what}: not within {seconds} s")


def http_get(url):
    with urllib.request.urlopen(url, timeout=30) as reply:
        return reply.read().decode()


class RunningService:
    def __init__(self, coordinator, folder, workers=2, arguments=()):
        """The log and the ready file lie in the folder."""
        self.folder = Path(folder)
        self.log = self.folder / "service.log"
        self.ready_file = self.folder / "ready.json"
        self._command = [
            str(coordinator), f"--spawn-workers={workers}", "--worker-threads=1", "--device=cpu",
            "--grpc-host=127.0.0.1", "--http-host=127.0.0.1", "--membership-host=127.0.0.1",
            "--grpc-port=0", "--http-port=0", "--membership-port=0",
            f"--ready-file={self.ready_file}", *arguments]

    def _start(self, command):
        with open(self.log, "ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    preexec_fn=stop_with_parent)

    def __enter__(self):
        self.process, self._workers = self._start(self._command), []
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

    def start_worker(self, program, *arguments):
        """Starts a worker that the coordinator has not spawned, without waiting for it."""
        self._workers.append(self._start(
            [str(program), f"--coordinator=127.0.0.1:{self.ports['membership_port']}", "--port=0",
             "--threads=1", *arguments]))
        return self._workers[-1]

    def stop(self):
        """Sends SIGTERM, and SIGKILL after STOP_SECONDS."""
        processes = [*self._workers, self.process]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def exit_code(self):
        return self.process.returncode

    @property
    def address(self):
        return f"127.0.0.1:{self.ports['grpc_port']}"

    @property
    def http_address(self):
        return f"127.0.0.1:{self.ports['http_port']}"

    def get(self, path):
        return http_get(f"http://{self.http_address}{path}")


class ListeningService(RunningService):
    """A coordinator that waits for other workers: the block begins once it listens.

    with ListeningService(coordinator, folder) as service:
        service.start_worker(worker)
        service.await_ready()
    """

    def __init__(self, coordinator, folder, workers=1, arguments=()):
        super().__init__(coordinator, folder, 0, [f"--min-workers={workers}", *arguments])

    def _ready(self):
        # The log has the ports before the ready file.
        for line in self.log.read_text().splitlines():
            match = re.search(r"gRPC on \S+:(\d+), HTTP on \S+:(\d+), workers on \S+:(\d+)", line)
            if match:
                return dict(zip(("grpc_port", "http_port", "membership_port"),
                                map(int, match.groups())))
        if self.process.poll() is not None:
            raise RuntimeError(f"the coordinator ended with {self.process.returncode}")
        return None

    def await_ready(self):
        await_true("the service is ready", self.ready_file.exists)

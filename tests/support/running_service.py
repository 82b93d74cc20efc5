"""A coordinator with workers of its own for the time of a `with` block: real programs, for tests.

    with RunningService(programs / "hilbert-ring-coordinator", folder) as service:
        service.address   # "127.0.0.1:PORT"
    service.exit_code

Users have hilbert_ring.local. Here tests see the process, its whole log and how it ended, and need no Python package.
"""
import ctypes
import json
import signal
import subprocess
import time
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 30


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


class RunningService:
    def __init__(self, coordinator, folder, workers=2, arguments=()):
        """The log and the ready file lie in the folder."""
        self.folder = Path(folder)
        self.log = self.folder / "service.log"
        self.ready_file = self.folder / "ready.json"
        self._command = [
            str(coordinator), f"--spawn-workers={workers}", "--worker-threads=1", "--device=cpu",
            "--grpc-host=127.0.0.1", "--http-host=127.0.0.1", "--grpc-port=0", "--http-port=0",
            "--membership-port=0", f"--ready-file={self.ready_file}", *arguments]

    def __enter__(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, preexec_fn=stop_with_parent)
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
        """SIGTERM, and SIGKILL to what has not ended after STOP_SECONDS."""
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def exit_code(self):
        return self.process.returncode

    @property
    def address(self):
        return f"127.0.0.1:{self.ports['grpc_port']}"

"""A coordinator with workers of its own, for one test.

    with RunningService(folder_of_programs, workers=2) as service:
        service.address  # "127.0.0.1:PORT"
"""
import json
import subprocess
import tempfile
import time
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 30


class RunningService:
    def __init__(self, programs, workers):
        self._folder = tempfile.TemporaryDirectory()
        self._ready = Path(self._folder.name) / "ready.json"
        self._command = [
            str(Path(programs) / "hilbert-ring-coordinator"), f"--spawn-workers={workers}",
            "--grpc-host=127.0.0.1", "--grpc-port=0", "--http-host=127.0.0.1", "--http-port=0",
            "--membership-port=0", "--worker-threads=1", "--memory-limit=512MiB",
            f"--ready-file={self._ready}"]

    def __enter__(self):
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"not ready after {START_SECONDS} s: {self._command}")
            time.sleep(0.02)
        ports = json.loads(self._ready.read_text())
        self.address = f"127.0.0.1:{ports['grpc_port']}"
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self.exit_code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.exit_code = self._process.wait()
        self._folder.cleanup()

"""A coordinator with local workers for the time of a `with` block, and the client that talks to it.

    with LocalService(coordinator, client, workers=2, folder=Path("work")) as service:
        service.call("attend", "--spec", ...)

The coordinator is stopped at the end of the block, however it ends; it takes its workers with it.
"""
import ctypes
import json
import os
import signal
import subprocess
import time


class ServiceError(Exception):
    """Something that the user should read: no traceback."""


def stop_with_parent():
    """Runs in the child: the coordinator gets SIGTERM should this process die without saying so."""
    set_parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM, 0, 0, 0)


class LocalService:
    START_SECONDS = 60
    STOP_SECONDS = 15
    CALL_SECONDS = 600

    def __init__(self, coordinator, client, workers, folder):
        self.coordinator, self.client, self.workers = coordinator, client, workers
        self.log = folder / "coordinator.log"
        self.ready_file = folder / "ready.json"
        self.process = None
        self.server = None

    def __enter__(self):
        command = [str(self.coordinator), f"--spawn-workers={self.workers}",
                   f"--job-workers={self.workers}", "--grpc-port=0",
                   "--http-port=0", "--membership-port=0", f"--ready-file={self.ready_file}"]
        with open(self.log, "wb") as log:
            # A session of its own: Ctrl-C reaches this script, which then stops the coordinator.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=stop_with_parent)
        try:
            ports = self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        self.server = f"localhost:{ports['grpc_port']}"
        return self

    def __exit__(self, *_):
        self.stop()

    def _wait_until_ready(self):
        deadline = time.monotonic() + self.START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServiceError(f"the coordinator ended with code {self.process.returncode}:\n"
                                   f"{self.log_tail()}")
            try:
                ports = json.loads(self.ready_file.read_text())
                if ports.get("grpc_port"):
                    return ports
            except (FileNotFoundError, json.JSONDecodeError):
                pass
            time.sleep(0.05)
        raise ServiceError(f"the coordinator was not ready within {self.START_SECONDS} s:\n"
                           f"{self.log_tail()}")

    def log_tail(self, lines=20):
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in text[-lines:]) or "    (its log is empty)"

    def call(self, command, *arguments):
        """Runs `hilbert-ring COMMAND --server ... ARGUMENTS` and returns what it printed."""
        line = [str(self.client), command, "--server", self.server, *map(str, arguments)]
        try:
            done = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=self.CALL_SECONDS)
        except subprocess.TimeoutExpired:
            raise ServiceError(f"hilbert-ring {command} took more than {self.CALL_SECONDS} s; "
                               f"the coordinator said:\n{self.log_tail()}") from None
        if done.returncode != 0:
            raise ServiceError(f"hilbert-ring {command} ended with code {done.returncode}:\n"
                               f"{done.stdout.strip()}\nthe coordinator said:\n{self.log_tail()}")
        return done.stdout

    def stop(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(self.STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # whatever is left of its session
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process = None

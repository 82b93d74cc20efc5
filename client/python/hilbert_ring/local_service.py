"""Services on this machine that notebooks and tests start.

    with hilbert_ring.local(workers=2) as client:
        result = client.attend(q, k, v, segments=[4096])
"""
import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Optional, Set

import numpy as np

from hilbert_ring._scratch import lies_in_memory
from hilbert_ring._server_address import host_port
from hilbert_ring.client import Client, connect
from hilbert_ring.errors import UnavailableError

_COORDINATOR = "hilbert-ring-coordinator"
_GUARD = Path(__file__).with_name("_guard.py")
_MEMORY = "/dev/shm"
_DATA_ROOT = "HILBERT_RING_DATA_ROOT"
_POLL_SECONDS = 0.05
_STOP_SECONDS = 25


def find_program(name: str) -> Path:
    """Finds a program in HILBERT_RING_BIN_DIR if that is set, else in this package, else on PATH.

    Raises:
        FileNotFoundError: the program is missing.
    """
    folder = os.environ.get("HILBERT_RING_BIN_DIR")
    places = [Path(folder)] if folder else [Path(__file__).with_name("bin")]
    for place in places:
        if os.access(place / name, os.X_OK):
            return place / name
    found = None if folder else shutil.which(name)
    if found is None:
        raise FileNotFoundError(
            f"{name} is not in {places[0]}" + ("" if folder else ", nor on PATH") +
            ": set HILBERT_RING_BIN_DIR to the folder of the service's programs")
    return Path(found)


def _loopback() -> str:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError:
            return "::1"
        return "127.0.0.1"


class LocalService:
    """A coordinator with workers, from `start` (or `with`) to `stop`.

    It ends and its folders are removed when this process ends or dies. Forked processes do not affect it.

    Attributes:
        server: "host:port" after `start`.
        ready: content of the service's ready file: ports by name, its pid.
    """

    def __init__(self, workers: int = 2, *, start_timeout: float = 60.0, **settings: Any) -> None:
        """See hilbert_ring.local."""
        self._workers = workers
        self._start_timeout = start_timeout
        self._settings: Dict[str, Any] = {"grpc_port": 0, "http_port": 0, "membership_port": 0,
                                          "grpc_host": _loopback(), "http_host": _loopback(),
                                          **settings}
        self._log: Optional[BinaryIO] = None    # a file without a name
        self._folder: Optional[Path] = None     # of the ready file
        self._data_root: Optional[Path] = None  # of this service's own
        self._guard: Optional["subprocess.Popen[bytes]"] = None
        self._client: Optional[Client] = None
        self.server = ""
        self.ready: Dict[str, Any] = {}

    def __enter__(self) -> Client:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Client:
        """Starts the service and returns a client when it is ready.

        Raises:
            FileNotFoundError: the programs are missing.
            UnavailableError: the service ended, or was not ready in time. The message has the end of its log.
        """
        if self._guard is not None:
            raise RuntimeError("the service runs already")
        program = find_program(_COORDINATOR)
        _running.add(self)
        try:
            self._log = tempfile.TemporaryFile()
            self._folder = Path(tempfile.mkdtemp(prefix="hilbert-ring-"))
            flags = [f"--spawn-workers={self._workers}",
                     f"--ready-file={self._folder / 'ready.json'}", *self._flags(), *self._own_root()]
            # In a new session, so that Ctrl-C reaches only the caller.
            self._guard = subprocess.Popen(
                [sys.executable, "-I", str(_GUARD), str(self._folder), str(self._data_root or ""), str(program), *flags],
                stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, start_new_session=True)
            self.ready = self._await_ready()
        except BaseException:
            self.stop()
            raise
        self.server = host_port(self._settings["grpc_host"] or _loopback(), self.ready["grpc_port"])
        self._client = connect(self.server)
        return self._client

    def stop(self) -> None:
        """Ends the service and its clients' calls. May be called again."""
        if self._client is not None:
            self._client.close()
            self._client = None
        guard = self._guard
        if guard is not None:
            assert guard.stdin is not None
            guard.stdin.close()  # makes the guard stop the service
            try:
                guard.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(guard.pid, signal.SIGKILL)  # the rest of its session
            except ProcessLookupError:
                pass
            guard.wait()
        for folder in filter(None, (self._folder, self._data_root)):
            shutil.rmtree(folder, ignore_errors=True)
        self._forget()

    def _forget(self) -> None:
        """Drops a service that has ended, or that is the parent process's."""
        _running.discard(self)
        for file in (self._log, self._guard.stdin if self._guard is not None else None):
            if file is not None:
                file.close()
        self._log = self._folder = self._data_root = self._guard = None

    def log(self, lines: int = 20) -> str:
        """Returns the last lines of the service's log."""
        if self._log is None:
            return ""
        file = self._log.fileno()  # pread keeps the offset, which the service shares
        text = os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace").splitlines()
        return "\n".join(text[-lines:])

    def _flags(self) -> List[str]:
        flags = []
        for name, value in self._settings.items():
            if value is None or name == "data_root" and not value:
                continue  # the coordinator's default
            shown = str(value).lower() if isinstance(value, (bool, np.bool_)) else str(value)
            flags.append(f"--{name.replace('_', '-')}={shown}")
        return flags

    def _own_root(self) -> List[str]:
        """Makes a data root in memory for shared arrays, unless the caller gives a data root."""
        if "data_root" in self._settings or _DATA_ROOT in os.environ:
            return []
        if not lies_in_memory(_MEMORY):
            return []
        try:
            self._data_root = Path(tempfile.mkdtemp(prefix="hilbert-ring-", dir=_MEMORY))
        except OSError:
            return []
        return [f"--data-root={self._data_root}"]

    def _await_ready(self) -> Dict[str, Any]:
        assert self._folder is not None and self._guard is not None
        deadline = time.monotonic() + self._start_timeout
        while time.monotonic() < deadline:
            if self._guard.poll() is not None:
                raise UnavailableError(f"the service ended with code {self._guard.returncode}:\n"
                                       f"{self.log()}")
            try:
                ready: Dict[str, Any] = json.loads((self._folder / "ready.json").read_text())
                return ready
            except FileNotFoundError:
                time.sleep(_POLL_SECONDS)
        raise UnavailableError(f"the service was not ready within {self._start_timeout:g} s:\n"
                               f"{self.log()}")


_running: Set[LocalService] = set()


@atexit.register
def _stop_all() -> None:
    for service in list(_running):
        service.stop()


def _forget_all() -> None:
    for service in list(_running):
        service._forget()


os.register_at_fork(after_in_child=_forget_all)


def local(workers: int = 2, *, start_timeout: float = 60.0, **settings: Any) -> LocalService:
    """Returns a service on this machine for a `with` block, which gives a Client.

    It listens on free ports of 127.0.0.1, or of ::1 if the machine has only IPv6. Its programs come from the folder
    HILBERT_RING_BIN_DIR, from this package if its wheel has them, or from PATH. Large arrays pass through shared
    memory: a data root in /dev/shm, which is removed with the service. `data_root` gives another folder; "" disables
    it.

    Args:
        workers: number of processes that compute; each takes its share of the machine's cores and memory.
        start_timeout: seconds until the service must be ready.
        settings: the coordinator's settings of docs/settings.md, with underscores: `memory_limit="2GiB"`; None: the
            coordinator's default.
    """
    return LocalService(workers, start_timeout=start_timeout, **settings)

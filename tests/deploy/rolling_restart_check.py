"""Restarts workers and coordinator one after the other under load: no job of a client that retries is lost.

    rolling_restart_check.py FOLDER_OF_PROGRAMS [ROUNDS]

The coordinator, two workers and the clients each have a host. The processes run with the command lines of the shipped
units, then of the manifests, in clear text and with certificates and tokens. Exit code 77: a probe found something
missing.
"""
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import mean_job
from credentials import ClearText, Credentials
from hosts import Hosts, why_not
from shipped import OfManifests, OfUnits

CLIENTS = 3
TOKENS, SEGMENT = 16384, 4096
CLIENT, COORDINATOR, WORKERS = 0, 1, (2, 3)
START_SECONDS = 120
STOP_SECONDS = 150  # the longest of units and manifests


class Load:
    """Clients that submit one job after another until the end of the `with` block."""

    def __init__(self, hosts, programs, work, environment=None):
        self._hosts, self._programs, self._work = hosts, programs, work
        self._environment = environment or {}
        self._stop = threading.Event()
        self.begun, self.jobs, self.failures, self.retried = 0, [], [], 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._submit, args=(n,)) for n in range(CLIENTS)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _submit(self, client):
        folder = self._work / f"client{client}"
        folder.mkdir()
        folder.chmod(0o777)
        out = folder / "out.npy"
        words = [self._programs / "hilbert-ring", "attend",
                 f"--server={self._hosts.address(COORDINATOR)}:8001", "--deadline=300",
                 *mean_job.arguments(self._work, folder, SEGMENT)]
        while not self._stop.is_set():
            out.unlink(missing_ok=True)
            began = time.monotonic()
            process = self._hosts.start(CLIENT, words, self._environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
            with self._lock:
                self.begun += 1
            output, errors = process.communicate()
            if process.returncode == 0:
                failure = mean_job.why_wrong(out, TOKENS, SEGMENT)
            else:
                failure = f"exit code {process.returncode}: {errors}"
            with self._lock:
                self.jobs.append((began, time.monotonic()))
                self.retried += "  attempts 1, retries by the service 0" not in output
                if failure:
                    self.failures.append(failure)


def await_more(what, count, more):
    """Waits until count() has grown by `more`."""
    wanted = count() + more
    deadline = time.monotonic() + START_SECONDS
    while count() < wanted:
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: {count()} after {START_SECONDS} s, must be {wanted}")
        time.sleep(0.01)


class Service:
    def __init__(self, hosts, shipped, programs, credentials):
        self._hosts, self._shipped, self._programs = hosts, shipped, programs
        self._credentials = credentials
        self._processes = {}

    def __enter__(self):
        for host in (COORDINATOR, *WORKERS):
            self.start(host)
        self.await_workers()
        return self

    def __exit__(self, *_):
        for process in self._processes.values():
            process.kill()
            process.wait()

    def start(self, host):
        address = self._hosts.address
        if host == COORDINATOR:
            words, environment = self._shipped.coordinator(host, address(host))
            secured = self._credentials.coordinator(host)
        else:
            words, environment = self._shipped.worker(host, address(host), address(COORDINATOR))
            secured = self._credentials.worker(host)
        log = open(self._shipped.log(host), "a", encoding="utf-8")
        self._processes[host] = self._hosts.start(host, words, {**secured, **environment},
                                                  stdout=log, stderr=log)

    def await_workers(self):
        """Waits until both workers take jobs, like a StatefulSet and an operator do."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            process = self._hosts.start(
                CLIENT, [self._programs / "hilbert-ring", "--json", "status",
                         f"--server={self._hosts.address(COORDINATOR)}:8001"],
                self._credentials.client(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            status, _ = process.communicate()
            if process.returncode == 0 and all(f"{self._hosts.address(w)}:8101" in status for w in WORKERS):
                return
            time.sleep(0.2)
        raise SystemExit(f"no two workers within {START_SECONDS} s:\n{self.logs()}")

    def logs(self):
        return "".join(Path(self._shipped.log(host)).read_text()[-3000:]
                       for host in (COORDINATOR, *WORKERS))

    def restart(self, host):
        """Stops a process by SIGTERM and starts the next; returns begin, end and the exit code."""
        process = self._processes[host]
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(STOP_SECONDS)
        self.start(host)
        self.await_workers()
        return began, time.monotonic(), code


def roll(name, shipped_class, credentials_class, programs, rounds):
    with tempfile.TemporaryDirectory() as folder, Hosts(4) as hosts:
        work = Path(folder)
        work.chmod(0o755)
        mean_job.write_inputs(work, TOKENS, SEGMENT)
        shipped = shipped_class(programs, work, "a-token-for-this-test-alone")
        credentials = credentials_class(
            work, {host: hosts.address(host) for host in (COORDINATOR, *WORKERS)})
        shipped.log = lambda host: work / f"log{host}"
        restarts, codes = [], []
        with Service(hosts, shipped, programs, credentials) as service, \
                Load(hosts, programs, work, credentials.client()) as load:
            for _ in range(rounds):
                for host in (*WORKERS, COORDINATOR):
                    await_more("jobs that began", lambda: load.begun, 1)  # so that the restart meets a job
                    began, ended, code = service.restart(host)
                    restarts.append((began, ended))
                    codes.append(code)
                    await_more("jobs that ended", lambda: len(load.jobs), CLIENTS)
        across = sum(any(start < began < end for start, end in load.jobs)
                     for began, _ in restarts)
        print(f"{name}: {len(load.jobs)} jobs, {len(load.failures)} lost, {load.retried} tried again; "
              f"{len(restarts)} restarts, {across} while jobs ran, exit codes {sorted(set(codes))}, "
              f"the longest took {max(e - b for b, e in restarts):.1f} s")
        if load.failures or set(codes) != {0}:
            raise SystemExit(f"{load.failures[:3]}\n{service.logs()}")
        if across < len(restarts):
            raise SystemExit("a restart met no job, so it shows nothing")


def main():
    why = why_not()
    if why:
        print(f"skipped: {why}")
        raise SystemExit(77)
    programs = Path(sys.argv[1]).resolve()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    for suffix, credentials in (("", ClearText), (", TLS and tokens", Credentials)):
        roll(f"units{suffix}", OfUnits, credentials, programs, rounds)
        roll(f"manifests{suffix}", OfManifests, credentials, programs, rounds)


if __name__ == "__main__":
    main()

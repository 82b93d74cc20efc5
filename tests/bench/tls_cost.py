"""What TLS costs a job: the same files through services with and without, taking turns.

    tests/bench/tls_cost.py --programs build/release/bin [--rounds 9] [--tokens 65536]

Services: callers in clear text and by TLS with a token, their worker on the same host over shared memory;
then a worker that gets its rows by messages, in clear text and by mutual TLS. One job at a time.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

START_SECONDS = 60


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "2", "-subj", "/CN=bench", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / "tls.key",
                    "-out", folder / "tls.crt"], check=True, capture_output=True)


class Service:
    def __init__(self, programs, folder, name, arguments, worker_arguments=None):
        ready = folder / f"{name}.json"
        self.name = name
        self.processes = []
        spawned = 1 if worker_arguments is None else 0
        membership = 0 if spawned else 18003 + len(name)
        self._start(folder, [programs / "hilbert-ring-coordinator", f"--spawn-workers={spawned}",
                             "--grpc-port=0", "--http-port=0", f"--membership-port={membership}",
                             "--grpc-host=127.0.0.1", "--http-host=127.0.0.1",
                             "--membership-host=127.0.0.1", f"--share-memory={'true' if spawned else 'false'}",
                             f"--ready-file={ready}", *arguments])
        if not spawned:
            self._start(folder, [programs / "hilbert-ring-worker", "--port=0",
                                 f"--coordinator=127.0.0.1:{membership}", *worker_arguments])
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            if time.monotonic() > deadline or any(p.poll() is not None for p in self.processes):
                raise RuntimeError(f"{name} was not ready: {(folder / 'log').read_text()}")
            time.sleep(0.05)
        self.address = f"127.0.0.1:{json.loads(ready.read_text())['grpc_port']}"

    def _start(self, folder, command):
        with open(folder / "log", "ab") as log:
            self.processes.append(subprocess.Popen(list(map(str, command)), stdout=log, stderr=log))

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(30)


def run_job(programs, folder, service, access):
    report = folder / "report.json"
    subprocess.run([programs / "hilbert-ring", "attend", "--server", service.address, "--segments",
                    "256", "--dilations", "1", "--q", folder / "q.npy", "--k", folder / "k.npy",
                    "--v", folder / "v.npy", "--out", folder / "out.npy", "--report", report,
                    *access], check=True, capture_output=True)
    return json.loads(report.read_text())["total_seconds"]


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=Path, required=True, help="folder of the built programs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=65536)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_certificate(folder)
        (folder / "tokens").write_text(
            json.dumps({"name": "bench", "role": "submit", "token": "a-token-of-the-bench"}) + "\n")
        (folder / "token").write_text("a-token-of-the-bench\n")
        rng = np.random.default_rng(0)
        for tensor in "qkv":
            np.save(folder / tensor, rng.standard_normal((given.tokens, 8, 64), dtype="f4"))
        identity = [f"--tls-cert={folder / 'tls.crt'}", f"--tls-key={folder / 'tls.key'}"]
        mutual = [*identity, f"--tls-ca={folder / 'tls.crt'}"]
        tls_access = ["--tls", "--ca", folder / "tls.crt", "--token-file", folder / "token"]
        services = []
        try:
            for label, arguments, worker, access in [
                    ("shared, clear text", [], None, []),
                    ("shared, TLS", [*identity, f"--auth-token-file={folder / 'tokens'}"], None,
                     tls_access),
                    ("messages, clear text", [], [], []),
                    ("messages, TLS to the worker", mutual, mutual, ["--tls", *tls_access[1:3]])]:
                services.append((Service(given.programs, folder, label, arguments, worker), access))
            seconds = {service.name: [] for service, _ in services}
            for round_number in range(given.rounds + 1):  # the first one is warm-up
                for service, access in services:
                    taken = run_job(given.programs, folder, service, access)
                    if round_number > 0:
                        seconds[service.name].append(taken)
        finally:
            for service, _ in services:
                service.stop()
    megabytes = given.tokens * 8 * 64 * 4 * 4 / 1e6
    print(f"{processor()}; {given.tokens} tokens, {megabytes:.0f} MB in and out, {given.rounds} rounds")
    print("| service | median s | least s | MB/s at the median |\n| --- | --- | --- | --- |")
    for label, taken in seconds.items():
        median = statistics.median(taken)
        print(f"| {label} | {median:.2f} | {min(taken):.2f} | {megabytes / median:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

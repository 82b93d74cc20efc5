"""Measures the cost of TLS for a job: the same files go through services with TLS and without TLS.

    tls_cost.py --programs build/release/bin [--rounds 9] [--tokens 65536]

Two services share memory with a worker on their host. Their callers use clear text, or TLS with a token. Two further
services send rows to their worker by messages, in clear text or by mutual TLS. Jobs run one at a time and alternate
between the services.
"""
import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from running_service import ListeningService, RunningService  # noqa: E402


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "2", "-subj", "/CN=bench", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / "tls.key",
                    "-out", folder / "tls.crt"], check=True, capture_output=True)


@contextlib.contextmanager
def started(programs, folder, arguments, worker_arguments):
    """Starts a service with one worker.

    worker_arguments: None: the coordinator spawns the worker and shares memory with it; else: a worker with these
    arguments receives rows by messages.
    """
    folder.mkdir()
    coordinator = programs / "hilbert-ring-coordinator"
    arguments = ["--worker-threads=0", *arguments]
    if worker_arguments is None:
        with RunningService(coordinator, folder, 1, arguments) as service:
            yield service
        return
    with ListeningService(coordinator, folder, 1, ["--share-memory=false", *arguments]) as service:
        service.start_worker(programs / "hilbert-ring-worker", "--threads=0", *worker_arguments)
        service.await_ready()
        yield service


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
        services = {}
        with contextlib.ExitStack() as stack:
            for label, arguments, worker, access in [
                    ("shared, clear text", [], None, []),
                    ("shared, TLS", [*identity, f"--auth-token-file={folder / 'tokens'}"], None,
                     tls_access),
                    ("messages, clear text", [], [], []),
                    ("messages, TLS to the worker", mutual, mutual, ["--tls", *tls_access[1:3]])]:
                service = started(given.programs, folder / str(len(services)), arguments, worker)
                services[label] = stack.enter_context(service), access
            seconds = {label: [] for label in services}
            for round_number in range(given.rounds + 1):  # round 0 is a warm-up
                for label, (service, access) in services.items():
                    taken = run_job(given.programs, folder, service, access)
                    if round_number > 0:
                        seconds[label].append(taken)
    megabytes = given.tokens * 8 * 64 * 4 * 4 / 1e6
    print(f"{processor()}; {given.tokens} tokens, {megabytes:.0f} MB in and out, {given.rounds} rounds")
    print("| service | median s | least s | MB/s at the median |\n| --- | --- | --- | --- |")
    for label, taken in seconds.items():
        median = statistics.median(taken)
        print(f"| {label} | {median:.2f} | {min(taken):.2f} | {megabytes / median:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

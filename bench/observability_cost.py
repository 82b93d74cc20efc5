"""The cost of metrics, logs and tracing for the published job: a service with all of them beside one with the minimum.

    observability_cost.py --programs build/release/bin [--services 6] [--rounds 8] [--tokens 65536] [--ask-every 1]

With: logs as JSON, a trace of each job, and requests for /metrics of all processes and the status page at an interval
(the shipped Prometheus uses 15 s). Without: no logs, no trace, no requests. Both services pay for counters, which
cannot be switched off. Rounds of both are interleaved. Two equal services differ by per cents for as long as they
live, so several pairs are started, each for some rounds.
"""
import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from running_service import RunningService  # noqa: E402
from tls_cost import processor  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
WORKERS = 2


def get(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as reply:
        return reply.read()


class Scraper:
    """Requests pages like Prometheus and a browser, during a block."""

    def __init__(self, service, every):
        self._every = every
        self._coordinator = f"127.0.0.1:{service.ports['http_port']}"
        (*self._workers,) = [target["targets"][0]
                             for target in json.loads(get(self._coordinator, "/targets"))]
        self._end = threading.Event()

    def __enter__(self):
        self._end.clear()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _ask(self):
        while not self._end.wait(self._every):
            get(self._coordinator, "/")
            for address in (self._coordinator, *self._workers):
                get(address, "/metrics")


class NoRequests:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def processor_seconds(pid):
    """Returns the CPU seconds of a process and its living children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = [child for task in Path(f"/proc/{pid}/task").iterdir()
                for child in (task / "children").read_text().split()]
    return (int(fields[11]) + int(fields[12])) / TICKS + sum(map(processor_seconds, children))


class Case:
    def __init__(self, programs, folder, further):
        self._programs, self._folder, self._further = programs, folder, further
        self.job, self.processor = [], []

    def run(self, service, watch):
        before = processor_seconds(service.process.pid)
        with watch:
            client = subprocess.Popen(
                [self._programs / "hilbert-ring", "attend", "--server", service.address,
                 "--segments", "2048,4096,8192", "--dilations", "1,2,4",
                 *(f"--{name}={self._folder}/{name}.npy" for name in "qkv"),
                 "--out", self._folder / "out.npy", "--report", self._folder / "report.json",
                 *self._further],
                stdout=subprocess.DEVNULL)
            _, code, used = os.wait4(client.pid, 0)
        if code != 0:
            raise RuntimeError(f"the job ended with {code}")
        self.job.append(json.loads((self._folder / "report.json").read_text())["total_seconds"])
        self.processor.append(processor_seconds(service.process.pid) - before +
                              used.ru_utime + used.ru_stime)


def interval(values):
    """Returns the interval that holds the median of the sample with 95 % probability, by the sign test."""
    ranked, half = sorted(values), 0.98 * len(values) ** 0.5
    return (ranked[max(0, math.floor(len(values) / 2 - half))],
            ranked[min(len(values) - 1, math.ceil(len(values) / 2 + half))])


def run_pair(given, folder, number, full, bare):
    """Interleaves rounds of both services, after a warm-up round. The service that starts first alternates."""
    home = folder / str(number)
    flags = {"with": ["--log-format=json"], "without": ["--log-level=off"]}
    with contextlib.ExitStack() as running:
        services = {}
        for name in sorted(flags, reverse=number % 2 == 1):
            (home / name).mkdir(parents=True)
            services[name] = running.enter_context(RunningService(
                given.programs / "hilbert-ring-coordinator", home / name, WORKERS, flags[name]))
        cases = [(full, services["with"], Scraper(services["with"], given.ask_every)),
                 (bare, services["without"], NoRequests())]
        for turn in range(given.rounds + 1):
            for case, service, watch in cases if turn % 2 else reversed(cases):
                case.run(service, watch)
    for case in (full, bare):
        del case.job[-given.rounds - 1], case.processor[-given.rounds - 1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=Path, required=True, help="folder of the built programs")
    parser.add_argument("--services", type=int, default=6, help="Pairs of services, one after the other")
    parser.add_argument("--rounds", type=int, default=8, help="Rounds of each pair")
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--ask-every", type=float, default=1, metavar="SECONDS")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        for tensor in "qkv":
            np.save(folder / tensor, rng.standard_normal((given.tokens, 8, 64), dtype="f4"))
        full = Case(given.programs, folder, ["--trace", folder / "trace.json"])
        bare = Case(given.programs, folder, [])
        for number in range(given.services):
            run_pair(given, folder, number, full, bare)
    print(f"{processor()}; {given.tokens} tokens, {WORKERS} workers, {given.services} pairs of services of "
          f"{given.rounds} rounds, asked every {given.ask_every:g} s, load {os.getloadavg()[0]:.0f}")
    print("| figure | | with, s | without, s | more |\n| --- | --- | --- | --- | --- |")
    for label, of_full, of_bare in [("processor's time of all processes", full.processor, bare.processor),
                                    ("the job, by its report", full.job, bare.job)]:
        for name, of in [("least", min), ("lower quarter", lambda taken: statistics.quantiles(taken)[0]),
                         ("median", statistics.median)]:
            one, other = of(of_full), of(of_bare)
            print(f"| {label} | {name} | {one:.3f} | {other:.3f} | {100 * (one / other - 1):+.1f} % |")
        ratios = [100 * (one / other - 1) for one, other in zip(of_full, of_bare)]
        least, most = interval(ratios)
        print(f"| {label} | median of neighbours, and its 95 % interval | | | "
              f"{statistics.median(ratios):+.1f} % ({least:+.1f} to {most:+.1f} %) |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What metrics, logs and tracing cost the published job: one service with all of it, one with as little as there can be, in turn.

    tests/bench/observability_cost.py --programs build/release/bin [--rounds 100] [--tokens 32768]

With: logs as JSON, a trace of each job, and /metrics of all processes and the status page four times a second while it runs.
Without: no logs, no trace, nobody who asks. What counters cost is in both: nothing switches them off.
"""
import argparse
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

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from running_service import RunningService  # noqa: E402
from tls_cost import processor  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
WORKERS = 2
SCRAPE_SECONDS = 0.25


def get(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as reply:
        return reply.read()


class Scraper:
    """Asks as Prometheus and a browser do, for the time of a block."""

    def __init__(self, service):
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
        while not self._end.wait(SCRAPE_SECONDS):
            get(self._coordinator, "/")
            for address in (self._coordinator, *self._workers):
                get(address, "/metrics")


class Nobody:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


def processor_seconds(pid):
    """Of a process and its children that live."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = [child for task in Path(f"/proc/{pid}/task").iterdir()
                for child in (task / "children").read_text().split()]
    return (int(fields[11]) + int(fields[12])) / TICKS + sum(map(processor_seconds, children))


class Case:
    def __init__(self, programs, folder, service, watch, further):
        self._programs, self._folder, self._service = programs, folder, service
        self._watch, self._further = watch, further
        self.job, self.processor = [], []

    def run(self):
        before = processor_seconds(self._service.process.pid)
        with self._watch:
            client = subprocess.Popen(
                [self._programs / "hilbert-ring", "attend", "--server", self._service.address,
                 "--segments", "2048,4096,8192", "--dilations", "1,2,4",
                 *(f"--{name}={self._folder}/{name}.npy" for name in "qkv"),
                 "--out", self._folder / "out.npy", "--report", self._folder / "report.json",
                 *self._further],
                stdout=subprocess.DEVNULL)
            _, code, used = os.wait4(client.pid, 0)
        if code != 0:
            raise RuntimeError(f"the job ended with {code}")
        self.job.append(json.loads((self._folder / "report.json").read_text())["total_seconds"])
        self.processor.append(processor_seconds(self._service.process.pid) - before +
                              used.ru_utime + used.ru_stime)


def interval(values):
    """That holds the median of what was drawn with 95 % probability, by the sign test."""
    ranked, half = sorted(values), 0.98 * len(values) ** 0.5
    return (ranked[max(0, math.floor(len(values) / 2 - half))],
            ranked[min(len(values) - 1, math.ceil(len(values) / 2 + half))])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=Path, required=True, help="folder of the built programs")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=32768)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        for tensor in "qkv":
            np.save(folder / tensor, rng.standard_normal((given.tokens, 8, 64), dtype="f4"))
        for service in ("with", "without"):
            (folder / service).mkdir()
        coordinator = given.programs / "hilbert-ring-coordinator"
        with RunningService(coordinator, folder / "with", WORKERS, ["--log-format=json"]) as full, \
                RunningService(coordinator, folder / "without", WORKERS,
                               ["--log-level=off"]) as bare:
            cases = [Case(given.programs, folder, full, Scraper(full),
                          ["--trace", folder / "trace.json"]),
                     Case(given.programs, folder, bare, Nobody(), [])]
            for number in range(given.rounds + 1):  # the first one is warm-up
                for case in cases if number % 2 else reversed(cases):
                    case.run()
        for case in cases:
            del case.job[0], case.processor[0]
    print(f"{processor()}; {given.tokens} tokens, {WORKERS} workers, {given.rounds} rounds, load "
          f"{os.getloadavg()[0]:.0f}")
    print("| figure | | with, s | without, s | more |\n| --- | --- | --- | --- | --- |")
    for label, of_full, of_bare in [("processor's time of all processes", cases[0].processor,
                                     cases[1].processor),
                                    ("the job, as its report says", cases[0].job, cases[1].job)]:
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

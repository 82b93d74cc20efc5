"""Samples the resident memory of a service's processes and of this one.

    with ResidentMemory(processes_of(service)) as memory:
        memory.done = 0.5     # share of the work
    memory.growth("client")
    picture([memory])
"""
import os
import threading
import time
from pathlib import Path

from hilbert_ring.draw.plot import Axis, Series, plot

_MOST_SAMPLES = 120  # per process, in the picture


def processes_of(service):
    """Returns process ids by name: of this program, the coordinator and its workers."""
    def children(process):
        tasks = Path(f"/proc/{process}/task").iterdir()  # each thread lists the children that it started
        return sorted(int(child) for task in tasks for child in (task / "children").read_text().split())

    (coordinator,) = children(service._guard.pid)  # pylint: disable=protected-access
    named = {"client": os.getpid(), "coordinator": coordinator}
    named.update({f"worker {i}": child for i, child in enumerate(children(coordinator))})
    return named


class ResidentMemory(threading.Thread):
    """Samples bytes ten times a second within a `with` block.

    Attributes:
        processes: ids by name.
        samples: (seconds of the monotonic clock, share of the work, bytes by name).
        done: the finished share of the work, 0 to 1, which the caller sets.
    """

    def __init__(self, processes, period=0.1):
        super().__init__(daemon=True)
        self.processes = processes
        self.samples = []
        self.done = 0.0
        self._period = period
        self._over = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()

    def run(self):
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._over.wait(self._period):
            resident = {}
            for name, process in self.processes.items():
                with open(f"/proc/{process}/statm") as statm:
                    resident[name] = int(statm.read().split()[1]) * page
            self.samples.append((time.monotonic(), self.done, resident))
            if len(self.samples) > 4 * _MOST_SAMPLES:  # keeps every second one and halves the rate
                self.samples = self.samples[::2]
                self._period *= 2

    def peaks(self, name):
        """Returns the peaks in the second tenth of the work, and after it."""
        early = [bytes_[name] for _, done, bytes_ in self.samples if 0.1 <= done < 0.2]
        late = [bytes_[name] for _, done, bytes_ in self.samples if 0.2 <= done]
        return max(early, default=0), max(late, default=0)

    def table(self):
        """Returns the lines of a Markdown table."""
        yield "| process | resident MiB, at most, in the second tenth | from then on | growth |"
        yield "| --- | --- | --- | --- |"
        for name in self.processes:
            early, late = self.peaks(name)
            growth = f"{late / early - 1:+.1%}" if early else "-"
            yield f"| {name} | {early / 2**20:.1f} | {late / 2**20:.1f} | {growth} |"


def picture(memories, title):
    """Draws memories over common seconds; processes of one name share a line."""
    sampled = [memory for memory in memories if memory.samples]
    begun = sampled[0].samples[0][0] if sampled else 0.0
    lines = {}
    for memory in sampled:
        every = max(1, len(memory.samples) // _MOST_SAMPLES)
        for at, _, bytes_ in memory.samples[::every]:
            for name in memory.processes:
                lines.setdefault(name, []).append((at - begun, bytes_[name] / 2**20))
    return plot(title, Axis("seconds"), Axis("MiB"), [Series(*line) for line in lines.items()])

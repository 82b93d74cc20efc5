"""The resident memory of a service's processes and of this one, looked at all the time.

    with ResidentMemory(processes_of(service)) as memory:
        memory.done = 0.5     # of the work
    memory.growth("client")
    picture([memory])
"""
import os
import threading
import time
from pathlib import Path

from hilbert_ring.draw.plot import Axis, Series, plot

_MOST_SAMPLES = 120  # of a process, in the picture


def processes_of(service):
    """Ids by name: of this program, the coordinator and its workers."""
    def children(process):
        tasks = Path(f"/proc/{process}/task").iterdir()  # a child is that of the thread which began it
        return sorted(int(child) for task in tasks for child in (task / "children").read_text().split())

    (coordinator,) = children(service._guard.pid)  # pylint: disable=protected-access
    named = {"client": os.getpid(), "coordinator": coordinator}
    named.update({f"worker {i}": child for i, child in enumerate(children(coordinator))})
    return named


class ResidentMemory(threading.Thread):
    """Bytes, ten times a second, from the beginning to the end of a `with` block.

    Attributes:
        processes: ids by name.
        samples: (seconds of the monotonic clock, what was done, bytes by name).
        done: the part of the work that is done, 0 to 1, as its owner says.
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
            if len(self.samples) > 4 * _MOST_SAMPLES:  # every second one, half as often from now on
                self.samples = self.samples[::2]
                self._period *= 2

    def peaks(self, name):
        """Largest of the second tenth of the work, and of all that follows."""
        early = [bytes_[name] for _, done, bytes_ in self.samples if 0.1 <= done < 0.2]
        late = [bytes_[name] for _, done, bytes_ in self.samples if 0.2 <= done]
        return max(early, default=0), max(late, default=0)

    def table(self):
        """Lines of a Markdown table."""
        yield "| process | resident MiB, at most, in the second tenth | from then on | growth |"
        yield "| --- | --- | --- | --- |"
        for name in self.processes:
            early, late = self.peaks(name)
            growth = f"{late / early - 1:+.1%}" if early else "-"
            yield f"| {name} | {early / 2**20:.1f} | {late / 2**20:.1f} | {growth} |"


def picture(memories, title):
    """Of one or more, one after the other, over common seconds; processes of one name have one line."""
    sampled = [memory for memory in memories if memory.samples]
    begun = sampled[0].samples[0][0] if sampled else 0.0
    lines = {}
    for memory in sampled:
        every = max(1, len(memory.samples) // _MOST_SAMPLES)
        for at, _, bytes_ in memory.samples[::every]:
            for name in memory.processes:
                lines.setdefault(name, []).append((at - begun, bytes_[name] / 2**20))
    return plot(title, Axis("seconds"), Axis("MiB"), [Series(*line) for line in lines.items()])

"""Counts cache misses with `perf`, of workers that this process or a child of it has started."""
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

_WORKER = "hilbert-ring-worker"[:15]  # the kernel's limit of names
_LIMIT_SECONDS = 30.0


def own_workers() -> List[int]:
    """Returns the process ids of the workers that descend from this process."""
    parents: Dict[int, List[int]] = {}
    names: Dict[int, str] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:  # it has ended
            continue
        pid, name = int(status.parent.name), text[text.index("(") + 1:text.rindex(")")]
        parents.setdefault(int(text[text.rindex(")") + 2:].split()[1]), []).append(pid)
        names[pid] = name
    found, level = [], [os.getpid()]
    while level:
        level = [child for pid in level for child in parents.get(pid, [])]
        found += [pid for pid in level if names[pid] == _WORKER]
    return sorted(found)


def count_misses(run: Callable[[], Any], workers: List[int]) -> Optional[int]:
    """Returns the workers' cache misses during `run`; None: perf is absent, not permitted, or has no such counter."""
    perf = shutil.which("perf")
    if perf is None or not workers:
        return None
    counting = subprocess.Popen(  # runs as long as cat, which echoes a line after perf has begun to count
        [perf, "stat", "-x", ",", "-e", "cache-misses", "-p", ",".join(map(str, workers)), "--", "cat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert counting.stdin is not None and counting.stdout is not None
    try:
        print(file=counting.stdin, flush=True)
        if counting.stdout.readline():
            run()
        _, counts = counting.communicate(timeout=_LIMIT_SECONDS)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        return None
    finally:
        counting.kill()
        counting.wait()
    for line in counts.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2].startswith("cache-misses") and fields[0].isdigit():
            return int(fields[0])
    return None

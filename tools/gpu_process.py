"""Runs a program for a bounded time, keeps a bounded part of what it prints, and leaves no process of
it behind: not where it hangs, and not where it forks children that outlive it.

    adopt_orphans()                                # once
    outcome = run(command, seconds=20, environment={...}, on_line=print)
    outcome.verdict                                # "passed", or "FAILED: ended by SIGSEGV"
"""
import ctypes
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

MOST_OUTPUT = 256 * 1024  # bytes kept, half of them the first and half the last
KILL_SECONDS = 5  # for processes that are killed to be gone
PR_SET_CHILD_SUBREAPER = 36
PASSED = "passed"


@dataclass
class Outcome:
    verdict: str
    code: int | None = None  # of its exit; None where it did not exit by itself
    seconds: float = 0
    output: str = ""
    crashed: bool = False  # hung, or ended by a signal
    left: list = field(default_factory=list)  # names of processes that outlived it, which were ended


class Output:
    """What a program printed: its beginning and its end."""

    def __init__(self, on_line):
        self.first, self.last, self.dropped, self.line = b"", b"", 0, b""
        self.on_line = on_line

    def add(self, chunk):
        if self.on_line:
            *lines, self.line = (self.line + chunk).split(b"\n")
            for line in lines:
                self.on_line(line.decode(errors="replace"))
            self.line = self.line[:4096]  # a line without end
        room = MOST_OUTPUT // 2 - len(self.first)
        self.first, chunk = self.first + chunk[:room], chunk[room:]
        self.last += chunk
        over = max(0, len(self.last) - MOST_OUTPUT // 2)
        self.dropped += over
        self.last = self.last[over:]

    def text(self):
        between = f"\n... {self.dropped} bytes are left out ...\n".encode() if self.dropped else b""
        return (self.first + between + self.last).decode(errors="replace")


def adopt_orphans():
    """From now on this process is the parent of those that its descendants leave behind, whatever
    session they are in."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # a process group is killed still


def descendants():
    """{process id: (its parent's, its name, whether it is a zombie)} of all below this process."""
    processes = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (entry / "stat").read_text(errors="replace").rpartition(")")
        except OSError:
            continue  # it ended meanwhile
        fields = rest.split()
        processes[int(entry.name)] = (int(fields[1]), name.partition("(")[2], fields[0] == "Z")
    found, before = {os.getpid()}, 0
    while len(found) > before:
        before = len(found)
        found |= {pid for pid, (parent, _, _) in processes.items() if parent in found}
    return {pid: processes[pid] for pid in found if pid in processes and pid != os.getpid()}


def end_all(own=0):
    """Kills all descendants: (names of those that lived, names of those that do not end). Process
    `own`, which is not named, is left for its Popen to wait for."""
    lived, end = {}, time.monotonic() + KILL_SECONDS
    while True:
        left = descendants()
        for pid, (parent, name, zombie) in left.items():
            if not zombie:
                if pid != own:
                    lived[pid] = name
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass  # it ended meanwhile
            elif parent == os.getpid() and pid != own:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except OSError:
                    pass
        stuck = [name for _, name, zombie in left.values() if not zombie]
        if not stuck or time.monotonic() > end:
            return sorted(lived.values()), stuck
        time.sleep(0.01)


def read(process, output, end):
    """Reads until the process has exited or time is up: whether it has exited. Children of it may
    hold its output open for longer."""
    stream = process.stdout.fileno()
    os.set_blocking(stream, False)
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        is_open = True
        while True:
            exited = process.poll() is not None
            if is_open:
                selector.select(0 if exited else max(0, min(0.05, end - time.monotonic())))
            else:
                time.sleep(0.01)
            for _ in range(64 if exited else 1):  # what is there, and no more than that
                try:
                    chunk = os.read(stream, 65536) if is_open else b""
                except BlockingIOError:
                    break
                if not chunk:
                    if is_open:
                        selector.unregister(stream)
                    is_open = False
                    break
                output.add(chunk)
            if exited:
                return True
            if time.monotonic() >= end:
                return False


def verdict_of(code):
    if code == 0:
        return PASSED
    if code < 0:
        try:
            return f"FAILED: ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"FAILED: ended by signal {-code}"
    return f"FAILED with {code}"


def run(command, seconds, environment=None, on_line=None):
    start = time.monotonic()
    try:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env={**os.environ, **(environment or {})},
                                   start_new_session=True)
    except OSError as error:
        return Outcome(f"FAILED: does not start: {error.strerror}")
    output = Output(on_line)
    outcome = Outcome("")
    try:
        if read(process, output, start + seconds):
            outcome.code = process.returncode
            outcome.verdict = verdict_of(process.returncode)
            outcome.crashed = process.returncode < 0
        else:
            outcome.verdict = f"FAILED: not done in {seconds:.0f} s"
            outcome.crashed = True
    finally:
        outcome.left, stuck = end_all(process.pid)
        try:
            os.killpg(process.pid, signal.SIGKILL)  # where there is no /proc
        except OSError:
            pass  # nobody is left in it
        try:
            process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            pass  # it is in the driver, and does not come back: it is among the stuck
        process.stdout.close()
    if stuck:
        outcome.verdict = f"FAILED: {', '.join(stuck)} cannot be killed" + (
            f"; {outcome.verdict}" if outcome.verdict != PASSED else "")
    outcome.seconds = time.monotonic() - start
    outcome.output = output.text()
    return outcome

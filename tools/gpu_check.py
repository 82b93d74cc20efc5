#!/usr/bin/env python3
"""Runs the steps of a bundle of tools/gpu_bundle.py on this machine's GPU, and writes one report.

    tar xf gpu_bundle.tar.xz && python3 gpu_bundle/tools/gpu_check.py [--only GROUP,...] [--minutes N] [--report FILE]

It needs Python 3.10 and the GPU's driver. gpu_bundle.json lists the steps, the most important first. A step has a time
limit, after which its process group is killed. The report is written after each step. If a kernel's smoke test hangs
or ends by a signal, the kernel's further steps do not run. The exit code is 0 if all steps passed, and 1 if a step
failed. It is 2 without a GPU, or if the machine's C library is too old.
"""
import argparse
import ctypes
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NO_GPU = 3  # exit code of gpu_bench without a GPU
LEAST_SECONDS = 5  # steps do not begin with less time left
PROBE_SECONDS = 20
KEPT_BYTES, KEPT_LINES = 1 << 18, 100  # of a step's output, in the report
PR_SET_CHILD_SUBREAPER = 36


def fail(message):
    print(f"gpu-check: {message}", file=sys.stderr)
    sys.exit(2)


def children():
    """Yields the pid of each child of this process, and whether it is a zombie."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue  # the process has ended
        if int(parent) == os.getpid():
            yield int(entry.name), state == "Z"


def end_children(seconds=5):
    """Kills processes that a step left behind. Returns whether all ended.

    They are children of this process, because it is a subreaper (main).
    """
    end = time.monotonic() + seconds
    while (left := list(children())) and time.monotonic() < end:
        for pid, ended in left:
            try:
                os.waitpid(pid, os.WNOHANG) if ended else os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # the process has ended
        time.sleep(0.01)
    return not left


def run(command, seconds, environment=()):
    """Runs a command. Returns its exit code (-signal; None: over its time), and the end of its output."""
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       start_new_session=True, env={**os.environ, **dict(environment)})
        except OSError as error:
            return 127, str(error)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError:
                pass  # the group is empty
            if process.poll() is None:
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    pass  # the process hangs in the driver
            end_children()
        output.seek(max(0, output.seek(0, os.SEEK_END) - KEPT_BYTES))
        return code, output.read().decode(errors="replace")


def verdict_of(step, code, output, seconds):
    if code is None:
        return f"FAILED: not done in {seconds:.0f} s"
    if code < 0:
        return f"FAILED: ended by {signal.Signals(-code).name}"
    missing = re.search(r"loading shared libraries: ([^:]*)", output)
    if code == 127 and missing:
        return f"not run: {missing[1]} is not on this machine"
    if code == step.get("absent"):
        return f"not run: {output.strip().rpartition(chr(10))[2]}"
    if code != 0:
        return f"FAILED with {code}"
    if step.get("rows") is not None:
        rows = max(0, sum(line.startswith("| ") and "---" not in line for line in output.split("\n")) - 1)
        least = step["rows"]
        return "passed" if rows >= least else f"FAILED: {rows} rows were printed, must be at least {least}"
    return "passed" if "[       OK ]" in output else "FAILED: no test ran"


class Report:
    """The report as Markdown. Each step replaces the file as a whole."""

    def __init__(self, path, head):
        self.path, self.head, self.state = Path(path), head, "nothing was run yet"
        self.rows, self.parts, self.failed = [], [], 0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.write()

    def add(self, title, verdict, seconds=0.0, output=""):
        print(f"== {title}: {verdict}", flush=True)
        self.failed += verdict.startswith("FAILED")
        cell = " ".join(verdict.split()).replace("|", "/")
        self.rows.append(f"| {title} | {cell} | {seconds:.1f} |")
        lines = re.sub(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]", "", output).split("\n")
        lines = [line[:300] for line in lines if line.strip() and not line.startswith("[       OK ]")][-KEPT_LINES:]
        if lines and not (verdict == "passed" and "[  PASSED  ]" in output):
            self.parts.append("\n".join([f"\n## {title}\n", "``````", *lines, "``````"]))
        self.write()

    def write(self, state=None):
        self.state = state or self.state
        text = "\n".join([
            "# GPU check\n", *self.head, f"- {len(self.rows)} steps, {self.failed} failed; {self.state}\n",
            "| step | verdict | seconds |", "| --- | --- | --- |", *self.rows, *self.parts, ""])
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(text, encoding="utf-8", errors="replace")
        os.replace(beside, self.path)


class Check:
    def __init__(self, manifest, report, capability, end):
        self.report, self.capability, self.end = report, capability, end
        self.device = step_command(manifest["device"], "")
        self.stopped, self.broken = "", set()

    def why_not(self, step):
        if self.stopped:
            return self.stopped
        if not step.get("least", 0) <= self.capability <= step.get("most", 99):
            return f"compute capability {self.capability}"
        if step["command"][0] == "compute-sanitizer" and not shutil.which("compute-sanitizer"):
            return "compute-sanitizer not found"
        if step.get("kernel") in self.broken:
            return f"{step['kernel']} failed its smoke test"
        return "no time was left" if self.end - time.monotonic() < LEAST_SECONDS else ""

    def run(self, step, values):
        why = self.why_not(step)
        if why:
            self.report.add(step["title"], f"not run: {why}")
            return
        self.report.write(f"{step['title']} is under way since {time.strftime('%H:%M:%S', time.gmtime())} UTC")
        start = time.monotonic()
        seconds = min(step["seconds"], self.end - start)
        code, output = run(step_command(step["command"], values), seconds, step.get("environment", {}))
        self.report.add(step["title"], verdict_of(step, code, output, seconds), time.monotonic() - start, output)
        if code is None or code < 0:
            if step["group"] == "smoke":
                self.broken.add(step["kernel"])
            if run(self.device, PROBE_SECONDS)[0] != 0 and run(self.device, PROBE_SECONDS)[0] != 0:
                self.stopped = "the GPU does not answer any more"
                self.report.add("The GPU, after that", "FAILED: it does not answer")


def step_command(words, values):
    """Returns a step's command, with {bin}, {root}, {python} and the file {values} of gpu_bench's numbers filled in."""
    return [word.format(bin=ROOT / "bin", root=ROOT, values=values, python=sys.executable) for word in words]


def libraries():
    """Returns LD_LIBRARY_PATH: the bundle's libraries, those of CUDA's Python packages, and the present folders."""
    packages = [lib for entry in sys.path if entry for lib in sorted(Path(entry).glob("nvidia/*/lib"))]
    return ":".join([str(ROOT / "lib"), *map(str, packages), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])


def parse(groups):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", default=str(ROOT / "build" / "gpu_check.md"))
    parser.add_argument("--minutes", type=float, default=9.5, help="for all steps together")
    parser.add_argument("--only", default=",".join(groups), help="groups of steps: " + ", ".join(groups))
    options = parser.parse_args()
    options.only = options.only.split(",")
    for group in options.only:
        if group not in groups:
            parser.error(f"--only has {group}, must be of {', '.join(groups)}")
    return options


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    manifest = json.loads((ROOT / "gpu_bundle.json").read_text())
    options = parse(list(dict.fromkeys(step["group"] for step in manifest["steps"])))
    name, version = platform.libc_ver()
    has, needs = ([int(part) for part in text.split(".")] for text in (version or "0", manifest["glibc"]))
    if name != "glibc" or has < needs:
        fail(f"the bundle needs glibc {manifest['glibc']}; this machine has {name} {version}")
    end = time.monotonic() + 60 * options.minutes
    signal.signal(signal.SIGTERM, interrupted)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.environ.update(LD_LIBRARY_PATH=libraries(), HILBERT_RING_TEST_DEPTH="all",
                      HILBERT_RING_GOLDEN_DIR=str(ROOT / "tests/golden/cases"),
                      HILBERT_RING_RANK_BINARY=str(ROOT / "bin/ring_rank"))
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    head = [f"- revision {manifest['revision']}, {platform.platform()}, Python {platform.python_version()}",
            f"- {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; the bundle needs glibc {manifest['glibc']}"]
    report = Report(options.report, head)
    code, gpu = run(step_command(manifest["device"], ""), PROBE_SECONDS)
    if code != 0:
        report.add("The GPU", "FAILED: it does not answer", 0, gpu)
        report.write("there is no GPU that answers: nothing was run")
        sys.exit(2 if code == NO_GPU else 1)
    smi = run(["nvidia-smi", "--query-gpu=driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"],
              PROBE_SECONDS)
    head.insert(0, f"- GPU: {gpu.strip()}; by nvidia-smi (driver, memory, most clock): {' '.join(smi[1].split())}")
    check = Check(manifest, report, float(gpu.rpartition("compute capability ")[2]), end)
    with tempfile.NamedTemporaryFile(suffix=".f32") as values:
        run([*step_command(manifest["device"][:1], ""), f"--values={values.name}"], PROBE_SECONDS)
        try:
            for step in manifest["steps"]:
                if step["group"] in options.only:
                    check.run(step, values.name)
        except KeyboardInterrupt:
            end_children()
            report.write(f"it was ended from outside; the last: {report.state}")
            sys.exit(1)
    report.write("all that was to be run was run")
    print(f"== report: {options.report}")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks and measures the engine on a GPU, and writes one report.

    tools/gpu_check.py [--binaries FOLDER|BUNDLE] [--report FILE] [--minutes N] [--only GROUP,...]

builds the engine alone (no gRPC, nothing downloaded or installed) into build/gpu, or takes the
programs from FOLDER, wherever they lie below it, or from a bundle of tools/gpu_bundle.py for a machine
without the libraries; unpacked, a bundle runs its own by tools/gpu_check.py alone. Python is all that
this needs.

The steps are in the order in which they are worth a lent GPU's minutes (gpu_steps.py): a smoke test of
each kernel (smoke); layers in bfloat16, the published job, PyTorch beside them where it is there
(bench); correctness of each kernel, the sanitizer's checkers, rings over NCCL, the service (correct); other
benchmarks (more); random jobs (random). Each is a process of its own, of which nothing is left when its
time is up, and the report is whole after each. Kernels that hang or fault are measured no further. The
GPU must have cuDNN.

Exits with 0 when all passed, with 1 when something failed, and with 2 when there is no GPU or the
programs cannot be had.
"""
import argparse
import atexit
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu_process
import gpu_service
import gpu_steps
import gpu_tables
from gpu_process import PASSED, Outcome
from gpu_report import Report, cell, cleaned, fenced

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = "gpu_bundle.json"
TORCH_SCRIPTS = [ROOT / "bench" / name for name in gpu_steps.TORCH_SCRIPTS]
OWN_LIBRARIES = os.environ.get("LD_LIBRARY_PATH", "")  # without those of a bundle, for PyTorch
NO_GPU = 3  # exit of gpu_bench
PROBE_SECONDS = 20
MOST_TABLES, MOST_ROWS = 4, 100  # of a step, in the report
LEAST_SECONDS = 5  # that a step is worth beginning for


def fail(message):
    print(f"gpu-check: {message}", file=sys.stderr)
    sys.exit(2)


def output_of(*command):
    """What a command prints, or "" when it is not there, fails or hangs."""
    done = gpu_process.run(command, PROBE_SECONDS)
    return done.output.strip() if done.verdict == PASSED else ""


def build(folder, log):
    if shutil.which("nvcc") is None and not Path("/usr/local/cuda/bin/nvcc").exists():
        fail("no nvcc to build with; name built programs by --binaries")
    jobs = str(os.cpu_count() or 1)
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release",
                 "-DHILBERT_RING_SERVICE=OFF", "-DHILBERT_RING_CUDA=ON"]
    if shutil.which("ninja") is not None:
        configure += ["-G", "Ninja"]
    for command in (configure, ["cmake", "--build", str(folder), "-j", jobs, "--target",
                                *gpu_steps.PROGRAMS]):
        print(f"== {' '.join(command)}", flush=True)
        with open(log, "ab") as to:
            if subprocess.run(command, stdout=to, stderr=to, check=False).returncode != 0:
                sys.stderr.write("".join(open(log, errors="replace").readlines()[-30:]))
                fail(f"the engine does not build here, see {log}; its libraries are Abseil, "
                     "nlohmann-json, Highway, Gloo, oneDNN and GoogleTest")


def find_programs(folder):
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.name in gpu_steps.PROGRAMS + gpu_service.NEEDS and path.is_file() and os.access(
                path, os.X_OK):
            found.setdefault(path.name, path.resolve())
    return found


def libraries(folder):
    """Folders of shared libraries: those of a bundle, and CUDA's that came with Python packages."""
    packages = [Path(entry) / "nvidia" for entry in sys.path if entry]
    folders = [Path(folder).resolve() / "lib", *(lib for package in packages if package.is_dir()
                                                 for lib in sorted(package.glob("*/lib")))]
    return ":".join([str(path) for path in folders if path.is_dir()]
                    + [known for known in OWN_LIBRARIES.split(":") if known])


def manifest_of(folder):
    """What a bundle says of itself; fails where this machine's C library is too old for it."""
    try:
        manifest = json.loads((Path(folder) / MANIFEST).read_text())
    except (OSError, ValueError):
        return {}
    name, version = platform.libc_ver()
    numbers = [tuple(int(part) for part in text.split(".")) for text in
               (manifest["glibc"], version or "0")]
    if name != "glibc" or numbers[1] < numbers[0]:
        fail(f"the bundle needs glibc {manifest['glibc']}; this machine has {name} {version}")
    return manifest


def passed_tests(outcome):
    return sum(line.startswith("[       OK ]") for line in outcome.output.split("\n"))


def judged(step, outcome, gpu):
    """The verdict, once what was printed is looked at too."""
    if outcome.code == 127 and "error while loading shared libraries: " in outcome.output:
        missing = outcome.output.partition("shared libraries: ")[2].partition(":")[0]
        return f"not run: {missing} is not on this machine"
    if step.program in gpu_steps.TORCH_SCRIPTS and outcome.code == 2:  # something that it needs is not here
        why = outcome.output.strip().rpartition("\n")[2]
        return f"not run: {why.removeprefix(step.program.removesuffix('.py') + ': ')}"
    if outcome.verdict != PASSED:
        return outcome.verdict
    if step.rows:
        kernel = step.kernel if step.program == "gpu_bench" else ""
        why = gpu_tables.judge(outcome.output, step.rows, kernel, gpu)
        return f"FAILED: {why}" if why else PASSED
    if passed_tests(outcome) == 0:
        return "FAILED: no test ran"
    if "[  FAILED  ]" in outcome.output or "[  PASSED  ]" not in outcome.output:
        return "FAILED: it exits with 0, and not all of its tests passed"
    skipped = sum(line.startswith("[  SKIPPED ]") for line in outcome.output.split("\n"))
    return f"{PASSED}, {skipped} skipped" if skipped else PASSED


def told(step, verdict, outcome):
    """The part of a step's output that belongs into the report."""
    parts = []
    if step.rows:
        tables, others = gpu_tables.split("\n".join(cleaned(outcome.output)))
        parts = ["\n".join(table[:MOST_ROWS]) for table in tables[:MOST_TABLES]]
        parts.append(fenced("\n".join(others), 20))
    elif not verdict.startswith(PASSED):
        lines = [line for line in outcome.output.split("\n") if "[       OK" not in line]
        parts = [fenced("\n".join(lines))]
    if outcome.left:
        parts.append(f"It left processes behind, which were ended: {cell(', '.join(outcome.left))}.")
    return "\n\n".join(part for part in parts if part)


class Check:
    def __init__(self, programs, report, gpu, end, patience):
        self.programs, self.report, self.gpu = programs, report, gpu
        self.end, self.patience = end, patience
        self.checker = shutil.which("compute-sanitizer") or shutil.which(
            "compute-sanitizer", path="/usr/local/cuda/bin")
        self.broken = {}  # kernel: why it is not measured further
        self.lost = ""  # why nothing more is run
        self.rows = []

    def command(self, step):
        words = [str(self.programs[step.program]), *step.arguments]
        if step.program in gpu_steps.TORCH_SCRIPTS:
            return [sys.executable, *words]
        return [self.checker, "--error-exitcode=9", *step.checker, *words] if step.checker else words

    def why_not(self, step):
        if self.lost:
            return f"not run: {self.lost}"
        if step.program not in {*self.programs, gpu_steps.SERVICE}:
            return "not there"
        if step.checker and self.checker is None:
            return "not run: compute-sanitizer not found"
        if step.kernel in self.broken:
            why, starts = self.broken[step.kernel]
            # Where it breaks, tests can say.
            if not starts or step.program != "attention_test" or step.checker:
                return f"not run: {why}"
        if self.end - time.monotonic() < LEAST_SECONDS:
            return "not run: no time was left"
        return ""

    def outcome_of(self, step):
        seconds = min(self.patience * step.seconds, self.end - time.monotonic())
        if step.program == gpu_steps.SERVICE:
            verdict, taken, text = gpu_service.run(self.programs, "cuda:0", seconds)
            outcome = Outcome(verdict, seconds=taken)
            outcome.left = gpu_process.end_all()[0]
            return outcome, text
        environment = dict(step.environment)
        if step.program in gpu_steps.TORCH_SCRIPTS:
            environment["LD_LIBRARY_PATH"] = OWN_LIBRARIES
        outcome = gpu_process.run(
            self.command(step), seconds, environment,
            lambda line: gpu_tables.is_row(line) and print(*cleaned(line), flush=True))
        outcome.verdict = judged(step, outcome, self.gpu)
        return outcome, told(step, outcome.verdict, outcome)

    def run(self, step):
        print(f"== {step.title}", flush=True)
        self.report.begin(step.title)
        why = self.why_not(step)
        if why:
            print(f"   {why}", flush=True)
            self.report.add(step.title, why, 0, 0)
            return
        outcome, text = self.outcome_of(step)
        print(f"   {outcome.verdict}", flush=True)
        if step.rows:
            self.rows += gpu_tables.rows_of(outcome.output)
            self.report.summary = gpu_tables.beside(self.rows)
        if step.group == "smoke":
            self.learn(step, outcome)
        self.report.add(step.title, outcome.verdict, passed_tests(outcome), outcome.seconds, text)
        if outcome.crashed:
            self.probe()

    def learn(self, step, outcome):
        """What a smoke test says of a kernel. One that is wrong is measured all the same."""
        rows = gpu_tables.rows_of(outcome.output)
        starts = any(row.get("pattern") == "starts" and not row.get("error", "").startswith("not run")
                     for row in rows)
        faults = any(row.get("error", "").startswith("not run") for row in rows)
        if outcome.verdict != PASSED and (outcome.crashed or faults or not starts):
            self.broken[step.kernel] = (f"{step.kernel} failed its smoke test", starts)

    def probe(self):
        """After a crash: whether the GPU still answers, asked twice."""
        command = [str(self.programs.get("gpu_bench", "gpu_bench")), "--part=device"]
        for wait in (0, 5):
            time.sleep(wait)
            outcome = gpu_process.run(command, self.patience * PROBE_SECONDS)
            if outcome.verdict == PASSED:
                return
        self.lost = "the GPU does not answer any more"
        self.report.add("The GPU, after that", f"FAILED: it does not answer ({outcome.verdict})", 0,
                        outcome.seconds, fenced(outcome.output))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binaries", help="folder or bundle of built programs; nothing is built then")
    parser.add_argument("--report", default=str(ROOT / "build" / "gpu_check.md"))
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything together")
    parser.add_argument("--only", default=",".join(gpu_steps.GROUPS),
                        help="groups of steps: " + ", ".join(gpu_steps.GROUPS))
    parser.add_argument("--quick", action="store_true",
                        help="small sizes and one round each, to see that it runs")
    parser.add_argument("--patience", type=float, default=1,
                        help="times each step's seconds: more than 1 for a slower machine")
    options = parser.parse_args()
    options.only = options.only.split(",")
    for group in options.only:
        if group not in gpu_steps.GROUPS:
            parser.error(f"--only has {group}, must be of {', '.join(gpu_steps.GROUPS)}")
    return options


def programs_of(options):
    """(folder, programs in it) as built, unpacked or made now."""
    folder = Path(options.binaries) if options.binaries else ROOT / "build" / "gpu"
    if not options.binaries and (ROOT / MANIFEST).exists():
        folder = ROOT  # this is an unpacked bundle
    elif not options.binaries:
        folder.mkdir(parents=True, exist_ok=True)
        build(folder, folder / "gpu_check_build.log")
    elif folder.is_file():
        unpacked = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, unpacked, ignore_errors=True)
        shutil.unpack_archive(folder, unpacked)
        folder = next((path.parent for path in Path(unpacked).glob(f"*/{MANIFEST}")), Path(unpacked))
    programs = find_programs(folder)
    if "gpu_bench" not in programs:
        fail(f"gpu_bench is not in {folder}")
    programs.update((script.name, script) for script in TORCH_SCRIPTS if script.exists())
    return folder, programs


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    options = parse()
    end = time.monotonic() + 60 * options.minutes
    signal.signal(signal.SIGTERM, interrupted)
    gpu_process.adopt_orphans()
    folder, programs = programs_of(options)
    manifest = manifest_of(folder)
    os.environ["LD_LIBRARY_PATH"] = libraries(folder)
    os.environ["HILBERT_RING_TEST_DEPTH"] = "all"
    os.environ["HILBERT_RING_GOLDEN_DIR"] = str(ROOT / "tests" / "golden" / "cases")
    if "ring_rank" in programs:
        os.environ["HILBERT_RING_RANK_BINARY"] = str(programs["ring_rank"])

    revision = manifest.get("revision") or output_of(
        "git", "-C", str(ROOT), "rev-parse", "--short", "HEAD") or "unknown"
    head = [f"- revision {revision}, {platform.platform()}, Python {platform.python_version()}",
            f"- {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}"]
    if manifest:
        head.append(f"- a bundle of {manifest['bytes'] / 2**20:.0f} MiB, which needs glibc "
                    f"{manifest['glibc']}")
    report = Report(options.report, head)
    device = gpu_process.run([str(programs["gpu_bench"]), "--part=device"],
                             options.patience * PROBE_SECONDS)
    if device.verdict != PASSED:
        report.add("The GPU", f"FAILED: it does not answer ({device.verdict})", 0, device.seconds,
                   fenced(device.output))
        print(f"gpu-check: {device.verdict}: {' '.join(cleaned(device.output))}", file=sys.stderr)
        report.end("there is no GPU that answers: nothing was run")
        sys.exit(2 if device.code == NO_GPU else 1)
    gpu = cell(device.output.strip())
    smi = output_of("nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm",
                    "--format=csv,noheader")
    report.head = [f"- GPU: {gpu}; by nvidia-smi (name, driver, memory, most clock): "
                   f"{cell(smi) or 'not found'}", *head]
    kernels = gpu_steps.kernels_of(gpu.rpartition("compute capability ")[2])
    values = tempfile.NamedTemporaryFile(suffix=".f32")  # until the end of the process
    gpu_process.run([str(programs["gpu_bench"]), f"--values={values.name}"], PROBE_SECONDS)
    check = Check(programs, report, gpu, end, options.patience)
    try:
        for step in gpu_steps.steps(kernels, values.name, options.quick):
            if step.group in options.only:
                check.run(step)
        report.end()
    except KeyboardInterrupt:
        gpu_process.end_all()
        report.end(f"it was ended from outside; the last: {report.state}")
        sys.exit(1)
    print(f"== report: {options.report}")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()

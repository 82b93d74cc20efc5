#!/usr/bin/env python3
"""Checks and measures the engine on a GPU, and writes one report.

    tools/gpu_check.py [--binaries FOLDER|BUNDLE] [--report FILE] [--minutes N]

builds the engine alone (no gRPC, nothing downloaded or installed) into build/gpu, or takes the
programs from FOLDER, wherever they lie below it, or from a bundle that tools/gpu_bundle.py made
for a machine without the libraries. Then it runs the device's tests, every golden case and the
random jobs for each of the GPU's kernels, the memory checker over a part of them, rings of 2 and 4
processes over NCCL and one of them killed, the benchmark, PyTorch's attention on the same numbers
where PyTorch is there, and a job through the service where its programs are there, and writes what
came of it as Markdown. Exits with 0 when all passed, with 1 when something failed, and with 2 when
there is no GPU or the programs cannot be had.
"""
import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu_service

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ["device_test", "attention_test", "engine_golden_test", "engine_random_test",
            "communicator_conformance_test", "ring_processes_test", "ring_rank", "gpu_bench",
            "gpu_graph_bench"]
SERVICE = ["hilbert-ring-coordinator", "hilbert-ring-worker", "hilbert-ring"]
PEERS = ROOT / "tests" / "bench" / "gpu_peers.py"
GPU = {"HILBERT_RING_TEST_KERNEL": "cuda"}
# PyTorch brings its own libraries, which those of a bundle must not replace.
OWN_LIBRARIES = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}

# Title, program, arguments, environment, seconds at most, run under the memory checker.
STEPS = [
    ("Device", "device_test", ["--gtest_filter=*cuda*:MakeDevice*"], {}, 60, False),
    ("Attention against float64", "attention_test", ["--gtest_filter=*cuda*"], {}, 120, False),
    ("Golden cases", "engine_golden_test", ["--gtest_filter=*AllKernels*"], GPU, 120, False),
    ("Random jobs", "engine_random_test", ["--gtest_filter=*AllKernels*"], GPU, 120, False),
    ("Communicators", "communicator_conformance_test", [], {}, 90, False),
    ("Rings over NCCL, 2 and 4 processes on one GPU", "ring_processes_test",
     ["--gtest_filter=*nccl*"], {}, 90, False),
    ("Benchmark", "gpu_bench", ["--values={values}"], {}, 180, False),
    ("Launches beside a graph of them", "gpu_graph_bench", [], {}, 30, False),
    ("PyTorch on the same GPU", PEERS.name, ["--values={values}"], OWN_LIBRARIES, 90, False),
    ("Memory checker: attention", "attention_test",
     ["--gtest_filter=*EveryDim*cuda*:*ManyRows*cuda*:*TinySegments*cuda*:*WithoutKeys*cuda*"], {},
     90, True),
    ("Memory checker: device", "device_test",
     ["--gtest_filter=*cuda*:-*NoMemory*:*EveryHalf*:*RoundsAsNumbersDo*"], {}, 60, True),
]
MEASURE = ("gpu_bench", "gpu_graph_bench", PEERS.name, "service")


def fail(message):
    print(f"gpu-check: {message}", file=sys.stderr)
    sys.exit(2)


def output_of(*command):
    """What a command prints, or None when it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def gpu():
    query = "name,driver_version,memory.total,clocks.max.sm"
    return output_of("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")


def build(folder, log):
    if shutil.which("nvcc") is None and not Path("/usr/local/cuda/bin/nvcc").exists():
        fail("no nvcc to build with; name built programs by --binaries")
    jobs = str(os.cpu_count() or 1)
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release",
                 "-DHILBERT_RING_SERVICE=OFF", "-DHILBERT_RING_BENCH=ON", "-DHILBERT_RING_CUDA=ON"]
    if shutil.which("ninja") is not None:
        configure += ["-G", "Ninja"]
    for command in (configure, ["cmake", "--build", str(folder), "-j", jobs, "--target", *PROGRAMS]):
        print(f"== {' '.join(command)}", flush=True)
        with open(log, "ab") as to:
            if subprocess.run(command, stdout=to, stderr=to, check=False).returncode != 0:
                sys.stderr.write("".join(open(log, errors="replace").readlines()[-30:]))
                fail(f"the engine does not build here, see {log}; its libraries are Abseil, "
                     "nlohmann-json, Highway, Gloo and GoogleTest")


def find_programs(folder):
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.name in PROGRAMS + SERVICE and path.is_file() and os.access(path, os.X_OK):
            found.setdefault(path.name, path.resolve())
    return found


def libraries(folder):
    """Folders of shared libraries: those of a bundle, and CUDA's that came with Python packages."""
    packages = [Path(entry) / "nvidia" for entry in sys.path if entry]
    folders = [Path(folder).resolve() / "lib", *(lib for package in packages if package.is_dir()
                                                 for lib in sorted(package.glob("*/lib")))]
    known = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return ":".join([str(path) for path in folders if path.is_dir()] + [k for k in known if k])


def kernels(programs):
    """(verdict, list) of the kernels that the tests find; those of Hopper must be found there."""
    if "attention_test" not in programs:
        return "not there", ""
    listed = output_of(str(programs["attention_test"]), "--gtest_list_tests") or ""
    found = [name for name in ("cuda_native", "cuda_native_sm90", "cuda_cudnn")
             if f"NamesItsKernel/{name} " in listed + " "]
    capability = output_of("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader") or ""
    needed = ["cuda_native"] + ["cuda_native_sm90"] * capability.startswith("9.0")
    missing = [name for name in needed if name not in found]
    verdict = f"FAILED: {', '.join(missing)} not found" if missing else "passed"
    return verdict, f"Found: {', '.join(found) or 'none'}; compute capability {capability}."


def run(step, programs, values, checker, seconds_left):
    """(verdict, seconds, output) of one step."""
    _, name, arguments, environment, limit, checked = step
    if name not in programs:
        return "not there", 0, ""
    if checked and checker is None:
        return "not run: compute-sanitizer not found", 0, ""
    limit = min(limit, seconds_left)
    if limit < 5:
        return "not run: no time was left", 0, ""
    command = [str(programs[name]), *(word.format(values=values) for word in arguments)]
    if name == PEERS.name:
        command = [sys.executable, *command]
    if checked:
        # Libraries probe the GPU by calls that may fail.
        command = [checker, "--error-exitcode=9", "--leak-check=full", "--report-api-errors=no",
                   *command]
    start = time.monotonic()
    try:
        done = subprocess.run(command, env={**os.environ, **environment}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit,
                              errors="replace", check=False)
        verdict = "passed" if done.returncode == 0 else f"FAILED with {done.returncode}"
        output = done.stdout
    except subprocess.TimeoutExpired as expired:
        verdict = f"FAILED: not done in {limit:.0f} s"
        output = expired.stdout or ""
        if isinstance(output, bytes):
            output = output.decode(errors="replace")
    seconds = time.monotonic() - start
    if name == PEERS.name and verdict == "FAILED with 2":  # something that it needs is not here
        why = output.strip().rpartition("\n")[2]
        return f"not run: {why.removeprefix('gpu_peers: ')}", seconds, ""
    if verdict == "passed" and name not in MEASURE and "[       OK ]" not in output:
        verdict = "FAILED: no test ran"
    return verdict, seconds, output


def told(step, verdict, output):
    """The part of a step's output that belongs into the report."""
    if step[1] in MEASURE:
        return output.strip()
    if verdict == "passed":
        return ""
    lines = [line for line in output.splitlines() if "[ RUN" not in line and "[       OK" not in line]
    return "```\n" + "\n".join(lines[-60:]) + "\n```"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binaries", help="folder or bundle of built programs; nothing is built then")
    parser.add_argument("--report", default=str(ROOT / "build" / "gpu_check.md"))
    parser.add_argument("--minutes", type=float, default=9.5, help="for everything together")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes

    device = gpu()
    if not device:
        fail("no CUDA device: nvidia-smi is not here or finds none")
    report = Path(options.report)
    report.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(options.binaries) if options.binaries else ROOT / "build" / "gpu"
    if folder.is_file():
        unpacked = tempfile.TemporaryDirectory()  # until the end of the process
        shutil.unpack_archive(folder, unpacked.name)
        folder = Path(unpacked.name)
    if not options.binaries:
        folder.mkdir(parents=True, exist_ok=True)
        build(folder, folder / "gpu_check_build.log")
    programs = find_programs(folder)
    if not programs:
        fail(f"none of {', '.join(PROGRAMS)} is in {folder}")
    programs[PEERS.name] = PEERS
    values = tempfile.NamedTemporaryFile(suffix=".f32")  # until the end of the process
    checker = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin")

    os.environ["LD_LIBRARY_PATH"] = libraries(folder)
    os.environ["HILBERT_RING_GOLDEN_DIR"] = str(ROOT / "tests" / "golden" / "cases")
    if "ring_rank" in programs:
        os.environ["HILBERT_RING_RANK_BINARY"] = str(programs["ring_rank"])

    verdict, text = kernels(programs)
    rows, parts = [f"| Kernels of this GPU | {verdict} | | |"], [f"## Kernels\n\n{text}\n"]
    for step in [*STEPS, ("Service: a job on two workers of one GPU", "service")]:
        print(f"== {step[0]}", flush=True)
        seconds_left = end - time.monotonic()
        if step[1] == "service":
            verdict, seconds, output = gpu_service.run(programs, "cuda:0", min(60, seconds_left))
        else:
            verdict, seconds, output = run(step, programs, values.name, checker, seconds_left)
        passed = output.count("[       OK ]")
        rows.append(f"| {step[0]} | {verdict} | {passed or ''} | {seconds:.1f} |")
        print(f"   {verdict}", flush=True)
        text = told(step, verdict, output)
        if text:
            parts.append(f"## {step[0]}\n\n{text}\n")
    revision = output_of("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD") or "unknown"
    nvcc = (output_of("nvcc", "--version") or "no nvcc here").splitlines()[-1]
    head = [f"# GPU check\n", f"- GPU (name, driver, memory, most clock): {device}",
            f"- revision {revision}, {nvcc}, {platform.platform()}",
            f"- {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}\n",
            "| step | verdict | tests passed | seconds |", "| --- | --- | --- | --- |"]
    report.write_text("\n".join(head + rows) + "\n\n" + "\n".join(parts))
    print(f"== report: {report}")
    failed = any("FAILED" in row for row in rows)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

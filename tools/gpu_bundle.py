#!/usr/bin/env python3
"""Packs tools/gpu_check.py, its list of steps, their programs and the shared libraries that these need.

    tools/gpu_bundle.py [--build FOLDER] [--to FILE]

strips the programs of a build (build/release) and the libraries that they load, except the libraries of the system, the
GPU's driver and CUDA. It packs them with the golden cases and the Python files into build/gpu_bundle.tar.xz (or .tar,
which is quicker). A machine needs the GPU's driver. cuDNN's kernel needs libcudnn.so.9, encoders libcublasLt.so.13,
and the programs under "needs" in gpu_bundle.json NCCL: from CUDA's folder, the system or Python packages (PyTorch).
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "gpu_bundle"

# Libraries of the system, the driver and CUDA.
SYSTEM = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so",
          "libresolv.so")
CUDA = ("libcuda.so", "libnccl.so", "libcudnn", "libcudart")
GOLDEN = ROOT / "tests" / "golden"
FILES = [ROOT / name for name in (
    "tools/gpu_check.py", "tools/gpu_service.py", "bench/gpu_peers.py", "bench/gpu_streams.py",
    "client/python/hilbert_ring/_torch_streams.py", "tests/golden/attention_oracle.py")]
PROGRAMS = ["gpu_bench", "gpu_encoder_bench", "hopper_alone", "device_test", "row_math_test",
            "attention_test", "engine_golden_test", "engine_encoder_golden_test", "engine_random_test",
            "ring_processes_test", "ring_rank", "hilbert-ring-coordinator", "hilbert-ring-worker", "hilbert-ring"]
HOPPER = {"least": 9.0, "most": 9.9}  # compute capability
KERNELS = {"cuda/native": {}, "cuda/native-sm90": HOPPER, "cuda/native-sm90-pipelined": HOPPER,
           "cuda/cudnn": {"least": 8.0}}
TOKENS = [425_984, 4_194_304]  # of the published job, and of a job that fills more of a GPU


def steps():
    """Returns the steps, the most important first. A step prints at least "rows" rows of tables, or passes a test.

    "absent" is the exit code of a step that lacks something on the machine.
    """
    found = []

    def add(group, title, seconds, command, **more):
        found.append({"group": group, "title": title, "seconds": seconds, "command": command, **more})

    def of_kernels(group, title, seconds, program, *words, kernels=KERNELS, environment=None, **more):
        for kernel in kernels:
            variables = {} if environment is None else {
                "environment": {"HILBERT_RING_TEST_KERNEL": kernel, **environment}}
            name = kernel.replace("/", "_").replace("-", "_")
            add(group, f"{title}, {kernel}", seconds,
                ["{bin}/" + program, *(word.replace("KERNEL", kernel).replace("NAME", name) for word in words)],
                kernel=kernel, **KERNELS.get(kernel, {}), **more, **variables)

    def peers(group, title, seconds, rows, *words):
        add(group, f"PyTorch: {title}", seconds,
            ["{python}", "{root}/bench/gpu_peers.py", *words, "--values", "{values}"], rows=rows, absent=2)

    def tests(title, seconds, program, *words, **environment):
        add("correct", title, seconds, ["{bin}/" + program, *words], environment=environment)

    of_kernels("smoke", "Smoke test", 20, "gpu_bench", "--part=smoke", "--kernel=KERNEL", rows=18)
    add("service", "Service: the reports' pattern by phases, one worker", 120,
        ["{python}", "{root}/tools/gpu_service.py", "{bin}", "cuda:0", "--phases"], rows=6)
    add("service", "Copies between host memory and the GPU", 30, ["{bin}/gpu_bench", "--part=copies"], rows=2)
    add("service", "Service: jobs on two workers of one GPU", 60,
        ["{python}", "{root}/tools/gpu_service.py", "{bin}", "cuda:0"], rows=2)
    tests("Rings over NCCL, 2 and 4 processes on one GPU", 60, "ring_processes_test", "--gtest_filter=*nccl*")
    of_kernels("bench", "Causal layers", 30, "gpu_bench", "--part=causal", "--kernel=KERNEL", rows=8)
    of_kernels("bench", "Few queries", 30, "gpu_bench", "--part=few", "--kernel=KERNEL", rows=3)
    of_kernels("bench", "Layers in bfloat16", 45, "gpu_bench", "--part=layers", "--kernel=KERNEL", rows=12)
    for tokens in TOKENS:
        of_kernels("bench", f"Job of {tokens:,} tokens", 30, "gpu_bench", "--part=jobs", f"--tokens={tokens}",
                   "--kernel=KERNEL", kernels=[*KERNELS, "cuda"], rows=1)
    peers("bench", "layers in bfloat16", 60, 10, "--part=layers")
    for tokens in TOKENS:
        peers("bench", f"job of {tokens:,} tokens", 45, 2, "--part=jobs", f"--tokens={tokens}")
    for compute in ("bfloat16", "float32"):
        add("bench", f"Encoder of the published size, {compute}", 60,
            ["{bin}/gpu_encoder_bench", "--kernel=cuda", f"--compute={compute}"], rows=1)
    of_kernels("correct", "Attention against float64", 90, "attention_test", "--gtest_filter=*/NAME")
    of_kernels("correct", "Golden cases", 90, "engine_golden_test", "--gtest_filter=*AllKernels*", environment={})
    tests("Device", 60, "device_test", "--gtest_filter=*cuda*")
    tests("Rows of models", 60, "row_math_test")
    tests("Golden encoders", 120, "engine_encoder_golden_test", HILBERT_RING_TEST_KERNEL="cuda")
    add("correct", "PyTorch: rows and results of the caller's stream", 60, ["{python}", "{root}/bench/gpu_streams.py"],
        rows=0, absent=2)
    # racecheck finds races in shared memory, synccheck warps that diverge at an instruction of a group.
    for title, tool in (("Races", "racecheck"), ("Order of instructions", "synccheck")):
        add("correct", f"{title}, the Hopper kernels alone", 40,
            ["compute-sanitizer", "--error-exitcode=9", f"--tool={tool}", "{bin}/hopper_alone", "--quick"], rows=10,
            **HOPPER)
    for kernel in [name for name in KERNELS if name != "cuda/cudnn"]:
        name = kernel.replace("/", "_").replace("-", "_")
        # Libraries probe the GPU by calls that may fail.
        add("correct", f"Memory checker, {kernel}", 60,
            ["compute-sanitizer", "--error-exitcode=9", "--tool=memcheck", "--leak-check=full",
             "--report-api-errors=no", "{bin}/attention_test", "--gtest_filter=" + ":".join(
                 f"*{test}*/{name}" for test in ("EveryDim", "ManyRows", "TinySegments", "WithoutKeys"))],
            kernel=kernel, **KERNELS[kernel])
    add("more", "Small jobs", 20, ["{bin}/gpu_bench", "--part=small", "--kernel=cuda"], rows=1)
    add("more", "The Hopper kernels alone", 40, ["{bin}/hopper_alone"], rows=10, **HOPPER)
    for dtype, kernels in (("float16", KERNELS), ("float32", ["cuda/native"])):
        of_kernels("more", f"Layers in {dtype}", 45, "gpu_bench", "--part=layers", f"--type={dtype}", "--kernel=KERNEL",
                   kernels=kernels, rows=12)
    peers("more", "layers in float16", 60, 10, "--part=layers", "--type=float16")
    add("more", "A job that fills the GPU's memory", 60, ["{bin}/gpu_bench", "--part=resident", "--kernel=cuda"],
        rows=1)
    of_kernels("random", "Random jobs", 80, "engine_random_test", "--gtest_filter=*AllKernels*",
               environment={"HILBERT_RING_RANDOM_SECONDS": "30"})
    return found


def find_programs(folder):
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.name in PROGRAMS and path.is_file() and os.access(path, os.X_OK):
            found.setdefault(path.name, path.resolve())
    return found


def output_of(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=True).stdout


def loaded(program):
    """{name: path} of the shared libraries that a program loads."""
    words = (line.split() for line in output_of("ldd", program).splitlines())
    return {line[0]: Path(line[2]) for line in words
            if "=>" in line and len(line) > 2 and line[2].startswith("/")}


def glibc_of(files):
    """Returns the version of the oldest C library that has all symbols."""
    versions = set()
    for file in files:
        text = output_of("readelf", "--version-info", file)
        versions |= {tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", text)}
        if "GLIBC_ABI_DT_RELR" in text:
            versions.add((2, 36))
    return ".".join(map(str, max(versions)))


def gather(programs, folder):
    """Fills the folder and returns its manifest."""
    binaries, libraries = folder / "bin", folder / "lib"
    needs = {}
    for place in (binaries, libraries):
        place.mkdir()
    for name, path in programs.items():
        shutil.copy2(path, binaries / name)
        for library, place in loaded(path).items():
            if library.startswith(CUDA):
                needs.setdefault(library, []).append(name)
            elif not library.startswith(SYSTEM) and not (libraries / library).exists():
                shutil.copy2(place.resolve(), libraries / library)
    files = [*binaries.iterdir(), *libraries.iterdir()]
    for path in files:
        path.chmod(0o755)
        subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)
    for path in FILES:
        (folder / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, folder / path.relative_to(ROOT))
    for cases in ("cases", "encoder_cases"):
        shutil.copytree(GOLDEN / cases, folder / (GOLDEN / cases).relative_to(ROOT))
    manifest = {"revision": output_of("git", "-C", ROOT, "-c", f"safe.directory={ROOT}", "rev-parse",
                                      "--short", "HEAD").strip(),
                "glibc": glibc_of(files),
                "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
                "programs": sorted(programs),
                "libraries": sorted(path.name for path in libraries.iterdir()),
                "needs": {library: sorted(names) for library, names in sorted(needs.items())},
                "device": ["{bin}/gpu_bench", "--part=device"], "steps": steps()}
    (folder / "gpu_bundle.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def pack(folder, to):
    """Packs a folder. The same files give the same bytes."""
    def plain(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        return entry
    # The programs share kernels, so the preset's window must reach from a program to the next.
    options = {"mode": "w:xz", "preset": 9} if to.suffix == ".xz" else {"mode": "w"}
    with tarfile.open(to, **options) as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, f"{NAME}/{path.relative_to(folder)}", recursive=False, filter=plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build" / "release"))
    parser.add_argument("--to", default=str(ROOT / "build" / f"{NAME}.tar.xz"))
    parser.add_argument("--list", action="store_true", help="print the programs' names, which are targets of the build")
    options = parser.parse_args()
    if options.list:
        print("\n".join(PROGRAMS))
        return
    programs = find_programs(options.build)
    missing = [name for name in PROGRAMS if name not in programs]
    if missing:
        sys.exit(f"gpu-bundle: {', '.join(missing)} not found in {options.build}")
    if not options.to.endswith((".tar.xz", ".tar")):
        sys.exit(f"gpu-bundle: --to is {options.to}, must end with .tar.xz or .tar")
    with tempfile.TemporaryDirectory() as folder:
        manifest = gather(programs, Path(folder))
        pack(Path(folder), Path(options.to))
    size = Path(options.to).stat().st_size
    print(f"== {options.to}: {len(programs)} programs, {len(manifest['libraries'])} libraries, "
          f"{size / 2**20:.0f} MiB, {manifest['bytes'] / 2**20:.0f} MiB unpacked")
    print(f"   needs: x86-64, glibc {manifest['glibc']}, Python 3.10, the GPU's driver; libcudnn.so.9 for "
          "cuDNN's kernel, libcublasLt.so.13 for encoders")
    for library, names in manifest["needs"].items():
        print(f"   needs {library}: {', '.join(names)}")


if __name__ == "__main__":
    main()

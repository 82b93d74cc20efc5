#!/usr/bin/env python3
"""Gathers tools/gpu_check.py and what it runs, with the shared libraries that the programs need.

    tools/gpu_bundle.py [--build FOLDER] [--to FILE]

takes the programs of a build (build/release) and the libraries that they load, but for those of the
system, the GPU's driver and CUDA, strips them, and packs them with the golden cases and the Python files
into build/gpu_bundle.tar.xz (or .tar, which is quicker). It prints what the bundle needs, and says so in
the bundle's gpu_bundle.json. A machine with Linux on x86-64, a C library no older than this one's and
Python 3.10 runs it by

    tar xf gpu_bundle.tar.xz && python3 gpu_bundle/tools/gpu_check.py

into gpu_bundle/build/gpu_check.md. Of CUDA it takes the driver; cuDNN's kernel needs libcudnn.so.9, encoders
need libcublasLt.so.13, and what is named in "needs" of the manifest needs NCCL: CUDA's folder, the system's or those that came with
Python packages (PyTorch's) have them.
"""
import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import gpu_service
import gpu_steps
from gpu_check import MANIFEST, ROOT, TORCH_SCRIPTS, find_programs

NAME = "gpu_bundle"

# Of the system, the driver and CUDA.
SYSTEM = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so",
          "libresolv.so")
CUDA = ("libcuda.so", "libnccl.so", "libcudnn", "libcudart")
SCRIPTS = ["gpu_check.py", "gpu_process.py", "gpu_report.py", "gpu_service.py", "gpu_steps.py",
           "gpu_tables.py"]
GOLDEN = ROOT / "tests" / "golden"
CLIENT = ROOT / "client" / "python" / "hilbert_ring"


def output_of(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=True).stdout


def loaded(program):
    """{name: path} of the shared libraries that a program loads."""
    words = (line.split() for line in output_of("ldd", program).splitlines())
    return {line[0]: Path(line[2]) for line in words
            if "=>" in line and len(line) > 2 and line[2].startswith("/")}


def glibc_of(files):
    """The oldest C library that has all symbols."""
    versions = set()
    for file in files:
        text = output_of("readelf", "--version-info", file)
        versions |= {tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", text)}
        if "GLIBC_ABI_DT_RELR" in text:
            versions.add((2, 36))
    return ".".join(map(str, max(versions)))


def gather(programs, folder):
    """Fills the folder: its manifest."""
    binaries, libraries = folder / "bin", folder / "lib"
    needs = {}
    for place in (binaries, libraries, folder / "tools"):
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
    for name in SCRIPTS:
        shutil.copy2(ROOT / "tools" / name, folder / "tools")
    for path in (*TORCH_SCRIPTS, CLIENT / "_torch_streams.py", GOLDEN / "attention_oracle.py"):
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
                "needs": {library: sorted(names) for library, names in sorted(needs.items())}}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def pack(folder, to):
    """The same bytes from the same files."""
    def plain(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        return entry
    # Programs have their kernels in common: a preset whose window reaches from one to the next.
    options = {"mode": "w:xz", "preset": 9} if to.suffix == ".xz" else {"mode": "w"}
    with tarfile.open(to, **options) as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, f"{NAME}/{path.relative_to(folder)}", recursive=False, filter=plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build" / "release"))
    parser.add_argument("--to", default=str(ROOT / "build" / f"{NAME}.tar.xz"))
    parser.add_argument("--list", action="store_true", help="the programs' names, which are targets too")
    options = parser.parse_args()
    if options.list:
        print("\n".join(gpu_steps.PROGRAMS + gpu_service.NEEDS))
        return
    programs = find_programs(options.build)
    missing = [name for name in gpu_steps.PROGRAMS + gpu_service.NEEDS if name not in programs]
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

#!/usr/bin/env python3
"""Gathers what tools/gpu_check.py runs, with the shared libraries that it needs.

    tools/gpu_bundle.py [--build FOLDER] [--to FILE]

takes the programs of a build (build/release) and the libraries that they load, but for those that
come with the system, the GPU's driver and CUDA, strips them, and packs them into
build/gpu_bundle.tar.xz. A machine with a GPU, CUDA's libraries and a C library no older than this
one's runs them by

    ./dev gpu-check --binaries build/gpu_bundle.tar.xz
"""
import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu_check import PROGRAMS, ROOT, SERVICE, find_programs

SUFFIX = ".tar.xz"

# Of the system, the driver and CUDA.
LEFT_OUT = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so",
            "libresolv.so", "libcuda.so", "libnccl.so", "libcudnn", "libcudart")


def needed(program):
    """Paths of the shared libraries that a program loads."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        words = line.split()
        if "=>" in words and len(words) > 2 and words[2].startswith("/"):
            if not words[0].startswith(LEFT_OUT):
                yield words[0], Path(words[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build" / "release"))
    parser.add_argument("--to", default=str(ROOT / "build" / f"gpu_bundle{SUFFIX}"))
    options = parser.parse_args()
    programs = find_programs(options.build)
    missing = [name for name in PROGRAMS + SERVICE if name not in programs]
    if missing:
        sys.exit(f"gpu-bundle: {', '.join(missing)} not found in {options.build}")
    if not options.to.endswith(SUFFIX):
        sys.exit(f"gpu-bundle: --to is {options.to}, must end with {SUFFIX}")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        libraries = folder / "lib"
        libraries.mkdir()
        for name, path in programs.items():
            shutil.copy2(path, folder / name)
            for library, place in needed(path):
                if not (libraries / library).exists():
                    shutil.copy2(place.resolve(), libraries / library)
        for path in [*folder.iterdir(), *libraries.iterdir()]:
            if path.is_file():
                subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)
        count = len(list(libraries.iterdir()))
        bundle = Path(shutil.make_archive(options.to.removesuffix(SUFFIX), "xztar", folder))
    print(f"== {bundle}: {len(programs)} programs, {count} libraries, "
          f"{bundle.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Collects the licences for a wheel with programs: wheel_licences.py FOLDER PROGRAM...

A wheel contains the shared libraries of its programs, and the programs contain static libraries and headers. All come
from Debian packages. Their copyright files hold the licences' texts, or refer to /usr/share/common-licenses, whose
files are copied too.
"""
import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Packages of static libraries and headers in the programs.
STATIC = ("libgloo-dev", "libhwy-dev", "libcli11-dev", "nlohmann-json3-dev", "libspdlog-dev",
          "libfmt-dev", "prometheus-cpp-dev", "libabsl-dev", "libgrpc++-dev", "libprotobuf-dev",
          "libisal-dev", "libmicrohttpd-dev")
DOCUMENTS = Path("/usr/share/doc")
COMMON = Path("/usr/share/common-licenses")


def output(*line):
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def libraries(program):
    """Returns the paths of the shared libraries that a program loads."""
    return {Path(path) for path in re.findall(r"=> (/\S+)", output("ldd", str(program)))}


def package_of(library):
    """Returns the Debian package of a library. /lib may be a link to /usr/lib."""
    for path in (library, library.resolve(), Path("/usr") / library.relative_to("/")):
        found = subprocess.run(["dpkg-query", "-S", str(path)], capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split(":")[0]
    raise SystemExit(f"{library} belongs to no package, so its licence is unknown")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", type=Path, nargs="+")
    arguments = parser.parse_args()
    loaded = set().union(*map(libraries, arguments.programs))
    packages = {package_of(library) for library in loaded}
    packages |= {name for name in STATIC if (DOCUMENTS / name).exists()}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    named = set()
    for package in sorted(packages):
        text = (DOCUMENTS / package / "copyright").read_text(errors="replace")
        (arguments.folder / f"{package}.txt").write_text(text)
        named |= set(re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", text))
    for name in sorted(named):
        if (COMMON / name).is_file():
            shutil.copyfile(COMMON / name, arguments.folder / f"common-{name}.txt")
    print(f"{len(packages)} packages' licences")
    return 0


if __name__ == "__main__":
    sys.exit(main())

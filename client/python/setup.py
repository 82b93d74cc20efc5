"""Builds the package, with descriptors and type stubs of the repository's proto.

The package makes its messages from the descriptors when it is imported. Descriptors fit every release of the protobuf
library; generated Python code does not.
"""
import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
# An sdist holds the proto and the version; in a clone they lie two folders up.
IN_SDIST = (HERE / "proto").is_dir()
PROTO = HERE / "proto" if IN_SDIST else HERE.parent.parent / "proto"
PUBLIC = ["hilbert_ring/v1/attention.proto", "hilbert_ring/v1/encoder.proto"]
# A folder of programs for the wheel (`./dev wheel`), with the licences of their libraries in licenses/. Unset: a wheel
# without programs.
PROGRAMS = os.environ.get("HILBERT_RING_WHEEL_PROGRAMS")
LICENCE = HERE / "LICENSE" if IN_SDIST else HERE.parent.parent / "LICENSE"
PROTOS = [*PUBLIC, "google/rpc/status.proto", "google/rpc/error_details.proto"]


def version():
    if IN_SDIST:
        return (HERE / "VERSION").read_text().strip()
    cmake = (HERE.parent.parent / "CMakeLists.txt").read_text()
    return re.search(r"project\(\s*hilbert_ring\s+VERSION\s+([\d.]+)", cmake).group(1)


def compile_protos(folder):
    """Writes descriptors.binpb and the stubs into the package in `folder`."""
    (folder / "hilbert_ring").mkdir(parents=True, exist_ok=True)
    descriptors = [f"--descriptor_set_out={folder / 'hilbert_ring' / 'descriptors.binpb'}",
                   "--include_imports", *PROTOS]
    for arguments in (descriptors, [f"--pyi_out={folder}", *PUBLIC]):
        protoc(["-I", str(PROTO), *arguments])


def protoc(arguments):
    try:
        import grpc_tools
        from grpc_tools import protoc as bundled
    except ImportError:  # Debian's own
        subprocess.run(["protoc", *arguments], check=True)
        return
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    if bundled.main(["protoc", "-I", str(well_known), *arguments]) != 0:
        raise SystemExit("protoc failed, see above")


class BuildWithProtos(build_py):
    def run(self):
        if not self.editable_mode:  # an earlier build may have left programs there
            shutil.rmtree(Path(self.build_lib, "hilbert_ring"), ignore_errors=True)
        super().run()
        compile_protos(HERE if self.editable_mode else Path(self.build_lib))
        if not self.editable_mode:
            shutil.copyfile(LICENCE, Path(self.build_lib, "hilbert_ring", "LICENSE"))
        if PROGRAMS:
            shutil.copytree(PROGRAMS, Path(self.build_lib, "hilbert_ring", "bin"),
                            dirs_exist_ok=True)


class WheelWithPrograms(bdist_wheel):
    """Tags a wheel with programs for any Python 3 on one kind of machine."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not PROGRAMS

    def get_tag(self):
        tag = super().get_tag()
        return ("py3", "none", tag[2]) if PROGRAMS else tag


class MaybeOfOnePlatform(Distribution):
    """Installs programs like files of one platform."""

    def has_ext_modules(self):
        return bool(PROGRAMS)


class SdistWithProtos(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for proto in PROTOS:
            to = Path(base_dir, "proto", proto)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PROTO / proto, to)
        shutil.copyfile(LICENCE, Path(base_dir, "LICENSE"))
        Path(base_dir, "VERSION").write_text(version() + "\n")


setup(version=version(), distclass=MaybeOfOnePlatform,
      cmdclass={"build_py": BuildWithProtos, "sdist": SdistWithProtos,
                "bdist_wheel": WheelWithPrograms})

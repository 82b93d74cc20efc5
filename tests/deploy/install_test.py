"""The installed tree is enough for another project: the example is built against it alone and runs a job."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from run_paths import wrong_run_paths
from running_service import RunningService

BUILD = Path(os.environ["HILBERT_RING_BUILD"])
SOURCE = Path(os.environ["HILBERT_RING_SOURCE"])
CMAKE = os.environ["HILBERT_RING_CMAKE"]

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(hilbert_ring REQUIRED)
add_subdirectory(example)
add_library(shared SHARED example/attend.cc)
target_link_libraries(shared PRIVATE hilbert_ring::client)
add_library(every_header OBJECT every_header.cc)
target_link_libraries(every_header PRIVATE hilbert_ring::client)
"""


HOLDS_THE_SOURCE = """cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
add_subdirectory(%s hilbert_ring)
add_library(shared SHARED %s/examples/attend/attend.cc)
target_link_libraries(shared PRIVATE hilbert_ring::client)
"""


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        work = Path(cls.folder.name)
        run(CMAKE, "--install", BUILD, "--prefix", work / "first")
        # The rename breaks files that contain the folder's name.
        (work / "first").rename(work / "prefix")
        cls.work, cls.prefix = work, work / "prefix"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def installed(self, pattern):
        return sorted(str(path.relative_to(self.prefix)) for path in self.prefix.glob(pattern)
                      if path.is_file())

    def test_programs_and_licences(self):
        self.assertEqual(self.installed("bin/*"), [
            "bin/hilbert-ring", "bin/hilbert-ring-coordinator", "bin/hilbert-ring-worker"])
        for component in ("client", "dev", "server"):
            self.assertEqual(self.installed(f"share/doc/hilbert-ring-{component}/*"), [
                f"share/doc/hilbert-ring-{component}/LICENSE",
                f"share/doc/hilbert-ring-{component}/copyright"])

    def test_only_the_public_api(self):
        headers = self.installed("include/**/*")
        self.assertIn("include/hilbert_ring/client/cpp/attend.h", headers)
        self.assertIn("include/hilbert_ring/hilbert_ring/v1/attention.pb.h", headers)
        folders = {str(Path(header).parent) for header in headers}
        self.assertEqual(folders, {
            "include/hilbert_ring/client/cpp", "include/hilbert_ring/engine/base",
            "include/hilbert_ring/engine/model/files", "include/hilbert_ring/engine/spec", "include/hilbert_ring/wire",
            "include/hilbert_ring/hilbert_ring/v1"})
        self.assertEqual(self.installed("include/hilbert_ring/engine/base/*"),
                         ["include/hilbert_ring/engine/base/descriptor.h"])
        internal = [name for name in headers if "worker" in name or "conversation.h" in name]
        self.assertEqual(internal, [])
        self.assertEqual(self.installed("share/hilbert_ring/proto/**/*"), [
            "share/hilbert_ring/proto/hilbert_ring/v1/attention.proto",
            "share/hilbert_ring/proto/hilbert_ring/v1/encoder.proto"])

    def test_nothing_names_the_source_or_build_tree(self):
        for path in self.prefix.glob("lib*/**/*.cmake"):
            text = path.read_text()
            self.assertNotIn(str(SOURCE), text, path)
            self.assertNotIn(str(BUILD), text, path)

    def test_programs_load_no_library_from_the_current_folder(self):
        programs = [path for folder in (BUILD, self.prefix) for path in (folder / "bin").iterdir()]
        self.assertEqual(wrong_run_paths(programs), {})

    def test_a_project_may_hold_the_source(self):
        project = self.work / "holder"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(HOLDS_THE_SOURCE % (SOURCE, SOURCE))
        run(CMAKE, "-S", project, "-B", self.work / "held", "-G", "Ninja", "-DHILBERT_RING_CUDA=OFF")

    def test_the_example_runs_a_job(self):
        project = self.work / "project"
        shutil.copytree(SOURCE / "examples/attend", project / "example")
        (project / "CMakeLists.txt").write_text(PROJECT)
        root = self.prefix / "include/hilbert_ring"
        (project / "every_header.cc").write_text("".join(
            f'#include "{path.relative_to(root)}"\n' for path in sorted(root.rglob("*.h"))))
        build = self.work / "build"
        run(CMAKE, "-S", project, "-B", build, "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run(CMAKE, "--build", build, "-j", "2")
        with RunningService(self.prefix / "bin/hilbert-ring-coordinator", self.work,
                            arguments=["--memory-limit=512MiB"]) as service:
            output = run(build / "example/attend", service.address, timeout=120)
        self.assertEqual(output, "4096 tokens, each the mean of its segment\n")
        self.assertEqual(service.exit_code, 0)


if __name__ == "__main__":
    unittest.main()

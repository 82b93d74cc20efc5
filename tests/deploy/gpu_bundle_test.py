"""The bundle of tools/gpu_bundle.py needs only the libraries that it lists.

It runs in a root with Python, its library, the C library and the bundle. If a probe cannot enter a root, it runs with
an empty environment and a PATH with Python alone.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["HILBERT_RING_BUILD"])
SOURCE = Path(os.environ["HILBERT_RING_SOURCE"])
sys.path.insert(0, str(SOURCE / "tools"))
import gpu_bundle  # noqa: E402
from run_paths import wrong_run_paths  # noqa: E402

PYTHON = Path("/usr/bin/python3").resolve()
LIBRARY = Path("/usr/lib") / PYTHON.name
C_LIBRARY = ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2",
             "libnss_files.so.2"]
PROGRAMS = gpu_bundle.PROGRAMS
# Runs a program of a bundle with the bundle's libraries. Arguments: the bundle's folder, the program, its arguments.
START = """import os, subprocess, sys
folder, name, *words = sys.argv[1:]
done = subprocess.run([folder + "/bin/" + name, *words], stdout=subprocess.PIPE,
                      stderr=subprocess.STDOUT, text=True, timeout=60,
                      env={**os.environ, "LD_LIBRARY_PATH": folder + "/lib",
                           "HILBERT_RING_GOLDEN_DIR": folder + "/tests/golden/cases"})
print(done.stdout)
sys.exit(done.returncode)
"""


def copy(path, root):
    """Copies a file to its place in the root, under the name of the link that leads to it."""
    target = root / str(path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy2(path.resolve(), target)


def make_root(root):
    """Copies Python and the libraries that it loads."""
    loads = [PYTHON, *(LIBRARY / "lib-dynload").glob("*.so")]
    for file in loads:
        for line in subprocess.run(["ldd", file], capture_output=True, text=True,
                                   check=True).stdout.splitlines():
            for word in line.split():
                if word.startswith("/"):
                    copy(Path(word), root)
    for name in C_LIBRARY:
        path = Path("/lib/x86_64-linux-gnu") / name
        if path.exists():
            copy(path, root)
    copy(PYTHON, root)
    (root / "usr/bin/python3").symlink_to(PYTHON.name)
    shutil.copytree(LIBRARY, root / str(LIBRARY).lstrip("/"), symlinks=True,
                    ignore=shutil.ignore_patterns("__pycache__", "test", "idlelib", "sitecustomize.py"))
    for folder in ("dev", "proc", "tmp", "srv"):
        (root / folder).mkdir()
    (root / "dev/null").touch()


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.holder.name)
        cls.root = cls.folder / "root"
        cls.root.mkdir()
        make_root(cls.root)
        done = subprocess.run(
            [sys.executable, "-B", SOURCE / "tools/gpu_bundle.py", "--build", BUILD, "--to",
             cls.folder / "bundle.tar"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        with tarfile.open(cls.folder / "bundle.tar") as archive:
            archive.extractall(cls.root / "srv")
        cls.bundle = cls.root / "srv/gpu_bundle"
        cls.manifest = json.loads((cls.bundle / "gpu_bundle.json").read_text())
        probe = subprocess.run(cls.inside("-c", "import os; print(os.listdir('/'))"),
                               capture_output=True, text=True)
        cls.entered = probe.returncode == 0
        if not cls.entered:
            print(f"the root cannot be entered, so the PATH alone is bare: {probe.stderr}")
        # The bundle's path as seen inside of the root.
        cls.within = "/" / cls.bundle.relative_to(cls.root) if cls.entered else cls.bundle

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    @classmethod
    def inside(cls, *arguments):
        enter = ('mount --bind /dev/null "$0/dev/null" && mount -t proc proc "$0/proc" && '
                 'exec env -i PATH=/usr/bin /usr/sbin/chroot "$0" /usr/bin/python3 "$@"')
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", enter, cls.root,
                *map(str, arguments)]

    def python(self, *arguments):
        """Runs Python in the root and returns its exit code and output."""
        command, environment = self.inside(*arguments), None
        if not self.entered:
            command, environment = ["/usr/bin/python3", *arguments], {"PATH": str(self.root / "usr/bin")}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=environment, timeout=200, errors="replace")
        return done.returncode, done.stdout

    def start(self, *words):
        return self.python("-c", START, self.within, *words)

    def test_its_steps_run_what_is_in_it_and_it_needs_nccl_at_most(self):
        self.assertLessEqual(set(self.manifest["needs"]), {"libnccl.so.2"})
        self.assertGreater(len(self.manifest["steps"]), 40)
        for step in self.manifest["steps"]:
            for word in step["command"]:
                path = word.format(bin=self.bundle / "bin", root=self.bundle, values="", python="")
                if path != word and path:
                    self.assertTrue(Path(path).exists(), step)
            program = Path(step["command"][0]).name
            if program.endswith("_test"):
                code, output = self.start(program, "--gtest_list_tests", *step["command"][1:])
                missing = code == 127 and program in str(self.manifest["needs"])
                self.assertTrue(missing or re.search(r"^  \S", output, re.MULTILINE) or "cuda" in str(step), step)

    def test_every_program_starts_except_if_a_listed_library_is_absent(self):
        for name in PROGRAMS:
            with self.subTest(name):
                code, output = self.start(
                    name, "--gtest_list_tests" if name.endswith("_test") else "--help")
                missing = [library for library, names in self.manifest["needs"].items() if name in names]
                if missing and self.entered:
                    self.assertEqual(code, 127, output)
                    self.assertIn(f"loading shared libraries: {missing[0]}", output)
                else:
                    self.assertIn(code, (0, 1, 2, 3), output)
                    self.assertNotIn("loading shared libraries", output)

    def test_no_program_loads_a_library_from_the_current_folder(self):
        self.assertEqual(wrong_run_paths([*(self.bundle / "bin").iterdir(), *(self.bundle / "lib").iterdir()]), {})

    def test_golden_cases_are_in_it(self):
        code, output = self.start("engine_golden_test", "--gtest_filter=*ReferenceAgrees*")
        self.assertEqual(code, 0, output[-2000:])
        self.assertGreater(output.count("[       OK ]"), 10)

    def test_without_a_gpu_its_report_states_it(self):
        code, output = self.python(self.within / "tools/gpu_check.py")
        report = (self.bundle / "build/gpu_check.md").read_text()
        self.assertEqual(code, 2, output)
        self.assertRegex(report, "no CUDA device 0: cudaError(InsufficientDriver|NoDevice)")

    def test_a_c_library_that_is_too_old_is_named(self):
        manifest = self.bundle / "gpu_bundle.json"
        text = manifest.read_text()
        manifest.write_text(json.dumps({**self.manifest, "glibc": "9.1"}))
        self.addCleanup(manifest.write_text, text)
        code, output = self.python(self.within / "tools/gpu_check.py")
        self.assertEqual(code, 2, output)
        self.assertIn("the bundle needs glibc 9.1; this machine has glibc", output)


if __name__ == "__main__":
    absent = [name for name in PROGRAMS if name not in gpu_bundle.find_programs(BUILD)]
    if absent:
        print(f"skipped: this build has no {', '.join(absent)}")
        sys.exit(77)
    unittest.main()

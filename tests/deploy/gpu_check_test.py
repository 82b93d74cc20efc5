"""tools/gpu_check.py with steps that pass, fail, hang and leave processes behind.

It also runs gpu_bench on an emulated GPU with a wrong kernel (EMULATED_GPU_DEFECT).
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

BUILD = Path(os.environ["HILBERT_RING_BUILD"])
SOURCE = Path(os.environ["HILBERT_RING_SOURCE"])
EMULATED = BUILD / "bench/emulated_gpu_bench"
# A GPU that answers until the file "lost" exists.
GPU_BENCH = """#!/bin/sh
[ ! -e {folder}/lost ] && echo 'NVIDIA H200, compute capability 9.0'
"""
ROWS = "printf '| a | b |\\n| --- | --- |\\n| 1 | 2 |\\n'"
HANG = "echo before it hangs; setsid sleep 1000 & echo $! >{root}/child; trap '' TERM; sleep 1000"


def step(title, shell, group="bench", **more):
    return {"group": group, "title": title, "seconds": 20, "command": ["sh", "-c", shell], "rows": 1, **more}


def alive(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class GpuCheck(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        for name in ("bin", "tools"):
            (self.folder / name).mkdir()
        shutil.copy2(SOURCE / "tools/gpu_check.py", self.folder / "tools")
        self.program(GPU_BENCH.format(folder=self.folder))

    def program(self, text):
        (self.folder / "bin/gpu_bench").write_text(text)
        (self.folder / "bin/gpu_bench").chmod(0o755)

    def start(self, *steps, arguments=()):
        (self.folder / "gpu_bundle.json").write_text(json.dumps({
            "revision": "r", "glibc": "2.0", "device": ["{bin}/gpu_bench", "--part=device"], "steps": steps}))
        return subprocess.Popen([sys.executable, "-B", self.folder / "tools/gpu_check.py", *arguments], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def verdicts(self):
        self.text = (self.folder / "build/gpu_check.md").read_text()
        return dict(re.findall(r"^\| ([^|]*) \| ([^|]*) \| [0-9.]+ \|$", self.text, re.MULTILINE))

    def check(self, *steps, arguments=(), code=1):
        running = self.start(*steps, arguments=arguments)
        output = running.communicate(timeout=200)[0]
        self.assertEqual(running.returncode, code, output)
        return self.verdicts()

    def test_each_step_ends_as_it_ends(self):
        ends = {"passed": ROWS, "FAILED with 3": f"{ROWS}; exit 3", "FAILED: ended by SIGSEGV": "kill -SEGV $$",
                "not run: PyTorch not found": "echo PyTorch not found; exit 2",
                "not run: libnccl.so.2 is not on this machine":
                    "echo 'a: error while loading shared libraries: libnccl.so.2: cannot'; exit 127"}
        verdicts = self.check(*(step(verdict, shell, absent=2) for verdict, shell in ends.items()),
                              step("few rows", "echo '| a |'"), step("needs a later GPU", ROWS, least=10.0),
                              step("no test", "true", rows=None))
        for title in ends:
            self.assertEqual(verdicts[title], title)
        self.assertEqual(verdicts["few rows"], "FAILED: 0 rows were printed, must be at least 1")
        self.assertEqual(verdicts["no test"], "FAILED: no test ran")
        self.assertEqual(verdicts["needs a later GPU"], "not run: compute capability 9.0")
        self.assertIn("8 steps, 4 failed; all that was to be run was run", self.text)

    def test_a_kernel_that_hangs_is_ended_with_its_children_and_the_others_run(self):
        verdicts = self.check(step("hangs", HANG, "smoke", kernel="k", seconds=1), step("of it", ROWS, kernel="k"),
                              step("other", ROWS, kernel="l"))
        self.assertEqual(verdicts, {"hangs": "FAILED: not done in 1 s", "of it": "not run: k failed its smoke test",
                                    "other": "passed"})
        self.assertIn("before it hangs", self.text)
        self.assertFalse(alive(int((self.folder / "child").read_text())))

    def test_a_gpu_that_is_gone_after_a_crash_ends_the_run(self):
        verdicts = self.check(step("loses it", "touch {root}/lost; kill -KILL $$"), step("next", ROWS))
        self.assertEqual(verdicts["The GPU, after that"], "FAILED: it does not answer")
        self.assertEqual(verdicts["next"], "not run: the GPU does not answer any more")

    def test_being_ended_leaves_the_report_and_no_process(self):
        running = self.start(step("first", ROWS), step("second", HANG))
        child, end = self.folder / "child", time.monotonic() + 60
        while not (child.exists() and child.read_text().strip()) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.verdicts(), {"first": "passed"})
        self.assertIn("second is under way since", self.text)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
        self.assertEqual(running.returncode, 1)
        self.assertEqual(self.verdicts(), {"first": "passed"})
        self.assertIn("it was ended from outside; the last: second", self.text)
        self.assertFalse(alive(int(child.read_text())))

    def test_groups_and_minutes(self):
        steps = [step("a", ROWS, "smoke"), step("b", ROWS)]
        self.assertEqual(self.check(*steps, arguments=["--only=bench"], code=0), {"b": "passed"})
        self.assertEqual(self.check(*steps, arguments=["--minutes=0.05"], code=0),
                         dict.fromkeys("ab", "not run: no time was left"))
        self.check(*steps, arguments=["--only=smoke,fast"], code=2)

    @unittest.skipUnless(EMULATED.exists(), "this build has no emulated GPU")
    def test_a_kernel_that_is_wrong_fails_its_smoke_test(self):
        self.program(f"""#!/bin/sh
case "$*" in *cuda/native-sm90*) export EMULATED_GPU_DEFECT=lie;; esac
exec {EMULATED} "$@"
""")
        verdicts = self.check(*({**step(kernel, "", "smoke", seconds=200, kernel=kernel), "command": [
            "{bin}/gpu_bench", "--part=smoke", f"--kernel={kernel}", "--quick"]}
            for kernel in ("cuda/native", "cuda/native-sm90")))
        self.assertEqual(verdicts, {"cuda/native": "passed", "cuda/native-sm90": "FAILED with 1"})
        self.assertEqual(self.text.count("WRONG"), 17)


if __name__ == "__main__":
    unittest.main()

"""tools/gpu_check.py over its own benchmark on a GPU that is emulated on the host, some of whose kernels
hang, fault or do nothing and say that they are done (HILBERT_RING_EMULATED_GPU)."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["HILBERT_RING_BUILD"])
SOURCE = Path(os.environ["HILBERT_RING_SOURCE"])
BENCH = BUILD / "bench/emulated_gpu_bench"
ALONE = BUILD / "bench/emulated_hopper_alone"
ENCODER = BUILD / "bench/emulated_gpu_encoder_bench"
NATIVE, HOPPER, CUDNN = "cuda/native", "cuda/native-sm90", "cuda/cudnn"
PIPELINED = "cuda/native-sm90-pipelined"
PATIENCE = {"hang": 2}  # 40 seconds for a smoke test; others have 200
# Which kernel of the GPU is how.
WRAPPER = """#!/bin/sh
case "$* " in *--kernel={kernel}\\ *) export HILBERT_RING_EMULATED_GPU={wrong};; esac
exec {program} "$@"
"""


class EmulatedGpu(unittest.TestCase):
    def check(self, kernel, wrong, groups):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            for name, program in (("gpu_bench", BENCH), ("hopper_alone", ALONE),
                                  ("gpu_encoder_bench", ENCODER)):
                (folder / name).write_text(WRAPPER.format(kernel=kernel, wrong=wrong, program=program))
                (folder / name).chmod(0o755)
            done = subprocess.run(
                [sys.executable, "-B", str(SOURCE / "tools/gpu_check.py"), "--binaries", str(folder),
                 "--report", str(folder / "report.md"), "--quick", f"--only={groups}",
                 f"--patience={PATIENCE.get(wrong, 10)}", "--minutes=20"],
                capture_output=True, text=True, timeout=500)
            self.text = (folder / "report.md").read_text()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)  # there is no cuDNN
        rows = [line.split("|") for line in self.text.split("\n") if line.count("|") == 5]
        return {row[1].strip(): row[2].strip() for row in rows}

    def test_its_kernels_are_right_and_cudnn_is_missed(self):
        verdicts = self.check("none", "", "smoke,bench,more")
        for kernel in (NATIVE, HOPPER, PIPELINED):
            self.assertEqual(verdicts[f"Smoke test, {kernel}"], "passed")
            self.assertEqual(verdicts[f"Layers in bfloat16, {kernel}"], "passed")
            self.assertEqual(verdicts[f"Job of 256 tokens, {kernel}"], "passed")
        self.assertEqual(verdicts["The Hopper kernels alone"], "passed")
        for compute in ("bfloat16", "float32"):
            self.assertEqual(verdicts[f"Encoder of the published size, {compute}"], "passed")
        self.assertRegex(self.text, r"\| cuda/native-sm90-pipelined \| bfloat16 \| 100 \| [0-9.]+ \| [0-9.]+ \|")
        self.assertEqual(verdicts["A job that fills the GPU's memory"], "passed")
        self.assertEqual(verdicts[f"Smoke test, {CUDNN}"], "FAILED with 1")
        self.assertRegex(self.text, "starts . not run: FAILED_PRECONDITION: .*cudnn")

    def test_a_kernel_that_faults(self):
        verdicts = self.check(HOPPER, "fault", "smoke,bench")
        self.assertEqual(verdicts[f"Smoke test, {HOPPER}"], "FAILED with 1")
        self.assertIn("cudaErrorIllegalAddress, an illegal memory access was encountered", self.text)
        self.assertEqual(verdicts[f"Layers in bfloat16, {NATIVE}"], "passed")
        self.assertEqual(verdicts[f"Layers in bfloat16, {HOPPER}"],
                         f"not run: {HOPPER} failed its smoke test")

    def test_a_kernel_that_lies(self):
        verdicts = self.check(NATIVE, "lie", "smoke,bench")
        for step in (f"Smoke test, {NATIVE}", f"Layers in bfloat16, {NATIVE}",
                     f"Job of 256 tokens, {NATIVE}"):
            self.assertEqual(verdicts[step], "FAILED with 1")
        wrong = [line for line in self.text.split("\n") if "WRONG" in line]
        self.assertEqual(len(wrong), 13 + 10 + 1)  # every row but that it starts
        self.assertTrue(all(NATIVE + " |" in line for line in wrong), wrong)
        self.assertEqual(verdicts[f"Smoke test, {HOPPER}"], "passed")

    def test_a_kernel_that_hangs(self):
        verdicts = self.check(HOPPER, "hang", "smoke")
        self.assertEqual(verdicts[f"Smoke test, {HOPPER}"], "FAILED: not done in 40 s")
        self.assertIn(f"| {HOPPER} |  |  | starts |  |", self.text)
        self.assertEqual(verdicts[f"Smoke test, {NATIVE}"], "passed")


if __name__ == "__main__":
    if not BENCH.exists():
        print(f"skipped: {BENCH} is not there: this build has no emulated GPU")
        sys.exit(77)
    unittest.main()

"""tools/gpu_check.py over programs that hang, fault, lie, print garbage or leave processes behind: the
report survives each of them and says so."""
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
import unittest.mock
from pathlib import Path

SOURCE = Path(os.environ["HILBERT_RING_SOURCE"])
sys.path.insert(0, str(SOURCE / "tools"))
FAKE = Path(__file__).resolve().parent / "fake_gpu_program.py"
PROGRAMS = ["gpu_bench", "gpu_encoder_bench", "gpu_graph_bench", "hopper_alone", "device_test",
            "row_math_test", "attention_test", "engine_golden_test", "engine_encoder_golden_test",
            "engine_random_test", "ring_processes_test", "ring_rank",
            "compute-sanitizer"]
PATIENCE = 0.3  # a smoke test has 6 seconds
NATIVE, HOPPER, CUDNN = "cuda/native", "cuda/native-sm90", "cuda/cudnn"
PIPELINED = "cuda/native-sm90-pipelined"
KERNELS = (NATIVE, HOPPER, PIPELINED, CUDNN)


def alive(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class ServiceInputs(unittest.TestCase):
    def test_are_arrays_that_numpy_reads_and_bfloat16_is_the_upper_half(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        import gpu_service
        arrays = {}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(
                gpu_service.SPEC, tokens=2048):
            for dtype in ("float32", "bfloat16"):
                gpu_service.write_inputs(Path(folder), dtype)
                arrays[dtype] = [numpy.load(Path(folder) / f"{name}.npy") for name in "qkv"]
                self.assertEqual(json.loads((Path(folder) / "job.json").read_text())["dtype"], dtype)
        for whole, half in zip(arrays["float32"], arrays["bfloat16"]):
            self.assertEqual((whole.shape, whole.dtype), ((2048, 8, 64), numpy.dtype("<f4")))
            self.assertEqual(half.dtype, numpy.dtype("<u2"))
            self.assertTrue((whole.view("<u4") >> 16 == half).all())
            self.assertAlmostEqual(float(whole.std()), 1, 1)
        self.assertFalse((arrays["float32"][0] == arrays["float32"][1]).all())


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.report = self.folder / "told" / "report.md"
        for name in PROGRAMS:
            shutil.copy2(FAKE, self.folder / name)
            (self.folder / name).chmod(0o755)

    def command(self, plan, *arguments):
        (self.folder / "plan.json").write_text(json.dumps(plan))
        return [sys.executable, "-B", str(SOURCE / "tools/gpu_check.py"), "--binaries",
                str(self.folder), "--report", str(self.report), "--patience", str(PATIENCE),
                *arguments]

    def environment(self):
        return {**os.environ, "PATH": f"{self.folder}:/usr/bin:/bin", "FAKE_REPORT": str(self.report)}

    def check(self, plan, *arguments, expected=1):
        done = subprocess.run(self.command(plan, *arguments), capture_output=True, text=True,
                              env=self.environment(), timeout=250, errors="replace")
        self.said = done.stdout + done.stderr
        self.assertEqual(done.returncode, expected, self.said)
        self.text = self.report.read_text() if self.report.exists() else ""
        return self.text

    def verdicts(self):
        """{step: verdict}, of the report's first table."""
        return {cells[1].strip(): cells[2].strip() for cells in
                (line.split("|") for line in self.text.split("\n")) if len(cells) == 6
                and re.fullmatch(r" [0-9.]+ ", cells[4])}

    def steps(self):
        return (self.folder / "steps.txt").read_text().splitlines()

    def smoke(self, behaviour, kernel=HOPPER):
        self.check({f"gpu_bench smoke {kernel}": behaviour}, "--only=smoke,bench")
        return self.verdicts()

    def test_all_that_is_well_passes(self):
        self.check({}, "--quick", expected=0)
        verdicts = self.verdicts()
        not_passed = {step: verdict for step, verdict in verdicts.items() if verdict != "passed"}
        self.assertTrue(all(verdict.startswith("not run") or verdict == "not there"
                            for verdict in not_passed.values()), not_passed)
        self.assertTrue(all("PyTorch" in step or "Service" in step for step in not_passed), not_passed)
        self.assertIn("NVIDIA H200", self.text)
        self.assertIn("0 failed; all that was to be run was run", self.text)
        # TFLOP/s of the kernels beside each other.
        self.assertIn(f"| head dim | pattern | {CUDNN} | {NATIVE} | {HOPPER} | {PIPELINED} |", self.text)
        self.assertIn("| 128 | dilation 8 | 400.0 | 400.0 | 400.0 | 400.0 |", self.text)

    def test_what_matters_most_comes_first(self):
        self.check({}, expected=0)
        steps = [step for step in self.steps() if step != "gpu_bench device"]
        self.assertEqual(steps[:4], [f"gpu_bench smoke {kernel}" for kernel in KERNELS])
        self.assertEqual(steps[4:8], [f"gpu_bench layers {kernel}" for kernel in KERNELS])
        self.assertEqual(steps[8:13],
                         [f"gpu_bench jobs {kernel}" for kernel in (*KERNELS, "cuda")])
        self.assertIn("| 425984 | cuda | 0.0040 |", self.text)
        self.assertEqual(steps[-4:], [f"engine_random_test {kernel}" for kernel in KERNELS])

    def test_kernels_run_under_each_checker_and_what_it_finds_is_a_failure(self):
        self.check({"compute-sanitizer synccheck": "found something"}, "--only=correct")
        self.assertEqual(self.verdicts()["Order of instructions, the Hopper kernels alone"], "FAILED with 9")
        self.assertEqual(self.verdicts()["Races, the Hopper kernels alone"], "passed")
        for tool in ("racecheck", "memcheck cuda_native_sm90_pipelined"):
            self.assertIn(f"compute-sanitizer {tool}", self.steps())

    def test_a_kernel_that_hangs_is_ended_with_its_children_and_the_others_are_measured(self):
        verdicts = self.smoke("hang")
        self.assertEqual(verdicts[f"Smoke test, {HOPPER}"], "FAILED: not done in 6 s")
        self.assertIn("before it hangs", self.text)
        self.assertFalse(alive(int((self.folder / "child.pid").read_text())))
        for kernel in (NATIVE, CUDNN):
            self.assertEqual(verdicts[f"Layers in bfloat16, {kernel}"], "passed")
        self.assertEqual(verdicts[f"Layers in bfloat16, {HOPPER}"],
                         f"not run: {HOPPER} failed its smoke test")
        self.assertNotIn(f"gpu_bench layers {HOPPER}", self.steps())
        self.assertIn(f"- failed: Smoke test, {HOPPER}", self.text)

    def test_a_kernel_that_faults_poisons_nothing_else(self):
        verdicts = self.smoke("segv")
        self.assertEqual(verdicts[f"Smoke test, {HOPPER}"], "FAILED: ended by SIGSEGV")
        self.assertEqual(verdicts[f"Layers in bfloat16, {CUDNN}"], "passed")
        self.assertEqual(verdicts["Job of 425,984 tokens, cuda"], "passed")

    def test_a_kernel_that_faults_late_says_in_its_tests_where(self):
        self.check({f"gpu_bench smoke {HOPPER}": "wrong",
                    f"attention_test {HOPPER.replace('/', '_').replace('-', '_')}": "fail"},
                   "--only=smoke,bench,correct")
        verdicts = self.verdicts()
        self.assertEqual(verdicts[f"Smoke test, {HOPPER}"], "FAILED with 1")
        self.assertIn("WRONG: 7.0e-01", self.text)
        self.assertEqual(verdicts[f"Layers in bfloat16, {HOPPER}"], "passed")  # the speed is told
        self.assertEqual(verdicts[f"Attention against float64, {HOPPER}"], "FAILED with 1")
        self.assertIn("[  FAILED  ] A.b", self.text)
        self.assertEqual(verdicts[f"Attention against float64, {NATIVE}"], "passed")

    def test_missing_cudnn_is_a_failure_that_says_why(self):
        verdicts = self.smoke("no cuDNN", CUDNN)
        self.assertEqual(verdicts[f"Smoke test, {CUDNN}"], "FAILED with 1")
        self.assertIn("cuDNN: libcudnn.so.9 is not found", self.text)
        self.assertEqual(verdicts[f"Layers in bfloat16, {CUDNN}"],
                         f"not run: {CUDNN} failed its smoke test")

    def test_benchmarks_that_end_well_and_lie(self):
        layers = f"gpu_bench layers {HOPPER}"
        for behaviour, why in {
                "wrong and well": "10 of 10 rows: the first is wrong",
                "not a number": "10 of 10 rows: the first has error nan",
                "no speed": "10 of 10 rows: the first has TFLOP/s 0.0",
                "too fast": "10 of 10 rows: the first has 1500.0 TFLOP/s, and the GPU has at most 990",
                "another kernel": f"10 of 10 rows: the first is of {NATIVE}, not of {HOPPER}",
                "too few": "9 rows were printed, at least 10 were expected",
                "nothing": "0 rows were printed, at least 10 were expected"}.items():
            with self.subTest(behaviour):
                self.check({layers: behaviour}, "--only=bench")
                self.assertEqual(self.verdicts()[f"Layers in bfloat16, {HOPPER}"], f"FAILED: {why}")

    def test_tests_that_end_well_and_did_not_pass(self):
        self.check({"device_test *cuda*": "nothing", f"engine_golden_test {NATIVE}": "failed and well",
                    "ring_processes_test *nccl*": "no library"}, "--only=correct")
        verdicts = self.verdicts()
        self.assertEqual(verdicts["Device"], "FAILED: no test ran")
        self.assertEqual(verdicts[f"Golden cases, {NATIVE}"],
                         "FAILED: it exits with 0, and not all of its tests passed")
        self.assertEqual(verdicts["Rings over NCCL, 2 and 4 processes on one GPU"],
                         "not run: libnccl.so.2 is not on this machine")

    def test_garbage_without_end_leaves_the_report_small_and_readable(self):
        verdicts = self.smoke("garbage")
        self.assertEqual(verdicts[f"Smoke test, {HOPPER}"], "FAILED: not done in 6 s")
        self.assertLess(len(self.text), 100_000)
        self.assertIsNone(re.search(r"[\x00-\x08\x0b-\x1f]", self.text))
        self.assertIn("\n````\n", self.text)  # a fence that the output's own does not end
        self.assertNotIn("| a | b |\n\n", self.text)  # no table
        self.assertEqual(verdicts[f"Layers in bfloat16, {CUDNN}"], "passed")

    def test_a_process_that_outlives_its_program_is_ended_and_told_of(self):
        start = time.monotonic()
        self.check({f"gpu_bench layers {NATIVE}": "daemon"}, "--only=bench", expected=0)
        self.assertLess(time.monotonic() - start, 100)
        self.assertFalse(alive(int((self.folder / "daemon.pid").read_text())))
        self.assertIn("It left processes behind, which were ended: python3", self.text)

    def test_a_gpu_that_is_gone_after_a_crash_ends_the_run(self):
        self.check({f"gpu_bench layers {NATIVE}": "lose the GPU"}, "--only=bench,correct")
        verdicts = self.verdicts()
        self.assertEqual(verdicts[f"Layers in bfloat16, {NATIVE}"], "FAILED: ended by SIGKILL")
        self.assertEqual(verdicts["The GPU, after that"],
                         "FAILED: it does not answer (FAILED: not done in 6 s)")
        self.assertEqual(verdicts["Device"], "not run: the GPU does not answer any more")
        self.assertEqual(self.steps()[-2:], ["gpu_bench device"] * 2)

    def test_the_report_is_whole_after_each_step(self):
        self.check({f"gpu_bench smoke {HOPPER}": "keep the report"}, "--only=smoke", expected=0)
        self.text = (self.folder / "report_meanwhile.md").read_text()
        self.assertEqual(self.verdicts(), {f"Smoke test, {NATIVE}": "passed"})
        self.assertRegex(self.text, f"1 steps, 0 failed; Smoke test, {HOPPER} is under way since")
        self.assertIn(f"## Smoke test, {NATIVE}", self.text)

    def test_being_ended_leaves_the_report_and_no_process(self):
        for number, said in ((signal.SIGTERM, "it was ended from outside"), (signal.SIGKILL, "under way")):
            with self.subTest(number.name):
                (self.folder / "child.pid").unlink(missing_ok=True)
                running = subprocess.Popen(
                    self.command({f"gpu_bench smoke {HOPPER}": "hang"}, "--patience", "10"),
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.environment())
                end = time.monotonic() + 60
                while not (self.folder / "child.pid").exists() and time.monotonic() < end:
                    time.sleep(0.05)
                running.send_signal(number)
                running.wait(60)
                self.text = self.report.read_text()
                self.assertEqual(self.verdicts(), {f"Smoke test, {NATIVE}": "passed"})
                self.assertIn(said, self.text)
                child = int((self.folder / "child.pid").read_text())
                if number == signal.SIGTERM:
                    self.assertEqual(running.returncode, 1)
                    self.assertFalse(alive(child))
                elif alive(child):  # nobody can end it then but this test
                    os.kill(child, signal.SIGKILL)

    def test_without_a_gpu_it_says_so_and_runs_nothing(self):
        self.check({"gpu_bench device": "no GPU"}, expected=2)
        self.assertIn("no CUDA device 0: cudaErrorNoDevice", self.text)
        self.assertIn("there is no GPU that answers: nothing was run", self.text)
        self.assertEqual(self.steps(), ["gpu_bench device"])

    def test_a_driver_that_hangs_at_once_is_a_failure(self):
        self.check({"gpu_bench device": "hang"}, expected=1)
        self.assertIn("FAILED: not done in", self.text)
        self.assertEqual(self.steps(), ["gpu_bench device"])

    def test_without_time_nothing_is_begun(self):
        self.check({}, "--minutes=0.05", "--only=smoke", expected=0)
        self.assertEqual(set(self.verdicts().values()), {"not run: no time was left"})

    def test_options_and_folders_that_cannot_be(self):
        self.check({}, "--only=smoke,fast", expected=2)
        self.assertIn("--only has fast, must be of smoke, bench, correct, more, random", self.said)
        (self.folder / "gpu_bench").unlink()
        self.check({}, expected=2)
        self.assertIn(f"gpu_bench is not in {self.folder}", self.said)


if __name__ == "__main__":
    unittest.main()

"""What ./dev bench keeps of a benchmark."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import bench_record  # noqa: E402

PRINTED = """AMD EPYC, AVX2

### Rates

| type    | GB/s, one |
| ------- | --------: |
| float32 |      12.5 |
| float16 |       6.0 |
peak 20

| a | |
| --- | --- |
| 1 | |
"""


class Records(unittest.TestCase):
    def record(self, folder, code):
        return subprocess.run(
            [sys.executable, ROOT / "tools/bench_record.py", "--results", folder, "--name", "rates",
             "--as", "./dev bench rates", "--machine", "My Machine", "--", sys.executable, "-c", code],
            capture_output=True, text=True)

    def test_keep_every_table_and_line_that_was_printed(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.record(folder, f"print({PRINTED!r}, end='')")
            self.assertEqual((done.returncode, done.stdout), (0, PRINTED), done.stderr)
            (path,) = Path(folder).glob("my-machine-*/rates.json")
            kept = json.loads(path.read_text())
        self.assertEqual(kept["command"], "./dev bench rates")
        self.assertEqual(path.parent.name, f"my-machine-{kept['date']}")
        self.assertEqual(kept["tables"], [
            {"title": "Rates", "columns": ["type", "GB/s, one"],
             "rows": [["float32", "12.5"], ["float16", "6.0"]]},
            {"title": "peak 20", "columns": ["a", ""], "rows": [["1", ""]]}])
        self.assertEqual(kept["lines"], ["AMD EPYC, AVX2", "### Rates", "peak 20"])

    def test_a_program_that_fails_leaves_the_record_that_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            self.record(folder, f"print({PRINTED!r})")
            (path,) = Path(folder).glob("*/rates.json")
            before = path.read_text()
            done = self.record(folder, "print('other'); raise SystemExit(3)")
            self.assertEqual(done.returncode, 3)
            self.assertEqual(path.read_text(), before)

    def test_a_row_of_other_width_is_no_table(self):
        with self.assertRaisesRegex(ValueError, "3 cells under 2 columns"):
            bench_record.parse("| a | b |\n| --- | --- |\n| 1 | 2 | 3 |\n")

    def test_columns_of_one_name_are_no_table(self):
        with self.assertRaisesRegex(ValueError, "two columns of one name"):
            bench_record.parse("| a | least | b | least |\n| --- | --- | --- | --- |\n| 1 | 2 | 3 | 4 |\n")

    def test_where_a_report_lies_is_not_recorded(self):
        with tempfile.TemporaryDirectory() as folder:
            self.record(folder, f"print('a line'); print({str(ROOT / 'README.md')!r})")
            (path,) = Path(folder).glob("*/rates.json")
            self.assertEqual(json.loads(path.read_text())["lines"], ["a line"])

    def test_the_machines_name_is_that_of_its_processor(self):
        cpuinfo = "model name\t: AMD EPYC\nflags\t\t: fma avx2 avx512f\n"
        self.assertEqual(bench_record.processor(cpuinfo), ("AMD EPYC", "avx512"))
        cpuinfo = "model name\t: Xeon\nflags\t\t: avx512f avx512_bf16 amx_bf16 amx_tile\n"
        self.assertEqual(bench_record.processor(cpuinfo), ("Xeon", "amx-bf16"))
        self.assertEqual(bench_record.slug("AMD EPYC avx512-bf16"), "amd-epyc-avx512-bf16")


if __name__ == "__main__":
    unittest.main()

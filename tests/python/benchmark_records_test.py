"""What ./dev bench keeps of a benchmark, and the page that is made of it."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import bench_record  # noqa: E402
import benchmark_tables  # noqa: E402
import docs_benchmarks  # noqa: E402

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
            benchmark_tables.parse("| a | b |\n| --- | --- |\n| 1 | 2 | 3 |\n")

    def test_columns_of_one_name_are_no_table(self):
        with self.assertRaisesRegex(ValueError, "two columns of one name"):
            benchmark_tables.parse("| a | least | b | least |\n| --- | --- | --- | --- |\n| 1 | 2 | 3 | 4 |\n")

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


class Page(unittest.TestCase):
    def render(self, directive):
        with tempfile.TemporaryDirectory() as folder:
            tables, _ = benchmark_tables.parse(PRINTED)
            (Path(folder) / "rates.json").write_text(benchmark_tables.to_json({"tables": tables}))
            return docs_benchmarks.render(f"# Measured\n\n{{{{table {directive}}}}}\n", Path(folder))

    def test_shows_a_table_as_it_was_recorded(self):
        self.assertIn("| type | GB/s, one |\n| --- | --- |\n| float32 | 12.5 |\n| float16 | 6.0 |\n",
                      self.render("rates 1"))
        self.assertNotIn("All of it", self.render("rates 1"))

    def test_shows_the_rows_and_columns_that_are_asked_for_and_links_the_rest(self):
        page = self.render("rates 1 | type = float16; bfloat16 | show GB/s, one; type")
        self.assertIn("| GB/s, one | type |\n| --- | --- |\n| 6.0 | float16 |\n", page)
        self.assertNotIn("12.5", page)
        self.assertIn("(../bench/results/rates.json)", page)

    def test_refuses_what_no_record_says(self):
        for wrong in ("other 1", "rates 3", "rates 1 | type = int8", "rates 1 | show GB/s"):
            with self.assertRaises((OSError, ValueError, IndexError), msg=wrong):
                self.render(wrong)

    def test_every_record_is_written_as_it_would_be_again(self):
        records = list(docs_benchmarks.RESULTS.glob("*/*.json"))
        self.assertGreater(len(records), 10)
        for path in records:
            self.assertEqual(benchmark_tables.to_json(json.loads(path.read_text())),
                             path.read_text(), path)


if __name__ == "__main__":
    unittest.main()

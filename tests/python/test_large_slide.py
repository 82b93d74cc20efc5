"""The benchmark of a slide of a million tiles, with few."""
import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "large_slide.py"


def test_a_small_slide(tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    done = subprocess.run(
        [sys.executable, "-B", str(SCRIPT), "--size", "small", "--tiles", "5001", "--folder", str(files),
         "--picture", str(tmp_path / "memory.svg")],
        capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (figures,) = re.findall(r"^\| 5,001 \|(.*)\|$", done.stdout, re.M)
    assert figures.split("|")[-1].strip() == "4"  # rows computed again
    tokens = re.findall(r"^\| [01] \| ([\d,]+) \|", done.stdout, re.M)
    assert sum(int(count.replace(",", "")) for count in tokens) == 5002 and len(tokens) == 2
    assert "through layer" in done.stdout or "through all 2 layers" in done.stdout
    assert done.stdout.count("| worker ") == 3  # a title, two processes
    assert (tmp_path / "memory.svg").read_text().startswith("<")
    assert not list(files.iterdir())

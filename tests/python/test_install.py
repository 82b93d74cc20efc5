"""Installs the package by docs/python.md into a virtual environment, if PyPI can be reached."""
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from hilbert_ring.local_service import find_program
from page_blocks import ROOT, blocks

SECONDS = 400
JOB = """
import numpy as np
import hilbert_ring
assert "site-packages" in hilbert_ring.__file__, hilbert_ring.__file__
ones = np.ones((1024, 2, 16), np.float32)
with hilbert_ring.local(workers=2) as client:
    assert np.allclose(client.attend(ones, ones, ones, segments=[256]).out, 1)
"""


def pypi_is_away():
    """Returns pip's error for a small package that it cannot get; "": it gets it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "venv", f"{folder}/venv"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        command = [f"{folder}/venv/bin/pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--timeout", "10",
                   "--retries", "1", "--dest", folder, "typing-extensions"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stderr.strip().splitlines()[-1] if "No matching distribution" in done.stderr else ""


if away := pypi_is_away():
    pytest.skip(f"PyPI cannot be reached: {away}", allow_module_level=True)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The page's ~, after its block has run in a copy of the package's sources."""
    folder = tmp_path_factory.mktemp("home")
    clone = folder / "clone"
    shutil.copytree(ROOT / "client/python", clone / "client/python",
                    ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    shutil.copytree(ROOT / "proto", clone / "proto")
    for name in ("CMakeLists.txt", "LICENSE"):
        shutil.copy(ROOT / name, clone / name)
    (block,) = [block for block in blocks("docs/python.md") if block.needs == ["pypi"]]
    done = subprocess.run(["bash", "-e", "-c", block.code], cwd=clone, env=environment(folder), capture_output=True,
                          text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return folder


def environment(home):
    """Returns an environment without the package that other tests import; Python has its own modules alone."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, "HOME": str(home), "PATH": f"{find_program('hilbert-ring').parent}:/usr/bin:/bin",
            "HILBERT_RING_PYTHON": str(home / "hilbert-ring/bin/python")}


def run(command, home):
    done = subprocess.run(command, cwd=home, env=environment(home), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_a_job(home):
    run([home / "hilbert-ring/bin/python", "-c", JOB], home)


def test_the_command_line_hands_over_to_it(home):
    run(["hilbert-ring", "draw", "pattern", "--tokens", "64", "--segments", "16", "--dilations", "1", "--out", "p.svg"], home)
    assert "</svg>" in (home / "p.svg").read_text()

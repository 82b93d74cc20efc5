"""The demo of an encoder, on a small picture."""
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

ROOT = Path(__file__).resolve().parents[2]


def test_embeddings_and_map_of_a_picture(tmp_path):
    picture = np.random.default_rng(1).integers(0, 256, (256, 240), np.uint8)
    Image.fromarray(picture).save(tmp_path / "picture.png")
    done = subprocess.run(
        [sys.executable, str(ROOT / "demo" / "encode.py"), "--photograph",
         str(tmp_path / "picture.png"), "--tile", "16", "--layers", "2", "--out", str(tmp_path)],
        capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "240 tiles of 16 x 16 pixels" in done.stdout
    assert "Their results have no medical meaning" in done.stdout
    assert np.load(tmp_path / "embeddings.npy").shape == (241, 192)
    received = np.load(tmp_path / "attention_map.npy")
    assert received.shape == (241, 6)
    assert received.sum(axis=0) == pytest.approx(np.ones(6), abs=1e-5)
    assert Image.open(tmp_path / "encode.png").size[0] > 3 * 240

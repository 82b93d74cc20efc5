"""The demos, on small texts and a small picture."""
import gzip
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "demo"), str(ROOT / "tests" / "golden")]

import attention_oracle  # noqa: E402
import next_symbol  # noqa: E402


def written(folder, data, name="text"):
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def test_a_repeated_text_is_worth_its_length(tmp_path):
    # A run of 500 random letters three times, which only a context of 500 letters predicts.
    letters = np.random.default_rng(1).integers(97, 113, 500).astype(np.uint8).tobytes()
    done = subprocess.run(
        [sys.executable, str(ROOT / "demo" / "context.py"), str(written(tmp_path, letters * 3)),
         "--shortest", "100", "--out", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hilbert-ring verify, all 1,500: ok" in done.stdout
    figures = json.loads((tmp_path / "context.json").read_text())
    assert [row["segment"] for row in figures["lengths"]] == [100, 400, 1500]
    assert (figures["tokens"], figures["alphabet"]) == (1500, 16)
    bits, last = ([row[key] for row in figures["lengths"]]
                  for key in ("bits_per_symbol", "bits_per_symbol_last_tenth"))
    assert bits[0] > 3.9          # within 100 letters nothing repeats: log2(16) is 4
    assert bits[2] < 0.6 * bits[0]  # two of three runs repeat the first
    assert last[0] > 3.9 and last[2] < 0.5 * bits[2]   # the last tenth was all seen before
    root = ElementTree.parse(tmp_path / "context.svg").getroot()
    assert len(root.findall(".//{*}circle")) == 2 * 3

    text = next_symbol.read(tmp_path / "text")
    out, lse = attention_oracle.attention(*next_symbol.attention_inputs(text), segments=[1500],
                                          dilations=[1], causal=True, scale=1.0)
    assert (bits[2], last[2]) == pytest.approx(next_symbol.bits_per_symbol(text, out, lse), abs=1e-4)


@pytest.mark.parametrize("name", ["genes.fa", "genes.fa.gz"])
def test_fasta_is_read_for_its_bases(tmp_path, name):
    text = next_symbol.read(written(tmp_path, b">one\nACGT\nacg\n>two\r\nTTn\n", name))
    assert text.kind == "bases" and text.alphabet == b"ACGNT"
    assert bytes(text.alphabet[i] for i in text.symbols) == b"ACGTACGTTN"
    codes = next_symbol.codes(5)
    assert np.allclose(codes @ codes.T, np.eye(5) * 1.25 - 0.25)


def test_embeddings_and_map_of_a_picture(tmp_path):
    Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
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

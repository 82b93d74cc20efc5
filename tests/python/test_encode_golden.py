"""Runs every golden encoder by the service, from Python and by the command line."""
import json
from pathlib import Path

import numpy as np
import pytest

import hilbert_ring
from client_rig import program

CASES = Path(__file__).resolve().parent.parent / "golden" / "encoder_cases"
NAMES = sorted(path.name for path in CASES.iterdir())
ALLOWED = 2e-5  # of 1 + |x|


@pytest.fixture(scope="module")
def service():
    with hilbert_ring.local(workers=2, job_workers=2, model_dir=CASES) as client:
        yield client


def load(name, file):
    path = CASES / name / f"{file}.npy"
    return np.load(path) if path.exists() else None


def slides(name):
    return json.loads((CASES / name / "input.json").read_text())["sequence_lengths"]


def check(values, expected):
    assert values.shape == expected.shape
    assert (np.abs(values - expected) <= ALLOWED * (1 + np.abs(expected))).all()


@pytest.mark.parametrize("name", NAMES)
def test_case(service, name):
    def encode(**options):
        return service.encode(load(name, "tiles"), load(name, "coords"), model=name,
                              sequence_lengths=slides(name), progress=False, **options)

    check(encode(pool="none").embeddings, load(name, "out"))
    check(encode(pool="none", layers="all").embeddings, np.moveaxis(load(name, "states"), 0, 1))
    order = [1, 0, 1]
    check(encode(pool="none", layers=order).embeddings, np.moveaxis(load(name, "states")[order], 0, 1))
    if load(name, "pooled_mean_out") is None:
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="no norm behind pooling"):
            encode(pool="mean")
        return
    for pool in ("class", "mean"):
        check(encode(pool=pool).embeddings,
              load(name, f"pooled_{pool}_out").reshape(len(slides(name)), -1))
    for layer, received in enumerate(load(name, "attention_map"), 1):
        given = encode(attention_map=layer, attention_map_heads=True).attention_map
        rows = len(received)  # scales the map's values to about 1
        check(given * rows, received * rows)


def test_layers_come_as_asked_for_in_files_too(tmp_path):
    name, order = "slide_three_layers", [2, 0, 3, 2]
    np.save(tmp_path / "tiles.npy", load(name, "tiles"))
    np.save(tmp_path / "coords.npy", load(name, "coords").astype("f8"))
    expected = np.moveaxis(load(name, "states")[order], 0, 1)
    with hilbert_ring.local(workers=2, job_workers=2, model_dir=CASES, data_root=tmp_path) as client:
        client.encode(tmp_path / "tiles.npy", tmp_path / "coords.npy", model=name, sequence_lengths=slides(name),
                      pool="none", layers=order, out=tmp_path / "e.npy", by_reference="always", progress=False)
        done = program("encode", "--server", client.server, "--model", name, "--tiles", tmp_path / "tiles.npy",
                       "--coords", tmp_path / "coords.npy", "--out", tmp_path / "c.npy", "--pool", "none", "--layers",
                       ",".join(map(str, order)), "--sequence-lengths", ",".join(map(str, slides(name))))
    assert done.returncode == 0, done.stderr
    check(np.load(tmp_path / "e.npy"), expected)
    check(np.load(tmp_path / "c.npy"), expected)

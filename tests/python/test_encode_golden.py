"""Runs every golden encoder by the service, from Python and by the command line."""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import slide_files

import hilbert_ring
from hilbert_ring.local_service import find_program

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


@pytest.fixture(name="slide", scope="module")
def _slide(service):
    """Returns tiles, their columns and rows, the side of a tile, and the slide's embedding."""
    model = "slide_small"
    position = json.loads((CASES / model / "config.json").read_text())["position"]
    tiles = load(model, "tiles").astype("f2").astype("f4")
    side = int(len(tiles)**0.5) + 1
    assert position["grid"] > side
    cells = np.stack(np.divmod(np.random.default_rng(4).permutation(side * side)[:len(tiles)], side), axis=1)
    given = service.encode(tiles, cells * position["tile_size"], model=model, pool="mean", progress=False)
    return tiles, cells, position["tile_size"], given.embeddings


@pytest.mark.parametrize("layout", slide_files.LAYOUTS)
def test_a_slide_has_one_embedding_in_every_layout(service, slide, tmp_path, monkeypatch, layout):
    if slide_files.h5py is None:
        monkeypatch.setitem(sys.modules, "h5py", slide_files.StandIn)
    tiles, cells, tile_size, embeddings = slide
    path, options = slide_files.write(layout, tmp_path, tiles, cells, tile_size)

    def encode(**options):
        return service.encode(slide=hilbert_ring.SlideFile(path, **options), model="slide_small", pool="mean",
                              progress=False).embeddings

    assert (encode(**options) == embeddings).all()
    if layout == "trident":  # a wrong scale of coordinates changes the embedding
        off = np.abs(encode(coord_scale=tile_size / 1024) - embeddings).max() / np.abs(embeddings).max()
        assert off > 0.01


def test_layers_come_as_asked_for_in_files_too(tmp_path):
    name, order, pool = "slide_three_layers", [2, 0, 3, 2], "none"
    np.save(tmp_path / "tiles.npy", load(name, "tiles"))
    np.save(tmp_path / "coords.npy", load(name, "coords").astype("f8"))
    states = load(name, "states")
    expected = (np.moveaxis(states[order], 0, 1) if pool == "none" else
                load(name, "pooled_mean_states").reshape(len(slides(name)), len(states), -1)[:, order])
    with hilbert_ring.local(workers=2, job_workers=2, model_dir=CASES, data_root=tmp_path) as client:
        client.encode(tmp_path / "tiles.npy", tmp_path / "coords.npy", model=name, sequence_lengths=slides(name),
                      pool=pool, layers=order, out=tmp_path / "e.npy", by_reference="always", progress=False)
        done = subprocess.run(
            [find_program("hilbert-ring"), "encode", "--server", client.server, "--model", name,
             "--tiles", tmp_path / "tiles.npy", "--coords", tmp_path / "coords.npy", "--out", tmp_path / "c.npy",
             "--pool", pool, "--layers", ",".join(map(str, order)), "--sequence-lengths",
             ",".join(map(str, slides(name)))], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    check(np.load(tmp_path / "e.npy"), expected)
    check(np.load(tmp_path / "c.npy"), expected)

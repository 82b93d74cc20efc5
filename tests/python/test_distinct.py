"""The client refuses a job whose output would overwrite an input or another output. No file changes."""
import os

import numpy as np
import pytest

import hilbert_ring
from client_rig import normal
from hilbert_ring._files import FileOutput

SHAPE = (32, 2, 8)
PATTERN = {"segments": [32], "progress": False, "deadline": 30}
NOWHERE = "127.0.0.1:9"  # the client refuses without a service


def tensors():
    return normal(*SHAPE)


@pytest.fixture
def folder(tmp_path):
    for name, values in zip("qkv", tensors()):
        np.save(tmp_path / f"{name}.npy", values)
    return tmp_path


def paths(folder):
    return [folder / f"{name}.npy" for name in "qkv"]


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def refused(folder, q, k, v, field, match, **more):
    before = contents(folder)
    with hilbert_ring.connect(NOWHERE) as client:
        with pytest.raises(hilbert_ring.InvalidArgumentError, match=match) as raised:
            client.attend(q, k, v, **{**PATTERN, "deadline": 0.2}, **more)
        assert raised.value.field == field
    assert contents(folder) == before


def other_spelling(folder, path):
    return folder / ".." / folder.name / path.name


def symbolic_link(folder, path):
    (folder / "symbolic.npy").symlink_to(path)
    return folder / "symbolic.npy"


def hard_link(folder, path):
    os.link(path, folder / "hard.npy")
    return folder / "hard.npy"


def as_it_is(folder, path):
    return str(path)


@pytest.mark.parametrize("spell", [as_it_is, other_spelling, symbolic_link, hard_link])
@pytest.mark.parametrize("output", ["out", "lse"])
@pytest.mark.parametrize("name", "qkv")
def test_an_output_that_is_an_input(folder, spell, output, name):
    path = spell(folder, folder / f"{name}.npy")
    refused(folder, *paths(folder), output,
            f"{output} {path} is the same file as the input {name}; nothing was written", **{output: path})


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_an_output_that_is_mapped_as_an_input(folder, mode):
    maps = [np.load(path, mmap_mode=mode) for path in paths(folder)]
    refused(folder, *maps, "out", "same file as the input k;", out=folder / "k.npy")
    refused(folder, np.asarray(maps[0])[:], *maps[1:], "out", "same file as the input q;", out=folder / "q.npy")


def test_an_output_that_is_a_map_of_an_input(folder):
    maps = [np.load(path, mmap_mode="r+") for path in paths(folder)]
    refused(folder, *paths(folder), "out", "out lies in the bytes of the input q;", out=maps[0])
    refused(folder, *maps, "out", "out lies in the bytes of the input v;", out=maps[2])


def test_outputs_that_are_one(folder):
    given = paths(folder)
    refused(folder, *given, "lse", "same file as the output out;", out=folder / "new.npy",
            lse=other_spelling(folder, folder / "new.npy"))
    mapped = np.lib.format.open_memmap(folder / "out.npy", "w+", np.float32, SHAPE)
    refused(folder, *given, "lse", "same file as the output out;", out=mapped, lse=folder / "out.npy")


def test_outputs_in_the_memory_of_inputs(folder):
    q, k, v = tensors()
    refused(folder, q, k, v, "out", "out lies in the bytes of the input k;", out=k)
    refused(folder, q[::-1], k, v, "out", "input q;", out=q)
    room = np.zeros((3, *SHAPE), "f4")
    refused(folder, q, k, v, "lse", "output out;", out=room[0], lse=room[0].reshape(-1)[5:69].reshape(SHAPE[:2]))


def test_coordinates(folder):
    np.save(folder / "coords.npy", np.argwhere(np.ones((8, 4), int))[:, ::-1])
    for coords in (folder / "coords.npy", np.load(folder / "coords.npy", mmap_mode="r")):
        refused(folder, *tensors(), "out", "input ordering.coords;", out=folder / "coords.npy",
                ordering=hilbert_ring.Hilbert(coords=coords))


def test_what_is_beside_inputs_is_written(client, folder):
    """An output may lie beside an input in one file, over an older output, or at the path of a replaced map."""
    q, k, v = tensors()
    expected = client.attend(q, k, v, **PATTERN)
    room = np.memmap(folder / "all.raw", "f4", "w+", 0, (4, *SHAPE))
    room[:3] = q, k, v
    client.attend(*room[:3], out=room[3], lse=False, **PATTERN)
    np.testing.assert_array_equal(room[3], expected.out)
    mapped = np.load(folder / "q.npy", mmap_mode="r")
    np.save(folder / "new.npy", np.zeros(3))
    os.replace(folder / "new.npy", folder / "q.npy")
    for _ in range(2):
        result = client.attend(mapped, k, v, out=folder / "q.npy", lse=folder / "lse.npy", **PATTERN)
    np.testing.assert_array_equal(result.out, expected.out)
    np.testing.assert_array_equal(np.load(folder / "q.npy"), expected.out)


def test_a_name_reaches_the_disk(folder, monkeypatch):
    """The file's new name reaches the disk before result() returns, and a second result() writes nothing."""
    done = []
    replace, sync = os.replace, os.fsync

    def named(old, new):
        replace(old, new)
        done.append(("named", new))

    def synced(descriptor):
        sync(descriptor)
        done.append(("synced", os.fstat(descriptor).st_ino))

    monkeypatch.setattr(os, "replace", named)
    monkeypatch.setattr(os, "fsync", synced)
    output = FileOutput(folder / "out.npy", (3, 4), np.dtype("f4"))
    output.bytes[:] = 1
    output.result()
    assert done == [("named", folder / "out.npy"), ("synced", folder.stat().st_ino)]
    assert output.result().shape == (3, 4) and len(done) == 2

"""Jobs whose tensors lie in files that client and service both see."""
import json
import os
import warnings

import numpy as np
import pytest

import golden_cases
import hilbert_ring
from client_rig import normal, program, until
from hilbert_ring._connection import run
from hilbert_ring.v1 import attention_pb2 as pb

SHAPE = (300, 4, 16)
PATTERN = {"segments": [128, 300], "dilations": [1, 4], "mixing": "lse", "progress": False}


def await_root(client, workers):
    """Waits until `workers` workers have found the data root's mark."""
    assert until(lambda: run(client._calls._connection.short(
        "GetDataRoot", pb.GetDataRootRequest(), pb.GetDataRootResponse)).workers == workers)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def service(root):
    with hilbert_ring.local(workers=2, job_workers=2, data_root=root) as client:
        await_root(client, 2)
        yield client


@pytest.fixture
def folder(root, tmp_path):
    """A folder beneath the root for one test."""
    made = root / tmp_path.name
    made.mkdir()
    return made


def saved(folder, arrays):
    maps = []
    for name, values in zip("qkv", arrays):
        np.save(folder / f"{name}.npy", values)
        maps.append(np.load(folder / f"{name}.npy", mmap_mode="r"))
    return maps


def tensors():
    return normal(*SHAPE)


def file_bytes(result):
    """Returns the bytes that the workers read from files."""
    return sum(worker.file_bytes_read for worker in result.report.workers)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def same(result, sent):
    assert np.asarray(result.out).tobytes() == np.asarray(sent.out).tobytes()
    assert np.asarray(result.lse).tobytes() == np.asarray(sent.lse).tobytes()


@pytest.mark.parametrize("name", golden_cases.NAMES[::5])
def test_golden_cases_by_memory_map_are_those_that_are_sent(service, folder, name):
    case = golden_cases.load(name)
    maps = saved(folder, (case.q, case.k, case.v))
    arguments = dict(case.arguments)
    if arguments["ordering"] is not None and arguments["ordering"].coords is not None:
        np.save(folder / "coords.npy", arguments["ordering"].coords)
        arguments["ordering"] = type(arguments["ordering"])(
            arguments["ordering"].grid, arguments["ordering"].window, folder / "coords.npy",
            arguments["ordering"].scope)
    result = service.attend(*maps, out=folder / "out.npy", lse=folder / "lse.npy",
                            by_reference="always", progress=False, **arguments)
    assert file_bytes(result) == sum(x.nbytes for x in maps)
    golden_cases.check(case, "float32", result.out, result.lse)
    sent = service.attend(case.q, case.k, case.v, by_reference="never", progress=False,
                          **case.arguments)
    assert file_bytes(sent) == 0
    same(result, sent)
    assert np.load(folder / "out.npy").tobytes() == sent.out.tobytes()
    assert isinstance(result.out, np.memmap) and not result.out.flags.writeable


def test_a_view_of_a_map_begins_where_it_lies(service, folder):
    values = tensors()
    np.save(folder / "all.npy", np.concatenate([np.ones((7, 4, 16), "f4"), *values]))
    whole = np.load(folder / "all.npy", mmap_mode="r")
    parts = [np.asarray(whole)[7 + i * 300:307 + i * 300] for i in range(3)]
    raw = np.memmap(folder / "v.raw", "f4", "w+", 5, SHAPE)  # written below, not yet on the disk
    raw[:] = values[2]
    result = service.attend(*parts[:2], raw, out=str(folder / "out.npy"), lse=folder / "lse.npy",
                            by_reference="always", **PATTERN)
    same(result, service.attend(*values, **PATTERN))


def test_paths_go_in_and_no_lse_is_made(service, folder):
    values = tensors()
    saved(folder, values)
    result = service.attend(*(str(folder / f"{name}.npy") for name in "qkv"),
                            out=folder / "out.npy", **PATTERN)
    assert file_bytes(result) > 0 and result.lse is None
    np.testing.assert_array_equal(result.out, service.attend(*values, **PATTERN).out)
    assert names(folder) == ["k.npy", "out.npy", "q.npy", "v.npy"]


def elsewhere(maps, folder):
    np.save(folder.parent.parent / "elsewhere.npy", maps[0])
    return [folder.parent.parent / "elsewhere.npy", *maps[1:]]


def replaced(maps, folder):
    np.save(folder / "new.npy", np.zeros(SHAPE, "f4"))
    os.replace(folder / "new.npy", folder / "q.npy")
    return maps


def private(maps, folder):
    changed = np.load(folder / "q.npy", mmap_mode="c")
    np.load(folder / "q.npy", mmap_mode="r+")[:] = 0
    changed[:] = tensors()[0]
    return [changed, *maps[1:]]


@pytest.mark.parametrize("change, why", [
    (lambda maps, folder: [np.array(maps[0]), *maps[1:]], "q is neither"),
    (lambda maps, folder: [*maps[:2], maps[2].astype(">f4")], "v is"),
    (lambda maps, folder: [np.asfortranarray(maps[0]), *maps[1:]], "q is not in C order"),
    (private, "mode 'c'"), (replaced, "no longer"), (elsewhere, "does not lie beneath")])
def test_what_is_in_no_file_of_the_root_is_sent(service, folder, change, why):
    values = tensors()
    maps = change(saved(folder, values), folder)
    result = service.attend(*maps, out=folder / "out.npy", lse=folder / "lse.npy", **PATTERN)
    assert file_bytes(result) == 0
    same(result, service.attend(*values, **PATTERN))
    assert not [name for name in names(folder) if name.startswith(".")]
    with pytest.raises(hilbert_ring.FailedPreconditionError, match=why) as raised:
        service.attend(*maps, out=folder / "out.npy", by_reference="always", **PATTERN)
    assert raised.value.field in ("q", "v")


def test_a_name_that_is_not_utf8_is_sent(service, folder):
    arrays = tensors()
    maps = saved(folder, arrays)
    odd = os.fsdecode(os.fsencode(folder) + b"/\xff.npy")
    np.save(odd, arrays[0])
    maps[0] = np.load(odd, mmap_mode="r")
    with pytest.raises(hilbert_ring.FailedPreconditionError, match="q is .*, which is not UTF-8"):
        service.attend(*maps, by_reference="always", out=folder / "out.npy", **PATTERN)
    sent = service.attend(*maps, out=folder / "out.npy", **PATTERN)
    assert file_bytes(sent) == 0
    np.testing.assert_array_equal(sent.out, service.attend(*arrays, **PATTERN).out)


def test_outputs_that_are_arrays_are_sent(service, folder):
    maps = saved(folder, tensors())
    for options, field in (({}, "out"), ({"out": folder / "out.npy", "lse": True}, "lse")):
        assert file_bytes(service.attend(*maps, **options, **PATTERN)) == 0
        with pytest.raises(hilbert_ring.FailedPreconditionError) as raised:
            service.attend(*maps, **options, by_reference="always", **PATTERN)
        assert raised.value.field == field


def test_what_the_service_cannot_use_is_sent_with_a_warning(service, folder):
    values = tensors()
    maps = saved(folder, values)
    with pytest.warns(RuntimeWarning, match="FILE_PATH"):
        result = service.attend(*maps, out=folder / ".hilbert-ring-out.npy",
                                lse=folder / "lse.npy", **PATTERN)
    assert file_bytes(result) == 0
    same(result, service.attend(*values, **PATTERN))


def test_a_job_that_fails_leaves_no_file(service, folder):
    maps = saved(folder, tensors())
    np.save(folder / "out.npy", np.ones(3))
    for how in ("never", "always"):
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="segments"):
            service.attend(*maps, segments=[0], out=folder / "out.npy", by_reference=how,
                           progress=False)
    stop = RuntimeError("enough")

    def tell(progress):
        if progress.admitted:
            raise stop

    with pytest.raises(RuntimeError, match="enough"):
        service.attend(*maps, segments=[300], out=folder / "out.npy", by_reference="never",
                       progress=tell)
    assert names(folder) == ["k.npy", "out.npy", "q.npy", "v.npy"]
    np.testing.assert_array_equal(np.load(folder / "out.npy"), np.ones(3))


def test_where_this_machine_sees_the_root(service, root, folder):
    maps = saved(folder, tensors())
    with hilbert_ring.connect(service.server, data_root=folder) as client:
        with pytest.raises(hilbert_ring.FailedPreconditionError, match="is not the service's"):
            client.attend(*maps, out=folder / "out.npy", by_reference="always", **PATTERN)
    (folder / "link").symlink_to(root)
    with hilbert_ring.connect(service.server, data_root=folder / "link") as client:
        assert file_bytes(client.attend(*maps, out=folder / "out.npy", by_reference="always",
                                        **PATTERN)) > 0


def test_a_service_without_a_root(tmp_path):
    maps = saved(tmp_path, tensors())
    with hilbert_ring.local(workers=1, data_root="") as client, warnings.catch_warnings():
        with pytest.raises(hilbert_ring.FailedPreconditionError) as raised:
            client.attend(*maps, out=tmp_path / "out.npy", by_reference="always", **PATTERN)
        assert raised.value.reason == "NO_DATA_ROOT"
        warnings.simplefilter("error")
        assert file_bytes(client.attend(*maps, out=tmp_path / "out.npy", **PATTERN)) == 0


CASES = golden_cases.FOLDER.parent / "encoder_cases"
ENCODERS = sorted(path.name for path in CASES.iterdir())


@pytest.fixture(scope="module")
def encoders(root):
    with hilbert_ring.local(workers=2, job_workers=2, data_root=root, model_dir=CASES) as client:
        await_root(client, 2)
        yield client


def slides(name, folder):
    """Returns files of a golden case's tiles and coordinates, and arguments of encode."""
    tiles, coords = CASES / name / "tiles.npy", CASES / name / "coords.npy"
    given = {"model": name, "progress": False, "sequence_lengths": json.loads(
        (CASES / name / "input.json").read_text())["sequence_lengths"]}
    np.save(folder / "tiles.npy", np.load(tiles))
    if not coords.exists():
        return (folder / "tiles.npy", None), given
    np.save(folder / "coords.npy", np.load(coords).astype("f8"))
    return (folder / "tiles.npy", folder / "coords.npy"), given


@pytest.mark.parametrize("name", ENCODERS)
def test_golden_encoders_are_those_that_are_sent(encoders, folder, name):
    inputs, given = slides(name, folder)
    arrays = [None if path is None else np.load(path) for path in inputs]
    for layers in ("last", "all"):
        result = encoders.encode(*inputs, pool="none", layers=layers, out=folder / "out.npy",
                                 by_reference="always", **given)
        assert file_bytes(result) > 0
        sent = encoders.encode(*arrays, pool="none", layers=layers, **given)
        np.testing.assert_array_equal(result.embeddings, sent.embeddings)
        assert result.embeddings.shape == sent.embeddings.shape
    expected = np.moveaxis(np.load(CASES / name / "states.npy"), 0, 1)
    assert (np.abs(result.embeddings - expected) <= 2e-5 * (1 + np.abs(expected))).all()


def test_maps_and_pooled_vectors_of_an_encoder(encoders, folder):
    inputs, given = slides("slide_small", folder)
    for heads in (False, True):
        def encode(paths, **more):
            return encoders.encode(*paths, pool="mean", attention_map=True,
                                   attention_map_heads=heads, **given, **more)

        result = encode(inputs, out=folder / "pooled.npy", attention_map_out=folder / "map.npy",
                        by_reference="always")
        assert file_bytes(result) > 0
        sent = encode([np.load(path) for path in inputs])
        for given_back, array in ((result.embeddings, sent.embeddings),
                                  (result.attention_map, sent.attention_map)):
            np.testing.assert_array_equal(given_back, array)
            assert given_back.shape == array.shape and isinstance(given_back, np.memmap)
    assert names(folder) == ["coords.npy", "map.npy", "pooled.npy", "tiles.npy"]


def test_what_of_an_encoder_is_sent(encoders, folder):
    (tiles, coords), given = slides("slide_small", folder)
    np.save(folder / "narrow.npy", np.load(coords).astype("f4"))
    for paths, more, field in (((tiles, folder / "narrow.npy"), {}, "coords"),
                               ((tiles, coords), {"attention_map": True}, "attention_map_out"),
                               ((tiles, coords), {"pool": "none"}, "out")):
        assert file_bytes(encoders.encode(*paths, **given, **more)) == 0
        with pytest.raises(hilbert_ring.FailedPreconditionError) as raised:
            encoders.encode(*paths, by_reference="always", **given, **more)
        assert raised.value.field == field
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="goes with attention_map"):
        encoders.encode(tiles, coords, attention_map_out=folder / "map.npy", **given)


def test_the_command_line(encoders, folder):
    (tiles, coords), given = slides("slides_packed", folder)
    sent = encoders.encode(np.load(tiles), np.load(coords), pool="none", attention_map=True, **given)

    def run(how, *more):
        return program(
            "encode", "--server", encoders.server, "--model", "slides_packed", "--tiles", tiles, "--coords", coords,
            "--out", folder / "e.npy", "--pool", "none", "--attention-map", folder / "m.npy", "--sequence-lengths",
            ",".join(map(str, given["sequence_lengths"])), "--by-reference", how, "--report", folder / "r.json", *more)

    for how in ("always", "auto", "never"):
        done = run(how)
        assert done.returncode == 0 and "are sent" not in done.stderr, done.stderr
        workers = json.loads((folder / "r.json").read_text())["workers"]
        read = sum(int(worker["file_bytes_read"]) for worker in workers)
        assert (read > 0) == (how != "never")
        np.testing.assert_array_equal(np.load(folder / "e.npy"), sent.embeddings)
        np.testing.assert_array_equal(np.load(folder / "m.npy"), sent.attention_map)
        assert names(folder) == ["coords.npy", "e.npy", "m.npy", "r.json", "tiles.npy"]
        (folder / "e.npy").unlink()
        (folder / "m.npy").unlink()
    done = run("always", "--data-root", str(folder))
    assert done.returncode == 1 and "is not the service's data root" in done.stderr
    assert names(folder) == ["coords.npy", "r.json", "tiles.npy"]
    np.save(tiles, np.asfortranarray(np.load(tiles)))
    assert run("always").returncode == 2
    np.save(tiles, np.ascontiguousarray(np.load(tiles)))

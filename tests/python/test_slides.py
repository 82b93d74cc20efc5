"""Slides of pipelines: tiles and coordinates of each layout, refusals and warnings."""
import json
import os
import sys
import warnings

import numpy as np
import pytest
import slide_files
from slide_files import CLAM, LAYOUTS, TRIDENT, hdf5, torch_file, write
from test_encode import Encoder, small

import hilbert_ring
from client_rig import program
from hilbert_ring.__main__ import main
from hilbert_ring.v1 import attention_pb2 as pb

CELLS = np.array([[1, 2], [2, 2], [4, 2], [2, 3], [7, 9], [21, 13]])
TILES = np.random.default_rng(2).integers(-512, 512, (6, 4)).astype("f4") / 64  # exact in float16


@pytest.fixture(autouse=True)
def _reader_of_hdf5(monkeypatch):
    if slide_files.h5py is None:
        monkeypatch.setitem(sys.modules, "h5py", slide_files.StandIn)


def changed(tiles=TILES, coords=CELLS * 512, attributes=TRIDENT, features="features", **more):
    """Returns a writer of TRIDENT's file with these changes."""
    def file(folder):
        return hdf5(folder / "slide.h5", {features: tiles, "coords": coords, **more}, own=attributes)
    return file


def without(*names):
    return {key: value for key, value in TRIDENT.items() if key not in names}


@pytest.mark.parametrize("tile_size", [256, 224])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout(tmp_path, name, tile_size):
    path, options = write(name, tmp_path, TILES, CELLS, tile_size)
    tiles, coords = hilbert_ring.read_slide(path, tile_size=tile_size, **options)
    assert tiles.dtype == np.float32 and tiles.dtype.isnative and (tiles == TILES).all()
    own = coords - (100 / 512 * tile_size if name == "atlaspatch" else 0)
    assert coords.dtype == np.float64 and (own == CELLS * tile_size).all()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_that_is_named(tmp_path, name):
    path, options = write(name, tmp_path, TILES, CELLS, 256)
    layout = {"trident_npz": "trident", "columns_and_rows": "raw2features", "big_endian": "trident"}.get(name)
    layout = layout or next(known for known in ("trident", "clam", "stamp", "atlaspatch", "raw2features", "slide2vec")
                            if name.startswith(known))
    _, coords = hilbert_ring.read_slide(path, **{**options, "layout": layout})
    assert (np.floor(coords / 256) == CELLS).all()


# Writer, options of read_slide, and coordinates for the model's tiles of 256.
@pytest.mark.parametrize("file, options, expected", [
    # TRIDENT's second column is a whole tile behind the first; later steps are a tile less the overlap.
    (changed(coords=np.array([[0, 0], [512, 896], [896, 1280], [1280, 512], [2048, 896], [2432, 0]]),
             attributes={**TRIDENT, "overlap": 64}),
     {}, [[0, 0], [256, 448], [448, 640], [640, 256], [1024, 448], [1216, 0]]),
    # STAMP's unit is micrometres; these tiles were cut with 1,013 pixels of 0.2527.
    (changed(coords=CELLS * 1013 * 0.2527, attributes={"unit": "um", "tile_size_um": 256.0}), {},
     CELLS * 1013 * 0.2527),
    # Coordinates are not rounded to pixels.
    (changed(coords=CELLS * 300 + 1, attributes={"patch_size_level0": 300}), {}, (CELLS * 300 + 1) / 300 * 256),
    # Each contour of CLAM begins its own grid; some slides round the downsample of a level.
    (changed(coords=CELLS * 1024 + [[0, 7]], attributes={**CLAM, "downsample": [4.0002, 4.0]}), {},
     CELLS * 256 + [[0, 1.75]]),
    (changed(attributes={}), {"coord_scale": 0.5}, CELLS * 256),
    (changed(coords=CELLS * 224, attributes={}), {"coord_scale": 1.142857}, CELLS * 256),
    (changed(coords=CELLS * 256, attributes={}), {"coords_are": "pixels"}, CELLS * 256),
    (changed(coords=CELLS * 256 + 0.5), {"coords_are": "pixels"}, CELLS * 256 + 0.5),
    (changed(places=CELLS * 256), {"coords": "places", "coord_scale": 1}, CELLS * 256),
    (changed(coords=np.pad(CELLS * 256, ((0, 0), (0, 3))), attributes={}),
     {"layout": "atlaspatch", "coords_are": "pixels"}, CELLS * 256),
])
def test_coordinates_become_the_models_own(tmp_path, file, options, expected):
    coords = hilbert_ring.read_slide(file(tmp_path), **options)[1]
    np.testing.assert_allclose(coords, expected, rtol=1e-12)


@pytest.mark.parametrize("given", [
    TILES.astype("f2"), TILES.astype("f8"), TILES.astype(">f2"), TILES.astype("i2"), TILES[None],
    (TILES.view("u4") >> 16).astype("u2").view("V2")])
def test_features_of_a_type(tmp_path, given):
    tiles, _ = hilbert_ring.read_slide(changed(given)(tmp_path))
    half = given.dtype.kind == "f" and given.dtype.itemsize == 2
    assert tiles.dtype == (np.float16 if half else np.float32)
    assert (tiles == TILES.astype("i2") if given.dtype.kind == "i" else np.abs(tiles - TILES) <= 0.04).all()


@pytest.mark.parametrize("file, options, field, message", [
    (changed(coords=(CELLS * 512).astype("f2")), {}, "coords", "is float16, must be integers, float32 or float64"),
    (changed(coords=CELLS[:5] * 512), {}, "coords", r"has shape \(5, 2\), must be \(6, 2\)"),
    (changed(coords=CELLS * np.array([512, np.nan])), {}, "coords", r"\[0\] is \[512.0, nan\], must be finite"),
    (changed(TILES[:, 0]), {}, "features", r"is float32 \(6,\), must be numbers \(tiles, dim\)"),
    (changed(TILES[:0], CELLS[:0]), {}, "features", r"has shape \(0, 4\), must have at least 1 tile"),
    (changed(features="x"), {}, "features", "has no data set 'features' or 'feats'; it has .*'x'"),
    (changed(), {"features": "y"}, "features", "has no data set 'y'"),
    (changed(), {"coords": "y"}, "coords", "has no data set 'y'"),
    # Steps that contradict the attributes.
    (changed(coords=CELLS * 256), {}, "coords", "x steps by 256 to 512 in row 1, must be a multiple of 512"),
    (changed(attributes={**TRIDENT, "overlap": 64}), {}, "coords", "multiple of 384: .* tiles of 512 and .* of 128"),
    (changed(coords=CELLS * 224.0, attributes={}, features="feats"), {"layout": "stamp"}, "layout",
     "layout is stamp, must have attributes"),
    (changed(coords=CELLS * np.array([10240, 512]) + 256 * np.eye(6, 2, -5)), {}, "coords",
     "x steps by 143616 to 215296 in row 5"),
    (changed(coords=CELLS / 21), {}, "coords", "x steps by "),
    *((changed(coords=CELLS * step), {}, "coords", "must be a multiple of 512") for step in (500, 530)),
    (changed(coords=CELLS / 21, attributes=CLAM), {}, "coords", "has 1 distinct places, must have at least 3"),
    (changed(coords=CELLS / 21), {"coords_are": "pixels"}, "coords", "has 1 distinct places"),
    (changed(attributes={}), {}, "coords", "x is 512 to 10752, y is 1024 to 6656, the smallest step between "
     "neighbours is 512, which suggests tiles of 512, a coord_scale of 0.5 with the model's tiles of 256"),
    (changed(attributes=without("patch_size_level0")), {}, "coords", "no attribute that gives their unit"),
    (changed(attributes={**TRIDENT, "patch_size_level0": 0}), {}, "patch_size_level0", "is 0, must be a number above"),
    (changed(attributes={**TRIDENT, "patch_size_level0": "512"}), {}, "patch_size_level0", "must be a number"),
    (changed(attributes={**TRIDENT, "overlap": 256}), {}, "overlap", "is 256, must be below patch_size, 256"),
    (changed(), {"layout": "clam"}, "layout", "layout is clam, must have attributes"),
    (changed(), {"layout": "tridnt"}, "layout", "tridnt"),
    (changed(), {"coord_scale": 0}, "coord_scale", "is 0, must be a number above 0"),
    (changed(), {"coord_scale": 2, "coords_are": "tiles"}, "coord_scale", "must be one of them"),
    (changed(), {"tile_size": 0}, "tile_size", "is 0, must be 1 to"),
    (lambda _: 5, {}, "path", "is of type int, must be a path"),
])
def test_what_is_wrong_is_named(tmp_path, file, options, field, message):
    with pytest.raises(hilbert_ring.InvalidArgumentError, match=message) as raised:
        hilbert_ring.read_slide(file(tmp_path), **options)
    assert raised.value.field == field


def test_files_that_do_not_belong_together(tmp_path):
    path, options = write("clam", tmp_path, TILES, CELLS, 256)
    hdf5(tmp_path / "patches/slide.h5", {"coords": CELLS[::-1] * 512}, own=CLAM)
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="differ from those of .*patches/slide.h5"):
        hilbert_ring.read_slide(path, **options)
    (tmp_path / "patches/slide.h5").unlink()
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="no attribute that gives .* patches"):
        hilbert_ring.read_slide(path, **options)
    hdf5(path, {"features": TILES})
    with pytest.raises(hilbert_ring.InvalidArgumentError, match=r"has no coordinates.*\(--patches\) must be"):
        hilbert_ring.read_slide(path, **options)


def test_one_of_several_encoders(tmp_path):
    path, _ = write("atlaspatch", tmp_path, TILES, CELLS, 256)
    with pytest.raises(hilbert_ring.InvalidArgumentError, match=r"of 2 encoders, \['resnet50', 'uni_v2'\]") as raised:
        hilbert_ring.read_slide(path)
    assert raised.value.field == "features"
    assert hilbert_ring.read_slide(path, features="features/resnet50")[0].shape == (6, 2)


def changed_byte(_, path):
    """Changes a byte of the first member's numbers."""
    data = bytearray(path.read_bytes())
    data[data.index(TILES.tobytes())] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name, text, message", [
    ("slide.h5", "text", "cannot be read as HDF5"), ("slide.npz", "text", "cannot be read as .npz"),
    ("slide.npz", "PK\3\4", "cannot be read as .npz"), ("slide.h5", None, "cannot be read as HDF5"),
    ("slide.npz", None, "cannot be read as .npz"), ("slide.npz", "", "cannot be read as .npz: it is not a zip archive"),
    *((name, os.mkfifo, "is not a file") for name in ("slide.h5", "slide.npz", "slide.pt")),
    ("slide.npz", lambda path: np.savez(path, features=np.array([None])),
     "cannot be read as .npz: features is not an array of plain numbers or texts"),
    ("slide.npz", lambda path: changed_byte(np.savez(path, features=TILES), path), "cannot be read as .npz")])
def test_files_that_cannot_be_read(tmp_path, name, text, message):
    if callable(text):
        text(tmp_path / name)
    elif text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(hilbert_ring.InvalidArgumentError, match=f"{name}:? {message}") as raised:
        hilbert_ring.read_slide(tmp_path / name)
    assert raised.value.field == "path" and "allow_pickle" not in raised.value.message


def test_files_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tiles, coords = torch.from_numpy(TILES), torch.from_numpy(CELLS * 512)
    path = torch_file(tmp_path / "slide.pt", {"features": tiles.bfloat16(), "coords": coords, "patch_size_level0": 512})
    read = hilbert_ring.read_slide(path)
    assert (read[0] == tiles.bfloat16().float().numpy()).all() and (read[1] == CELLS * 256).all()
    for kind in (torch.bfloat16, torch.float16):
        torch_file(path, {"features": tiles, "coords": coords.to(kind), "patch_size_level0": 512})
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="must be integers, float32 or float64"):
            hilbert_ring.read_slide(path)
    torch_file(path, {"features": tiles, "coords": coords, "written_by": main})
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="must hold tensors"):
        hilbert_ring.read_slide(path)
    path.write_bytes(b"hello world")
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="slide.pt"):
        hilbert_ring.read_slide(path)
    with small_service() as client, pytest.raises(hilbert_ring.InvalidArgumentError, match="integers, float32 or"):
        client.encode(TILES, (coords / 51.2).bfloat16(), model="small", progress=False)


def test_what_is_warned_of(tmp_path):
    tiles, cells = TILES.astype("f8"), CELLS.copy()
    tiles[4, 1], tiles[2, 0], cells[5] = np.nan, 1e300, cells[1]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hilbert_ring.read_slide(changed(tiles, cells * 512)(tmp_path))
    assert [str(warning.message).split(": ", maxsplit=1)[1] for warning in caught] == [
        "2 of 6 tiles are not finite, the first in row 2",
        "1 of 6 tiles lie at the place of another, the first in row 5, at [1024, 1024]"]
    assert all(warning.filename == __file__ for warning in caught)


class small_service:
    """Gives a client of the stand-in, whose model has tiles of 10 pixels."""

    def __init__(self, **changes):
        self.service = Encoder(small(**changes))

    def __enter__(self):
        self.service.__enter__()
        self.client = hilbert_ring.connect(self.service.address)
        self.client.service = self.service
        return self.client

    def __exit__(self, *_):
        self.client.close()
        self.service.__exit__()


def test_a_slide_is_encoded(tmp_path):
    path, options = write("clam_elsewhere", tmp_path, TILES, CELLS % 20, 10)
    with small_service() as client:
        client.encode(slide=hilbert_ring.SlideFile(path, **options), model="small", progress=False)
        assert (client.service.sent(pb.TENSOR_TILES, "<f4") == TILES).all()
        assert (client.service.sent(pb.TENSOR_TILE_COORDS, "<f8") == CELLS % 20 * 10).all()
        for arguments, field in (({"slide": path}, "coords"), ({"slide": 3}, "slide"), ({}, "tiles"),
                                 ({"slide": path, "tiles": TILES}, "slide"),
                                 ({"slide": hilbert_ring.SlideFile(path, **options), "out": path}, "out")):
            with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
                client.encode(model="small", progress=False, **arguments)
            assert raised.value.field == field
        assert client.service.calls == 1
    with small_service(positions=False) as client:
        client.encode(slide=path, model="small", progress=False)
        assert (client.service.sent(pb.TENSOR_TILES, "<f4") == TILES).all()


def test_a_slide_as_npy(tmp_path, capsys):
    path, _ = write("trident_npz", tmp_path, TILES.astype("f2"), CELLS % 20, 10)
    written = {name: tmp_path / f"{name}.npy" for name in ("tiles", "coords")}
    command = ["slide", str(path), *(f"--{name}={file}" for name, file in written.items())]
    assert main(command) == 0
    assert capsys.readouterr().out == ("6 tiles of 4 numbers; x 256.0 to 1,792.0, y 512.0 to 3,328.0, scale 0.5; "
                                       "layout trident\n")
    tiles, coords = (np.load(file) for file in written.values())
    assert tiles.dtype == np.float16 and (tiles == TILES).all()
    assert coords.dtype == np.float64 and (coords == CELLS % 20 * 256).all()
    with small_service() as client:
        assert main([*command, "--model=small", f"--server={client.server}"]) == 0
        assert (np.load(written["coords"]) == CELLS % 20 * 10).all()
    assert main([*command, "--tile-size=64", "--json"]) == 0
    options = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert options["scale"] == [0.125, 0.125] and options["layout"] == "trident" and options["high"] == [448, 832]
    assert main([*command[:3], "--json"]) == 0  # of a model without positions
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for more, said in ((["--features=x"], "has no data set 'x'"), (["--coordinates=x"], "has no data set 'x'"),
                       (["--layout=clam"], "layout is clam"), (["--coord-scale=0"], "must be a number above 0"),
                       (["--tile-size=64", "--model=small"], "--tile-size is given beside --model"),
                       (["--coords-are=metres"], "--coords-are"), (["--patches=missing.h5"], "missing.h5 cannot be"),
                       ([f"--tiles={path}"], "is the same file as the input")):
        capsys.readouterr()
        assert main([*command, *more]) == 2
        assert said in capsys.readouterr().err
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    np.savez(path, features=TILES * np.nan, coords=CELLS * 512, **TRIDENT)
    for more in ([], ["--json"]):
        assert main([*command, *more]) == 0
        line = capsys.readouterr().err
        line = json.loads(line)["warning"] if more else line.split("hilbert-ring: warning: ")[1].rstrip()
        assert line == f"features of {path}: 6 of 6 tiles are not finite, the first in row 0"


def test_a_slide_on_the_command_line(tmp_path):
    path, _ = write("trident_npz", tmp_path, TILES, CELLS % 20, 10)
    (tmp_path / "temporary").mkdir()
    with small_service() as client:
        def encode(*more):
            return program("encode", "--server", client.server, "--model", "small", "--slide", path, "--out",
                           tmp_path / "e.npy", *more, environment={"TMPDIR": str(tmp_path / "temporary")})
        done = encode("--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["tokens"] == 7
        assert (client.service.sent(pb.TENSOR_TILES, "<f4") == TILES).all()
        assert (client.service.sent(pb.TENSOR_TILE_COORDS, "<f8") == CELLS % 20 * 10).all()
        done = encode("--layout=clam")
        assert done.returncode == 2 and done.stdout == ""
        assert "hilbert-ring: INVALID_ARGUMENT: layout is clam, must have attributes" in done.stderr
        assert client.service.calls == 1
    assert not list((tmp_path / "temporary").iterdir())

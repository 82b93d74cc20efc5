"""Writes files of one slide in the layouts of slide pipelines.

    path, options = LAYOUTS["trident"](folder, tiles, cells)  # cells: columns and rows of tiles
    hilbert_ring.read_slide(path, **options)

HDF5 needs h5py, or the stand-in of this file if h5py is not installed.
"""
import importlib
import json
import pickle

import numpy as np

try:
    import h5py
except ImportError:
    h5py = None


class Attributed:
    def __init__(self, array):
        self.array, self.attrs = np.asarray(array), {}

    def __getitem__(self, key):
        return self.array[key]


class StandIn:
    """The functions of h5py that the reader calls. Files are pickles."""

    Dataset = Attributed

    class File(dict):
        def __init__(self, path, mode):
            super().__init__()
            self.path, self.mode, self.attrs = path, mode, {}
            if mode == "r":
                try:
                    with open(path, "rb") as file:
                        items, self.attrs = pickle.load(file)
                except pickle.UnpicklingError as error:
                    raise OSError("file signature not found") from error
                self.update(items)

        def __setitem__(self, name, array):
            super().__setitem__(name, array if isinstance(array, Attributed) else Attributed(array))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            if self.mode == "w":
                with open(self.path, "wb") as file:
                    pickle.dump((dict(self), self.attrs), file)


def hdf5(path, arrays, attributes=(), own=()):
    """own: attributes of the coordinates."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (h5py or StandIn).File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
        file.attrs.update(attributes)
        if own:
            file["coords"].attrs.update(own)
    return path


def torch_file(path, value):
    torch = importlib.import_module("torch")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path)
    return path


TRIDENT = {"patch_size": 256, "patch_size_level0": 512, "level0_magnification": 40, "target_magnification": 20,
           "overlap": 0}
CLAM = {"patch_size": 256, "patch_level": 1, "downsample": np.array([2.0, 2.0])}


def trident(folder, tiles, cells, **own):
    return hdf5(folder / "slide.h5", {"features": tiles, "coords": cells * 512}, own={**TRIDENT, **own}), {}


def trident_npz(folder, tiles, cells):
    np.savez(folder / "slide.npz", features=tiles, coords=cells * 512, **TRIDENT)
    return folder / "slide.npz", {}


def clam(folder, tiles, cells):
    hdf5(folder / "patches/slide.h5", {"coords": cells * 512}, own=CLAM)
    return hdf5(folder / "h5_files/slide.h5", {"features": tiles, "coords": cells * 512}), {}


def clam_elsewhere(folder, tiles, cells):
    patches = hdf5(folder / "results/slide.h5", {"coords": cells * 512}, own=CLAM)
    return hdf5(folder / "h5_files/slide.h5", {"features": tiles, "coords": cells * 512}), {"patches": patches}


def clam_pt(folder, tiles, cells):
    torch = importlib.import_module("torch")
    hdf5(folder / "patches/slide.h5", {"coords": cells * 512}, own=CLAM)
    return torch_file(folder / "pt_files/slide.pt", torch.from_numpy(tiles)), {}


def stamp(folder, tiles, cells):
    return hdf5(folder / "slide.h5", {"feats": tiles, "coords": (cells * 112.7).astype("f4")},
                {"unit": "um", "tile_size_um": 112.7, "tile_size_px": 224}), {}


def stamp_2_0(folder, tiles, cells):
    return hdf5(folder / "slide.h5", {"feats": tiles, "coords": cells * 256.0},
                {"unit": "um", "tile_size": 256.0}), {"layout": "stamp"}


def stamp_of_pixels(folder, tiles, cells):
    return hdf5(folder / "slide.h5", {"feats": tiles, "coords": cells * 224}), {"scale_from": 224}


def atlaspatch(folder, tiles, cells):
    x, y = (cells * 512 + 100).T  # a contour's own grid
    coords = np.stack([x, y, x * 0 + 256, x * 0 + 256, x * 0 + 1], axis=1).astype("i4")
    return hdf5(folder / "slide.h5", {"features/resnet50": tiles[:, :2], "features/uni_v2": tiles, "coords": coords},
                {key: TRIDENT[key] for key in TRIDENT}), {"features": "uni_v2"}


def raw2features(folder, tiles, cells):
    return hdf5(folder / "slide.h5", {"features": tiles[None], "coords": cells[None] * 448},
                own={"patch_size": 448, "patch_size_level0": 448}), {}


def slide2vec(folder, tiles, cells, save=lambda path, tiles: np.savez(path, features=tiles)):
    (folder / "tile_embeddings").mkdir()
    (folder / "tiles").mkdir()
    np.savez(folder / "tiles/slide.coordinates.npz", x=cells[:, 0] * 448, y=cells[:, 1] * 448,
             tile_index=np.arange(len(cells)))
    (folder / "tiles/slide.coordinates.meta.json").write_text(json.dumps({
        "slide": {"base_spacing_um": 0.25}, "tiling": {"requested_tile_size_px": 224, "tile_size_lv0": 448}}))
    save(folder / "tile_embeddings/slide.npz", tiles)
    return folder / "tile_embeddings/slide.npz", {}


def slide2vec_pt(folder, tiles, cells):
    torch = importlib.import_module("torch")
    path, options = slide2vec(folder, tiles, cells, lambda path, tiles: torch.save(
        torch.from_numpy(tiles), path.with_suffix(".pt")))
    return path.with_suffix(".pt"), options


def columns_and_rows(folder, tiles, cells):
    return hdf5(folder / "slide.h5", {"features": tiles, "coords": cells.astype("u2")}), {"coords_are": "tiles"}


def big_endian(folder, tiles, cells):
    return hdf5(folder / "slide.h5", {"features": tiles.astype(">f8"), "coords": (cells * 512).astype(">f4")},
                own={key: np.array(value, ">i8") for key, value in TRIDENT.items()}), {}


LAYOUTS = {writer.__name__: writer for writer in (
    trident, trident_npz, clam, clam_elsewhere, clam_pt, stamp, stamp_2_0, stamp_of_pixels, atlaspatch,
    raw2features, slide2vec, slide2vec_pt, columns_and_rows, big_endian)}


def write(name, folder, tiles, cells, tile_size):
    """Writes a layout's file and returns its path and options of read_slide. tile_size: of the model."""
    if name.endswith("_pt"):
        import pytest
        pytest.importorskip("torch", reason="PyTorch is not installed")
    path, options = LAYOUTS[name](folder, tiles, cells)
    side = options.pop("scale_from", None)
    return path, options if side is None else {**options, "coord_scale": tile_size / side}

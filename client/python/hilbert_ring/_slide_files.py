"""Reads files of slide pipelines: HDF5, .pt of PyTorch, .npz.

    with opened_slide("slide.h5") as view:
        view.arrays["features"].shape, view.attributes_of("coords")["patch_size_level0"]
"""
import json
import os
import pickle
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ContextManager, Dict, Iterator, Mapping, Optional

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._files import PathLike
from hilbert_ring.errors import InvalidArgumentError

# Paths of the file of coordinates, relative to the parent of the features' folder, in pipelines.
_BESIDE = ("patches/{}.h5", "tiles/{}.coordinates.npz")
_SIDECAR = ".meta.json"
_SIDECAR_PART = "tiling"
_GROUPS = 3  # levels that are read: links can make a group its own member


@dataclass(frozen=True)
class View:
    """The content of a file. Arrays of HDF5 can be read while the file is open.

    Attributes:
        arrays: arrays by name; "group/name" in a group.
        attributes: attributes of the file.
        own: attributes of each array, by the array's name.
    """

    path: str
    arrays: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def attributes_of(self, name: str) -> Dict[str, Any]:
        """Returns the attributes of the file and of an array, which take precedence."""
        return {**self.attributes, **self.own.get(name, {})}

    def read(self, name: str) -> "NDArray[Any]":
        """Returns an array; removes a leading axis of one from three axes."""
        array = np.asarray(self.arrays[name][()])
        return array[0] if array.ndim == 3 and array.shape[0] == 1 else array


def opened_slide(path: PathLike) -> ContextManager[View]:
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for its writer
        raise InvalidArgumentError(f"{os.fspath(path)}: is not a file", field="path")
    suffix = Path(path).suffix.lower()
    return {".npz": _npz, ".pt": _pt, ".pth": _pt}.get(suffix, _hdf5)(os.fspath(path))


def patches_beside(path: PathLike) -> Optional[Path]:
    """Returns the file of coordinates that belongs to a file of features, in a folder beside; None: it is missing."""
    features = Path(os.path.abspath(path))
    for pattern in _BESIDE:
        found = features.parent.parent / pattern.format(features.stem)
        if found.is_file() and found != features:
            return found
    return None


@contextmanager
def _hdf5(path: str) -> Iterator[View]:
    h5py: Any = _imported("h5py", "HDF5", path)
    arrays: Dict[str, Any] = {}
    own: Dict[str, Dict[str, Any]] = {}

    def note(group: Any, prefix: str, depth: int) -> None:
        for key in group:
            name, item = prefix + key, group.get(key)  # follows links; None: a dangling link
            if isinstance(item, h5py.Dataset):
                arrays[name], own[name] = item, dict(item.attrs)
            elif isinstance(item, Mapping) and depth > 1:
                note(item, name + "/", depth - 1)

    try:
        with h5py.File(path, "r") as file:
            note(file, "", _GROUPS)
            yield View(path, arrays, dict(file.attrs), own)
    except OSError as error:
        raise _unreadable(path, "HDF5", error) from error


@contextmanager
def _npz(path: str) -> Iterator[View]:
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is not a zip archive")
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            values = {name: _member(loaded, name) for name in loaded.files}
    except Exception as error:  # other bytes can raise any error in the readers of zip and NumPy
        raise _unreadable(path, ".npz", error) from error
    yield _view_of(path, values)


def _member(archive: Any, name: str) -> Any:
    try:
        return archive[name]
    except ValueError:  # NumPy's own message advises to trust the file
        raise ValueError(f"{name} is not an array of plain numbers or texts") from None


@contextmanager
def _pt(path: str) -> Iterator[View]:
    torch: Any = _imported("torch", "a file of PyTorch", path)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
        values = loaded if isinstance(loaded, dict) else {"features": loaded}
        values = {str(name): _of_torch(value, torch) for name, value in values.items()}
    except pickle.UnpicklingError as error:
        raise InvalidArgumentError(f"{path} is no file of weights alone, must hold tensors", field="path") from error
    except Exception as error:  # other bytes can raise any error in the reader of pickles
        raise _unreadable(path, "a file of PyTorch", error) from error
    yield _view_of(path, values)


def _of_torch(value: Any, torch: Any) -> Any:
    """Returns a tensor as an array; bfloat16 as raw 16 bits."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    return value.view(torch.int16).numpy().view("V2") if value.dtype == torch.bfloat16 else value.numpy()


def _view_of(path: str, values: Dict[str, Any]) -> View:
    """Makes a view of arrays. Values without axes become attributes, with those of the file beside."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray) and value.ndim}
    attributes = {name: value[()] if isinstance(value, np.ndarray) else value
                  for name, value in values.items() if name not in arrays}
    return View(path, arrays, {**_sidecar(path), **attributes})


def _sidecar(path: str) -> Dict[str, Any]:
    """Reads the attributes that slide2vec writes beside a file."""
    beside = Path(path).with_suffix(_SIDECAR)
    try:
        values = json.loads(beside.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(os.fspath(beside), "JSON", error) from error
    values = values if isinstance(values, dict) else {}
    part = values.get(_SIDECAR_PART)
    return {**values, **(part if isinstance(part, dict) else {})}


def _imported(package: str, kind: str, path: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise InvalidArgumentError(f"{path}: {kind} is read by {package}, which is not installed: "
                                   f"pip install {package}", field="path") from None


def _unreadable(path: str, kind: str, error: Exception) -> InvalidArgumentError:
    return InvalidArgumentError(f"{path} cannot be read as {kind}: {error}", field="path")

"""That no output of a job replaces or overwrites one of its inputs, or another output.

    check_distinct({"q": (path, mapped)}, {"out": path})

Files are compared by device and inode, so that other spellings, links and memory maps are found; those that
are not there yet by folder and name. Opens nothing. As client/cpp/distinct_files.cc.
"""
import math
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from hilbert_ring._files import PathLike, is_path, mapping_at
from hilbert_ring._tensors import torch_if_loaded
from hilbert_ring.errors import InvalidArgumentError

_MEMORY = ("memory",)


@dataclass(frozen=True)
class _Extent:
    """Bytes of a file or of this process's memory."""

    where: Tuple[Any, ...]
    begin: float
    end: float

    def meets(self, other: "_Extent") -> bool:
        return self.where == other.where and self.begin < other.end and other.begin < self.end


def check_shown(files: Dict[str, PathLike], outputs: Dict[str, Any]) -> None:
    """As check_distinct, of the files with which the caller shows the service who it is, by name."""
    check_distinct({name: (path, None) for name, path in files.items()}, outputs)


def check_distinct(inputs: Dict[str, Tuple[Any, Any]], outputs: Dict[str, Any]) -> None:
    """By arguments' names. inputs: as they were given, and as arrays. outputs: as they were given; what is no
    path and no array is not looked at.

    Raises:
        InvalidArgumentError: naming both.
    """
    written = {name: (value, _extents(value, files=True)) for name, value in outputs.items()
               if value is not None and not isinstance(value, bool)}
    files = any(extent.where != _MEMORY for _, extents in written.values() for extent in extents)
    taken: List[Tuple[str, List[_Extent]]] = []
    if written:
        taken = [(f"input {name}", _extents(given if is_path(given) else array, files))
                 for name, (given, array) in inputs.items()]
    for name, (value, extents) in written.items():
        for other, theirs in taken:
            if any(extent.meets(their) for extent in extents for their in theirs):
                said = f"{name} {os.fspath(value)} is the same file as" if is_path(value) \
                    else f"{name} lies in the bytes of"
                raise InvalidArgumentError(f"{said} the {other}; nothing was written", field=name)
        taken.append((f"output {name}", extents))


def _extents(value: Any, files: bool) -> List[_Extent]:
    """Where a value lies; files: memory maps are looked up, too."""
    if is_path(value):
        identity = _identity(value)
        return [] if identity is None else [_Extent(identity, 0, math.inf)]
    bounds = _bounds(value)
    if bounds is None:
        return []
    begin, end = bounds
    extents = [_Extent(_MEMORY, begin, end)]
    mapping = mapping_at(begin) if files else None
    if mapping is not None:
        identity = _identity(mapping.path)
        if identity is not None and identity[1] == mapping.inode:  # else it was replaced
            first = mapping.offset + begin - mapping.begin
            extents.append(_Extent(identity, first, first + end - begin))
    return extents


def _identity(path: PathLike) -> Optional[Tuple[Any, ...]]:
    """Of a file that is there, or of the place of one that is not; None: not even its folder is there."""
    whole = os.path.realpath(path)
    try:
        found = os.stat(whole)
        return found.st_dev, found.st_ino
    except (OSError, ValueError):
        pass
    try:
        folder = os.stat(os.path.dirname(whole))
    except (OSError, ValueError):
        return None
    return folder.st_dev, folder.st_ino, os.path.basename(whole)


def _bounds(value: Any) -> Optional[Tuple[int, int]]:
    """The first address of an array, and that behind its last byte; None: it is empty, or not known where."""
    torch = torch_if_loaded()
    if torch is not None and isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            return None
        size = value.element_size()
        return _range(value.data_ptr(), value.shape, [step * size for step in value.stride()], size)
    if not isinstance(value, np.ndarray):
        try:
            value = np.asarray(memoryview(value))
        except TypeError:
            return None
    return _range(value.__array_interface__["data"][0], value.shape, value.strides, value.itemsize)


def _range(address: int, shape: Sequence[int], strides: Sequence[int],
           size: int) -> Optional[Tuple[int, int]]:
    if 0 in shape:
        return None
    spans = [(length - 1) * stride for length, stride in zip(shape, strides)]
    return (address + sum(span for span in spans if span < 0),
            address + sum(span for span in spans if span > 0) + size)

"""That no output of a job replaces or overwrites one of its inputs, or another output.

    check_distinct({"q": (path, mapped)}, {"out": path})

Files are compared by device and inode, so that other spellings, links and memory maps are found; those that
are not there yet by folder and name. Opens nothing. As client/cpp/distinct_files.cc.
"""
import os
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, DefaultDict, Dict, List, Optional, Sequence, Tuple

import numpy as np

from hilbert_ring._chunks import RowRanges
from hilbert_ring._files import PathLike, byte_range, is_path, mapping_of
from hilbert_ring._torch_streams import torch_if_loaded
from hilbert_ring.errors import InvalidArgumentError

_MEMORY = ("memory",)
_END_OF_FILE = 1 << 63


@dataclass(frozen=True)
class _Extent:
    """Bytes of a file or of this process's memory."""

    where: Tuple[Any, ...]
    begin: int
    end: int

    def meets(self, other: "_Extent") -> bool:
        return self.where == other.where and self.begin < other.end and other.begin < self.end


_Named = Dict[str, List[_Extent]]  # by arguments' names


def check_shown(files: Dict[str, PathLike], outputs: Dict[str, Any]) -> None:
    """As check_distinct, of the files with which the caller shows the service who it is, by name."""
    check_distinct({name: (path, None) for name, path in files.items()}, outputs)


def check_distinct(inputs: Dict[str, Tuple[Any, Any]], outputs: Dict[str, Any]) -> None:
    """By arguments' names. inputs: as they were given, and as arrays. outputs: as they were given; what is no
    path and no array is not looked at.

    Raises:
        InvalidArgumentError: naming both.
    """
    written = _written(outputs)
    taken = [(f"input {name}", extents) for name, extents in _read(inputs, _in_files([written])).items()] \
        if written else []
    for name, extents in written.items():
        value = outputs[name]
        for other, theirs in taken:
            if any(extent.meets(their) for extent in extents for their in theirs):
                said = f"{name} {os.fspath(value)} is the same file as" if is_path(value) \
                    else f"{name} lies in the bytes of"
                raise InvalidArgumentError(f"{said} the {other}; nothing was written", field=name)
        taken.append((f"output {name}", extents))


@dataclass(frozen=True)
class Places:
    """Where the tensors of a job lie, by arguments' names, as of check_distinct."""

    inputs: Dict[str, Tuple[Any, Any]]
    outputs: Dict[str, Any]


def later_that_meet(jobs: Sequence[Optional[Places]]) -> List[Optional[InvalidArgumentError]]:
    """Of jobs of one call, each distinct in itself: the errors of those whose outputs lie where an earlier job
    reads or writes, or whose inputs lie where one writes. Jobs that have one do not count as earlier."""
    written = [{} if job is None else _written(job.outputs) for job in jobs]
    errors: List[Optional[InvalidArgumentError]] = [None] * len(jobs)
    if not any(written):
        return errors
    files = _in_files(written)
    all_read, all_written = _Bytes(), _Bytes()
    for number, (job, outputs) in enumerate(zip(jobs, written)):
        if job is None:
            continue
        inputs = _read(job.inputs, files)
        for name, extents in {**outputs, **inputs}.items():
            if all_written.meet(extents) or name in outputs and all_read.meet(extents):
                what = "an input or output" if name in outputs else "an output"
                errors[number] = InvalidArgumentError(
                    f"{name} lies in the bytes of {what} of an earlier job of the call; nothing was written",
                    field=name)
                break
        else:
            all_read.add(inputs)
            all_written.add(outputs)
    return errors


class _Bytes:
    """Of files and of memory, taken together."""

    def __init__(self) -> None:
        self._ranges: DefaultDict[Tuple[Any, ...], RowRanges] = defaultdict(RowRanges)

    def meet(self, extents: List[_Extent]) -> bool:
        return any(self._ranges[extent.where].meets(extent.begin, extent.end) for extent in extents)

    def add(self, named: _Named) -> None:
        for extents in named.values():
            for extent in extents:
                self._ranges[extent.where].add(extent.begin, extent.end - extent.begin)


def _written(outputs: Dict[str, Any]) -> _Named:
    """Outputs that the caller gave."""
    return {name: _extents(value, files=True) for name, value in outputs.items()
            if value is not None and not isinstance(value, bool)}


def _read(inputs: Dict[str, Tuple[Any, Any]], files: bool) -> _Named:
    return {name: _extents(given if is_path(given) else array, files)
            for name, (given, array) in inputs.items()}


def _in_files(written: Sequence[_Named]) -> bool:
    """Whether some of them lie in files."""
    return any(extent.where != _MEMORY for named in written for extents in named.values() for extent in extents)


def _extents(value: Any, files: bool) -> List[_Extent]:
    """Where a value lies; files: memory maps are looked up, too."""
    if is_path(value):
        identity = _identity(value)
        return [] if identity is None else [_Extent(identity, 0, _END_OF_FILE)]
    bounds = _bounds(value)
    if bounds is None:
        return []
    begin, end = bounds
    extents = [_Extent(_MEMORY, begin, end)]
    mapping = mapping_of(value, begin) if files else None
    if mapping is not None:
        identity = _identity(mapping.path)
        if identity is not None and identity[1] == mapping.inode:  # else it was replaced
            first = mapping.offset + begin - mapping.begin
            extents.append(_Extent(identity, first, first + end - begin))
    return extents


def _identity(path: PathLike) -> Optional[Tuple[Any, ...]]:
    """Of a file that is there, or of the place of one that is not; None: not even its folder is there."""
    try:
        whole = os.path.realpath(path)
        found = os.stat(whole)
        return found.st_dev, found.st_ino
    except ValueError:  # a NUL
        return None
    except OSError:
        pass
    try:
        folder = os.stat(os.path.dirname(whole))
    except OSError:
        return None
    return folder.st_dev, folder.st_ino, os.path.basename(whole)


def _bounds(value: Any) -> Optional[Tuple[int, int]]:
    """The first address of an array, and that behind its last byte; None: it is empty, or not known where."""
    torch = torch_if_loaded()
    if torch is not None and isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            return None
        size = value.element_size()
        return byte_range(value.data_ptr(), value.shape, [step * size for step in value.stride()], size)
    if not isinstance(value, np.ndarray):
        try:
            value = np.asarray(memoryview(value))
        except TypeError:
            return None
    return byte_range(value.__array_interface__["data"][0], value.shape, value.strides, value.itemsize)

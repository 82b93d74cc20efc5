"""Checks that no output of a job overwrites one of its inputs, or another output.

    check_distinct({"q": path, "k": mapped}, {"out": path})

Files are compared by device and inode, which finds other spellings, links and memory maps; future files by folder and
name. No file is opened. client/cpp/distinct_files.cc does the same.
"""
import os
from collections import defaultdict
from typing import Any, DefaultDict, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from hilbert_ring._chunks import RowRanges
from hilbert_ring._files import PathLike, byte_range, is_path, mapping_of
from hilbert_ring._torch_streams import torch_if_loaded
from hilbert_ring.errors import InvalidArgumentError

_MEMORY = ("memory",)
_END_OF_FILE = 1 << 63


class _Extent(NamedTuple):
    """Bytes of a file or of this process's memory."""

    where: Tuple[Any, ...]
    begin: int
    end: int

    def meets(self, other: "_Extent") -> bool:
        return self.where == other.where and self.begin < other.end and other.begin < self.end


_Named = Dict[str, List[_Extent]]  # by arguments' names


def check_distinct(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Checks the given values, by arguments' names. Values other than paths and arrays are ignored."""
    written = _written(outputs)
    taken = [(f"input {name}", extents) for name, extents in _read(inputs, _in_files([written])).items()] \
        if written else []
    for name, extents in written.items():
        value = outputs[name]
        for other, theirs in taken:
            if any(extent.meets(their) for extent in extents for their in theirs):
                found = f"{name} {os.fspath(value)} is the same file as" if is_path(value) \
                    else f"{name} lies in the bytes of"
                raise InvalidArgumentError(f"{found} the {other}; nothing was written", field=name)
        taken.append((f"output {name}", extents))


Places = Tuple[Mapping[str, Any], Mapping[str, Any]]  # the arguments of check_distinct for a job


def later_that_meet(jobs: Sequence[Optional[Places]]) -> List[Optional[InvalidArgumentError]]:
    """Returns an error for each job of a call that overwrites tensors of an earlier job, or reads its outputs.

    Jobs with an error do not count as earlier ones. Each job must be distinct in itself.
    """
    written = [{} if job is None else _written(job[1]) for job in jobs]
    errors: List[Optional[InvalidArgumentError]] = [None] * len(jobs)
    if not any(written):
        return errors
    files = _in_files(written)
    all_read, all_written = _Bytes(), _Bytes()
    for number, (job, outputs) in enumerate(zip(jobs, written)):
        if job is None:
            continue
        inputs = _read(job[0], files)
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
    """A set of bytes of files and of memory."""

    def __init__(self) -> None:
        self._ranges: DefaultDict[Tuple[Any, ...], RowRanges] = defaultdict(RowRanges)

    def meet(self, extents: List[_Extent]) -> bool:
        return any(self._ranges[extent.where].meets(extent.begin, extent.end) for extent in extents)

    def add(self, named: _Named) -> None:
        for extents in named.values():
            for extent in extents:
                self._ranges[extent.where].add(extent.begin, extent.end - extent.begin)


def _written(outputs: Mapping[str, Any]) -> _Named:
    """Returns the extents of the outputs that the caller gave."""
    return {name: _extents(value, files=True) for name, value in outputs.items()
            if value is not None and not isinstance(value, bool)}


def _read(inputs: Mapping[str, Any], files: bool) -> _Named:
    return {name: _extents(value, files) for name, value in inputs.items()}


def _in_files(written: Sequence[_Named]) -> bool:
    return any(extent.where != _MEMORY for named in written for extents in named.values() for extent in extents)


def _extents(value: Any, files: bool) -> List[_Extent]:
    """Returns the bytes that a value occupies. files: look memory maps up, too."""
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
    """Returns the identity of a file, or of the place of a future one; None: its folder is missing."""
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
    """Returns the addresses of an array's first byte and behind its last; None: it is empty, or not in memory."""
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

"""Tensors in files: the place of an array in its file, and outputs that become files."""
import errno
import math
import mmap
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Optional, Sequence, Tuple, Union
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._npy import map_npy, read_npy_header
from hilbert_ring._pending import find_output, open_pending, pending_path, sync_folder, take_name
from hilbert_ring.errors import (DataLossError, HilbertRingError, InvalidArgumentError, NotFoundError,
                                 ResourceExhaustedError)

PathLike = Union[str, "os.PathLike[str]"]
_mappings: "WeakKeyDictionary[mmap.mmap, Optional[Mapping]]" = WeakKeyDictionary()


def is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def checked_path(name: str, value: Any) -> str:
    if not is_path(value):
        raise InvalidArgumentError(f"{name} is of type {type(value).__name__}, must be a path", field=name)
    path = os.fsdecode(value)
    if not path:
        raise InvalidArgumentError(f"{name}: is empty, expected a path", field=name)
    if "\0" in path:
        raise InvalidArgumentError(f"{name}: {path!r}: a path has no NUL", field=name)
    return path


def opened(name: str, value: Any) -> Any:
    """Returns the mapped array of a .npy file if `value` is its path, else `value`."""
    if not is_path(value):
        return value
    path = checked_path(name, value)
    try:
        return map_npy(path)
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: {path}: {error}", field=name) from None


class NotInFile(Exception):
    """An array's rows are not rows of a file. The text states why."""


@dataclass(frozen=True)
class FilePart:
    """The place of an array's rows in a file."""

    path: str
    offset: int  # bytes
    whole: bool  # the rows are the whole array of a .npy file, with its shape and type


def part_of(array: Any) -> FilePart:
    """Returns the place of an array whose memory is a mapped file.

    The place comes from the system's list of mappings: a view of a map has its own offset, and a file that was
    replaced after it was mapped is an error.

    Raises:
        NotInFile: its memory is no mapped file, or not in C order.
    """
    if not isinstance(array, np.ndarray):
        raise NotInFile("is neither a path nor a memory map of NumPy")
    if not array.flags.c_contiguous:
        raise NotInFile("is not in C order")
    if array.dtype.byteorder == ">":
        raise NotInFile("is big-endian")
    address = array.__array_interface__["data"][0]
    path, offset = _mapped_at(address)
    return FilePart(path, offset, _is_whole(path, offset, array))


def flush(array: Any) -> None:
    """Writes a map's changes to its file, so that other hosts see them."""
    if isinstance(array, np.memmap) and array.flags.writeable:
        array.flush()


@dataclass(frozen=True)
class Mapping:
    """A mapping of a file, from the system's list."""

    begin: int   # address
    path: str    # of the file when it was mapped
    inode: int
    offset: int  # of the byte at `begin`, in the file
    shared: bool  # changes go to the file


def mapping_at(address: int) -> Optional[Mapping]:
    """Returns the mapping at an address; None: no file is mapped there."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            begin, end = (int(number, 16) for number in fields[0].split("-"))
            if begin <= address < end:
                break
        else:
            return None
    if len(fields) < 6 or fields[4] == "0":
        return None
    return Mapping(begin, fields[5].replace("\\012", "\n"), int(fields[4]), int(fields[2], 16),
                   fields[1].endswith("s"))


def python_map(value: Any) -> Optional[mmap.mmap]:
    """Returns the mmap object behind an array or its view; None: there is no such object."""
    while isinstance(value, (np.ndarray, memoryview)):
        value = value.base if isinstance(value, np.ndarray) else value.obj
    return value if isinstance(value, mmap.mmap) else None


def mapping_of(value: Any, address: int) -> Optional[Mapping]:
    """Returns mapping_at of the value's address; keeps the answer for mmap objects."""
    memory = python_map(value)
    if memory is None:
        return mapping_at(address)
    if memory not in _mappings:
        _mappings[memory] = mapping_at(address)
    return _mappings[memory]


def byte_range(address: int, shape: Sequence[int], strides: Sequence[int], size: int) -> Optional[Tuple[int, int]]:
    """Returns the addresses of an array's first byte and behind its last; None: it is empty.

    address: of the array's first element; size: bytes of an element.
    """
    if 0 in shape:
        return None
    spans = [(length - 1) * stride for length, stride in zip(shape, strides)]
    return (address + sum(span for span in spans if span < 0),
            address + sum(span for span in spans if span > 0) + size)


def _mapped_at(address: int) -> Tuple[str, int]:
    """Returns the file that is mapped at an address, and the offset in it."""
    mapping = mapping_at(address)
    if mapping is None:
        raise NotInFile("is neither a path nor a memory map")
    if not mapping.shared:
        raise NotInFile("is a memory map of its own, which is not written to its file (mode 'c')")
    try:
        found = os.stat(mapping.path).st_ino
    except OSError:
        found = 0
    if found != mapping.inode:
        raise NotInFile(f"is a memory map of a file that is no longer {mapping.path}")
    return mapping.path, mapping.offset + address - mapping.begin


def _is_whole(path: str, offset: int, array: "NDArray[Any]") -> bool:
    try:
        with open(path, "rb") as file:
            header = read_npy_header(file)
            return bool(header.offset == offset and header.shape == array.shape and header.dtype == array.dtype
                        and not header.fortran)
    except (OSError, ValueError):
        return False


def output_path(path: PathLike) -> Path:
    """Returns an output's path: the target if the path is a symbolic link, so that the link stays.

    Raises:
        InvalidArgumentError: FILE_PATH: the path is a descriptor or no regular file, which must not be replaced, or
            links lead to each other.
        NotFoundError: FILE_NOT_FOUND: its folder is missing.
    """
    place = find_output(path)
    if place.in_place:
        what = "is a descriptor, and no file's name" if os.path.isfile(path) else "is no regular file"
        raise InvalidArgumentError(f"{os.fspath(path)}: cannot write: {what}",
                                   reason="FILE_PATH")
    found = Path(os.path.realpath(place.path))
    if not os.path.isdir(found.parent):
        why = errno.ENOTDIR if os.path.lexists(found.parent) else errno.ENOENT
        raise NotFoundError(f"{os.fspath(path)}: cannot write: {os.strerror(why)}", reason="FILE_NOT_FOUND")
    return found


def free_bytes(folder: PathLike) -> int:
    """Returns the free bytes of the folder's disk. Call it before room is taken, which may use them up."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def no_room(what: str, size: int, free: int, error: OSError) -> ResourceExhaustedError:
    """Returns the error of an output of `size` bytes on a disk with `free` bytes."""
    left = f" ({free} are free)" if error.errno == errno.ENOSPC else ""
    return ResourceExhaustedError(f"{what}: cannot create the file at its full size of {size} bytes{left}: "
                                  f"{error.strerror}")


class FileOutput:
    """An output [rows, ...] as a .npy file, which gets its name `path` when it is complete."""

    def __init__(self, path: PathLike, shape: Tuple[int, ...], dtype: "np.dtype[Any]") -> None:
        """dtype: of the array; a type that is not NumPy's own is written as raw bytes."""
        self.path = output_path(path)
        self._shape = shape
        self._dtype = dtype
        self._pending: Optional[Path] = None
        self._map: Optional["np.memmap[Any, Any]"] = None  # None: the service's workers write the file
        self._before = _version_of(self.path)

    @property
    def nbytes(self) -> int:
        return math.prod(self._shape) * self._dtype.itemsize

    @cached_property
    def bytes(self) -> "NDArray[np.uint8]":
        """[rows, bytes of a row], to be written. The first use creates the file at its full size.

        Raises:
            InvalidArgumentError: the file cannot be created.
            ResourceExhaustedError: the disk has no room.
        """
        pending = pending_path(self.path)
        known = self._dtype.kind in "fiu"
        kind = self._dtype if known else np.dtype(f"V{self._dtype.itemsize}")
        try:
            free = free_bytes(self.path.parent)
            with open_pending(pending, self.path) as file:
                np.lib.format.write_array_header_1_0(file, {
                    "descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": self._shape})
                file.flush()
                os.posix_fallocate(file.fileno(), 0, file.tell() + self.nbytes)
            made = np.load(pending, mmap_mode="r+")
        except OSError as error:
            pending.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise no_room(os.fspath(self.path), self.nbytes, free, error) from None
            raise InvalidArgumentError(f"{self.path}: {error}") from None
        except BaseException:
            pending.unlink(missing_ok=True)
            raise
        self._pending = pending
        self._map = made
        rows: "NDArray[np.uint8]" = np.asarray(made).reshape(-1).view(np.uint8).reshape(
            self._shape[0], -1)
        return rows

    def result(self) -> "NDArray[Any]":
        """Gives the file its name and returns its mapped array.

        Raises:
            HilbertRingError: the file cannot be written to the disk, or read.
            DataLossError: the service's workers have not written it.
        """
        if self._map is None:
            return self._written()
        try:
            if self._pending is not None:
                self._map.flush()
                take_name(self._pending, self.path)
                self._pending = None
                sync_folder(self.path.parent)
            array = map_npy(self.path)
        except (OSError, ValueError) as error:
            raise HilbertRingError(f"{self.path}: {error}") from None
        return array if array.dtype == self._dtype else array.view(self._dtype)

    def _written(self) -> "NDArray[Any]":
        """Returns the array of the file that the service's workers wrote."""
        beside = "though the service reports that the job is done"
        try:
            array = map_npy(self.path)
        except (OSError, ValueError) as error:
            raise DataLossError(f"{self.path}: {error}, {beside}") from None
        if _version_of(self.path) == self._before:
            raise DataLossError(f"{self.path}: was not written, {beside}")
        raw = self._dtype.kind != "f"  # bfloat16, for which any type of two bytes serves
        same = array.dtype == self._dtype or raw and array.dtype.itemsize == self._dtype.itemsize
        if array.shape != self._shape or not same or not array.flags.c_contiguous:
            raise DataLossError(f"{self.path}: is {array.shape} of {array.dtype}, must be {self._shape}, {beside}")
        return array if array.dtype == self._dtype else array.view(self._dtype)

    def discard(self) -> None:
        """Removes the file if it has no name yet."""
        if self._pending is not None:
            self._pending.unlink(missing_ok=True)
            self._pending = None


def _version_of(path: Path) -> Optional[Tuple[int, int, int]]:
    """Returns a value that changes when the file is written or replaced; None: there is no file."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_mtime_ns


def given_file(path: PathLike, shape: Tuple[int, ...], dtype: str, like: Any = None) -> FileOutput:
    """Returns the output of a caller's path. like: an input whose type bfloat16 gets; without it, raw bytes."""
    if dtype != "bfloat16":
        kind = np.dtype(dtype)
    elif isinstance(like, np.ndarray):
        kind = like.dtype.newbyteorder("=")
    else:
        kind = np.dtype("V2")
    return FileOutput(path, shape, kind)

"""Tensors in files: where an array lies in one, and outputs that are written to one."""
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
from hilbert_ring._output_place import find_output
from hilbert_ring._pending import open_pending, pending_path, sync_folder, take_name
from hilbert_ring.errors import (DataLossError, HilbertRingError, InvalidArgumentError, NotFoundError,
                                 ResourceExhaustedError)

PathLike = Union[str, "os.PathLike[str]"]
_mappings: "WeakKeyDictionary[mmap.mmap, Optional[Mapping]]" = WeakKeyDictionary()


def is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def checked_path(name: str, value: Any) -> str:
    """
    Raises:
        InvalidArgumentError: it is no path, is empty, or has a NUL, at which the system would end it.
    """
    if not is_path(value):
        raise InvalidArgumentError(f"{name} is of type {type(value).__name__}, must be a path", field=name)
    path = os.fsdecode(value)
    if not path:
        raise InvalidArgumentError(f"{name}: is empty, expected a path", field=name)
    if "\0" in path:
        raise InvalidArgumentError(f"{name}: {path!r}: a path has no NUL", field=name)
    return path


def opened(name: str, value: Any) -> Any:
    """The array of a .npy file, mapped, where `value` is its path; else `value`.

    Raises:
        InvalidArgumentError: the file holds no array that can be mapped.
    """
    if not is_path(value):
        return value
    path = checked_path(name, value)
    try:
        return map_npy(path)
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: {path}: {error}", field=name) from None


class NotInFile(Exception):
    """Why an array is not what a file has."""


@dataclass(frozen=True)
class FilePart:
    """Where the rows of an array lie."""

    path: str
    offset: int  # bytes
    whole: bool  # they are the array of a .npy file, with its shape and type


def part_of(array: Any) -> FilePart:
    """Of an array whose memory is a file that is mapped.

    What the system says of the mapping counts, so that views of a map have the place at which they
    begin, and a file that was replaced since it was mapped is not taken for the one that is meant.

    Raises:
        NotInFile: its memory is not a file's, or not in order.
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
    """What was written to a map is in its file: other hosts see it, too."""
    if isinstance(array, np.memmap) and array.flags.writeable:
        array.flush()


@dataclass(frozen=True)
class Mapping:
    """Memory that is a file's, as the system says."""

    begin: int   # address
    path: str    # when it was mapped
    inode: int
    offset: int  # of the byte at `begin`, in the file
    shared: bool  # what is written to it is written to the file


def mapping_at(address: int) -> Optional[Mapping]:
    """Of the file whose byte lies at an address; None: the memory is no file's."""
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
    """The map of Python's that an array or a view of one lies in; None: it lies elsewhere."""
    while isinstance(value, (np.ndarray, memoryview)):
        value = value.base if isinstance(value, np.ndarray) else value.obj
    return value if isinstance(value, mmap.mmap) else None


def mapping_of(value: Any, address: int) -> Optional[Mapping]:
    """As of mapping_at, of the value that lies there; a map of Python's is looked up once."""
    memory = python_map(value)
    if memory is None:
        return mapping_at(address)
    if memory not in _mappings:
        _mappings[memory] = mapping_at(address)
    return _mappings[memory]


def byte_range(address: int, shape: Sequence[int], strides: Sequence[int], size: int) -> Optional[Tuple[int, int]]:
    """The first address of an array, and that behind its last byte, of elements of `size` bytes the first of which
    lies at `address`; None: it is empty."""
    if 0 in shape:
        return None
    spans = [(length - 1) * stride for length, stride in zip(shape, strides)]
    return (address + sum(span for span in spans if span < 0),
            address + sum(span for span in spans if span > 0) + size)


def _mapped_at(address: int) -> Tuple[str, int]:
    """The file and the byte of it that lies at an address."""
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
    """Where an output lies: a symbolic link's target, so that the link stays.

    Raises:
        InvalidArgumentError: FILE_PATH: what is there is no regular file, or a descriptor, and
            must not be replaced; or links lead to each other.
        NotFoundError: FILE_NOT_FOUND: its folder is not there.
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
    """Of its disk; asked before room is taken, which may take all that there is."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def no_room(what: str, size: int, free: int, error: OSError) -> ResourceExhaustedError:
    """The error of an output of `size` bytes for which the disk, on which so many were free, has no room."""
    told = f" ({free} are free)" if error.errno == errno.ENOSPC else ""
    return ResourceExhaustedError(f"{what}: cannot create the file at its full size of {size} bytes{told}: "
                                  f"{error.strerror}")


class FileOutput:
    """An output [rows, ...] as a .npy file, which has its name once it is whole.

    Attributes:
        path: its name.
        result: a function: the array of the file, mapped, which has its name then.
    """

    def __init__(self, path: PathLike, shape: Tuple[int, ...], dtype: "np.dtype[Any]") -> None:
        """dtype: of the array; one that NumPy does not know itself is written as raw bytes."""
        self.path = output_path(path)
        self._shape = shape
        self._dtype = dtype
        self._pending: Optional[Path] = None
        self._ours = False  # this process writes it, not the service's workers
        self._before = _version_of(self.path)

    @property
    def nbytes(self) -> int:
        return math.prod(self._shape) * self._dtype.itemsize

    @cached_property
    def bytes(self) -> "NDArray[np.uint8]":
        """[rows, bytes of a row], to be written to; from the first use on there is a file, with room for them.

        Raises:
            InvalidArgumentError: it cannot be made.
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
        self._ours = True
        self._map = made
        rows: "NDArray[np.uint8]" = np.asarray(made).reshape(-1).view(np.uint8).reshape(
            self._shape[0], -1)
        return rows

    def result(self) -> "NDArray[Any]":
        """See above.

        Raises:
            HilbertRingError: it cannot be brought to the disk, or read there.
            DataLossError: the service's workers were to write it, and have not.
        """
        if not self._ours:
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
        """What the service's workers wrote."""
        told = "though the service reports that the job is done"
        try:
            array = map_npy(self.path)
        except (OSError, ValueError) as error:
            raise DataLossError(f"{self.path}: {error}, {told}") from None
        if _version_of(self.path) == self._before:
            raise DataLossError(f"{self.path}: was not written, {told}")
        raw = self._dtype.kind != "f"  # bfloat16, whose numbers are any of two bytes
        same = array.dtype == self._dtype or raw and array.dtype.itemsize == self._dtype.itemsize
        if array.shape != self._shape or not same or not array.flags.c_contiguous:
            raise DataLossError(f"{self.path}: is {array.shape} of {array.dtype}, expected {self._shape}, {told}")
        return array if array.dtype == self._dtype else array.view(self._dtype)

    def discard(self) -> None:
        """Removes what has no name yet."""
        if self._pending is not None:
            self._pending.unlink(missing_ok=True)
            self._pending = None


def _version_of(path: Path) -> Optional[Tuple[int, int, int]]:
    """Differs between what is written at a path and what was there before; None: there is no file."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_mtime_ns


def given_file(path: PathLike, shape: Tuple[int, ...], dtype: str, like: Any = None) -> FileOutput:
    """Of a caller's path. `like`: an input, in whose words bfloat16 is written; else it is raw."""
    if dtype != "bfloat16":
        kind = np.dtype(dtype)
    elif isinstance(like, np.ndarray):
        kind = like.dtype.newbyteorder("=")
    else:
        kind = np.dtype("V2")
    return FileOutput(path, shape, kind)

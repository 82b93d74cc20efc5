"""Reads rows of arrays. If a mapped file was shortened, the read raises an error instead of ending with SIGBUS.

    read = rows_of("q", array)
    read(first, end)             # array[first:end], read from the file if the array is mapped
    take_room("out", array)      # before rows are written to a mapped file
"""
import ctypes
import errno
import mmap
import os
from typing import Any, Callable, Iterator, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from hilbert_ring._files import Mapping, byte_range, free_bytes, mapping_of, no_room, python_map
from hilbert_ring.errors import DataLossError

RowReader = Callable[[int, int], "NDArray[Any]"]  # of rows [first, end)

_BLOCK_ROWS = 1 << 20
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate  # of Linux: file, mode, offset, bytes
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)


def rows_of(name: str, array: "NDArray[Any]") -> RowReader:
    """Returns a reader that raises DataLossError if the file has become shorter than the array.

    Contiguous rows are read from the file. Rows of strided arrays, of private maps and of files without a name are
    taken from memory after a check of the file's size.
    """
    found = _mapping_of(array)
    if found is None:
        return lambda first, end: array[first:end]
    memory, mapping = found
    values = np.asarray(array)

    def read(first: int, end: int) -> "NDArray[Any]":
        part = values[first:end]
        bounds = byte_range(_address(part), part.shape, part.strides, part.itemsize)
        if bounds is None:
            return part
        begin, behind = bounds
        offset = mapping.offset + begin - mapping.begin
        data = _bytes_at(mapping, offset, part.nbytes) if part.flags.c_contiguous and mapping.shared else None
        if data is None:
            whole = _size_of(memory) >= offset + behind - begin
        else:
            whole = len(data) == part.nbytes
        if not whole:
            raise DataLossError(f"{name}: {mapping.path}: was shortened while it was read, or its disk failed",
                                field=name)
        return part if data is None else data.view(part.dtype).reshape(part.shape)

    return read


def blocks_of(read: RowReader, rows: int) -> Iterator[Tuple[int, "NDArray[Any]"]]:
    """Yields all rows: the first row of each block, and the block."""
    for first in range(0, rows, _BLOCK_ROWS):
        yield first, read(first, min(rows, first + _BLOCK_ROWS))


def take_room(name: str, array: "NDArray[Any]") -> None:
    """Reserves disk space for an array in a mapped file, if the file system can do so at once.

    Raises:
        ResourceExhaustedError: the disk has no room.
    """
    found = _mapping_of(array)
    if found is None or not found[1].shared or array.size == 0:
        return
    mapping = found[1]
    file = _opened(mapping, os.O_RDWR)
    if file is None:
        return
    free = free_bytes(os.path.dirname(mapping.path))
    try:
        # Not os.posix_fallocate, which writes a byte to each block if the file system cannot reserve space.
        offset = mapping.offset + _address(array) - mapping.begin
        failed = ctypes.get_errno() if _fallocate(file, 0, offset, array.nbytes) != 0 else 0
    finally:
        os.close(file)
    if failed in (errno.ENOSPC, errno.EDQUOT):
        raise no_room(f"{name}: {mapping.path}", array.nbytes, free, OSError(failed, os.strerror(failed)))


def _address(array: "NDArray[Any]") -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _mapping_of(array: "NDArray[Any]") -> Optional[Tuple[mmap.mmap, Mapping]]:
    """Returns the mmap object and mapping behind an array or its view; None: there is no such object."""
    memory = python_map(array)
    if memory is None or array.size == 0:
        return None
    mapping = mapping_of(array, _address(array))
    return None if mapping is None else (memory, mapping)


def _opened(mapping: Mapping, how: int) -> Optional[int]:
    """Returns a descriptor of the file; None: it cannot be opened, or its path leads to another file now."""
    try:
        file = os.open(mapping.path, how | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    if os.fstat(file).st_ino == mapping.inode:
        return file
    os.close(file)
    return None


def _bytes_at(mapping: Mapping, offset: int, size: int) -> "Optional[NDArray[np.uint8]]":
    """Returns fewer bytes if the file ends or reading fails; None: _opened failed."""
    file = _opened(mapping, os.O_RDONLY)
    if file is None:
        return None
    try:
        data = np.empty(size, np.uint8)
        done = 0
        while done < size:
            count = os.preadv(file, [data.data[done:]], offset + done)
            if count == 0:
                break
            done += count
        return data[:done]
    except OSError:
        return data[:done]
    finally:
        os.close(file)


def _size_of(memory: mmap.mmap) -> float:
    """Returns the file's current size; inf: unknown."""
    try:
        return memory.size()
    except (OSError, ValueError):
        return float("inf")

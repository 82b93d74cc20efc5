"""Files of NumPy's .npy format. What is no such file, or not all of one, is told in the words of client/cpp/npy.cc.

    array = map_npy("q.npy")   # np.memmap, to be read
"""
import math
import os
import re
import stat
from typing import IO, Any, NamedTuple, Tuple, Union

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"\x93NUMPY"
_DESCR = re.compile(r"[<>][fiu][248]|\|[iu]1|[<|]V2")  # big-endian and 8-bit numbers are Python's alone


class NpyHeader(NamedTuple):
    dtype: "np.dtype[Any]"
    shape: Tuple[int, ...]
    fortran: bool  # the first axis varies fastest; False where both orders are one
    offset: int    # of the first number, in the file
    end: int       # of the last one


def map_npy(path: "Union[str, os.PathLike[str]]") -> "NDArray[Any]":
    """Its array, to be read.

    Raises:
        ValueError: the file cannot be opened, or is not a whole .npy file and nothing more.
        OSError: it cannot be read or mapped.
    """
    try:
        file = open(os.fspath(path), "rb", opener=_open_regular)
    except OSError as error:
        raise ValueError(f"cannot open: {error.strerror}") from None
    with file:
        header = read_npy_header(file)
        size = os.fstat(file.fileno()).st_size
        if size != header.end:
            name = "raw 16-bit" if header.dtype.kind == "V" else header.dtype.name
            raise ValueError(f"{'truncated' if size < header.end else 'too long'}: shape {header.shape} of {name} takes "
                             f"{header.end} bytes with the header, the file has {size}")
        return np.memmap(file, header.dtype, "r", header.offset, header.shape, "F" if header.fortran else "C")


def _open_regular(path: str, flags: int) -> int:
    """A pipe is refused, not waited for."""
    file = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise ValueError("is not a file")


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """From a file's start.

    Raises:
        ValueError: naming what is wrong.
    """
    start = file.read(len(_MAGIC))
    if not start or not _MAGIC.startswith(start):
        raise ValueError("not a .npy file: it does not start with \\x93NUMPY")
    file.seek(0)
    try:
        major, minor = np.lib.format.read_magic(file)
        if not 1 <= major <= 3 or minor != 0:
            raise ValueError(f"version {major}.{minor} is not known: expected 1.0, 2.0 or 3.0")
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # odd bytes make any error of Python's readers of literals
        raise ValueError(f".npy header: {error}") from None
    if not _DESCR.fullmatch(dtype.str) or min(shape, default=0) < 0:
        raise ValueError(f".npy header: {dtype} {shape}, must be plain numbers on axes of 0 and more")
    offset = file.tell()
    return NpyHeader(dtype, shape, fortran and sum(axis > 1 for axis in shape) > 1, offset,
                     offset + math.prod(shape) * dtype.itemsize)

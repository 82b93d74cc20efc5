"""Reads NumPy's .npy files, versions 1.0, 2.0 and 3.0.

The header's syntax is stricter than NumPy's, which takes any Python literal. Most errors read like those of
wire/npy_header.cc and client/cpp/npy.cc.

    array = map_npy("q.npy")   # a read-only np.memmap
"""
import math
import os
import re
import stat
from typing import IO, Any, NamedTuple, NoReturn, Tuple, Union

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"\x93NUMPY"
_LONGEST = 1 << 20  # bytes of a header
_MOST_AXES = 32
_MOST = (1 << 63) - 1
_KEYS = ["descr", "fortran_order", "shape"]
_DESCR = re.compile(r"[<>][fiu][248]|\|[iu]1|[<|]V2")  # the C++ readers take neither big-endian nor 8-bit numbers
_S = r"[ \n\t\r]*"
_STRING = r"'[^'\\]*'|\"[^\"\\]*\""
_SHAPE = rf"\({_S}(?:(?:[0-9]{{1,19}}{_S},{_S})+(?:[0-9]{{1,19}}{_S})?)?\)"
_ITEM = rf"({_STRING}){_S}:{_S}({_STRING}|True|False|{_SHAPE})"
_DICTIONARY = rf"{_S}\{{{_S}(?:{_ITEM}{_S},{_S})*(?:{_ITEM}{_S})?\}}{_S}"


class NpyHeader(NamedTuple):
    dtype: "np.dtype[Any]"
    shape: Tuple[int, ...]
    fortran: bool  # the first axis varies fastest; False if both orders are the same
    offset: int    # of the first number, in the file
    end: int       # behind the last number


def map_npy(path: "Union[str, os.PathLike[str]]") -> "NDArray[Any]":
    """Returns a file's array, mapped read-only.

    Raises:
        ValueError: the file cannot be opened, or is not exactly one .npy file.
        OSError: the file cannot be read or mapped.
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
    """Opens a regular file. Refuses a pipe without waiting for its writer."""
    file = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise ValueError("is not a file")


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """Reads the header from a file's start.

    Raises:
        ValueError: names the fault.
    """
    start = file.read(len(_MAGIC) + 4)
    if not start or not start.startswith(_MAGIC[:len(start)]):
        raise ValueError("not a .npy file: it does not start with \\x93NUMPY")
    major, minor = start[6:8] if len(start) == 10 else (1, 0)
    if not 1 <= major <= 3 or minor != 0:
        _malformed(f"version {major}.{minor} is not known: expected 1.0, 2.0 or 3.0")
    wanted = 10 if major == 1 else 12
    start += file.read(wanted - len(start))
    if len(start) < wanted:
        _malformed(f"truncated: the file has {len(start)} bytes")
    length = int.from_bytes(start[8:], "little")
    if length > _LONGEST:
        _malformed(f"length {length} is over the limit of {_LONGEST} bytes")
    text = file.read(length)
    if len(text) < length:
        _malformed(f"truncated: its length is {length} bytes, the file has {len(text)} of them")
    dtype, order, shape = _fields(text.decode("latin-1"))
    end = wanted + length + math.prod(shape) * dtype.itemsize
    if end > _MOST:
        _malformed(f"shape: {shape} takes more than 2^63 bytes")
    fortran = order and sum(axis > 1 for axis in shape) > 1
    return NpyHeader(dtype, shape, fortran, wanted + length, end)


def _malformed(what: str) -> NoReturn:
    raise ValueError(f".npy header: {what}")


def _fields(text: str) -> "Tuple[np.dtype[Any], bool, Tuple[int, ...]]":
    """Returns descr, fortran_order and shape."""
    items = [(key[1:-1], value) for key, value in re.findall(_ITEM, text)]
    if not re.fullmatch(_DICTIONARY, text):
        _malformed(f"expected a dictionary of descr, fortran_order and shape, of plain numbers, found {text[:120]!r}")
    if sorted(key for key, _ in items) != _KEYS:
        _malformed(f"keys are {[key[:20] for key, _ in items[:9]]}, expected each of {_KEYS} once")
    fields = dict(items)
    descr, order, shape = (fields[key] for key in _KEYS)
    if not _DESCR.fullmatch(descr[1:-1]):
        _malformed(f"descr {descr[:66]} is not known: expected one of <f4, <f2, |V2, <u2, <i2, <i4, <u4, <i8, <u8")
    if order not in ("True", "False"):
        _malformed(f"fortran_order is {order[:66]}, expected True or False")
    if not shape.startswith("("):
        _malformed(f"shape is {shape[:66]}, expected a tuple")
    axes = tuple(map(int, re.findall("[0-9]+", shape)))
    if len(axes) > _MOST_AXES:
        _malformed(f"shape: more than {_MOST_AXES} axes")
    return np.dtype(descr[1:-1]), order == "True", axes

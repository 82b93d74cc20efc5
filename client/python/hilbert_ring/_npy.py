"""Files of NumPy's .npy format, versions 1.0, 2.0 and 3.0, with the errors of wire/npy_header.cc and client/cpp/npy.cc.

    array = map_npy("q.npy")   # np.memmap, to be read
"""
import math
import os
import re
import stat
from typing import IO, Any, Dict, List, NamedTuple, NoReturn, Optional, Tuple, Union

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"\x93NUMPY"
_LONGEST = 1 << 20  # bytes of a header
_MOST_AXES = 32
_MOST = (1 << 63) - 1
_SPACE = " \n\t\r"
_STRING = r"'[^'\\]*'|\"[^\"\\]*\""
_KEYS = ("descr", "fortran_order", "shape")
_DESCR = re.compile(r"[<>][fiu][248]|\|[iu]1|[<|]V2")  # big-endian and 8-bit numbers are Python's alone


class NpyHeader(NamedTuple):
    """What a file says of its array."""

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
    fields = _dictionary(_Literal(text.decode("latin-1")))
    dtype, shape = np.dtype(fields["descr"]), fields["shape"]
    end = wanted + length + math.prod(shape) * dtype.itemsize
    if end > _MOST:
        _malformed(f"shape: {shape} takes more than 2^63 bytes")
    fortran = fields["fortran_order"] and sum(axis > 1 for axis in shape) > 1
    return NpyHeader(dtype, shape, fortran, wanted + length, end)


def _malformed(what: str) -> NoReturn:
    raise ValueError(f".npy header: {what}")


def _quoted(text: str) -> str:
    escaped = text.encode("unicode_escape").decode().replace("'", "\\'").replace('"', '\\"')
    return f"'{escaped}'"


class _Literal:
    """The Python literals that a header is made of."""

    def __init__(self, text: str) -> None:
        self._rest = text

    def take(self, pattern: str) -> Optional[str]:
        self._rest = self._rest.lstrip(_SPACE)
        found = re.match(pattern, self._rest)
        if found is None:
            return None
        self._rest = self._rest[found.end():]
        return found[0]

    def expect(self, pattern: str, said: str) -> str:
        found = self.take(pattern)
        if found is None:
            _malformed(said + _quoted(self._rest[:24]))
        return found


def _dictionary(literal: _Literal) -> Dict[str, Any]:
    literal.expect(r"\{", "expected a dictionary at ")
    fields: Dict[str, Any] = {}
    while literal.take(r"\}") is None:
        key = literal.expect(_STRING, "expected a key at ")[1:-1]
        literal.expect(":", f"{_quoted(key[:64])}: expected ':' at ")
        if key not in _KEYS or key in fields:
            _malformed(f"key {_quoted(key[:64])} is not known, or given twice")
        if key == "descr":
            fields[key] = _descr(literal)
        elif key == "shape":
            fields[key] = _shape(literal)
        else:
            fields[key] = literal.expect("True|False", "fortran_order: expected True or False at ") == "True"
        if literal.take(",") is None:
            literal.expect(r"(?=\})", "expected ',' or '}' at ")
    literal.expect("$", "text after the dictionary: ")
    for key in _KEYS:
        if key not in fields:
            _malformed(f"key '{key}' is missing")
    return fields


def _descr(literal: _Literal) -> str:
    descr = literal.expect(_STRING, "descr: only plain numbers are read, no structures; found ")[1:-1]
    if not _DESCR.fullmatch(descr):
        _malformed(f"descr {_quoted(descr[:64])} is not known: expected one of <f4, <f2, |V2, <u2, <i2, <i4, <u4, <i8, "
                   "<u8")
    return descr


def _shape(literal: _Literal) -> Tuple[int, ...]:
    literal.expect(r"\(", "shape: expected a tuple at ")
    shape: List[int] = []
    comma = None
    while literal.take(r"\)") is None:
        said = f"shape: axis {len(shape)}: expected a number of 0 to 2^63 - 1 at "
        number = int(literal.expect(r"(?!\d{20})\d+", said))
        if len(shape) == _MOST_AXES:
            _malformed(f"shape: more than {_MOST_AXES} axes")
        shape.append(number)
        comma = literal.take(",")
        if comma is None:
            literal.expect(r"(?=\))", "shape: expected ',' or ')' at ")
    if len(shape) == 1 and comma is None:
        _malformed("shape: a number in place of a tuple")
    return tuple(shape)

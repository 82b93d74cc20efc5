"""Rows of an output find their places, and damage is found."""
import numpy as np
import pytest
from crc32c import crc32c

from hilbert_ring._assembled_rows import AssembledRows
from hilbert_ring.errors import DataLossError
from hilbert_ring.v1 import attention_pb2 as pb

TYPES = [(pb.DATA_TYPE_FLOAT32, "f4"), (pb.DATA_TYPE_FLOAT16, "f2")]


def chunk_of(array, first=0, tokens=()):
    payload = array.tobytes()
    return pb.OutputChunk(tensor=pb.TENSOR_OUT, rows=len(array), first_token=first, tokens=tokens,
                          payload=payload, crc32c=crc32c(payload))


def place_for(array):
    data = np.zeros((len(array), array[0].nbytes), np.uint8)
    return data, AssembledRows("OUT", data, pb.DATA_TYPE_FLOAT32)


VALUES = np.arange(40, dtype="f4").reshape(10, 4)


def test_ranges_and_lists_in_any_order():
    data, rows = place_for(VALUES)
    rows.place(chunk_of(VALUES[[9, 0, 4]], tokens=[9, 0, 4]))
    rows.place(chunk_of(VALUES[5:9], first=5))
    with pytest.raises(DataLossError, match="omitted 3 of 10 rows, the first for token 1"):
        rows.check_complete()
    rows.place(chunk_of(VALUES[1:4], first=1))
    rows.check_complete()
    np.testing.assert_array_equal(data.view("f4"), VALUES)


@pytest.mark.parametrize("chunk", [
    chunk_of(VALUES[3:6], first=3), chunk_of(VALUES[[5, 3]], tokens=[5, 3]),
    chunk_of(VALUES[[6, 6]], tokens=[6, 6])])
def test_a_row_that_comes_twice(chunk):
    _, rows = place_for(VALUES)
    rows.place(chunk_of(VALUES[:4]))
    with pytest.raises(DataLossError, match="twice"):
        rows.place(chunk)


def test_a_checksum_that_does_not_match():
    _, rows = place_for(VALUES)
    chunk = chunk_of(VALUES[:4])
    chunk.payload = chunk.payload[:-1] + b"\xff"
    with pytest.raises(DataLossError, match="CRC32C"):
        rows.place(chunk)


@pytest.mark.parametrize("dtype, numpy_type", TYPES)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_counted(dtype, numpy_type, odd):
    values = np.ones((8, 4), numpy_type)
    values[[2, 5], [0, 3]] = odd
    values[3] = np.finfo(numpy_type).max
    rows = AssembledRows("OUT", np.zeros((8, values[0].nbytes), np.uint8), dtype)
    rows.place(chunk_of(values[[5, 6, 7]], tokens=[5, 6, 7]))
    rows.place(chunk_of(values[:5]))
    assert (rows.rows_not_finite, rows.first_not_finite) == (2, 2)


def test_bfloat16_has_its_own_infinity():
    bits = np.array([[0x7f80], [0x7f7f], [0x7c00], [0xffc0]], np.uint16)  # inf, max, 2^121, nan
    rows = AssembledRows("OUT", np.zeros((4, 2), np.uint8), pb.DATA_TYPE_BFLOAT16)
    rows.place(chunk_of(bits))
    assert rows.rows_not_finite == 2

"""The rows of one output tensor, which may arrive in any order."""
from typing import Any, Dict, Tuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from hilbert_ring.errors import DataLossError
from hilbert_ring.v1 import attention_pb2 as pb

# Each type's word, and the exponent bits in it. Inf and NaN have all of them.
_EXPONENTS: Dict[Any, Tuple["np.dtype[Any]", int]] = {
    pb.DATA_TYPE_FLOAT32: (np.dtype("<u4"), 0x7f800000),
    pb.DATA_TYPE_FLOAT16: (np.dtype("<u2"), 0x7c00),
    pb.DATA_TYPE_BFLOAT16: (np.dtype("<u2"), 0x7f80)}


class AssembledRows:
    """Checks the rows of OUT or LSE and puts them in their places. Not thread-safe."""

    def __init__(self, name: str, data: "NDArray[np.uint8]", dtype: int) -> None:
        """data: uint8 [tokens, bytes of a row], numbers of `dtype`, to be written."""
        self._name = name
        self._tokens, self._row_bytes = data.shape
        self._words, self._exponent = _EXPONENTS[dtype]
        self._rows = data.view(np.dtype((np.void, self._row_bytes)))[:, 0]
        self._placed: NDArray[np.bool_] = np.zeros(self._tokens, bool)
        self.rows_placed = 0
        self.rows_not_finite = 0
        self.first_not_finite = 0

    def place(self, chunk: pb.OutputChunk) -> None:
        """Checks a chunk and copies its rows to their tokens.

        Raises:
            DataLossError: the checksum differs, or a row came twice.
        """
        payload = chunk.payload
        count = chunk.rows
        crc = crc32c(payload)
        if crc != chunk.crc32c:
            raise DataLossError(f"{self._name} chunk from the service: CRC32C of the payload is "
                                f"{crc:#010x}, must be {chunk.crc32c:#010x}")
        at: Any = slice(chunk.first_token, chunk.first_token + count)
        if chunk.tokens:
            at = np.array(chunk.tokens, np.int64)
            distinct = len(np.unique(at)) == count
        else:
            distinct = True
        if not distinct or self._placed[at].any():
            raise DataLossError(f"{self._name} chunk from the service: a row came twice")
        self._placed[at] = True
        self._rows[at] = np.frombuffer(payload, self._rows.dtype, count)
        self.rows_placed += count
        self.count_not_finite(payload, at)

    def count_not_finite(self, payload: Any, at: Any) -> None:
        """Counts the rows that hold Inf or NaN. payload: bytes of the rows; at: their tokens."""
        words = np.frombuffer(payload, self._words)
        full = (words & self._exponent) == self._exponent
        if not full.any():
            return
        tokens = np.arange(at.start, at.stop) if isinstance(at, slice) else at
        found = tokens[full.reshape(len(tokens), -1).any(axis=1)]
        first = int(found.min())
        self.first_not_finite = (
            min(self.first_not_finite, first) if self.rows_not_finite else first)
        self.rows_not_finite += len(found)

    def check_complete(self) -> None:
        if self.rows_placed < self._tokens:
            first = int(np.argmin(self._placed))
            raise DataLossError(
                f"{self._name}: the service omitted {self._tokens - self.rows_placed} of "
                f"{self._tokens} rows, the first for token {first}")

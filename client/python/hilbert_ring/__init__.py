"""Client of a Hilbert Ring service, which computes attention over sequences that are too long for one device.

    import hilbert_ring

    client = hilbert_ring.connect("localhost:8001")
    result = client.attend(q, k, v, segments=[2048, 16384], dilations=[1, 8], mixing="lse",
                           ordering=hilbert_ring.Hilbert(grid=(256, 256)))
    result.out      # [tokens, heads, value_dim], of q's kind
    result.lse      # float32 [tokens, heads], natural logarithm
    result.report   # seconds, bytes and memory, measured and planned

The manual is docs/python.md of the repository.
"""
try:
    import grpc as _grpc  # pylint: disable=unused-import
except ImportError as error:
    import sys
    raise ImportError(f"hilbert_ring needs the package grpcio, which this Python, {sys.executable}, "
                      "does not have: install client/python of the repository with its pip, or "
                      "take /usr/bin/python3 where ./dev setup has run") from error

from hilbert_ring import aio
from hilbert_ring._conversation import Progress
from hilbert_ring._encode import EncodeResult
from hilbert_ring._job import AttendResult
from hilbert_ring._model_tensors import use
from hilbert_ring._stream import StreamedBlock
from hilbert_ring.client import AttendStream, Client, connect
from hilbert_ring.errors import (AbortedError, AlreadyExistsError, CancelledError, DataLossError,
                                 DeadlineExceededError, FailedPreconditionError, HilbertRingError,
                                 InternalError, InvalidArgumentError, NotFoundError,
                                 OutOfRangeError, PermissionDeniedError, ResourceExhaustedError,
                                 UnauthenticatedError, UnavailableError, UnimplementedError)
from hilbert_ring.flash_attention import (flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func,
                                          flash_attn_varlen_func, flash_attn_varlen_kvpacked_func,
                                          flash_attn_varlen_qkvpacked_func, flash_attn_with_kvcache)
from hilbert_ring.local_service import LocalService, local
from hilbert_ring.ordering import Auto, Hilbert, Morton, Ordering
from hilbert_ring.sdpa import scaled_dot_product_attention
from hilbert_ring.slides import SlideFile, read_slide

__all__ = [
    "AbortedError", "AlreadyExistsError", "AttendResult", "AttendStream", "Auto", "CancelledError", "Client",
    "DataLossError", "DeadlineExceededError", "EncodeResult", "FailedPreconditionError", "Hilbert",
    "HilbertRingError", "InternalError", "InvalidArgumentError", "LocalService", "Morton",
    "NotFoundError", "Ordering", "OutOfRangeError", "PermissionDeniedError", "Progress",
    "ResourceExhaustedError", "SlideFile", "StreamedBlock", "UnauthenticatedError", "UnavailableError",
    "UnimplementedError", "aio", "connect", "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache", "local", "read_slide", "scaled_dot_product_attention", "use",
]

"""Chunks of input, and rows that the service requests again."""
import random

import numpy as np
import pytest
from crc32c import crc32c

from hilbert_ring._chunks import RowRanges, SendQueue
from hilbert_ring._job import attention_inputs
from hilbert_ring.errors import OutOfRangeError
from hilbert_ring.v1 import attention_pb2 as pb


def inputs_of(tokens=100, heads=2, kv_heads=1, dim=8, axes=0, keys=100):
    spec = pb.JobSpec(tokens=tokens, key_tokens=keys, heads=heads, kv_heads=kv_heads, head_dim=dim, value_dim=dim,
                      dtype=pb.DATA_TYPE_FLOAT32)
    if axes:
        spec.ordering.coordinate_axes = axes
    widths = {pb.TENSOR_Q: heads * dim, pb.TENSOR_K: kv_heads * dim, pb.TENSOR_V: kv_heads * dim}
    if axes:
        widths[pb.TENSOR_COORDS] = axes
    arrays = {tensor: np.random.default_rng(tensor).standard_normal(
        (tokens if tensor == pb.TENSOR_Q else keys, width), dtype="f4") for tensor, width in widths.items()}

    def reader(array):
        return lambda first, count: array[first:first + count].reshape(-1).view("u1").data

    readers = {tensor: reader(array) for tensor, array in arrays.items()}
    return attention_inputs(spec, readers), arrays


def drain(queue):
    while (rows := queue.next()) is not None:
        yield rows


@pytest.mark.parametrize("chunk_bytes", [1, 64, 1000, 1 << 20])
@pytest.mark.parametrize("axes", [0, 3])
def test_each_row_is_sent_once_and_coordinates_first(chunk_bytes, axes):
    inputs, arrays = inputs_of(axes=axes)
    seen = {tensor: [] for tensor in arrays}
    kinds = []
    queue = SendQueue(inputs, chunk_bytes, 4 << 20)
    for tensor, first, count in drain(queue):
        assert count * arrays[tensor][0].nbytes <= max(64, chunk_bytes)  # 64: a row of Q
        seen[tensor] += range(first, first + count)
        kinds.append(tensor == pb.TENSOR_COORDS)
    assert all(sorted(rows) == list(range(100)) for rows in seen.values())
    assert kinds == sorted(kinds, reverse=True)


def test_rows_of_a_token_travel_together():
    inputs, _ = inputs_of()
    tensors = [tensor for tensor, _, _ in drain(SendQueue(inputs, 640, 4 << 20))]
    assert tensors == [pb.TENSOR_Q, pb.TENSOR_K, pb.TENSOR_V] * 10


@pytest.mark.parametrize("tokens, keys", [(1, 25), (12, 25), (25, 12), (25, 0), (20, 25)])
def test_each_tensor_is_sent_until_it_ends(tokens, keys):
    inputs, _ = inputs_of(tokens=tokens, keys=keys, axes=2)
    sent = list(drain(SendQueue(inputs, 640, 4 << 20)))  # ten rows of Q
    assert sent == [(pb.TENSOR_COORDS, 0, keys)] * (keys > 0) + [
        (tensor, first, min(10, rows - first)) for first in range(0, 25, 10)
        for tensor, rows in ((pb.TENSOR_Q, tokens), (pb.TENSOR_K, keys), (pb.TENSOR_V, keys)) if rows > first]
    assert inputs.total_bytes() == tokens * 64 + keys * (32 + 32 + 8)


def test_a_chunk_is_what_protobuf_writes():
    inputs, arrays = inputs_of(tokens=20_000, keys=20_000)  # so that lengths take several bytes
    for tensor, first, count in [(pb.TENSOR_Q, 0, 1), (pb.TENSOR_K, 7, 3),
                                 (pb.TENSOR_V, 1, 15_000)]:
        request = pb.AttendRequest.FromString(inputs.chunk((tensor, first, count)))
        payload = arrays[tensor][first:first + count].tobytes()
        assert request == pb.AttendRequest(chunk=pb.Chunk(
            tensor=tensor, first_row=first, rows=count, payload=payload, crc32c=crc32c(payload)))


def test_a_row_that_is_longer_than_a_payload_is_refused():
    inputs, _ = inputs_of()
    with pytest.raises(OutOfRangeError) as raised:
        SendQueue(inputs, 1 << 20, 63)
    assert raised.value.limit == 63


def test_ranges_are_a_set():
    draw = random.Random(5)
    for _ in range(200):
        ranges, model = RowRanges(), set()
        for _ in range(draw.randint(1, 30)):
            first, count = draw.randrange(60), draw.randint(1, 12)
            rows = set(range(first, first + count))
            assert ranges.meets(first, first + count) == bool(rows & model)
            assert ranges.add(first, count) == len(rows - model)
            model |= rows
            # Ranges do not touch: their number is that of the set's beginnings.
            assert len(ranges) == len({row for row in model if row - 1 not in model})
        taken = []
        while len(ranges):
            assert ranges.first() == min(model - set(taken))
            first, count = ranges.take(draw.randint(1, 9))
            taken += range(first, first + count)
        assert taken == sorted(model)


def resend(tensor, *ranges, attempt=0):
    return pb.Resend(attempt=attempt, tensor=tensor,
                     ranges=[pb.Resend.Range(first_row=first, rows=rows) for first, rows in ranges])


def test_rows_that_are_asked_for_again_go_before_new_ones_and_once():
    inputs, _ = inputs_of(axes=2)
    queue = SendQueue(inputs, 640, 4 << 20)
    queue.next()
    assert queue.resend(resend(pb.TENSOR_V, (50, 4), (10, 5))) == 9 * 32
    assert queue.resend(resend(pb.TENSOR_V, (12, 5))) == 2 * 32  # two of them are new
    assert queue.resend(resend(pb.TENSOR_Q, (11, 12))) == 12 * 64
    assert queue.resend(resend(pb.TENSOR_COORDS, (99, 1))) == 8
    again = [queue.next() for _ in range(5)]
    assert again == [(pb.TENSOR_COORDS, 99, 1), (pb.TENSOR_V, 10, 7), (pb.TENSOR_Q, 11, 10),
                     (pb.TENSOR_Q, 21, 2), (pb.TENSOR_V, 50, 4)]
    assert queue.next()[0] == pb.TENSOR_COORDS  # new rows follow

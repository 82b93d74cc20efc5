"""Tensors on a GPU are read after the work of the caller's streams, and later work of these sees the results.

The stand-in of PyTorch runs kernels as late as possible.
"""
import asyncio
import sys

import numpy as np
import pytest

import hilbert_ring
from fake_torch import FakeTorch
from client_rig import normal
from test_encode import Encoder, small

SHAPE = (96, 2, 8)
PATTERN = {"segments": [32, 96], "dilations": [1, 2], "mixing": "lse"}
GPU = 1  # a new thread's current device is 0


def tensors():
    return normal(*SHAPE)


@pytest.fixture(scope="module")
def expected(client):
    return client.attend(*tensors(), progress=False, **PATTERN)


@pytest.fixture
def torch(monkeypatch):
    made = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


class Exported:
    """A tensor of another library with its own streams."""

    def __init__(self, tensor, stream):
        self.tensor, self.stream = tensor, stream

    def __dlpack_device__(self):
        return 2, self.tensor.device.index

    def __dlpack__(self, stream=None, **_):
        if stream is None:
            raise BufferError("is on a GPU")
        stream.kernels.append(self.stream.run)


async def awaited(client, torch, stream, begin):
    """Returns the result of a task that begins after the caller's stream has changed."""
    async with hilbert_ring.aio.connect(client.server) as connected:
        with torch.cuda.stream(stream):
            task = asyncio.ensure_future(begin(connected))
        return await task


async def blocks_of(asked):
    async for block in asked:
        return block


def attend(client, torch, stream):
    return client.attend(*(torch.on_gpu(x, GPU) for x in tensors()), progress=False, **PATTERN)


def attend_exported(client, torch, stream):
    own = torch.cuda.Stream(GPU)
    with torch.cuda.stream(own):
        exported = [Exported(torch.on_gpu(x, GPU), own) for x in tensors()]
    return client.attend(*exported, progress=False, **PATTERN)


def attend_many(client, torch, stream):
    return client.attend_many([[torch.on_gpu(x, GPU) for x in tensors()]], **PATTERN)[0]


def attend_stream(client, torch, stream):
    return list(client.attend_stream([[torch.on_gpu(x, GPU) for x in tensors()]], lse=True, **PATTERN))[0]


def attend_stream_of_a_generator(client, torch, stream):
    """Another thread runs the generator, whose kernels must run on the caller's stream."""
    def blocks():
        yield [torch.on_gpu(x[:0], GPU) for x in tensors()]
        assert torch.cuda.current_stream(GPU) is stream and torch.cuda.current_device() == GPU
        yield [torch.on_gpu(x, GPU) for x in tensors()]

    return list(client.attend_stream(blocks(), lse=True, **PATTERN))[1]


def attend_by_asyncio(client, torch, stream):
    values = [torch.on_gpu(x, GPU) for x in tensors()]
    return asyncio.run(awaited(client, torch, stream, lambda connected: connected.attend(
        *values, progress=False, **PATTERN)))


def attend_async_blocks(client, torch, stream):
    async def blocks():  # written on another stream
        with torch.cuda.stream(torch.cuda.Stream(GPU)):
            yield [torch.on_gpu(x, GPU) for x in tensors()]

    return asyncio.run(awaited(client, torch, stream, lambda connected: blocks_of(
        connected.attend_stream(blocks(), lse=True, **PATTERN))))


@pytest.mark.parametrize("run", [
    attend, attend_exported, attend_many, attend_stream, attend_stream_of_a_generator, attend_by_asyncio,
    attend_async_blocks])
def test_rows_are_read_after_the_callers_stream(client, torch, expected, run):
    with torch.cuda.stream(torch.cuda.Stream(GPU)) as stream:
        result = run(client, torch, stream)
    for made, right in ((result.out, expected.out), (result.lse, expected.lse)):
        assert made.device.type == "cuda" and made.device.index == GPU
        np.testing.assert_allclose(made.array, right, atol=1e-5)
    assert any(event.waited for event in stream.events)
    assert {placed for _, placed in torch.placed} == {stream}


@pytest.mark.parametrize("name", ["attend", "attend_many", "encode"])
def test_a_call_is_known_as_a_coroutine(name):
    assert asyncio.iscoroutinefunction(getattr(hilbert_ring.aio.Client, name))


@pytest.mark.parametrize("by_asyncio", [False, True])
def test_tiles_are_read_after_the_callers_stream(torch, by_asyncio):
    tiles = np.random.default_rng(7).standard_normal((8, 4)).astype("f4")
    asked = {"coords": np.arange(16.0).reshape(8, 2) * 10, "model": "small", "progress": False}
    with Encoder(small()) as service, hilbert_ring.connect(service.address) as client:
        client.encode(tiles, **asked)
        sent, service.tensors = service.tensors, {}
        with torch.cuda.stream(torch.cuda.Stream(GPU)) as stream:
            given = torch.on_gpu(tiles, GPU)
            if by_asyncio:
                result = asyncio.run(awaited(client, torch, stream, lambda connected: connected.encode(given, **asked)))
            else:
                result = client.encode(given, **asked)
        assert service.tensors == sent
    assert result.embeddings.device.index == GPU and {placed for _, placed in torch.placed} == {stream}

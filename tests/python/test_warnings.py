"""Warnings about jobs: once for each job, at the caller's line."""
import asyncio
import warnings

import numpy as np
import pytest

import hilbert_ring
from client_rig import normal
from hilbert_ring._warn import notes_on
from hilbert_ring._spec import make_spec

SHAPE = (64, 2, 8)


def tensors():
    return normal(*SHAPE)


def warnings_of(call):
    """Returns the warnings of a call, each as its class and text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(warning.filename == __file__ for warning in caught), [str(warning) for warning in caught]
    return [(warning.category, str(warning.message)) for warning in caught]


SPECS = [
    ({"segments": [64]}, []),
    ({"segments": [16, 64], "dilations": [1, 4], "mixing": "lse"}, []),
    ({"segments": [64], "ordering": hilbert_ring.Hilbert(grid=(8, 8))}, []),
    ({"segments": [64], "ordering": hilbert_ring.Hilbert(window=16)}, []),
    ({"segments": [64], "ordering": hilbert_ring.Morton()}, ["ordering: neither grid nor coordinates"]),
    ({"segments": [16, 32, 64]}, ["segments: 3 branches for 2 heads"]),
    ({"segments": [16, 32, 64], "average_groups": False}, ["segments: 3 branches for 2 heads"]),
    ({"segments": [16, 32, 64], "mixing": "lse"}, []),
    ({"segments": [16], "dilations": [32]}, ["dilations[0]: 32 is above its segment of 16:"]),
    ({"segments": [64, 128], "dilations": [1, 65]},
     ["dilations[1]: 65 is above its segment of 64 (the longest sequence)"]),
    ({"segments": [64], "dilations": [48], "sequence_lengths": [24, 40]},
     ["dilations[0]: 48 is above its segment of 40 (the longest"]),
    ({"segments": [256], "dilations": [65], "key_tokens": 200}, []),
    ({"segments": [64], "key_tokens": 0}, []),
    ({"segments": [64], "tail": "zero", "causal": True}, ["tail: zero has no effect"]),
    ({"segments": [8, 16, 32], "dilations": [16, 1, 1], "ordering": hilbert_ring.Hilbert()},
     ["ordering:", "segments:", "dilations[0]"]),
]


@pytest.mark.parametrize("by_asyncio", [False, True])
def test_what_a_spec_says_and_its_writer_seldom_means(client, by_asyncio):
    pattern, expected = SPECS[-1]

    async def attend_by_asyncio():
        async with hilbert_ring.aio.connect(client.server) as aio_client:
            await aio_client.attend(*tensors(), **pattern, progress=False)

    found = warnings_of(lambda: asyncio.run(attend_by_asyncio()) if by_asyncio else
                 client.attend(*tensors(), **pattern, progress=False))
    assert len(found) == len(expected)
    for (category, text), start in zip(found, expected):
        assert category is UserWarning and text.startswith(start)


@pytest.mark.parametrize("pattern, expected", SPECS)
def test_the_service_says_the_same(client, pattern, expected):
    sizes = {"tokens": 64, "heads": 2, "head_dim": 8}
    plan = client.plan(**sizes, **pattern)
    spec = make_spec(**sizes, kv_heads=None, value_dim=None, dtype="float32",
                     **{"dilations": None, "mixing": "head_groups", "causal": False, "scale": None, "tail": "mask",
                        "average_groups": True, "ordering": None, "sequence_lengths": None, **pattern})
    assert list(notes_on(spec)) == list(plan.notes)
    assert len(plan.notes) == len(expected)
    assert all(note.startswith(start) for note, start in zip(plan.notes, expected))


def test_a_spec_that_is_refused_is_an_error_and_no_note(client):
    for segments in ([0], [-4]):
        def attend():
            with pytest.raises(hilbert_ring.InvalidArgumentError):
                client.attend(*tensors(), segments=segments, progress=False)
        assert warnings_of(attend) == []


def test_rows_that_are_not_finite(client, tmp_path):
    q, k, v = tensors()
    q[5, 0, 0] = np.nan
    q[9, 1, 3] = np.inf

    def attend():
        result = client.attend(q, k, v, segments=[64], out=tmp_path / "out.npy", progress=False)
        assert np.isnan(result.out[5]).any() and result.report.rows_not_finite == 2

    assert warnings_of(attend) == [(RuntimeWarning, "2 of 64 rows of the output are not finite, the first for token 5")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            client.attend(q, k, v, segments=[64], out=tmp_path / "kept.npy", progress=False)
    assert np.load(tmp_path / "kept.npy").tobytes() == np.load(tmp_path / "out.npy").tobytes()


def test_what_replaces_another_library_warns_at_the_line_that_calls_it(client):
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x)[None] for x in tensors())
    q[0, 5] = float("nan")
    assert [category for category, _ in warnings_of(
        lambda: hilbert_ring.flash_attn_func(q, k, v, client=client))] == [RuntimeWarning]

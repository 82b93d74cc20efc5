"""Compares attention of model families with transformers' results (record_families.py).

PyTorch and transformers are used if both are installed, else numpy_torch.
"""
import contextlib
import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import hilbert_ring
import hilbert_ring.transformers
import numpy_torch

FOLDER = Path(__file__).with_name("families")
FAMILIES = {path.stem: path for path in FOLDER.iterdir() if path.stem != "llama_kvcache"}


@pytest.fixture(scope="module", autouse=True)
def tensors():
    """Yields torch.from_numpy, or its stand-in."""
    absent = find_spec("torch") is None or find_spec("transformers") is None
    with numpy_torch.installed() if absent else contextlib.nullcontext():
        import torch
        yield torch.from_numpy


def load(name, rows=slice(None)):
    arrays = dict(np.load(FAMILIES[name]))
    said = json.loads(str(arrays.pop("said")))
    sinks = arrays.pop("sinks", None)
    return SimpleNamespace(**{"window": None, "mask": None, "padding": None, "sinks": sinks, **said,
                              **{key: x[rows] for key, x in arrays.items()}})


def models_mask(case, tensor):
    """Returns the mask that a model makes after hilbert_ring.transformers.register()."""
    from transformers import masking_utils
    padding = None if case.padding is None else tensor(case.padding)
    function = getattr(masking_utils, f"{case.mask_function}_mask_function")
    return hilbert_ring.transformers.mask(len(case.q), **case.made_by, attention_mask=padding,
                                          mask_function=function if case.window is None else function(case.window))


def attend(case, mask, tensor, client):
    attention = hilbert_ring.transformers._attention_by(client, {})
    out, weights = attention(SimpleNamespace(is_causal=case.is_causal), *map(tensor, (case.q, case.k, case.v)), mask,
                             **{**case.given, "s_aux": None if case.sinks is None else tensor(case.sinks)})
    assert weights is None
    return np.asarray(out)


def asking(case):
    """Returns bool [batch, queries]. With a causal mask or a window padding has no queries."""
    queries = case.q.shape[2]
    if case.mask is None or case.mask_function == "bidirectional":
        return np.ones((len(case.q), queries), bool)
    return case.padding[:, -queries:].astype(bool)


def tolerance(case):
    """Returns the largest difference of two float32 computations; u is 2^-24, half of the last bit.

    A score is a sum of dim products: its error is at most (dim + 2) u times the sum of their sizes. A weight is
    exp(score) over the sum of all: its relative error is twice that of the score, u for each key in two sums, and 8 u
    for exp and the rest. A softcap c lowers the score's error, and its tanh adds 4 u of c.
    """
    group = case.q.shape[1] // case.k.shape[1]
    sizes = np.abs(case.q) @ np.abs(np.repeat(case.k, group, 1)).swapaxes(2, 3) * case.given["scaling"]
    off = 2 * (case.q.shape[3] + 2) * sizes.max() + 2 * case.k.shape[2] + 8 + 8 * (case.given.get("softcap") or 0)
    return 2 * off * 2.0**-24 * np.abs(case.v).max()


def check(case, out):
    seen = asking(case)
    assert out.shape == case.out.shape
    np.testing.assert_allclose(out[seen], case.out[seen], rtol=0, atol=tolerance(case))
    assert not out[~seen].any()


@pytest.mark.parametrize("rows", [slice(None), slice(1, None)], ids=["batch", "row_without_padding"])
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_as_registered(client, tensors, name, rows):
    case = load(name, rows)
    check(case, attend(case, None if case.mask is None else models_mask(case, tensors), tensors, client))


@pytest.mark.parametrize("name", sorted(name for name in FAMILIES if load(name).mask is not None))
def test_with_the_mask_of_eager_attention(client, tensors, name):
    case = load(name)
    out = attend(case, tensors(case.mask), tensors, client)
    if not asking(case)[:, -1].all():  # tokens of padding see keys, and have results
        seen = np.broadcast_to((case.mask == 0).any(3).all(1), asking(case).shape)
        np.testing.assert_allclose(out[seen], case.out[seen], rtol=0, atol=tolerance(case))
        assert not out[~seen].any()
    else:
        check(case, out)


def test_a_window_by_its_number(client, tensors):
    case = load("mistral_window", slice(1, None))
    check(case, attend(case, None, tensors, client))


MUTATIONS = {
    "wider": lambda case: vars(case).update(window=case.window + 1),
    "narrower": lambda case: vars(case).update(window=case.window - 1),
    "no sink": lambda case: vars(case).update(sinks=None),
    "no softcap": lambda case: case.given.update(softcap=None),
}


@pytest.mark.parametrize("name, mutation", [
    *((name, mutation) for name in ("mistral_window", "gemma2", "gpt_oss", "modernbert") for mutation in ("wider", "narrower")),
    ("gpt_oss", "no sink"), ("gemma2", "no softcap")])
def test_what_would_be_found(client, tensors, name, mutation):
    case = load(name)
    MUTATIONS[mutation](case)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(case, attend(case, models_mask(case, tensors), tensors, client))


def step(tensor, client, base=None):
    """Runs a recorded step with a cache. Returns the case, its result and the cache."""
    case = SimpleNamespace(**np.load(FOLDER / "llama_kvcache.npz"))
    filled, dim = case.k_cache.shape[1], case.q.shape[3]
    caches = [tensor(np.pad(x, ((0, 0), (0, 5), (0, 0), (0, 0)))) for x in (case.k_cache, case.v_cache)]
    angles = np.arange(20)[:, None] * (base or float(case.base)) ** (-np.arange(0, dim, 2) / dim)
    out = hilbert_ring.flash_attn_with_kvcache(
        *map(tensor, (case.q,)), *caches, *map(tensor, (case.k, case.v, *(f(angles).astype("f4") for f in (np.cos, np.sin)))),
        filled, cache_leftpad=tensor(case.leftpad), softmax_scale=float(case.scale), causal=True, rotary_interleaved=False,
        client=client)
    return case, np.asarray(out), [np.asarray(cache) for cache in caches]


def test_a_step_with_a_cache(client, tensors):
    case, out, (keys, values) = step(tensors, client)
    np.testing.assert_allclose(out, case.out, rtol=0, atol=5e-6)
    end = case.k_after.shape[1]
    np.testing.assert_allclose(keys[:, :end], case.k_after, rtol=0, atol=5e-6)
    np.testing.assert_array_equal(values[:, case.v_cache.shape[1]:end], case.v)
    assert not keys[:, end:].any() and not values[:, end:].any()


@pytest.mark.parametrize("base", [9990.0, 10100.0, 5e5])
def test_another_base_would_be_found(client, tensors, base):
    case, out, _ = step(tensors, client, base)
    assert np.abs(out - case.out).max() > 2e-5

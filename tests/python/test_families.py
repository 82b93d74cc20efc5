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

FAMILIES = {path.stem: path for path in Path(__file__).with_name("families").iterdir()}


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
    return SimpleNamespace(**said, **{"mask": None, "padding": None, **{key: x[rows] for key, x in arrays.items()}})


def models_mask(case, tensor):
    """Returns the mask that a model makes after hilbert_ring.transformers.register()."""
    from transformers import masking_utils
    padding = None if case.padding is None else tensor(case.padding)
    return hilbert_ring.transformers.mask(len(case.q), **case.made_by, attention_mask=padding,
                                          mask_function=getattr(masking_utils, f"{case.mask_function}_mask_function"))


def attend(case, mask, tensor, client):
    attention = hilbert_ring.transformers._attention_by(client)
    out, weights = attention(SimpleNamespace(is_causal=case.is_causal), *map(tensor, (case.q, case.k, case.v)), mask,
                             **case.given)
    assert weights is None
    return np.asarray(out)


def asking(case):
    """Returns bool [batch, queries]. With a causal mask padding has no queries."""
    queries = case.q.shape[2]
    if case.mask is None or case.mask_function != "causal":
        return np.ones((len(case.q), queries), bool)
    return case.padding[:, -queries:].astype(bool)


def tolerance(case):
    """Returns the largest difference of two float32 computations; u is 2^-24, half of the last bit.

    A score is a sum of dim products: its error is at most (dim + 2) u times the sum of their sizes. A weight is
    exp(score) over the sum of all: its relative error is twice that of the score, u for each key in two sums, and 8 u
    for exp and the rest.
    """
    group = case.q.shape[1] // case.k.shape[1]
    sizes = np.abs(case.q) @ np.abs(np.repeat(case.k, group, 1)).swapaxes(2, 3) * case.given["scaling"]
    off = 2 * (case.q.shape[3] + 2) * sizes.max() + 2 * case.k.shape[2] + 8
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
    if asking(case)[:, -1].all():
        check(case, attend(case, tensors(case.mask), tensors, client))
    else:  # tokens of padding see keys and are not seen
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="neither causal nor padding"):
            attend(case, tensors(case.mask), tensors, client)

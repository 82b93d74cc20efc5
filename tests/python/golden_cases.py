"""Loads golden cases as arguments of `attend`, and checks results within the allowed deviation."""
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict

import numpy as np

import hilbert_ring

FOLDER = Path(__file__).resolve().parent.parent / "golden" / "cases"
NAMES = sorted(path.name for path in FOLDER.iterdir())
_OF_THE_ARRAYS = ("tokens", "key_tokens", "heads", "kv_heads", "head_dim", "value_dim", "dtype")


@dataclass
class GoldenCase:
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    out: np.ndarray
    lse: np.ndarray
    arguments: Dict[str, Any]  # of attend, besides the tensors
    max_value: float
    max_scores: np.ndarray     # [tokens], bounds of the finite |scores|


def load(name):
    folder = FOLDER / name
    q, k, v, out, lse = (np.load(folder / f"{x}.npy") for x in ("q", "k", "v", "out", "lse"))
    spec = json.loads((folder / "case.json").read_text())
    arguments = {key: value for key, value in spec.items() if key not in _OF_THE_ARRAYS}
    arguments["ordering"] = _ordering(spec["ordering"], folder)
    if (folder / "bias_coords.npy").exists():
        arguments["bias_coords"] = np.load(folder / "bias_coords.npy")
    bounds = json.loads((folder / "bounds.json").read_text())
    scores = np.full(len(q), bounds["max_score"])
    if not np.isfinite(bounds["max_score"]):
        scores = _greatest_finite_scores(q, k, spec)
    return GoldenCase(q, k, v, out, lse, arguments, bounds["max_value"], scores)


def _ordering(given, folder):
    if given is None:
        return None
    kind = {"hilbert": hilbert_ring.Hilbert, "morton": hilbert_ring.Morton}[given["curve"]]
    coords = np.load(folder / given["coords_file"]) if given.get("coords_file") else None
    return kind(grid=given.get("grid") or None, window=given.get("window") or 0, coords=coords,
                scope=given.get("scope", "qkv"))


def _greatest_finite_scores(q, k, spec):
    heads = np.arange(q.shape[1]) * k.shape[1] // q.shape[1]
    with np.errstate(invalid="ignore", over="ignore"):
        scores = np.abs(np.einsum("thd,khd->thk", q.astype(float), k.astype(float)[:, heads]))
    scores *= abs(spec["scale"] or spec["head_dim"] ** -0.5)
    return np.where(np.isfinite(scores), scores, 0).max(axis=(1, 2))


def types_that_hold(case):
    """Yields the dtypes in which q, k and v are exact: name, encoder and decoder."""
    def exact(decoded, original):
        return np.array_equal(decoded, original, equal_nan=True)

    yield "float32", lambda x: x, lambda x: x
    tensors = (case.q, case.k, case.v)
    with np.errstate(over="ignore"):
        if all(exact(x.astype("f2").astype("f4"), x) for x in tensors):
            yield "float16", lambda x: x.astype("f2"), lambda x: x.astype("f4")
    if all(exact(from_bfloat16(to_bfloat16(x)), x) for x in tensors):
        yield "bfloat16", to_bfloat16, from_bfloat16


def to_bfloat16(x):
    return (np.ascontiguousarray(x).view("u4") >> 16).astype("u2")


def from_bfloat16(x):
    return (x.astype("u4") << 16).view("f4")


def check(case, dtype, out, lse):
    """Fails if a result deviates more than its type allows, as in tests/engine/expected_golden.cc."""
    scores = case.max_scores[:, None, None]
    size = np.abs(case.out)
    allowed = {
        "float32": 1e-5 * size + np.maximum(2e-6, scores * case.max_value * 2.0**-22),
        "bfloat16": size * 2.0**-7 + case.max_value * 2.0**-9,
        "float16": size * 2.0**-10 + case.max_value * 2.0**-12}[dtype]
    _check("out", out, case.out, allowed)
    _check("lse", lse, case.lse, 1e-5 * (1 + np.abs(case.lse)))


def _check(name, actual, expected, allowed):
    assert actual.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite], err_msg=name)
    off = np.abs(actual[finite].astype(float) - expected[finite])
    assert np.all(off <= allowed[finite]), f"{name} is off by {off.max()}"



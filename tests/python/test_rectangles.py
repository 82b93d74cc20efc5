"""Keys of another number than the queries, compared with the definition."""
import sys
from pathlib import Path

import numpy as np
import pytest

import hilbert_ring
from client_rig import ByAsyncio
from hilbert_ring.v1 import attention_pb2 as pb

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden"))
from attention_oracle import attention  # noqa: E402

DENSE = {"segments": [1 << 20], "dilations": [1]}
DILATED = {"segments": [32, 200], "dilations": [1, 3], "mixing": "lse"}
COORDS = np.random.default_rng(3).permutation(400)[:150, None] // [[1, 20]] % 20
# By name: queries and keys of each sequence, and arguments of attend.
JOBS = {
    "one_query": ([(1, 200)], {**DENSE, "causal": True}),
    "last_rows": ([(37, 200)], {**DILATED, "causal": True}),
    "last_rows_zero": ([(37, 190)], {**DILATED, "tail": "zero"}),
    "last_rows_window": ([(20, 200)], {**DENSE, "window": (9, 0), "softcap": 1.5}),
    "more_queries": ([(200, 30)], {**DENSE, "causal": True, "alibi": [0.5, 0.25, 0, 0.125]}),
    "top_left": ([(40, 200)], {**DENSE, "causal": True, "align": "start"}),
    "cross": ([(200, 7)], {**DENSE, "sinks": [1, 0, -1, 2]}),
    "no_keys": ([(5, 0)], {**DENSE, "sinks": [1, 0, -1, 2]}),
    "packed": ([(3, 50), (0, 9), (50, 50), (4, 0), (1, 31), (8, 2)], {**DENSE, "causal": True}),
    "packed_align_start": ([(3, 5), (0, 9), (7, 0), (8, 2)], {**DENSE, "causal": True, "align": "start"}),
    "hilbert": ([(20, 150)], {**DILATED, "ordering": hilbert_ring.Hilbert(coords=COORDS), "causal": True}),
    "morton_kv": ([(20, 120)], {**DILATED, "ordering": hilbert_ring.Morton(grid=(10, 12), scope="kv")}),
}


@pytest.fixture(scope="module", params=[1, 2])
def service(request, client):
    if request.param == 2:
        yield client
    else:
        with hilbert_ring.local(workers=1) as connected:
            yield connected


def tensors(pairs):
    random = np.random.default_rng(5)
    tokens, keys = (sum(rows) for rows in zip(*pairs))
    return tuple(random.standard_normal(shape, dtype="f4") for shape in ((tokens, 4, 16), (keys, 2, 16), (keys, 2, 8)))


def arguments_of(name):
    pairs, arguments = JOBS[name]
    lengths, key_lengths = map(list, zip(*pairs))
    packed = {"sequence_lengths": lengths, "key_sequence_lengths": key_lengths} if len(pairs) > 1 else {}
    return tensors(pairs), {**arguments, **packed}


def expected(given, arguments):
    ordering = arguments.get("ordering")
    if ordering is not None:
        fields = {"curve": ordering.curve, "scope": ordering.scope, "grid": ordering.grid, "coords": ordering.coords}
        ordering = {key: value for key, value in fields.items() if value is not None}
    alibi = {"slopes": arguments["alibi"]} if "alibi" in arguments else None
    return attention(*given, **{**arguments, "ordering": ordering, "alibi": alibi})


def compare(result, given, arguments):
    out, lse = expected(given, arguments)
    assert np.asarray(result.out).shape == out.shape and np.asarray(result.lse).shape == lse.shape
    np.testing.assert_allclose(result.out, out, atol=2e-6)
    np.testing.assert_allclose(result.lse, lse, atol=5e-6)


@pytest.mark.parametrize("name", JOBS)
def test_jobs_are_the_definitions(service, name):
    given, arguments = arguments_of(name)
    result = service.attend(*given, chunk_bytes=1500, progress=False, **arguments)
    compare(result, given, arguments)
    assert result.report.tokens == len(given[0])


@pytest.mark.parametrize("name", ["hilbert", "no_keys", "cross", "packed"])
def test_rows_in_files_and_in_shared_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr(hilbert_ring._by_reference, "SHARED_BYTES", 1)
    monkeypatch.setattr(hilbert_ring._by_reference, "SCATTERED_ROW_BYTES", 1)
    given, arguments = arguments_of(name)
    with hilbert_ring.local(workers=2) as own:
        shared = own.attend(*given, progress=False, **arguments)
    files = [tmp_path / f"{tensor}.npy" for tensor in "qkv"]
    for file, values in zip(files, given):
        np.save(file, values)
    in_files = dict(arguments)
    if "ordering" in arguments:
        np.save(tmp_path / "coords.npy", COORDS)
        in_files["ordering"] = hilbert_ring.Hilbert(coords=tmp_path / "coords.npy")
    with hilbert_ring.local(workers=2, data_root=tmp_path) as own:
        named = own.attend(*files, out=tmp_path / "out.npy", lse=tmp_path / "lse.npy", by_reference="always",
                           progress=False, **in_files)
    for result in (shared, named):
        assert result.report.by_reference
        compare(result, given, arguments)


def test_a_curve_is_chosen_for_the_keys(client):
    given, arguments = arguments_of("morton_kv")
    arguments["ordering"] = hilbert_ring.Auto(grid=(10, 12))
    result = client.attend(*given, progress=False, **arguments)
    assert "the plan computes" in result.ordering_why
    compare(result, given, {**arguments, "ordering": result.ordering})


def test_the_plan_has_what_travels_and_why(client):
    few = client.plan(tokens=1, key_tokens=1 << 20, heads=4, head_dim=64, segments=[1 << 20], workers=2)
    many = client.plan(tokens=1 << 20, key_tokens=77, heads=4, head_dim=64, segments=[1 << 20], workers=2)
    assert (few.travels, many.travels) == (pb.TRAVELS_QUERIES, pb.TRAVELS_KEYS)
    assert "keys and values" in few.travels_why and "queries" in many.travels_why
    square = client.plan(tokens=64, key_tokens=64, heads=4, head_dim=64, segments=[64], workers=2)
    assert square.travels == pb.TRAVELS_UNSPECIFIED
    assert few.flops * 1.01 < square.flops * (1 << 20) / 64  # of one row, not of all


@pytest.mark.parametrize("name, arguments, words", [
    ("more_queries", {"segments": [20]}, "tokens is 200 with key_tokens 30, segments[0] is 20"),
    ("top_left", {"dilations": [2]}, "align is start with 40 queries and 200 keys, dilations[0] is 2"),
    ("packed", {"sequence_lengths": None}, "key_sequence_lengths has 6 entries"),
    ("packed", {"key_sequence_lengths": [143, 0, 0, 0, 0, -1]}, "key_sequence_lengths[0] is 143"),
])
def test_the_service_refuses_by_field(client, name, arguments, words):
    given, own = arguments_of(name)
    for made in (client, ByAsyncio(client.server)):
        with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
            made.attend(*given, progress=False, **{**own, **arguments})
        assert words in raised.value.message and raised.value.reason == "INVALID_SPEC"


def test_a_stream_has_a_key_for_each_query(client):
    q, k, v = tensors([(8, 9)])
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="k has 9 rows, must have those of q") as raised:
        list(client.attend_stream([(q, k, v)], segments=[8]))
    assert raised.value.field == "k"

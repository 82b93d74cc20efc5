"""Orders that the service chooses."""
import numpy as np

import hilbert_ring
from client_rig import normal
from hilbert_ring.v1 import attention_pb2 as pb

SIDE = 32
TOKENS = SIDE * SIDE
PATTERN = {"segments": [64], "progress": False}
GRID = {"grid": (SIDE, SIDE)}


def test_the_curve_that_suits_the_job_is_taken_and_named(client):
    given = normal(TOKENS, 2, 8)
    result = client.attend(*given, ordering=hilbert_ring.Auto(scope="kv", **GRID), **PATTERN)
    assert type(result.ordering) is hilbert_ring.Hilbert
    assert (result.ordering.grid, result.ordering.scope) == ((SIDE, SIDE), "kv")
    assert "the most compact" in result.ordering_why
    same = client.attend(*given, ordering=result.ordering, **PATTERN)
    assert np.array_equal(result.out, same.out) and np.array_equal(result.lse, same.lse)
    assert same.ordering == result.ordering and same.ordering_why == ""


def test_tokens_stay_as_they_come_where_no_curve_suits_the_job(client):
    given = normal(TOKENS, 2, 8)
    causal = {**PATTERN, "causal": True}
    result = client.attend(*given, ordering=hilbert_ring.Auto(**GRID), **causal)
    assert result.ordering is None
    assert "their own order" in result.ordering_why
    same = client.attend(*given, **causal)
    assert np.array_equal(result.out, same.out)


def test_a_plan_names_its_curve(client):
    shape = {"tokens": TOKENS, "heads": 2, "head_dim": 8, "segments": [64]}
    plan = client.plan(**shape, ordering=hilbert_ring.Auto(**GRID))
    assert plan.curve == pb.CURVE_HILBERT and plan.curve_why
    assert client.plan(**shape, ordering=hilbert_ring.Morton(**GRID)).curve_why == ""

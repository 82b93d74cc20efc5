"""Orders that the service picks."""
import asyncio
import os
import subprocess
import sys

import numpy as np
import pytest

import hilbert_ring
from hilbert_ring.v1 import attention_pb2 as pb

SIDE = 32
TOKENS = SIDE * SIDE
PATTERN = {"segments": [64], "progress": False}
GRID = {"grid": (SIDE, SIDE)}


def tensors():
    drawn = np.random.default_rng(3)
    return [drawn.standard_normal((TOKENS, 2, 8), np.float32) for _ in range(3)]


def attend(client, by_asyncio, *arguments, **options):
    if not by_asyncio:
        return client.attend(*arguments, **options)

    async def run():
        async with hilbert_ring.aio.connect(client.server) as aio_client:
            return await aio_client.attend(*arguments, **options)
    return asyncio.run(run())


@pytest.mark.parametrize("by_asyncio", [False, True])
def test_the_curve_that_suits_the_job_is_taken_and_named(client, by_asyncio):
    given = tensors()
    result = attend(client, by_asyncio, *given, ordering=hilbert_ring.Auto(scope="kv", **GRID),
                    **PATTERN)
    assert type(result.ordering) is hilbert_ring.Hilbert
    assert (result.ordering.grid, result.ordering.scope) == ((SIDE, SIDE), "kv")
    assert "the most compact" in result.ordering_why
    same = client.attend(*given, ordering=result.ordering, **PATTERN)
    assert np.array_equal(result.out, same.out) and np.array_equal(result.lse, same.lse)
    assert same.ordering == result.ordering and same.ordering_why == ""


@pytest.mark.parametrize("by_asyncio", [False, True])
def test_tokens_stay_as_they_come_where_no_curve_suits_the_job(client, by_asyncio):
    given = tensors()
    causal = {**PATTERN, "causal": True}
    result = attend(client, by_asyncio, *given, ordering=hilbert_ring.Auto(**GRID), **causal)
    assert result.ordering is None
    assert "their own order" in result.ordering_why
    same = client.attend(*given, **causal)
    assert np.array_equal(result.out, same.out)


def test_coordinates_are_sent_where_a_curve_is_taken_alone(client):
    coords = np.stack(np.divmod(np.arange(TOKENS), SIDE), axis=1)[:, ::-1]
    given = tensors()
    picked = client.attend(*given, ordering=hilbert_ring.Auto(coords=coords), **PATTERN)
    assert type(picked.ordering) is hilbert_ring.Hilbert and picked.ordering.coords is coords
    same = client.attend(*given, ordering=hilbert_ring.Hilbert(coords=coords), **PATTERN)
    assert np.array_equal(picked.out, same.out)
    full = {**PATTERN, "segments": [TOKENS]}
    assert client.attend(*given, ordering=hilbert_ring.Auto(coords=coords),
                         **full).ordering is None


def test_a_plan_says_which_curve_it_is_made_for(client):
    shape = {"tokens": TOKENS, "heads": 2, "head_dim": 8, "segments": [64]}
    plan = client.plan(**shape, ordering=hilbert_ring.Auto(**GRID))
    assert plan.curve == pb.CURVE_HILBERT and plan.curve_why
    assert client.plan(**shape, ordering=hilbert_ring.Morton(**GRID)).curve_why == ""


def test_the_deadline_holds_for_the_choice_too():
    nobody = hilbert_ring.connect("127.0.0.1:9")
    with pytest.raises(hilbert_ring.UnavailableError):
        nobody.attend(*tensors(), ordering=hilbert_ring.Auto(**GRID), outage_timeout=0.5,
                      **PATTERN)
    with pytest.raises(hilbert_ring.HilbertRingError):
        nobody.attend(*tensors(), ordering=hilbert_ring.Auto(**GRID), deadline=0.5, **PATTERN)


def draw(client, what, folder, *flags):
    return subprocess.run(
        [sys.executable, "-m", "hilbert_ring", "draw", what, "--tokens", str(TOKENS), "--segments",
         "64", "--grid", f"{SIDE},{SIDE}", "--curve", "auto", "--out", folder / "x.svg", *flags],
        env={**os.environ, "HILBERT_RING_SERVER": client.server}, capture_output=True, text=True,
        timeout=60, check=False)


def test_pictures_of_plans_say_which_curve_they_are_of(client, tmp_path):
    drawn = draw(client, "plan", tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert "curve auto: hilbert, since " in drawn.stderr
    refused = draw(client, "order", tmp_path)
    assert refused.returncode != 0 and "ordering.curve is auto" in refused.stderr

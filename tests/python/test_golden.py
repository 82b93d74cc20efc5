"""Runs every golden case, blocking and by asyncio."""
import asyncio

import pytest

import golden_cases
import hilbert_ring


@pytest.mark.parametrize("name", golden_cases.NAMES)
def test_case_in_every_type_that_holds_it(client, name):
    case = golden_cases.load(name)
    for dtype, encode, decode in golden_cases.types_that_hold(case):
        result = client.attend(encode(case.q), encode(case.k), encode(case.v), chunk_bytes=8192,
                               dtype=dtype, progress=False, **case.arguments)
        golden_cases.check(case, dtype, decode(result.out), result.lse)
        assert result.report.tokens == len(case.q)
        assert len(result.report.workers) == 2


def test_all_cases_at_once_by_asyncio(client):
    async def run(aio_client, name, turn):
        async with turn:
            case = golden_cases.load(name)
            result = await aio_client.attend(case.q, case.k, case.v, progress=False,
                                             **case.arguments)
            golden_cases.check(case, "float32", result.out, result.lse)
            return name

    async def run_all():
        turn = asyncio.Semaphore(8)
        async with hilbert_ring.aio.connect(client.server) as aio_client:
            return await asyncio.gather(*(run(aio_client, name, turn)
                                          for name in golden_cases.NAMES))

    assert asyncio.run(run_all()) == golden_cases.NAMES

"""Many small jobs in few calls: blocking, by asyncio, and by the command line."""
import asyncio
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hilbert_ring
from client_rig import UNTIL, ByAsyncio, program
from hilbert_ring.local_service import find_program

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from running_service import ListeningService



def rows(tokens, seed=1, heads=2, dim=16):
    random = np.random.default_rng(seed)
    return tuple(random.standard_normal((tokens, heads, dim), dtype="f4") for _ in "qkv")


def alone(client, qkv, **spec):
    return client.attend(*qkv, progress=False, **spec)


def assert_same(result, expected):
    np.testing.assert_allclose(result.out, expected.out, atol=1e-5)
    np.testing.assert_allclose(result.lse, expected.lse, atol=1e-5)


def test_jobs_are_each_their_own(client):
    jobs = [rows(32 + 13 * i % 70, i) for i in range(30)]
    results = client.attend_many(iter(jobs), segments=[16, 32], dilations=[1, 2], chunk_bytes=20_000)
    assert len(results) == len(jobs)
    for qkv, result in zip(jobs, results):
        assert isinstance(result, hilbert_ring.AttendResult), result
        assert result.report.tokens == len(qkv[0])
        assert_same(result, alone(client, qkv, segments=[16, 32], dilations=[1, 2]))


@pytest.mark.parametrize("by_asyncio", [False, True])
def test_a_client_that_is_closed_ends_the_jobs_that_run(by_asyncio):
    """Uses a service that takes the call and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(30)
        server = f"127.0.0.1:{mute.getsockname()[1]}"
        if by_asyncio:
            async def run():
                closing = hilbert_ring.aio.connect(server)
                task = asyncio.ensure_future(closing.attend_many([rows(20)] * 3, segments=[16]))
                taken, _ = await asyncio.to_thread(mute.accept)
                await closing.close()
                with taken:
                    return await asyncio.wait_for(task, 10)
            results = asyncio.run(run())
        else:
            closing = hilbert_ring.connect(server)
            with ThreadPoolExecutor(1) as pool:
                call = pool.submit(closing.attend_many, [rows(20)] * 3, segments=[16])
                taken, _ = mute.accept()
                closing.close()
                with taken:
                    results = call.result(10)
    assert len(results) == 3
    for result in results:
        assert type(result) is hilbert_ring.CancelledError and "the client was closed" in str(result)


def test_jobs_that_are_alike_are_computed_together(client):
    jobs = [rows(1, i, heads=1, dim=8) for i in range(1030)]
    results = client.attend_many(jobs, segments=[16])
    for qkv, result in zip(jobs, results):
        np.testing.assert_array_equal(result.out, qkv[2])  # the result of one token is its value
    assert len({result.report.job_id for result in results}) == 2  # 1,024 and 6
    results = client.attend_many(jobs[:8], segments=[16], chunk_bytes=1)
    assert len({result.report.job_id for result in results}) == 8


def test_jobs_with_other_scores_are_computed_separately(client):
    jobs = [dict(zip("qkv", rows(5, i)), **more) for i, more in enumerate(
        [{}, {"sinks": np.zeros(2)}, {"sinks": [0, 0]}, {"sinks": [0, 1]}, {"softcap": 1}, {"alibi": [0, 1]},
         {"alibi": {"slopes": [0, 1]}}, {"window": (1, None)}, {"window": [1, None]}, {"window": (1, 1)}])]
    ids = [result.report.job_id for result in client.attend_many(jobs, segments=[16])]
    assert len(set(ids)) == 7 and ids[1] == ids[2] and ids[5] == ids[6] and ids[7] == ids[8]


def test_sequences_that_do_not_add_up_fail_their_own_job(client):
    q, k, v = rows(10)
    lengths = [[9], [11], [4, 6], [-1, 11]]  # all together they add up to the tokens of four jobs
    results = client.attend_many([{"q": q, "k": k, "v": v, "sequence_lengths": own} for own in lengths], segments=[8])
    assert [getattr(result, "reason", "") for result in results] == ["INVALID_SPEC"] * 2 + ["", "INVALID_SPEC"]
    assert_same(results[2], alone(client, (q, k, v), segments=[8], sequence_lengths=[4, 6]))


def test_keys_of_another_number_are_packed(client):
    """Jobs with all kinds of rectangles share a pack, in which a wrong one fails alone."""
    jobs = [{"q": rows(queries, queries)[0], "k": rows(keys, keys)[1], "v": rows(keys, keys)[2], **more}
            for queries, keys, more in [
                (1, 40, {}), (12, 12, {}), (9, 4, {}), (5, 0, {}), (4, 70, {}),
                (7, 30, {"sequence_lengths": [0, 3, 4], "key_sequence_lengths": [8, 22, 0]}),
                (6, 20, {"sequence_lengths": [6], "key_sequence_lengths": [10, 10]}),  # refused
                (1, 40, {"align": "start"}), (3, 20, {"key_sequence_lengths": [20]})]]
    jobs[4]["segments"] = [16]
    results = client.attend_many(jobs, segments=[64], causal=True)
    wrong = results.pop(6)
    assert isinstance(wrong, hilbert_ring.InvalidArgumentError) and wrong.field == "key_sequence_lengths"
    del jobs[6]
    for job, result in zip(jobs, results):
        assert_same(result, alone(client, (job.pop("q"), job.pop("k"), job.pop("v")),
                                  **{"segments": [64], "causal": True, **job}))
    ids = [result.report.job_id for result in results]
    assert len({ids[i] for i in (0, 1, 2, 3, 5, 7)}) == 1 and len({ids[0], ids[4], ids[6]}) == 3


def test_rows_that_are_not_finite_are_those_of_their_job(client):
    jobs = [rows(20, i) for i in range(3)]
    jobs[1][0][7] = np.nan
    with pytest.warns(RuntimeWarning, match="1 of 20 rows of the output are not finite, the first for token 7"):
        results = client.attend_many(jobs, segments=[8])
    assert [result.report.rows_not_finite for result in results] == [0, 1, 0]


def test_calls_that_a_service_refuses(tmp_path):
    """The jobs are too long together, and the caller may have one job at a time."""
    token = "token-of-the-lab-0123456789"
    (tmp_path / "tokens").write_text(json.dumps({"name": "lab", "role": "submit", "token": token, "jobs": 1}) + "\n")
    arguments = ["--warm-up=false", "--max-tokens=50", f"--auth-token-file={tmp_path / 'tokens'}"]
    jobs = [rows(tokens, tokens) for tokens in (40, 51, 50, 10, 20)]
    with ListeningService(find_program("hilbert-ring-coordinator"), tmp_path, arguments=arguments) as service, \
            hilbert_ring.connect(service.address, token=token) as client:
        service.start_worker(find_program("hilbert-ring-worker"))
        for chunk_bytes in (1 << 20, 1):
            results = client.attend_many(jobs, segments=[8], chunk_bytes=chunk_bytes, deadline=UNTIL)
            wrong = results.pop(1)
            assert isinstance(wrong, hilbert_ring.OutOfRangeError) and wrong.field == "tokens"
            for qkv, result in zip([jobs[0], *jobs[2:]], results):
                assert_same(result, alone(client, qkv, segments=[8]))


def test_a_job_may_have_a_spec_of_its_own(client):
    q, k, v = rows(48)
    coords = np.argwhere(np.ones((6, 8), bool))
    own = [{"causal": True}, {"segments": [8]}, {"ordering": hilbert_ring.Hilbert(coords=coords)},
           {"mixing": "lse", "segments": [8, 48], "dilations": [1, 2]}, {"sequence_lengths": [10, 38]},
           {"job_id": "mine"}]
    results = client.attend_many([{"q": q, "k": k, "v": v, **spec} for spec in own], segments=[16])
    for spec, result in zip(own, results):
        assert_same(result, alone(client, (q, k, v), **{"segments": [16], **spec}))
    assert results[5].report.job_id == "mine"


def test_one_that_is_wrong_fails_alone(client):
    q, k, v = good = rows(20)
    jobs = [good, (q, k[:3], v), {"q": q, "k": k, "v": v, "segments": [0]}, {"q": q, "k": k, "v": v, "sement": 1},
            {"q": q, "k": k, "v": v, "ordering": hilbert_ring.Auto()}, {"q": q, "k": k, "v": v, "out": "a.npy"},
            rows(20_000), 7, good]
    results = client.attend_many(jobs, segments=[8])
    kinds = [type(result) for result in results]
    wrong = hilbert_ring.InvalidArgumentError
    assert kinds == [hilbert_ring.AttendResult, wrong, wrong, wrong, wrong, wrong, hilbert_ring.OutOfRangeError,
                     wrong, hilbert_ring.AttendResult]
    assert results[2].reason == "INVALID_SPEC" and results[2].field == "segments[0]"  # by the service
    np.testing.assert_array_equal(results[0].out, results[8].out)


def test_outputs_that_an_earlier_job_has_are_refused(client, tmp_path):
    """Only the later job fails, for every kind of output, and the earlier one's rows are right."""
    q, k, v = qkv = rows(20)
    expected = alone(client, qkv, segments=[8])
    room = np.zeros((3, *q.shape), "f4")
    lse = np.zeros((2, *q.shape[:2]), "f4")
    mapped = np.memmap(tmp_path / "rows", "f4", "w+", shape=room.shape)
    mapped[2] = q
    again = np.memmap(tmp_path / "rows", "f4", "r+", shape=room.shape)

    def job(out, lse=False, q=q):
        return {"q": q, "k": k, "v": v, "out": out, "lse": lse}

    cases = {
        "same out": ([job(room[0]), job(room[0])], "out"),
        "lse in out": ([job(room[0]), job(None, room[0].reshape(-1)[:40].reshape(20, 2))], "lse"),
        "a later input": ([job(room[1]), job(None, q=room[1])], "q"),
        "a map of an earlier input": ([job(None, q=mapped[2]), job(again[2])], "out"),
    }
    for name, (jobs, field) in cases.items():
        first, second, third = client.attend_many([*jobs, job(room[2])], segments=[8])
        assert isinstance(second, hilbert_ring.InvalidArgumentError) and second.field == field, name
        assert "of an earlier job of the call; nothing was written" in str(second)
        np.testing.assert_allclose(first.out, expected.out, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(third.out, expected.out, atol=1e-5, err_msg=name)
    results = client.attend_many([job(room[0], lse[0]), (q, k[:3], v), job(room[1], lse[1]), qkv], segments=[8])
    for number in (0, 2, 3):
        assert_same(results[number], expected)
    *_, last = client.attend_many([qkv, job(room[0]), (room[0], k, v)], segments=[8])
    assert isinstance(last, hilbert_ring.InvalidArgumentError) and last.field == "q"
    out = room[0]
    first, second = client.attend_many([qkv, qkv], segments=[8], out=out)
    assert first.out is out and second.field == "out"


def test_of_a_call_that_fails_each_job_has_the_error():
    with hilbert_ring.connect("127.0.0.1:1") as nobody:
        results = nobody.attend_many([rows(3), (1, 2, 3)], segments=[8], outage_timeout=0.2)
    assert isinstance(results[0], hilbert_ring.UnavailableError)
    assert isinstance(results[1], hilbert_ring.InvalidArgumentError)


def test_a_service_whose_workers_come_later_runs_the_jobs(tmp_path):
    with ListeningService(find_program("hilbert-ring-coordinator"), tmp_path, arguments=["--warm-up=false"]) as service:
        with ThreadPoolExecutor() as pool, hilbert_ring.connect(service.address) as client:
            waiting = pool.submit(client.attend_many, [rows(20, 1), rows(30, 2)], segments=[8])
            time.sleep(1)
            assert not waiting.done()
            service.start_worker(find_program("hilbert-ring-worker"))
            results = waiting.result(UNTIL)
    assert [type(result) for result in results] == [hilbert_ring.AttendResult] * 2


def test_for_asyncio(client):
    first, error, second = ByAsyncio(client.server).attend_many([rows(20, 1), (1, 2, 3), rows(30, 2)], segments=[8],
                                                                chunk_bytes=1)
    assert_same(first, alone(client, rows(20, 1), segments=[8]))
    assert_same(second, alone(client, rows(30, 2), segments=[8]))
    assert isinstance(error, hilbert_ring.InvalidArgumentError)


class Lines:
    def __init__(self, folder, client):
        self.folder, self.client = folder, client
        self.lines = []

    def add(self, tokens, **more):
        number = len(self.lines)
        line = {"out": f"out{number}.npy", **more}
        for name, tensor in zip("qkv", rows(tokens, number)):
            np.save(self.folder / f"{name}{number}.npy", tensor)
            line.setdefault(name, f"{name}{number}.npy")
        self.lines.append(line)

    def run(self, *flags):
        (self.folder / "jobs.jsonl").write_text("\n".join(map(json.dumps, self.lines)) + "\n\n")
        return program("--server", self.client.server, *flags, cwd=self.folder)

    def assert_right(self, number, tokens, **spec):
        expected = alone(self.client, rows(tokens, number), **spec)
        np.testing.assert_allclose(np.load(self.folder / f"out{number}.npy"), expected.out, atol=1e-5)


@pytest.fixture
def lines(tmp_path, client):
    return Lines(tmp_path, client)


def test_lines_of_jobs(lines):
    for tokens in range(10, 140):  # more than go into a call
        lines.add(tokens)
    lines.add(20, spec={"segments": [8], "dilations": [1], "causal": True}, lse="lse.npy", job_id="named")
    done = lines.run("attend-many", "jobs.jsonl", "--segments", "16", "--dilations", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("131 jobs, 0 failed, ")
    for number in (0, 60, 129):
        lines.assert_right(number, 10 + number, segments=[16])
    lines.assert_right(130, 20, segments=[8], causal=True)
    assert np.load(lines.folder / "lse.npy").shape == (20, 2)


def test_a_line_that_fails(lines):
    lines.add(20)
    lines.add(20, job_id="x" * 1000)
    lines.add(30)
    done = lines.run("--json", "attend-many", "jobs.jsonl", "--segments", "16", "--dilations", "1")
    assert done.returncode == 1
    assert [json.loads(line)["line"] for line in done.stdout.splitlines()] == [1, 3]
    error = json.loads(done.stderr)["error"]
    assert error["reason"] == "INVALID_OPEN" and error["message"].startswith("line 2: ")
    lines.assert_right(2, 30, segments=[16])
    assert sorted(path.name for path in lines.folder.glob("*out*")) == ["out0.npy", "out2.npy"]

"""Streams without end: blocking, by asyncio, and by the command line."""
import asyncio
import itertools
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request

import numpy as np
import pytest

import hilbert_ring
from client_rig import UNTIL, free_ports, no_jobs, normal, program, until
from hilbert_ring._channel import STREAM_AHEAD_BYTES
from hilbert_ring.local_service import find_program

TOKENS, HEADS, DIM = 3000, 2, 16
SPEC = {"segments": [64, 128], "dilations": [1, 2]}
FLAGS = ["--heads", str(HEADS), "--head-dim", str(DIM), "--segments", "64,128", "--dilations", "1,2",
         "--epoch", "256"]


@pytest.fixture(scope="module")
def client():
    """A client of one worker, so that no segment lies on two."""
    with hilbert_ring.local(workers=1) as connected:
        yield connected


@pytest.fixture(scope="module")
def rows():
    return normal(TOKENS, HEADS, DIM)


@pytest.fixture(scope="module")
def whole(client, rows):
    return client.attend(*rows, progress=False, **SPEC)


def cut(rows, size):
    for first in range(0, len(rows[0]), size):
        yield tuple(tensor[first:first + size] for tensor in rows)


@pytest.mark.parametrize("size", [1, 37, 256, TOKENS])
def test_blocks_are_those_of_one_job(client, rows, whole, size):
    rows = tuple(tensor[:600] for tensor in rows) if size == 1 else rows
    expected = client.attend(*rows, progress=False, **SPEC)
    stream = client.attend_stream(cut(rows, size), lse=True, epoch_tokens=256, **SPEC)
    assert stream.report is None
    firsts, outs, lses = [], [], []
    for block in stream:
        assert isinstance(block.out, np.ndarray) and len(block.lse) == len(block.out) <= size
        firsts.append(block.first_token)
        outs.append(block.out)
        lses.append(block.lse)
    assert firsts == list(range(0, len(rows[0]), size))
    np.testing.assert_array_equal(np.concatenate(outs), expected.out)
    np.testing.assert_array_equal(np.concatenate(lses), expected.lse)
    assert stream.report.tokens == len(rows[0])
    assert stream.report.epochs == -(-len(rows[0]) // 256)
    assert stream.epoch.first_token == (stream.report.epochs - 1) * 256


def test_arrays_of_a_block_may_be_those_of_the_next(client, rows, whole):
    def blocks():
        block = tuple(np.empty_like(tensor[:10]) for tensor in rows)
        for values in cut(rows, 10):
            for array, tensor in zip(block, values):
                array[:] = tensor
            yield block

    results = client.attend_stream(blocks(), epoch_tokens=256, **SPEC)
    np.testing.assert_array_equal(np.concatenate([block.out for block in results]), whole.out)


def test_results_come_while_blocks_do(client, rows):
    """The iterator makes the second epoch's rows only after the first epoch's results."""
    come = threading.Event()

    def blocks():
        for number, block in enumerate(cut(rows, 128)):
            if number == 4:
                assert come.wait(UNTIL)
            yield block

    with client.attend_stream(blocks(), epoch_tokens=256, **SPEC) as stream:
        assert next(stream).first_token == 0
        come.set()
        assert len(list(stream)) == -(-TOKENS // 128) - 1


def of_rows(rows, counts):
    first = 0
    for count in counts:
        yield tuple(tensor[first:first + count] for tensor in rows)
        first += count


@pytest.mark.parametrize("counts", [[0], [0, 100, 0], [300, 0, 10, 0, 0, 500, 0]])
def test_a_block_without_rows_has_its_result_in_its_turn(client, rows, counts):
    stream = client.attend_stream(of_rows(rows, counts), lse=True, epoch_tokens=256, **SPEC)
    results, report = list(stream), stream.report
    assert [block.out.shape for block in results] == [(count, HEADS, DIM) for count in counts]
    assert [block.lse.shape for block in results] == [(count, HEADS) for count in counts]
    assert [block.first_token for block in results] == [sum(counts[:i]) for i in range(len(counts))]
    assert report.tokens == sum(counts)
    if sum(counts):
        expected = client.attend(*(tensor[:sum(counts)] for tensor in rows), progress=False, **SPEC)
        np.testing.assert_array_equal(np.concatenate([block.out for block in results]), expected.out)
        np.testing.assert_array_equal(np.concatenate([block.lse for block in results]), expected.lse)


def test_what_the_blocks_raise_is_raised(client, rows):
    def blocks():
        yield from cut(tuple(tensor[:300] for tensor in rows), 100)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        list(client.attend_stream(blocks(), **SPEC))
    assert no_jobs(client)


def test_blocks_of_another_shape_are_refused(client, rows):
    def blocks():
        yield tuple(tensor[:10] for tensor in rows)
        yield tuple(tensor[:10, :1] for tensor in rows)

    with pytest.raises(hilbert_ring.InvalidArgumentError, match="must be like the first block's") as raised:
        list(client.attend_stream(blocks(), **SPEC))
    assert raised.value.field == "q"
    with pytest.raises(hilbert_ring.InvalidArgumentError, match=r"\(q, k, v\)"):
        list(client.attend_stream([rows[0]], **SPEC))


def test_a_stream_that_is_closed_leaves_nothing(client, rows):
    def blocks():
        while True:
            yield from cut(rows, 100)

    with client.attend_stream(blocks(), epoch_tokens=256, job_id="endless", **SPEC) as stream:
        next(stream)
        (job,) = client.jobs()
        assert job.job_id == "endless" and job.stream and job.epochs >= 1
    assert no_jobs(client)
    with pytest.raises(hilbert_ring.CancelledError) as raised:
        for block in client.attend_stream(blocks(), epoch_tokens=256, job_id="endless", **SPEC):
            if block.first_token == 1000:
                client.cancel("endless")
    assert raised.value.reason == "CANCELLED_BY_CALLER"


def test_what_is_not_read_takes_a_fixed_memory():
    """Unread results take a bounded memory, even after fast reading."""
    (port,) = free_ports(1)
    kernel = 16 << 20  # bytes in its sockets, and of a block that is being assembled
    block = tuple(np.zeros((16_384, HEADS, DIM), "f4") for _ in "qkv")
    with hilbert_ring.local(workers=1, http_port=port) as client:
        def sent():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                text = page.read().decode()
            return int(float(re.search(r"^hilbert_ring_sent_bytes_total (\S+)$", text, re.MULTILINE).group(1)))
        before, taken = sent(), 0
        with client.attend_stream(itertools.repeat(block), segments=[64], dilations=[1], epoch_tokens=8192) as stream:
            for result in stream:
                taken += result.out.nbytes
                if taken >= 96 << 20:
                    break
            last = -1
            while last != (now := sent()):
                last = now
                time.sleep(1)
            assert now - before - taken <= STREAM_AHEAD_BYTES + kernel


@pytest.mark.parametrize("asynchronous", [True, False])
def test_asyncio(client, rows, whole, asynchronous):
    async def blocks():
        for block in cut(rows, 100):
            yield block

    async def run():
        async with hilbert_ring.aio.connect(client.server) as near:
            stream = near.attend_stream(blocks() if asynchronous else cut(rows, 100), lse=True,
                                        epoch_tokens=256, **SPEC)
            results = [block async for block in stream]
            return stream.report, results

    report, results = asyncio.run(run())
    assert report.tokens == TOKENS
    np.testing.assert_array_equal(np.concatenate([block.out for block in results]), whole.out)
    np.testing.assert_array_equal(np.concatenate([block.lse for block in results]), whole.lse)


def test_asyncio_errors(client, rows):
    async def broken():
        yield tuple(tensor[:100] for tensor in rows)
        raise KeyError("mine")

    async def run(blocks, **changes):
        async with hilbert_ring.aio.connect(client.server) as near:
            return [block async for block in near.attend_stream(blocks, **{**SPEC, **changes})]

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(run(broken()))
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="multiple of 128"):
        asyncio.run(run(cut(rows, 100), epoch_tokens=100))
    assert asyncio.run(run(iter(()))) == []
    assert no_jobs(client)


# ---------------------------------------------------------------- the command line

def words(client, *flags):
    return ["attend", "--stream", "--server", client.server, *FLAGS, *map(str, flags)]


def attend(client, *flags, **options):
    return program(*words(client, *flags), **options)


def packed(rows):
    """Interleaves the rows of q, k and v by token."""
    return np.concatenate([tensor.reshape(len(tensor), HEADS * DIM) for tensor in rows], axis=1)


def as_rows(path_or_bytes):
    raw = path_or_bytes if isinstance(path_or_bytes, bytes) else path_or_bytes.read_bytes()
    return np.frombuffer(raw, "f4").reshape(-1, HEADS, DIM)


def test_from_stdin_to_stdout(client, rows, whole, tmp_path):
    files = ["--lse", tmp_path / "lse.raw", "--report", tmp_path / "report.json"]
    done = attend(client, "--qkv", "-", "--out", "-", *files, input=packed(rows).tobytes(), text=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(as_rows(done.stdout), whole.out)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "lse.raw", "f4").reshape(TOKENS, HEADS), whole.lse)
    assert '"epochs": 12' in (tmp_path / "report.json").read_text()


def test_from_pipes_that_are_written_in_turn(client, tmp_path):
    """Writes a whole block of one tensor before the next. A block is larger than a pipe's buffer."""
    wide = np.random.default_rng(6).standard_normal((3, 3, 400, 8, 64), dtype="f4")  # 800 KiB a block
    paths = [tmp_path / f"{name}.pipe" for name in "qkv"]
    for path in paths:
        os.mkfifo(path)
    flags = [word for name, path in zip("qkv", paths) for word in (f"--{name}", path)]
    process = subprocess.Popen(
        [find_program("hilbert-ring"), "attend", "--stream", "--server", client.server, "--heads", "8",
         "--head-dim", "64", "--segments", "64", "--dilations", "1", "--epoch", "640", *flags,
         "--out", tmp_path / "out.raw"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def write():
        pipes = [path.open("wb", buffering=0) for path in paths]
        for block in wide:
            for pipe, tensor in zip(pipes, block):
                rest = memoryview(tensor.tobytes())
                while rest:
                    rest = rest[pipe.write(rest):]
        for pipe in pipes:
            pipe.close()

    threading.Thread(target=write, daemon=True).start()
    try:
        _, said = process.communicate(timeout=UNTIL)
    finally:
        process.kill()
    assert process.returncode == 0, said
    q, k, v = wide.transpose(1, 0, 2, 3, 4).reshape(3, -1, 8, 64)
    expected = client.attend(q, k, v, segments=[64], dilations=[1], progress=False)
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "out.raw", "f4").reshape(expected.out.shape), expected.out)


def test_files_that_grow_until_an_interrupt(client, rows, whole, tmp_path):
    paths = [tmp_path / f"{name}.raw" for name in "qkv"]
    out = tmp_path / "out.raw"
    half = TOKENS // 2
    for path, tensor in zip(paths, rows):
        path.write_bytes(tensor[:half].tobytes())
    flags = [word for name, path in zip("qkv", paths) for word in (f"--{name}", path)]
    process = subprocess.Popen([find_program("hilbert-ring"), *words(client, "--follow", *flags, "--out", out)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert until(lambda: out.exists() and out.stat().st_size >= half // 256 * 256 * HEADS * DIM * 4)
    for path, tensor in zip(paths, rows):
        with path.open("ab") as file:
            file.write(tensor[half:].tobytes() + b"a part of a row")
    assert until(lambda: out.stat().st_size >= TOKENS // 256 * 256 * HEADS * DIM * 4)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=UNTIL)
    assert process.returncode == 0, errors
    assert "3,000 tokens in 12 epochs" in said
    np.testing.assert_array_equal(as_rows(out), whole.out)


@pytest.mark.parametrize("change, code, message", [
    (lambda rows: rows[0].tobytes()[:-3], 1, "q.raw: ends 125 bytes behind a row"),
    (lambda rows: rows[0][:-5].tobytes(), 1, "k.raw: has more rows than another input"),
])
def test_files_that_end_apart(client, rows, tmp_path, change, code, message):
    for name, tensor in zip("qkv", rows):
        (tmp_path / f"{name}.raw").write_bytes(tensor.tobytes())
    (tmp_path / "q.raw").write_bytes(change(rows))
    done = attend(client, "--q", "q.raw", "--k", "k.raw", "--v", "v.raw", "--out", "out.raw", cwd=tmp_path)
    assert done.returncode == code and message in done.stderr
    assert no_jobs(client)


@pytest.mark.parametrize("flags, message", [
    (["--q", "q.raw", "--out", "o"], "--stream needs --q, --k and --v, or --qkv"),
    (["--qkv", "-", "--q", "q.raw", "--out", "o"], "--qkv has all of q, k and v"),
    (["--qkv", "q.npy", "--out", "o"], "q.npy: --stream takes raw rows"),
    (["--qkv", "-", "--out", "o.npy"], "o.npy: --stream writes raw rows"),
    (["--qkv", "-", "--out", "-", "--json"], "stdout has what --json prints"),
    (["--qkv", "-", "--out", "o", "--tokens", "5"], "tokens is 5, but a stream"),
    (["--qkv", "-", "--out", "o", "--trace", "t"], "a stream has no trace"),
    (["--qkv", "absent", "--out", "o"], "absent: cannot open"),
])
def test_command_lines_that_are_wrong(client, tmp_path, flags, message):
    done = attend(client, *flags, cwd=tmp_path, input="")
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_output_is_replaced_by_a_stream_that_the_service_takes(client, rows, whole, tmp_path):
    out, old = tmp_path / "out.raw", b"older" * 10_000_000
    out.write_bytes(old)

    def run(rows, epoch="256"):
        line = [epoch if word == "256" else word for word in words(client, "--qkv", "-", "--out", out)]
        return program(*line, input=packed(rows).tobytes(), text=False).returncode
    assert run(rows, epoch="5") == 1    # the service requires a multiple of the segment
    assert out.read_bytes() == old
    assert run(rows) == 0
    np.testing.assert_array_equal(as_rows(out), whole.out)
    assert run([tensor[:0] for tensor in rows]) == 0
    assert out.read_bytes() == b""

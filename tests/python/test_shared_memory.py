"""Arrays in memory that reach a service on this host through scratch files of its data root."""
import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
import warnings
from pathlib import Path

import numpy as np
import pytest

import golden_cases
import hilbert_ring
from client_rig import UNTIL, no_jobs, normal, until
from hilbert_ring import _by_reference, _scratch
from hilbert_ring._connection import run
from hilbert_ring.v1 import attention_pb2 as pb
from test_by_reference import await_root

SHAPE = (300, 4, 16)
PATTERN = {"segments": [128, 300], "dilations": [1, 4], "mixing": "lse", "progress": False}
CASES = golden_cases.FOLDER.parent / "encoder_cases"

pytestmark = pytest.mark.skipif(not _scratch.lies_in_memory("/dev/shm") or not os.access("/dev/shm", os.W_OK),
                                reason="/dev/shm is no file system in memory that can be written to")


@contextlib.contextmanager
def started(**settings):
    """Yields a service whose workers see its data root."""
    service = hilbert_ring.local(workers=2, job_workers=2, **settings)
    with service as client:
        await_root(client, 2)
        yield service, client


@pytest.fixture(scope="module")
def local():
    with started(model_dir=CASES) as (service, _):
        yield service


@pytest.fixture
def client(local, monkeypatch):
    """A client that also shares the memory of small jobs, and keeps no files after them."""
    monkeypatch.setattr(_by_reference, "SHARED_BYTES", 1)
    monkeypatch.setattr(_scratch, "KEPT_BYTES", -1)
    return local._client


def tensors(shape=SHAPE):
    return normal(*shape)


def root_of(service):
    return Path(service._data_root)


def left(service):
    """Returns the names in the root except the service's mark."""
    return [path for path in root_of(service).rglob("*") if not path.name.endswith(".root")]


def bytes_of_rows(service):
    """Returns the bytes that the service has received and sent."""
    with urllib.request.urlopen(f"http://127.0.0.1:{service.ready['http_port']}/metrics") as page:
        text = page.read().decode()
    return [sum(float(value) for value in re.findall(rf"^hilbert_ring_{way}_bytes_total(?:{{.*}})? (\S+)$", text, re.M))
            for way in ("received", "sent")]


def same(result, sent):
    for name in ("out", "lse"):
        mine, other = getattr(result, name), getattr(sent, name)
        assert type(mine) is type(other) and mine.dtype == other.dtype and mine.shape == other.shape
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("name", golden_cases.NAMES[::5])
def test_golden_cases_are_those_that_are_sent(local, client, name):
    case = golden_cases.load(name)
    before = bytes_of_rows(local)
    result = client.attend(case.q, case.k, case.v, progress=False, **case.arguments)
    assert bytes_of_rows(local) == before
    assert result.report.by_reference and left(local) == []
    golden_cases.check(case, "float32", result.out, result.lse)
    sent = client.attend(case.q, case.k, case.v, by_reference="never", progress=False, **case.arguments)
    assert not sent.report.by_reference
    same(result, sent)
    assert type(result.out) is np.ndarray and result.out.flags.writeable and result.out.flags.aligned


def test_whatever_lies_in_memory(client):
    values = tensors()
    sent = client.attend(*values, by_reference="never", **PATTERN)
    strided = np.zeros((300, 4, 32), "f4")
    strided[:, :, ::2] = values[0]
    given = [strided[:, :, ::2], values[1].astype(">f4"), memoryview(values[2])]
    result = client.attend(*given, **PATTERN)
    assert result.report.by_reference
    same(result, sent)
    viewed = client.attend(memoryview(values[0]), *values[1:], **PATTERN)
    assert viewed.report.by_reference and isinstance(viewed.out, memoryview)
    assert np.asarray(viewed.out).tobytes() == sent.out.tobytes()


def test_packs_of_small_jobs(client, tmp_path):
    """Arrays of all kinds share a pack: strided, big-endian, in a file, and with an output of their own."""
    jobs = [tensors((20 + number, 4, 16)) for number in range(5)]
    strided = np.zeros((20, 4, 32), "f4")
    strided[:, :, ::2] = jobs[0][0]
    np.save(tmp_path / "k.npy", jobs[2][1])
    given = [(strided[:, :, ::2], *jobs[0][1:]), tuple(rows.astype(">f4") for rows in jobs[1]),
             (jobs[2][0], np.load(tmp_path / "k.npy", mmap_mode="r"), jobs[2][2]),
             {**dict(zip("qkv", jobs[3])), "out": np.zeros((23, 4, 16), "f4")}, jobs[4]]
    for result, rows in zip(client.attend_many(given, segments=[8]), jobs):
        assert result.report.by_reference and result.report.tokens == len(rows[0])
        assert result.out.flags.writeable and result.out.flags.aligned
        sent = client.attend(*rows, segments=[8], by_reference="never", progress=False)
        np.testing.assert_allclose(result.out, sent.out, atol=1e-5)
        np.testing.assert_allclose(result.lse, sent.lse, atol=1e-5)


def test_tensors_of_torch(client):
    torch = pytest.importorskip("torch")
    values = [torch.from_numpy(x).to(torch.bfloat16) for x in tensors()]
    result = client.attend(*values, **PATTERN)
    sent = client.attend(*values, by_reference="never", **PATTERN)
    assert result.report.by_reference and result.out.dtype == torch.bfloat16
    assert torch.equal(result.out, sent.out) and torch.equal(result.lse, sent.lse)
    result.out.add_(1)  # its own memory


def test_outputs_of_the_callers_own(local, client, tmp_path):
    values = tensors()
    sent = client.attend(*values, by_reference="never", **PATTERN)
    out, lse = np.zeros(SHAPE, "f4"), np.zeros(SHAPE[:2], "f4")
    result = client.attend(*values, out=out, lse=lse, **PATTERN)
    assert result.out is out and result.lse is lse and result.report.by_reference
    same(result, sent)
    for folder in (tmp_path, root_of(local)):  # the workers write the second
        written = client.attend(*values, out=folder / "out.npy", **PATTERN)
        assert written.report.by_reference and written.lse is None
        np.testing.assert_array_equal(np.load(folder / "out.npy"), sent.out)
        (folder / "out.npy").unlink()
    assert left(local) == [] and list(tmp_path.iterdir()) == []


def test_files_of_the_root_are_named_and_others_are_sent(local, client, tmp_path):
    values = tensors()
    sent = client.attend(*values, by_reference="never", **PATTERN)
    np.save(root_of(local) / "q.npy", values[0])
    before = bytes_of_rows(local)
    same(client.attend(root_of(local) / "q.npy", *values[1:], **PATTERN), sent)
    assert bytes_of_rows(local) == before
    assert [path.name for path in left(local)] == ["q.npy"]
    (root_of(local) / "q.npy").unlink()
    np.save(tmp_path / "q.npy", values[0])
    result = client.attend(tmp_path / "q.npy", *values[1:], **PATTERN)
    assert not result.report.by_reference and left(local) == []


def test_results_are_memory_of_their_own(client):
    """Writes to the outputs of two jobs, and uses them as inputs."""
    values = tensors()
    first = client.attend(*values, **PATTERN)
    second = client.attend(*values, **PATTERN)
    kept = second.out.copy()
    first.out[:] = 7
    np.testing.assert_array_equal(second.out, kept)
    again = client.attend(first.out, *values[1:], **PATTERN)
    assert again.report.by_reference
    same(again, client.attend(np.full(SHAPE, 7, "f4"), *values[1:], by_reference="never", **PATTERN))


def test_asyncio(local, client):
    values = tensors()

    async def run():
        async with hilbert_ring.aio.connect(client.server) as connected:
            return await asyncio.gather(*(connected.attend(*values, **PATTERN) for _ in range(4)))

    sent = client.attend(*values, by_reference="never", **PATTERN)
    for result in asyncio.run(run()):
        assert result.report.by_reference
        same(result, sent)
    assert left(local) == []


def test_small_jobs_are_sent(local):
    assert not local._client.attend(*tensors(), **PATTERN).report.by_reference
    rows = _by_reference.SHARED_BYTES // (4 * 512 * 4 + 8 * 4)
    for tokens, handed in ((rows, False), (rows + 1, True)):
        values = tensors((tokens, 8, 64))
        result = local._client.attend(*values, segments=[64], progress=False)
        assert result.report.by_reference == handed


def test_a_job_that_fails_leaves_nothing(local, client):
    values = tensors()
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="segments"):
        client.attend(*values, segments=[0], progress=False)

    def stop(progress):
        if progress.admitted:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.attend(*values, **{**PATTERN, "progress": stop})
    assert until(lambda: not left(local))

    class Unreadable(np.ndarray):
        def __getitem__(self, _):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.attend(values[0].view(Unreadable), *values[1:], **PATTERN)
    assert until(lambda: not left(local))


def test_a_job_that_is_cancelled_leaves_nothing(local, client):
    values = tensors((60_000, 4, 16))
    before = client.attend(*tensors(), by_reference="never", **PATTERN)

    async def run():
        async with hilbert_ring.aio.connect(client.server) as connected:
            for seconds in (0, 0.001, 0.02, 0.05, 0.2):
                job = asyncio.ensure_future(connected.attend(*values, segments=[60_000], progress=False))
                await asyncio.sleep(seconds)
                job.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await job

    asyncio.run(run())
    assert until(lambda: not left(local))
    same(client.attend(*tensors(), **PATTERN), before)


def test_what_a_killed_client_leaves_is_removed_by_the_next(local, client):
    script = f"""
import numpy, os, signal, hilbert_ring
from hilbert_ring import _by_reference
_by_reference.SHARED_BYTES = 1
def die(progress):
    if progress.admitted:
        os.kill(os.getpid(), signal.SIGKILL)
values = numpy.ones((60_000, 4, 16), "f4")
hilbert_ring.connect({client.server!r}).attend(values, values, values, segments=[60_000], progress=die)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=UNTIL, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == -signal.SIGKILL
    assert {"q", "k", "v"} <= {path.name for path in left(local)}
    assert no_jobs(client)
    result = client.attend(*tensors(), **PATTERN)
    assert result.report.by_reference and left(local) == []


def test_the_next_job_writes_over_files_that_are_kept_for_a_moment(local, client, monkeypatch):
    monkeypatch.setattr(_scratch, "KEPT_BYTES", 1 << 20)
    monkeypatch.setattr(_scratch, "KEEP_SECONDS", 2)
    values = tensors()
    client.attend(*values, **PATTERN)
    kept = {path.name: path.stat().st_ino for path in left(local)}
    fewer = [x[:200] + 1 for x in values]
    result = client.attend(*fewer, **PATTERN)
    assert result.report.by_reference
    same(result, client.attend(*fewer, by_reference="never", **PATTERN))
    assert {"q", "k", "v"} < kept.keys() and kept == {path.name: path.stat().st_ino for path in left(local)}
    assert until(lambda: not left(local))


def test_outputs_of_the_last_job_are_not_in_the_next(client):
    values = tensors((32_768, 4, 32))  # a shard that a worker keeps
    client.attend(*values, segments=[64], progress=False)
    sparse = {"segments": [64], "dilations": [4], "progress": False}
    result = client.attend(*values, **sparse)
    assert result.report.by_reference and not result.out[1].all()
    same(result, client.attend(*values, by_reference="never", **sparse))


def test_a_program_that_ends_removes_kept_files(local, client):
    script = f"""
import numpy, hilbert_ring
from hilbert_ring import _by_reference, _scratch
_by_reference.SHARED_BYTES, _scratch.KEEP_SECONDS = 1, 60
values = numpy.ones((64, 4, 16), "f4")
hilbert_ring.connect({client.server!r}).attend(values, values, values, segments=[64])
assert _scratch._kept
"""
    subprocess.run([sys.executable, "-c", script], timeout=UNTIL, check=True,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert left(local) == []


def test_files_of_a_client_that_lives_stay(local, client):
    values = tensors()
    seen = []

    def another(progress):
        if progress.admitted and not seen:
            seen.append(sorted(path.name for path in left(local)))
            client.attend(*values, **PATTERN)

    result = client.attend(*values, **{**PATTERN, "progress": another})
    assert {"q", "k", "v"} <= set(seen[0]) and result.report.by_reference
    same(result, client.attend(*values, by_reference="never", **PATTERN))
    assert left(local) == []


def test_scratch_is_for_its_user_alone(local, client):
    modes = []

    def look(progress):
        if progress.admitted and not modes:
            modes.extend((path.is_dir(), path.stat().st_mode & 0o777) for path in left(local)
                         if path.is_dir() or path.name in "qkv")  # the service makes the outputs

    client.attend(*tensors(), **{**PATTERN, "progress": look})
    assert sorted(set(modes)) == [(False, 0o600), (True, 0o700)]


def test_a_folder_of_another_user_or_a_link_is_not_used(local, client, tmp_path):
    values = tensors()
    trap = root_of(local) / f"hilbert-ring-scratch-{os.geteuid()}"
    trap.symlink_to(tmp_path)
    with pytest.warns(RuntimeWarning, match="not shared in memory"):
        assert not client.attend(*values, **PATTERN).report.by_reference
    assert list(tmp_path.iterdir()) == []
    trap.unlink()
    if os.geteuid() == 0:
        trap.mkdir()
        os.chown(trap, 12345, -1)
        assert not client.attend(*values, **PATTERN).report.by_reference
        trap.rmdir()


@pytest.mark.parametrize("where", ["no room", "no memory", "write", "output"])
def test_a_full_disk_in_memory_falls_back_to_sending(local, client, monkeypatch, where):
    values = tensors()
    sent = client.attend(*values, by_reference="never", **PATTERN)
    if where == "no room":
        full = os.statvfs_result((4096, 4096, 1000, 1, 1, 10, 10, 10, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda _: full)
    elif where == "no memory":
        monkeypatch.setattr(_scratch, "_memory_available", lambda: 1000)
    elif where == "write":
        def fail(*_):
            raise OSError(28, "No space left on device")
        monkeypatch.setattr(os, "write", fail)
    else:
        def refuse(*_, **__):
            raise hilbert_ring.errors.error_class("RESOURCE_EXHAUSTED")("out: full", reason="FILE_NO_SPACE")
        calls, send = client._calls, client._calls._run
        monkeypatch.setattr(calls, "_run", lambda call, *rest: refuse() if call.named else send(call, *rest))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result = client.attend(*values, **PATTERN)
    assert len(warned) == 1 and "tensors are sent" in str(warned[0].message)
    assert "\n" not in str(warned[0].message)
    assert not result.report.by_reference and left(local) == []
    same(result, sent)


def test_a_root_on_a_disk_is_not_for_scratch(tmp_path, monkeypatch):
    if _scratch.lies_in_memory(str(tmp_path)):
        pytest.skip("the tests' folder lies in memory")
    monkeypatch.setattr(_by_reference, "SHARED_BYTES", 1)
    with started(data_root=tmp_path) as (_, client):
        assert not client.attend(*tensors(), **PATTERN).report.by_reference


def test_a_service_of_ones_own_removes_its_root():
    with started() as (service, _):
        root = root_of(service)
        assert root.parent == Path("/dev/shm") and root.stat().st_mode & 0o777 == 0o700
    assert not root.exists()
    with hilbert_ring.local(workers=1, data_root="") as none:
        with pytest.raises(hilbert_ring.FailedPreconditionError):
            run(none._calls._connection.short("GetDataRoot", pb.GetDataRootRequest(), pb.GetDataRootResponse))

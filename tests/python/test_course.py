"""Jobs that are cancelled, late, refused or retried, and rows that are sent again."""
import asyncio
import functools
import inspect
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import hilbert_ring
from client_rig import NO_SERVICE, UNTIL, ByAsyncio, free_ports, no_jobs, normal, until

LONG = {"segments": [400_000], "progress": False}  # would take many minutes


def tensors(tokens):
    return normal(tokens, 1, 16)


def long_tensors():
    return normal(400_000, 1, 8)


def workers_of(coordinator):
    """Returns the process ids of a coordinator's children."""
    children = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == coordinator:
            children.append(int(entry))
    return sorted(children)


class Once:
    """A progress function that acts once, when `reached` is true."""

    def __init__(self, reached, act):
        self.reached, self.act = reached, act
        self.seen = []
        self.done = threading.Event()

    def __call__(self, progress):
        self.seen.append(progress)
        if not self.done.is_set() and self.reached(progress):
            self.done.set()
            self.act()


def test_a_job_that_another_client_cancels(client):
    cancel = Once(lambda progress: progress.admitted, lambda: client.cancel("doomed"))
    with pytest.raises(hilbert_ring.CancelledError) as raised:
        client.attend(*long_tensors(), job_id="doomed", **{**LONG, "progress": cancel})
    assert raised.value.reason == "CANCELLED_BY_CALLER" and raised.value.attempts == 1
    assert no_jobs(client)


def test_ctrl_c_ends_the_job(client):
    code = (f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
            "import hilbert_ring, test_course\n"
            f"client = hilbert_ring.connect({client.server!r})\n"
            "show = lambda progress: progress.admitted and print('admitted', flush=True)\n"
            "options = {**test_course.LONG, 'progress': show}\n"
            "client.attend(*test_course.long_tensors(), **options)\n")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "admitted\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=UNTIL)
    assert "KeyboardInterrupt" in said
    assert no_jobs(client)


def test_a_task_that_is_cancelled_ends_its_job(client):
    async def run():
        async with hilbert_ring.aio.connect(client.server) as aio_client:
            admitted = asyncio.Event()
            task = asyncio.ensure_future(aio_client.attend(
                *long_tensors(), **{**LONG, "progress": lambda progress: (
                    progress.admitted and admitted.set())}))
            await asyncio.wait_for(admitted.wait(), UNTIL)
            assert len(await aio_client.jobs()) == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    asyncio.run(run())
    assert no_jobs(client)


def test_a_deadline(client):
    for made in (client, ByAsyncio(client.server)):
        with pytest.raises(hilbert_ring.DeadlineExceededError, match="deadline of 2 s") as raised:
            made.attend(*long_tensors(), deadline=2, **LONG)
        assert isinstance(raised.value, TimeoutError)
    assert no_jobs(client)


def small_stream(client):
    def blocks():
        while True:
            yield tensors(64)

    return client.attend_stream(blocks(), segments=[32], epoch_tokens=32, job_id="closed")


# Calls during which the client is closed. The first runs on a service, the others wait for a missing service.
CALLS = [lambda client: client.attend(*long_tensors(), by_reference="never", job_id="closed", **LONG),
         lambda client: client.attend(*tensors(10), segments=[10], progress=False),
         lambda client: client.encode(tensors(10)[0][:, 0], model="m", progress=False)]
ALL_CALLS = [*CALLS, lambda client: client.jobs(), lambda client: client.status(),
             lambda client: client.cancel("any"), lambda client: client.models(),
             lambda client: client.plan(tokens=10, heads=1, head_dim=8, segments=[10])]


def await_call(server, find):
    """Waits until a call runs. find: on `server`, else it has no service."""
    if find:
        with hilbert_ring.connect(server) as looker:
            assert until(lambda: [job.job_id for job in looker.jobs()] == ["closed"])
    else:
        time.sleep(1)  # some of its attempts have failed


def quickly_closed(error, since):
    """Checks that a call ended at once, without waiting for an outage's limit or a deadline."""
    assert type(error) is hilbert_ring.CancelledError and "the client was closed" in str(error), repr(error)
    assert error.reason == "CANCELLED"
    assert time.monotonic() - since < 10


@pytest.mark.parametrize("call, find, further", zip(CALLS, (True, False, False), ({}, {}, {"deadline": UNTIL})))
def test_a_client_that_is_closed_ends_its_calls(client, capfd, call, find, further):
    server = client.server if find else NO_SERVICE
    closing, ends = hilbert_ring.connect(server), []
    for name in ("attend", "encode"):
        setattr(closing, name, functools.partial(getattr(closing, name), **further))

    def run():
        try:
            call(closing)
        except Exception as error:
            ends.append(error)

    caller = threading.Thread(target=run)
    caller.start()
    await_call(server, find)
    since = time.monotonic()
    closing.close()
    caller.join(UNTIL)
    quickly_closed(ends[0], since)

    async def run_by_asyncio():
        closing = hilbert_ring.aio.connect(server)
        for name in ("attend", "encode"):
            setattr(closing, name, functools.partial(getattr(closing, name), **further))
        task = asyncio.ensure_future(call(closing))
        await asyncio.to_thread(await_call, server, find)
        since = time.monotonic()
        await closing.close()
        with pytest.raises(hilbert_ring.CancelledError) as raised:
            await task
        quickly_closed(raised.value, since)

    assert no_jobs(client)
    asyncio.run(run_by_asyncio())
    assert no_jobs(client)
    assert "Traceback" not in capfd.readouterr().err  # gRPC's threads print there


def looped(connect, server):
    """Returns a client, and a function that awaits what its calls return. Blocking calls return no coroutines."""
    loop = asyncio.new_event_loop()
    return connect(server), lambda made: loop.run_until_complete(made) if inspect.isawaitable(made) else made


def following(stream):
    return stream.__anext__() if hasattr(stream, "__anext__") else next(stream)


@pytest.mark.parametrize("connect", [hilbert_ring.connect, hilbert_ring.aio.connect])
def test_a_client_that_is_closed_ends_its_streams(client, connect):
    closing, ended = looped(connect, client.server)
    stream = small_stream(closing)
    ended(following(stream))
    ended(closing.close())
    since = time.monotonic()
    with pytest.raises(hilbert_ring.CancelledError) as raised:
        while True:
            ended(following(stream))
    quickly_closed(raised.value, since)
    assert no_jobs(client)


@pytest.mark.parametrize("connect", [hilbert_ring.connect, hilbert_ring.aio.connect])
def test_a_client_that_was_closed_makes_no_calls(client, connect):
    closed, ended = looped(connect, client.server)
    ended(closed.close())
    ended(closed.close())
    since = time.monotonic()
    for call in [*ALL_CALLS, lambda closed: following(small_stream(closed))]:
        with pytest.raises(hilbert_ring.CancelledError) as raised:
            ended(call(closed))
        quickly_closed(raised.value, since)
    for error in ended(closed.attend_many([tensors(10)] * 2, segments=[10])):  # errors are results of that call
        quickly_closed(error, since)


def test_a_client_of_asyncio_in_a_second_loop_is_refused(client):
    ours = hilbert_ring.aio.connect(client.server)  # bound to no loop yet

    async def run(call):
        return await call(ours)

    asyncio.run(run(lambda ours: ours.status()))
    for call in [*ALL_CALLS, lambda ours: small_stream(ours).__anext__(),
                 lambda ours: ours.attend_many([tensors(10)], segments=[10])]:
        with pytest.raises(RuntimeError, match="used in a second event loop, must be used in that of its first call"):
            asyncio.run(run(call))
    asyncio.run(ours.close())
    with pytest.raises(hilbert_ring.CancelledError):
        asyncio.run(run(lambda ours: ours.status()))


def test_a_missing_service():
    with hilbert_ring.connect(NO_SERVICE) as client:
        for made in (client, ByAsyncio(NO_SERVICE)):
            with pytest.raises(hilbert_ring.UnavailableError, match="away for its limit of 1 s"):
                made.attend(*tensors(10), segments=[10], outage_timeout=1, progress=False)
        with pytest.raises(hilbert_ring.UnavailableError):
            client.attend(*tensors(10), segments=[10], max_attempts=1, progress=False)
        with pytest.raises(hilbert_ring.UnavailableError):
            client.status()


JOB = {"segments": [2000, 20_000], "dilations": [1, 2], "mixing": "lse", "chunk_bytes": 16 << 10}


def close(result, expected):
    np.testing.assert_allclose(result.out, expected.out, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.lse, expected.lse, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def undisturbed(client):
    return client.attend(*tensors(20_000), progress=False, **JOB)


@pytest.mark.parametrize("by_asyncio", [False, True])
def test_a_service_that_is_killed_and_started_again(undisturbed, by_asyncio):
    (port,) = free_ports(1)
    first = hilbert_ring.local(workers=2, grpc_port=port)
    second = hilbert_ring.local(workers=1, grpc_port=port)
    killed = Once(lambda progress: progress.bytes_sent > 100_000,
                  lambda: os.kill(first.ready["pid"], signal.SIGKILL))
    results = []

    made = (ByAsyncio if by_asyncio else hilbert_ring.connect)(f"127.0.0.1:{port}")

    def attend():
        results.append(made.attend(*tensors(20_000), progress=killed, deadline=UNTIL, **JOB))

    with first:
        caller = threading.Thread(target=attend)
        caller.start()
        assert killed.done.wait(UNTIL)
    with second:
        caller.join(UNTIL)
    close(results[0], undisturbed)
    assert killed.seen[-1].attempt >= 1
    assert isinstance(killed.seen[-1].last_failure, hilbert_ring.UnavailableError)
    assert len({progress.job_id for progress in killed.seen}) == 1


@pytest.mark.parametrize("share, ordering, by_asyncio", [
    (0.05, None, False), (0.9, hilbert_ring.Hilbert(coords=np.argwhere(np.ones((100, 200)))), True)])
def test_rows_that_died_with_a_worker_are_sent_again(share, ordering, by_asyncio):
    service = hilbert_ring.local(workers=2, job_workers=2, share_memory=False, copy_memory=0)
    arguments = {**JOB, "ordering": ordering, "deadline": UNTIL}
    with service as client:
        expected = client.attend(*tensors(20_000), progress=False, **arguments)
        lost = Once(lambda progress: progress.bytes_sent >= share * progress.bytes_to_send,
                    lambda: os.kill(workers_of(service.ready["pid"])[1], signal.SIGKILL))
        made = ByAsyncio(client.server) if by_asyncio else client
        result = made.attend(*tensors(20_000), progress=lost, **arguments)
    close(result, expected)
    assert result.report.retries == 1
    assert {progress.attempt for progress in lost.seen} == {0}  # within the attempt
    assert lost.seen[-1].bytes_to_send > lost.seen[0].bytes_to_send
    assert lost.seen[-1].bytes_sent >= lost.seen[0].bytes_to_send


def test_a_full_queue_is_waited_for(monkeypatch):
    waits = []

    async def pause(_, seconds):  # the retry-after may be a minute, so the test notes it and waits less
        waits.append(seconds)
        time.sleep(min(seconds, 0.2))

    monkeypatch.setattr(hilbert_ring._connection.Connection, "pause", pause)
    with hilbert_ring.local(workers=1, max_queue=1) as client:
        running = threading.Event()
        ends = []

        def block(job_id, reached):
            def attend():
                try:
                    client.attend(*long_tensors(), job_id=job_id,
                                  **{**LONG, "progress": lambda progress: reached(progress)})
                except hilbert_ring.CancelledError as error:
                    ends.append(error.reason)
            thread = threading.Thread(target=attend)
            thread.start()
            return thread

        threads = [block("runs", lambda progress: progress.admitted and running.set())]
        assert running.wait(UNTIL)
        threads.append(block("waits", lambda progress: None))
        assert until(lambda: len(client.jobs()) == 2)
        with pytest.raises(hilbert_ring.ResourceExhaustedError) as raised:
            client.attend(*long_tensors(), max_attempts=1, **LONG)
        assert raised.value.reason == "QUEUE_FULL" and raised.value.retry_after > 0

        def tell(progress):
            seen.append(progress)
            if progress.attempt == 1 and not progress.admitted and len(client.jobs()) == 2:
                client.cancel("waits")
                client.cancel("runs")
            if progress.admitted:
                client.cancel("comes-later")

        seen = []
        with pytest.raises(hilbert_ring.CancelledError):
            client.attend(*long_tensors(), job_id="comes-later", deadline=UNTIL,
                          **{**LONG, "progress": tell})
        assert seen[-1].admitted and seen[-1].attempt >= 1
        assert seen[-1].last_failure.reason == "QUEUE_FULL"
        failures = {progress.attempt: progress for progress in seen if progress.attempt > 0}
        for progress in failures.values():
            retry_after = progress.last_failure.retry_after
            assert retry_after <= progress.wait <= 1.25 * retry_after and progress.wait in waits
        for thread in threads:
            thread.join(UNTIL)
        assert ends == ["CANCELLED_BY_CALLER"] * 2

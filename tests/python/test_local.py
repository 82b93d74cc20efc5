"""Starts and ends local services (hilbert_ring.local)."""
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hilbert_ring
from client_rig import until


def gone(pid):
    def ended():
        try:
            with open(f"/proc/{pid}/stat") as stat:
                return stat.read().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True
    return until(ended)


def test_a_machine_with_ipv6_alone():
    alone = ["unshare", "--map-root-user", "--net", "sh", "-c",
             'ip link set lo up && ip address delete 127.0.0.1/8 dev lo && exec "$@"', "sh"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network of one's own can be made")
    code = """
import numpy as np
import hilbert_ring
service = hilbert_ring.local(workers=2)
with service as client:
    rows = np.ones((64, 2, 16), "f4")
    assert client.attend(rows, rows, rows, segments=[64]).out.all()
    assert client.server.startswith("[::1]:"), client.server
    assert all(worker.address.startswith("[::1]:") for worker in client.status().workers)
    assert "gRPC on [::1]:" in service.log() and "HTTP on [::1]:" in service.log()
"""
    done = subprocess.run([*alone, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_ends_with_its_block():
    service = hilbert_ring.local(workers=1, memory_limit="64MiB", share_memory=False)
    with service as client:
        status = client.status()
        pid = service.ready["pid"]
        assert status.ready and len(status.workers) == 1
        assert status.workers[0].memory_limit_bytes == 64 << 20
        assert client.server.startswith("127.0.0.1:") and client.jobs() == []
        assert "ready" in service.log()
    assert gone(pid)
    assert service.log() == ""


@contextlib.contextmanager
def program(rest, then="", **more):
    """Starts a program that starts a service and does not stop it. Returns also the coordinator's pid and data root."""
    code = ("import hilbert_ring, os, time\n"
            "service = hilbert_ring.local(workers=1)\n"
            f"client = service.start()\n{then}\n"
            f"print(service.ready['pid'], service._data_root, flush=True)\n{rest}\n")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True,
                          **more) as process:
        try:
            pid, data_root = process.stdout.readline().split()
            yield process, int(pid), Path(data_root)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGKILL])
def test_a_service_that_is_not_stopped_leaves_no_folder(tmp_path, end):
    def left():
        return [*tmp_path.iterdir(), *([data_root] if data_root.exists() else [])]

    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with program("time.sleep(600)" if end else "", env=environment) as (process, _, data_root):
        if end:
            assert left()
            process.send_signal(end)
        process.wait()
        assert until(lambda: not left()) if end else not left()


def test_a_process_that_was_forked_leaves_the_service_alone():
    service = hilbert_ring.local(workers=1)
    with service as client:
        child = os.fork()
        if child == 0:
            try:
                service.stop()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert client.status().ready


def test_a_wrong_setting_is_an_error():
    with pytest.raises(hilbert_ring.UnavailableError, match="no-such-setting") as caught:
        with hilbert_ring.local(no_such_setting=1):
            pass
    assert "the service ended with code 2:" in str(caught.value)
    assert "Fatal" not in str(caught.value)


def test_programs_that_are_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("HILBERT_RING_BIN_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        hilbert_ring.local().start()
    monkeypatch.delenv("HILBERT_RING_BIN_DIR")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="HILBERT_RING_BIN_DIR"):
        hilbert_ring.local().start()

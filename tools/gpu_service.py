"""Runs jobs on a service with workers on one GPU. It is a step of tools/gpu_check.py.

    gpu_service.py FOLDER_OF_PROGRAMS DEVICE            two workers: a job in float32, verified
    gpu_service.py FOLDER_OF_PROGRAMS DEVICE --phases   one worker: the reports' pattern in bfloat16, sent and by path

The table of --phases has a row for each job's second run, whose memory was used before. It prints a row as soon as it is
known.
"""
import array
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

SHAPE = {"heads": 8, "kv_heads": 8, "head_dim": 64, "value_dim": 64}
TWO_WORKERS = {**SHAPE, "tokens": 65536, "dtype": "float32", "segments": [2048, 65536], "dilations": [1, 16],
               "mixing": "lse", "ordering": {"curve": "hilbert", "scope": "qkv", "grid": [256, 256]}}
REPORTS = {**SHAPE, "dtype": "bfloat16", "segments": [2048, 4096, 8192], "dilations": [1, 2, 4]}
TOKENS = (65_536, 425_984, 4_194_304)
PHASES = ("queue", "receive", "compute", "send", "total")
VALUES = 262_139
START_SECONDS = 40


def write_inputs(folder, spec):
    """Writes tensors without NumPy. Each repeats the same random numbers from a different start."""
    source = random.Random(1)
    stored = array.array("f", [source.gauss(0, 1) for _ in range(VALUES)]).tobytes()
    descr = "<f4"
    if spec["dtype"] == "bfloat16":
        stored, descr = b"".join(stored[at + 2:at + 4] for at in range(0, len(stored), 4)), "|V2"
    (folder / "job.json").write_text(json.dumps(spec))
    shape = (spec["tokens"], spec["heads"], spec["head_dim"])
    size = int(descr[-1]) * shape[0] * shape[1] * shape[2]
    text = repr({"descr": descr, "fortran_order": False, "shape": shape})
    text += " " * (-(len(text) + 11) % 64) + "\n"
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    for tensor, name in enumerate("qkv"):
        first = 4 * 7919 * tensor
        turned = stored[first:] + stored[:first]
        with open(folder / f"{name}.npy", "wb") as file:
            file.write(header)
            for written in range(0, size, len(turned)):
                file.write(turned[:size - written])


def await_port(ready, coordinator):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and coordinator.poll() is None:
        try:
            return json.loads(ready.read_text())["grpc_port"]
        except (OSError, ValueError, KeyError):
            time.sleep(0.05)
    sys.exit("the service did not get ready")


@contextmanager
def service(programs, folder, device, workers):
    """Yields the first words of a client's command."""
    coordinator = subprocess.Popen([
        programs / "hilbert-ring-coordinator", "--grpc-port=0", "--http-port=0", "--membership-port=0",
        f"--spawn-workers={workers}", f"--job-workers={workers}", f"--device={device}", f"--data-root={folder}",
        f"--ready-file={folder}/ready.json"])
    try:
        port = await_port(folder / "ready.json", coordinator)
        yield [programs / "hilbert-ring", f"--server=127.0.0.1:{port}"]
    finally:
        coordinator.terminate()
        coordinator.wait(20)


def report_of(client, folder, *words):
    """Runs the job of the folder, and returns its report."""
    files = ["--spec=job.json", "--q=q.npy", "--k=k.npy", "--v=v.npy", "--out=out.npy", "--lse=lse.npy"]
    subprocess.run([*client, "attend", *files, "--report=report.json", *words], cwd=folder, check=True)
    report = json.loads((folder / "report.json").read_text())
    for worker in report["workers"]:
        if not worker["kernel"].startswith(sys.argv[2].partition(":")[0]):
            sys.exit(f"a worker used {worker['kernel']}")
    return report, files


def two_workers(programs, device, folder):
    write_inputs(folder, TWO_WORKERS)
    with service(programs, folder, device, 2) as client:
        report, files = report_of(client, folder)
        subprocess.run([*client, "verify", *files], cwd=folder, check=True)
    print("| worker | kernel | transport |\n| --- | --- | --- |")
    for worker in report["workers"]:
        print(f"| {worker['device']} | {worker['kernel']} | {worker['transport']} |")


def phases(programs, device, folder):
    print("| tokens | way | rows came from | tokens/s | " + " | ".join(f"{phase} s" for phase in PHASES)
          + " |\n| ---: | --- | --- | ---: |" + " ---: |" * len(PHASES), flush=True)
    with service(programs, folder, device, 1) as client:
        for tokens in TOKENS:
            write_inputs(folder, {**REPORTS, "tokens": tokens})
            for way in ("never", "always"):
                for _ in range(2):
                    report, _ = report_of(client, folder, f"--by-reference={way}")
                seconds = " | ".join(f"{report.get(phase + '_seconds', 0):.3f}" for phase in PHASES)
                print(f"| {tokens:,} | {'sent' if way == 'never' else 'by path'} | "
                      f"{report['workers'][0]['rows_from']} | {report['tokens_per_second']:,.0f} | {seconds} |", flush=True)


def in_memory(size):
    """Returns a folder for temporary files, in memory if it has the room; None: the system's."""
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > size else None


def main():
    programs, device = Path(sys.argv[1]), sys.argv[2]
    by_phases = "--phases" in sys.argv
    row_bytes = 4 * 2 * SHAPE["heads"] * SHAPE["head_dim"]  # q, k, v and out
    with tempfile.TemporaryDirectory(dir=in_memory(TOKENS[-1] * row_bytes * 5 // 4) if by_phases else None) as name:
        (phases if by_phases else two_workers)(programs, device, Path(name))


if __name__ == "__main__":
    main()

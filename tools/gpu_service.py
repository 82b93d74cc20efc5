"""Runs jobs on a service with two workers on one GPU. It is a step of tools/gpu_check.py.

    gpu_service.py FOLDER_OF_PROGRAMS DEVICE
"""
import array
import json
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPEC = {"tokens": 65536, "heads": 8, "kv_heads": 8, "head_dim": 64, "value_dim": 64, "dtype": "float32",
        "segments": [2048, 65536], "dilations": [1, 16], "mixing": "lse",
        "ordering": {"curve": "hilbert", "scope": "qkv", "grid": [256, 256]}}
VALUES = 262_139
START_SECONDS = 40


def write_inputs(folder):
    """Writes tensors without NumPy. Each repeats the same random numbers from a different start."""
    source = random.Random(1)
    stored = array.array("f", [source.gauss(0, 1) for _ in range(VALUES)]).tobytes()
    (folder / "job.json").write_text(json.dumps(SPEC))
    shape = (SPEC["tokens"], SPEC["heads"], SPEC["head_dim"])
    size = 4 * shape[0] * shape[1] * shape[2]
    text = repr({"descr": "<f4", "fortran_order": False, "shape": shape})
    text += " " * (-(len(text) + 11) % 64) + "\n"
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()
    for tensor, name in enumerate("qkv"):
        first = 4 * 7919 * tensor
        turned = stored[first:] + stored[:first]
        (folder / f"{name}.npy").write_bytes(header + (turned * (size // len(turned) + 1))[:size])


def await_port(ready, coordinator):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and coordinator.poll() is None:
        try:
            return json.loads(ready.read_text())["grpc_port"]
        except (OSError, ValueError, KeyError):
            time.sleep(0.05)
    sys.exit("the service did not get ready")


def main():
    programs, device = Path(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        coordinator = subprocess.Popen([
            programs / "hilbert-ring-coordinator", "--grpc-port=0", "--http-port=0", "--membership-port=0",
            "--spawn-workers=2", "--job-workers=2", f"--device={device}", f"--ready-file={folder}/ready.json"])
        try:
            port = await_port(folder / "ready.json", coordinator)
            client = [programs / "hilbert-ring", f"--server=127.0.0.1:{port}"]
            files = ["--spec=job.json", "--q=q.npy", "--k=k.npy", "--v=v.npy", "--out=out.npy", "--lse=lse.npy"]
            for command in (["attend", *files, "--report=report.json"], ["verify", *files]):
                subprocess.run([*client, *command], cwd=folder, check=True)
            print("| worker | kernel | transport |\n| --- | --- | --- |")
            for worker in json.loads((folder / "report.json").read_text())["workers"]:
                print(f"| {worker['device']} | {worker['kernel']} | {worker['transport']} |")
                if not worker["kernel"].startswith(device.partition(":")[0]):
                    sys.exit(f"a worker used {worker['kernel']}")
        finally:
            coordinator.terminate()
            coordinator.wait(20)


if __name__ == "__main__":
    main()

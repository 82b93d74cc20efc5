"""A job through the service, its workers on a device: a step of tools/gpu_check.py."""
import array
import json
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gpu_process
from gpu_report import fenced

SPEC = {"tokens": 65536, "heads": 8, "kv_heads": 8, "head_dim": 64, "value_dim": 64,
        "segments": [2048, 65536], "dilations": [1, 16], "mixing": "lse",
        "ordering": {"curve": "hilbert", "scope": "qkv", "grid": [256, 256]}}
VALUES = 262_139
NEEDS = ["hilbert-ring-coordinator", "hilbert-ring-worker", "hilbert-ring"]


def npy_header(dtype, shape):
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape})
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def write_inputs(folder, dtype):
    """Without NumPy, which a machine with a GPU need not have: the same random numbers over and over,
    in each tensor from another one on."""
    source = random.Random(1)
    numbers = array.array("f", [source.gauss(0, 1) for _ in range(VALUES)])
    if sys.byteorder == "big":
        numbers.byteswap()
    stored, element = numbers.tobytes(), 4
    if dtype == "bfloat16":  # raw, truncated
        halves, element = bytearray(len(stored) // 2), 2
        halves[0::2], halves[1::2] = stored[2::4], stored[3::4]
        stored = bytes(halves)
    (folder / "job.json").write_text(json.dumps({**SPEC, "dtype": dtype}))
    shape = (SPEC["tokens"], SPEC["heads"], SPEC["head_dim"])
    size = shape[0] * shape[1] * shape[2] * element
    for tensor, name in enumerate("qkv"):
        first = 7919 * tensor * element
        turned = stored[first:] + stored[:first]
        with open(folder / f"{name}.npy", "wb") as file:
            file.write(npy_header("<u2" if element == 2 else "<f4", shape))
            file.write((turned * (size // len(turned) + 1))[:size])


def await_port(ready, coordinator, end):
    while time.monotonic() < end and coordinator.poll() is None:
        try:
            return json.loads(ready.read_text())["grpc_port"]
        except (OSError, ValueError, KeyError):
            time.sleep(0.05)
    return None


def job(client, folder, dtype, end):
    """(whether it was right, lines for the report)"""
    write_inputs(folder, dtype)
    files = ["--spec", "job.json", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy"]
    outputs = ["--out", "out.npy", "--lse", "lse.npy"]
    for command in (["attend", *files, *outputs, "--report", "report.json"],
                    ["verify", *files, *outputs]):
        done = subprocess.run([*client, *command], cwd=folder, text=True, capture_output=True,
                              timeout=max(5, end - time.monotonic()), check=False)
        if done.returncode != 0:
            return False, [f"- {dtype}: {command[0]} failed:", "", fenced(done.stdout + done.stderr), ""]
    report = json.loads((folder / "report.json").read_text())
    lines = [f"- {dtype}: {SPEC['tokens']} tokens, "
             f"{float(report['tokens_per_second']):,.0f} tokens/s, compute "
             f"{report['compute_seconds']:.4f} s; right in a sample of rows"]
    for worker in report["workers"]:
        if not worker["kernel"].startswith("cuda"):
            return False, [f"- {dtype}: a worker used {worker['kernel']} of {worker['device']}"]
        lines.append(f"  - {worker['device']}, {worker['kernel']}, ring over "
                     f"{worker['transport']}, {int(worker.get('bytes_received', 0)):,} bytes "
                     f"received, peak {int(worker['memory_peak_bytes']):,} bytes of "
                     f"{int(worker['memory_predicted_bytes']):,} predicted")
    return True, lines


def run(programs, device, seconds):
    """(verdict, seconds, text for the report)"""
    missing = [name for name in NEEDS if name not in programs]
    if missing:
        return f"not run: {', '.join(missing)} not there", 0, ""
    started = gpu_process.run([programs[NEEDS[1]], "--help"], 10)
    if started.code == 127:  # a library is missing
        return f"not run: {started.output.strip()}", 0, ""
    start = time.monotonic()
    end = start + seconds
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        ready = folder / "ready.json"
        with open(folder / "log", "w") as log:
            coordinator = subprocess.Popen(
                [str(programs[NEEDS[0]]), "--grpc-port=0", "--http-port=0",
                 "--membership-port=0", "--spawn-workers=2",
                 "--job-workers=2", f"--device={device}", f"--ready-file={ready}"],
                stdout=log, stderr=log)
        right, lines = False, []
        try:
            port = await_port(ready, coordinator, end)
            if port is None:
                lines = ["- the service did not get ready"]
            else:
                client = [str(programs[NEEDS[2]]), "--server", f"127.0.0.1:{port}"]
                for dtype in ("float32", "bfloat16"):
                    right, told = job(client, folder, dtype, end)
                    lines += told
                    if not right:
                        break
        except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            right = False
            lines.append(f"- {error}")
        finally:
            coordinator.terminate()
            try:
                coordinator.wait(20)
            except subprocess.TimeoutExpired:
                coordinator.kill()
        if not right:
            lines += ["", fenced((folder / "log").read_text(errors="replace"), 30)]
    return "passed" if right else "FAILED", time.monotonic() - start, "\n".join(lines)

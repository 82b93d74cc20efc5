"""A job through the service, its workers on a device: a step of tools/gpu_check.py."""
import json
import subprocess
import tempfile
import time
from pathlib import Path

SPEC = {"tokens": 65536, "heads": 8, "kv_heads": 8, "head_dim": 64, "value_dim": 64,
        "segments": [2048, 65536], "dilations": [1, 16], "mixing": "lse",
        "ordering": {"curve": "hilbert", "scope": "qkv", "grid": [256, 256]}}
NEEDS = ["hilbert-ring-coordinator", "hilbert-ring-worker", "hilbert-ring"]


def write_inputs(folder, dtype):
    import numpy as np  # only here: the rest of the check does without
    random = np.random.default_rng(1)
    (folder / "job.json").write_text(json.dumps({**SPEC, "dtype": dtype}))
    for name in "qkv":
        values = random.standard_normal((SPEC["tokens"], 8, 64), dtype=np.float32)
        if dtype == "bfloat16":  # raw, truncated
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        np.save(folder / f"{name}.npy", values)


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
            return False, [f"- {dtype}: {command[0]} failed: {done.stdout}{done.stderr}"]
    report = json.loads((folder / "report.json").read_text())
    lines = [f"- {dtype}: {SPEC['tokens']} tokens, "
             f"{float(report['tokens_per_second']):,.0f} tokens/s, compute "
             f"{report['compute_seconds']:.4f} s; right in a sample of rows"]
    for worker in report["workers"]:
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
        except (OSError, ValueError, KeyError, ImportError, subprocess.TimeoutExpired) as error:
            right = False
            lines.append(f"- {error}")
        finally:
            coordinator.terminate()
            try:
                coordinator.wait(20)
            except subprocess.TimeoutExpired:
                coordinator.kill()
        if not right:
            lines += ["", "```", *(folder / "log").read_text().splitlines()[-30:], "```"]
    return "passed" if right else "FAILED", time.monotonic() - start, "\n".join(lines)

"""Verifies a result with `hilbert-ring verify`."""
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import hilbert_ring
from demo_command import DemoError

SECONDS = 1800


def by_command(flags, tensors):
    """Runs the command on tensors q, k, v, out and lse of a job, and returns its output.

    flags: the job's pattern as flags of the command.

    Raises:
        DemoError: a row is wrong, or the command fails.
    """
    with tempfile.TemporaryDirectory(prefix="hilbert-ring-demo-") as folder:
        line = [str(hilbert_ring.local_service.find_program("hilbert-ring")), "verify", *flags]
        for name, tensor in zip(("q", "k", "v", "out", "lse"), tensors):
            file = Path(folder) / f"{name}.npy"
            np.save(file, tensor)
            line += [f"--{name}", str(file)]
        done = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    if done.returncode != 0:
        raise DemoError(f"hilbert-ring verify ended with code {done.returncode}:\n{done.stdout}")
    return done.stdout

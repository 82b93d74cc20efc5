#!/usr/bin/env python3
"""Draws docs/dashboard.png from a real Prometheus with the shipped configuration. It watches a service of
two workers under jobs, an encoder's jobs and a stream; a worker is killed on the way.

    tests/observability/dashboard_picture.py [--minutes 6] [--programs build/release/bin] [--out docs/dashboard.png]

Every panel must have data.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

SOURCE = Path(__file__).resolve().parents[2]
MODELS = SOURCE / "tests" / "golden" / "encoder_cases"
MODEL = "slide_three_layers"
EPOCH = 4096
HEADS, HEAD_DIM = 4, 32


def stream(service, epochs):
    """Sends a stream's rows through a pipe and waits for its end."""
    client = subprocess.Popen(
        [os.environ["CLIENT_BINARY"], "attend", f"--server={service.address}", "--stream", f"--heads={HEADS}",
         f"--head-dim={HEAD_DIM}", "--segments=1024", "--dilations=1", f"--epoch={EPOCH}", "--qkv=-", "--out=/dev/null"],
        stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    of_epoch = numpy.random.default_rng(0).standard_normal((EPOCH, 3 * HEADS * HEAD_DIM), dtype="f4").tobytes()
    try:
        for _ in range(epochs):
            client.stdin.write(of_epoch)
    except BrokenPipeError:
        pass
    client.communicate()


def encode(service):
    folder = MODELS / MODEL
    service.client("encode", f"--model={MODEL}", f"--tiles={folder}/tiles.npy", f"--coords={folder}/coords.npy",
                   f"--out={service.folder}/encoded.npy")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--programs", type=Path, default=SOURCE / "build" / "release" / "bin")
    parser.add_argument("--out", type=Path, default=SOURCE / "docs" / "dashboard.png")
    given = parser.parse_args()
    os.environ.update(SOURCE_FOLDER=str(SOURCE), COORDINATOR_BINARY=str(given.programs / "hilbert-ring-coordinator"),
                      CLIENT_BINARY=str(given.programs / "hilbert-ring"))
    sys.path[:0] = [str(SOURCE / "tests" / "support")]
    from prometheus_test import Prometheus
    from running_service import await_true
    from service_under_test import ServiceUnderTest

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as own, \
            ServiceUnderTest(folder, arguments=[f"--model-dir={MODELS}"]) as service, \
            Prometheus(own, service.http_address) as seen:
        await_true("all targets are up", lambda: len(seen.targets_up() or []) == 3)
        begin = time.monotonic()
        end, kills = begin + 60 * given.minutes, [begin + 60 * given.minutes * share for share in (0.4, 0.7)]
        turn = 0
        while time.monotonic() < end:
            if kills and time.monotonic() > kills[0]:
                kills.pop(0)
                subprocess.run(["pkill", "-KILL", "-P", str(service.process.pid), "-n"], check=True)
            turn += 1
            if turn % 7 == 0:
                stream(service, 6)
            elif turn % 3 == 0:
                encode(service)
            else:
                service.attend(tokens=(4096, 16384, 32768)[turn % 3])
        subprocess.run([sys.executable, SOURCE / "tools" / "draw_dashboard.py", f"--prometheus=http://{seen.address}",
                        f"--minutes={given.minutes}", "--rate-interval=30s", f"--out={given.out}", "--all-have-data"],
                       check=True)


if __name__ == "__main__":
    main()

"""A coordinator in a container of so much memory: its control group's limit is another file."""
import subprocess
import tempfile
import time
from pathlib import Path

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
ENTER = 'mount --bind "$0" "$1" && shift && exec "$@"'
START_SECONDS = 30
PLACES = ("--spawn-workers=0", "--grpc-port=0", "--http-port=0", "--membership-port=0")


class NotPermitted(Exception):
    """No mount namespace may be made, or there is no control group."""


def run_with_memory(limit, program, *flags):
    """The coordinator's exit code, after SIGTERM once it listens, and what it logs until then."""
    known = [path for path in LIMITS if Path(path).exists()]
    if not known:
        raise NotPermitted("no control group of memory is mounted")
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(f"{limit}\n")
        file.flush()
        inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, file.name, known[0]]
        probe = subprocess.run([*inside, "true"], capture_output=True, text=True)
        if probe.returncode != 0:
            raise NotPermitted(probe.stderr)
        with subprocess.Popen([*inside, program, *PLACES, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) as process:
            said, deadline = "", time.monotonic() + START_SECONDS
            for line in process.stdout:
                said += line
                if "gRPC on" in line or time.monotonic() > deadline:
                    process.terminate()
            return process.wait(START_SECONDS), said

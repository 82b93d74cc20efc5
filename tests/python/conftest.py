"""Services for the tests."""
import signal

import pytest

import hilbert_ring

# A shell that runs the tests in the background has them ignore SIGINT, which their children would inherit: some are sent it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def client():
    """Of a service with two workers, which each job takes."""
    with hilbert_ring.local(workers=2, job_workers=2) as connected:
        yield connected

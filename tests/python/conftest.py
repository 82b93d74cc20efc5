"""Services for the tests."""
import signal

import pytest

import hilbert_ring

# A background job of a shell ignores SIGINT, and so would its children, to which some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def client():
    """A client of a service whose jobs take both of its workers."""
    with hilbert_ring.local(workers=2, job_workers=2) as connected:
        yield connected

"""Services for the tests."""
import pytest

import hilbert_ring


@pytest.fixture(scope="session")
def client():
    """Of a service with two workers, which each job takes."""
    with hilbert_ring.local(workers=2, job_workers=2) as connected:
        yield connected

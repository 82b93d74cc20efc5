"""Messages of a kind that does not belong to the call in which they come, from a service that the
test plays."""
from concurrent import futures

import grpc
import numpy as np
import pytest

import hilbert_ring
from hilbert_ring.v1 import attention_pb2 as pb

ROWS = np.ones((16, 1, 8), "f4")


@pytest.fixture
def says():
    """Takes messages; the address of a service that says them after Admitted."""
    servers = []

    def start(*odd):
        def call(requests, _):
            job_id = next(requests).open.job_id
            yield pb.AttendResponse(admitted=pb.Admitted(job_id=job_id, epoch_tokens=16))
            yield from odd
            for _ in requests:
                pass

        method = grpc.stream_stream_rpc_method_handler(
            call, pb.AttendRequest.FromString, pb.AttendResponse.SerializeToString)
        server = grpc.server(futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
            "hilbert_ring.v1.AttentionService", {"Attend": method, "AttendStream": method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None)


def test_an_epoch_of_a_job_breaks_the_protocol(says):
    with hilbert_ring.connect(says(pb.AttendResponse(epoch=pb.Epoch()))) as client:
        with pytest.raises(hilbert_ring.InternalError, match="broke the protocol: epoch"):
            client.attend(ROWS, ROWS, ROWS, segments=[16], progress=False, deadline=20)


@pytest.mark.parametrize("odd", [
    pb.AttendResponse(queued=pb.Queued(position=1)),
    pb.AttendResponse(progress=pb.Progress(fraction=0.5)),
    pb.AttendResponse(resend=pb.Resend(tensor=pb.TENSOR_Q))])
def test_what_is_a_jobs_breaks_the_protocol_in_a_stream(says, odd):
    with hilbert_ring.connect(says(odd)) as client:
        with pytest.raises(hilbert_ring.InternalError, match="broke the protocol: "):
            list(client.attend_stream(iter([(ROWS, ROWS, ROWS)]), segments=[16], deadline=20))

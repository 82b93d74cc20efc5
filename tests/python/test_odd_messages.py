"""Messages of a kind that does not belong to the call in which they come, from a service that the
test plays."""
from concurrent import futures

import grpc
import numpy as np
import pytest
from crc32c import crc32c

import hilbert_ring
from hilbert_ring._job import AttendOptions, pattern_of
from hilbert_ring._stream import StreamAttempt, StreamState, prepare_stream
from hilbert_ring._torch_streams import CallerStreams
from hilbert_ring.v1 import attention_pb2 as pb

ROWS = np.ones((16, 1, 8), "f4")


@pytest.fixture
def says():
    """Takes messages; the address of a service that says them, after Admitted as a rule."""
    servers = []

    def start(*odd, admits=True, rows=0):  # of the input, that are read before
        def call(requests, _):
            job_id = next(requests).open.job_id
            if admits:
                yield pb.AttendResponse(admitted=pb.Admitted(job_id=job_id, epoch_tokens=16))
            missing = rows
            while missing > 0:
                missing -= next(requests).chunk.rows
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


def report_with(rows):
    """A report whose message has the output, of one worker."""
    payload = rows.tobytes()
    chunk = pb.OutputChunk(tensor=pb.TENSOR_OUT, rows=len(rows), payload=payload, crc32c=crc32c(payload))
    return pb.AttendResponse(report=pb.Report(workers=[pb.WorkerReport()]), outputs=[chunk])


def test_a_report_that_comes_at_once_says_that_the_job_was_admitted(says):
    told = []
    with hilbert_ring.connect(says(report_with(ROWS), admits=False, rows=3 * len(ROWS))) as client:
        result = client.attend(ROWS, ROWS, ROWS, segments=[16], lse=False, progress=told.append, deadline=20)
    np.testing.assert_array_equal(result.out, ROWS)
    assert told[-1].admitted and told[-1].workers == 1


def test_a_report_of_rows_that_were_not_asked_for_breaks_the_protocol(says):
    rows = np.ones((1 << 16, 1, 8), "f4")  # beyond what follows an Open
    with hilbert_ring.connect(says(report_with(rows), admits=False)) as client:
        with pytest.raises(hilbert_ring.InternalError, match="report before the job was admitted"):
            client.attend(rows, rows, rows, segments=[16], progress=False, deadline=20)


@pytest.mark.parametrize("odd", [
    pb.AttendResponse(queued=pb.Queued(position=1)),
    pb.AttendResponse(progress=pb.Progress(fraction=0.5)),
    pb.AttendResponse(resend=pb.Resend(tensor=pb.TENSOR_Q))])
def test_what_is_a_jobs_breaks_the_protocol_in_a_stream(says, odd):
    with hilbert_ring.connect(says(odd)) as client:
        with pytest.raises(hilbert_ring.InternalError, match="broke the protocol: "):
            list(client.attend_stream(iter([(ROWS, ROWS, ROWS)]), segments=[16], deadline=20))


def test_rows_that_a_stream_did_not_send_are_not_taken():
    payload = np.zeros((16, 1, 8), "f4").tobytes()
    early = pb.OutputChunk(tensor=pb.TENSOR_OUT, rows=16, payload=payload, crc32c=crc32c(payload))
    rows = np.ones((1 << 16, 1, 8), "f4")
    pattern = pattern_of(segments=[16], dilations=None, mixing="head_groups", causal=False, scale=None, tail="mask",
                         average_groups=True, sequence_lengths=None)
    call = prepare_stream((rows, rows, rows), dtype=None, lse=False, epoch_tokens=None, ordering=None, streams=CallerStreams(),
                          options=AttendOptions(), pattern=pattern)
    attempt = StreamAttempt(call, 0, StreamState())
    attempt.handle(pb.AttendResponse(admitted=pb.Admitted(epoch_tokens=16)).SerializeToString())
    chunks = attempt.chunks(call.first)
    output = pb.AttendResponse(output=early).SerializeToString()
    with pytest.raises(hilbert_ring.InternalError, match="16 rows from 0 on, of which 0 were sent"):
        attempt.handle(output)
    for _ in "qkv":
        next(chunks)
    assert attempt.handle(output) == []  # more of the block's are to come
    early.first_token = 16
    with pytest.raises(hilbert_ring.InternalError, match="16 rows from 16 on, of which 0 were sent"):
        attempt.handle(pb.AttendResponse(output=early).SerializeToString())

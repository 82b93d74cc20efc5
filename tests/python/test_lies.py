"""Services that lie, which the test plays: each call ends with an error of this package, blocking and for asyncio."""
import asyncio
import inspect
import threading
import time
import types
import warnings
from concurrent import futures

import grpc
import numpy as np
import pytest
from crc32c import crc32c

import hilbert_ring
from hilbert_ring._attempt import Attempt, ProgressTeller
from hilbert_ring._encode import Wanted, prepare_encode
from hilbert_ring._files import FileOutput
from hilbert_ring._job import AttendOptions
from hilbert_ring._progress import shown
from hilbert_ring.v1 import attention_pb2 as pb
from hilbert_ring.v1 import encoder_pb2 as encoder_pb
from hilbert_ring.v1 import many_pb2 as many_pb

ROWS = np.ones((16, 1, 8), "f4")
TILES = np.ones((8, 4), "f4")
COORDS = np.arange(16.0).reshape(8, 2) * 10
SLIDE_ROWS = len(TILES) + len(COORDS)
MALFORMED = b"\xff\xff"
ESCAPE = "\x1b[31mred\n\x9b"
ESCAPED = "\\x1b[31mred\\n\\xc2\\x9b"
STREAMS = ("Attend", "AttendStream", "AttendMany", "Encode")
LIMITS = {"deadline": 20}


class Liar(grpc.GenericRpcHandler):
    """Handlers by the method's name, which take messages and give messages, or bytes that are none."""

    def __init__(self, compression=None, **handlers):
        self.handlers = handlers
        self.server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[self], compression=compression)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self):
        self.server.start()
        return self.address

    def __exit__(self, *_):
        self.server.stop(None)

    def service(self, details):
        name = details.method.rpartition("/")[2]
        handler = self.handlers.get(name)
        if handler is None:
            return None
        if name in STREAMS:
            return grpc.stream_stream_rpc_method_handler(handler, pb.AttendRequest.FromString, as_bytes)
        return grpc.unary_unary_rpc_method_handler(handler, None, as_bytes)


def as_bytes(message):
    return message if isinstance(message, bytes) else message.SerializeToString()


def blocking(address, name, *args, **more):
    with hilbert_ring.connect(address) as client:
        result = getattr(client, name)(*args, **more)
        return list(result) if name == "attend_stream" else result


def by_asyncio(address, name, *args, **more):
    async def run():
        async with hilbert_ring.aio.connect(address) as client:
            result = getattr(client, name)(*args, **more)
            return await result if inspect.isawaitable(result) else [block async for block in result]

    return asyncio.run(run())


@pytest.fixture(params=[blocking, by_asyncio], ids=["blocking", "asyncio"])
def call(request):
    return request.param


def says(*messages, admitted=None, until_closed=True, rows=0):
    """A handler that admits what it is sent, reads so many rows, and says this."""
    def handler(requests, _):
        next(requests)
        yield pb.AttendResponse(admitted=admitted or pb.Admitted(workers=1, epoch_tokens=16))
        missing = rows
        while missing > 0:
            missing -= next(requests).chunk.rows
        yield from messages
        for _ in requests if until_closed else ():
            pass

    return handler


def aborts(code, message, details=None):
    def handler(_, context):
        if details is not None:
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(code, message)

    return handler


def output(tensor, rows, **more):
    payload = rows.tobytes()
    return pb.AttendResponse(output=pb.OutputChunk(tensor=tensor, rows=len(rows), payload=payload,
                                                   crc32c=crc32c(payload), **more))


def report(**fields):
    return pb.AttendResponse(report=pb.Report(tokens=16, **fields))


def small(**changes):
    return encoder_pb.Model(**{"name": "small", "digest": "ab" * 32, "tile_dim": 4, "embed_dim": 16, "layers": 2,
                               "heads": 2, "class_token": True, "positions": True, "grid_pixels": 200.0,
                               "pools": True, "config": '{"position": {"tile_size": 10}}', **changes})


def encode(call, model, handler=None, **more):
    """A call of a model that the service says is like this."""
    with Liar(GetModel=lambda *_: model, Encode=handler or says()) as address:
        return call(address, "encode", TILES, COORDS, model="small",
                    **{"progress": False, "by_reference": "never", **LIMITS, **more})


def attend(call, handler, **more):
    with Liar(Attend=handler) as address:
        return call(address, "attend", ROWS, ROWS, ROWS,
                    **{"segments": [16], "lse": False, "progress": False, "by_reference": "never", **LIMITS, **more})


def stream(call, handler, blocks=1):
    with Liar(AttendStream=handler) as address:
        return call(address, "attend_stream", iter([(ROWS, ROWS, ROWS)] * blocks), segments=[16], **LIMITS)


def many(call, *messages):
    def handler(requests, _):
        next(requests)
        yield from messages

    with Liar(AttendMany=handler) as address:
        return call(address, "attend_many", [(ROWS, ROWS, ROWS)], segments=[16], **LIMITS)


def refused(what):
    return pytest.raises(hilbert_ring.InternalError, match=what)


def test_a_stream_that_ends_before_its_input_did_not_end_well(call):
    over = threading.Event()

    def ends(requests, context):
        context.add_callback(over.set)
        next(requests)
        yield pb.AttendResponse(admitted=pb.Admitted(epoch_tokens=16))
        for _ in "qkv":
            next(requests)
        yield output(pb.TENSOR_OUT, ROWS)
        yield report()

    def blocks():
        yield ROWS, ROWS, ROWS
        assert over.wait(20)
        time.sleep(1)  # longer than the answer takes to come
        yield ROWS, ROWS, ROWS

    with Liar(AttendStream=ends) as address, refused("ended the stream before its input had ended"):
        call(address, "attend_stream", blocks(), segments=[16], **LIMITS)


def test_a_stream_that_ends_after_its_input_ends_well(call):
    def ends(requests, _):
        next(requests)
        yield pb.AttendResponse(admitted=pb.Admitted(epoch_tokens=16))
        for _ in requests:
            pass
        yield output(pb.TENSOR_OUT, ROWS)
        yield report()

    for _ in range(20):  # the answer races with the sender
        (block,) = stream(call, ends)
        np.testing.assert_array_equal(block.out, ROWS)


MODELS = [
    ("layers", 2**62), ("layers", 2 * 10**8), ("layers", 1025), ("layers", 0), ("layers", -5),
    ("embed_dim", 2**62), ("embed_dim", 2**40), ("embed_dim", 65537), ("embed_dim", 0), ("embed_dim", -1),
    ("heads", 2**62), ("heads", 17), ("heads", 0), ("heads", -1), ("tile_dim", 65537), ("tile_dim", 0),
    ("grid_pixels", np.nan), ("grid_pixels", np.inf), ("grid_pixels", 1e300), ("grid_pixels", 0.0),
    ("config", ""), ("config", "[1"), ("config", "[1]"), ("config", '{"position": null}'),
    ("config", '{"position": {"tile_size": true}}'), ("config", '{"position": {"tile_size": 0}}')]


@pytest.mark.parametrize("field, value", MODELS)
def test_a_model_that_cannot_be_is_refused(call, field, value):
    model = small(**{field: value})
    with refused(f"model small of the service: {field} is .*, must be 1 to ") as raised:
        encode(call, model, attention_map=True, attention_map_heads=True)
    assert raised.value.field == field and raised.value.limit >= 1
    with Liar(GetModel=lambda *_: model) as address, refused(f"{field} is "):
        call(address, "plan_encode", 8, model="small", **LIMITS)


def test_the_grid_of_a_model_without_positions_is_none():
    options = AttendOptions(by_reference="never")
    call = prepare_encode(small(positions=False, grid_pixels=0.0), TILES, None, dtype=None, out=None,
                          wanted=Wanted(layers="all"), options=options)
    assert list(call.open.encode.states) == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_file_that_cannot_be_made_leaves_nothing(tmp_path):
    with pytest.raises((ValueError, OverflowError, MemoryError)):
        _ = FileOutput(tmp_path / "out.npy", (1, 2**62), np.dtype("f4")).bytes
    assert not list(tmp_path.iterdir())


def test_another_model_than_was_asked_for(call):
    with refused("the service gave model 'large', asked for was 'small'"):
        encode(call, small(name="large"))
    with Liar(GetModel=lambda *_: small(name=ESCAPE)) as address, refused("the service gave model ") as raised:
        call(address, "model", "small")
    assert ESCAPED in str(raised.value)


def test_another_model_than_was_meant_computed_the_job(call):
    rows = output(pb.TENSOR_POOLED, np.ones((1, 16), "f4"))
    with refused(f"the model of digest {'cd' * 32} computed the job, meant was {'ab' * 32}"):
        encode(call, small(), says(rows, report(model_digest="cd" * 32), rows=SLIDE_ROWS))
    for digest in ("", "ab" * 32):
        said = says(rows, report(model_digest=digest), rows=SLIDE_ROWS)
        assert encode(call, small(), said).embeddings.shape == (1, 16)


def test_a_report_before_the_input_did_not_end_well(call):
    """More than leaves before somebody reads it: the service computed without most of it."""
    rows = np.ones((1 << 18, 1, 8), "f4")
    early = "the service broke the protocol: a report before all rows were sent"
    said = says(output(pb.TENSOR_OUT, rows[:16]), report(), until_closed=False)
    with Liar(Attend=said) as address, refused(early):
        call(address, "attend", rows, rows, rows, segments=[16], lse=False, progress=False, by_reference="never",
             **LIMITS)


def test_an_error_of_the_callers_own_is_none_of_the_services(call):
    """Of which asyncio's gRPC raises one itself for a status that is none."""
    def tell(_):
        raise KeyError("the caller's")

    with pytest.raises(KeyError, match="the caller's"):
        attend(call, says(), progress=tell)


def test_bytes_that_are_no_message(call):
    malformed = "broke the protocol: a message that is malformed"
    for run in (attend, stream):
        with refused(malformed):
            run(call, says(MALFORMED))
    (result,) = many(call, MALFORMED)
    assert type(result) is hilbert_ring.InternalError and malformed in str(result)


@pytest.mark.parametrize("method, name, args", [
    ("GetCluster", "status", ()), ("ListJobs", "jobs", ()), ("CancelJob", "cancel", ("job",)),
    ("ListModels", "models", ()), ("GetModel", "model", ("small",))])
def test_an_answer_that_is_no_message(call, method, name, args):
    with Liar(**{method: lambda *_: MALFORMED}) as address, refused("a message that is malformed"):
        call(address, name, *args)


def test_a_status_that_is_none(call, monkeypatch):
    numbers = grpc._common.STATUS_CODE_TO_CYGRPC_STATUS_CODE
    monkeypatch.setitem(numbers, grpc.StatusCode.DATA_LOSS, 9999)  # as the service sends it

    def none(_, context):
        context.set_code(grpc.StatusCode.DATA_LOSS)
        return b""

    def none_of_a_stream(_, context):
        context.set_code(grpc.StatusCode.DATA_LOSS)
        return iter(())

    (of_many,) = ended_with(none_of_a_stream, "AttendMany", call, "attend_many", [(ROWS, ROWS, ROWS)])
    errors = [of_many]
    for handler, method, *run in ((none, "GetCluster", "status"),
                                  (none_of_a_stream, "Attend", "attend", ROWS, ROWS, ROWS),
                                  (none_of_a_stream, "AttendStream", "attend_stream", [(ROWS, ROWS, ROWS)])):
        with pytest.raises(hilbert_ring.HilbertRingError) as raised:
            ended_with(handler, method, call, *run)
        errors.append(raised.value)
    for error in errors:
        assert error.code == "UNKNOWN"
        assert call is blocking or "ended the call with a status that is none" in str(error)


def ended_with(handler, method, call, name, *args):
    more = {} if name == "status" else {"segments": [16], **LIMITS}
    with Liar(**{method: handler}) as address:
        return call(address, name, *args, **more)


def test_a_message_that_is_compressed_is_not_taken(call):
    answer = pb.GetClusterResponse(version="x" * (20 << 20))
    with Liar(grpc.Compression.Gzip, GetCluster=lambda *_: answer) as address:
        with pytest.raises((hilbert_ring.UnimplementedError, hilbert_ring.InternalError)):
            call(address, "status")


class Bars:
    """What tqdm is asked to draw."""

    def __init__(self):
        self.drawn = []

    def __call__(self, **_):
        return types.SimpleNamespace(set_description_str=lambda *_, **__: None, close=lambda: None,
                                     refresh=lambda: None)


@pytest.mark.parametrize("fraction", [np.nan, np.inf, -np.inf, -1e300, 1.5])
def test_a_fraction_that_is_none_is_not_told(monkeypatch, fraction):
    monkeypatch.setattr("hilbert_ring._progress._tqdm", Bars)
    call = prepare_encode(small(), TILES, COORDS, dtype=None, out=None, wanted=Wanted(),
                          options=AttendOptions(by_reference="never"))
    told = []
    with shown(True) as bar:
        def tell(progress):
            told.append(progress.compute_fraction)
            bar._next = 0.0  # so that each is drawn
            bar(progress)

        attempt = Attempt(call, 0, ProgressTeller(tell, call.progress(0)))
        attempt.handle(as_bytes(pb.AttendResponse(admitted=pb.Admitted(workers=1))))
        for value in (0.25, fraction):
            progress = pb.Progress(phase=pb.Progress.PHASE_COMPUTE, fraction=value)
            attempt.handle(as_bytes(pb.AttendResponse(progress=progress)))
    assert told == [0.0, 0.25, 0.25]


def test_output_of_an_unknown_tensor(call):
    odd = output(99, ROWS)
    for run in (attend, stream):
        with refused("output of tensor 99, which was not asked for"):
            run(call, says(odd))
    (result,) = many(call, many_pb.AttendManyResponse(results=[many_pb.SmallResult(outputs=[odd.output])]))
    assert type(result) is hilbert_ring.InternalError and "output of tensor 99, which" in str(result)


def test_control_characters_of_the_service_are_escaped(call):
    with Liar(GetCluster=aborts(grpc.StatusCode.INTERNAL, ESCAPE)) as address, refused("red") as raised:
        call(address, "status")
    assert str(raised.value) == f"INTERNAL: {ESCAPED}"
    with pytest.raises(hilbert_ring.FailedPreconditionError) as not_used:
        encode(call, small(error=ESCAPE))
    assert not_used.value.message.endswith(f": {ESCAPED}")
    rows = output(pb.TENSOR_POOLED, np.ones((1, 16), "f4"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encode(call, small(), says(rows, report(notes=[ESCAPE]), rows=SLIDE_ROWS))
    assert [str(warning.message) for warning in caught] == [ESCAPED]


@pytest.mark.parametrize("handler, what", [
    (says(admitted=pb.Admitted(epoch_tokens=0)), "an epoch of no tokens"),
    (says(admitted=pb.Admitted(epoch_tokens=-1)), "an epoch of no tokens"),
    (says(pb.AttendResponse(admitted=pb.Admitted(epoch_tokens=16))), "the stream was admitted twice"),
    (says(output(pb.TENSOR_OUT, ROWS, tokens=range(16))), "OUT: 16 rows from 0 on in 512 bytes")])
def test_what_a_stream_may_not_say(call, handler, what):
    with refused(f"broke the protocol: {what}"):
        stream(call, handler)


def test_a_limit_of_payloads_below_1_is_none(call):
    rows = np.ones((1 << 16, 1, 8), "f4")  # beyond what follows an Open
    admitted = pb.Admitted(workers=1, epoch_tokens=16, max_payload_bytes=-5)
    with Liar(Attend=says(output(pb.TENSOR_OUT, rows), report(), admitted=admitted, rows=3 * len(rows))) as address:
        result = call(address, "attend", rows, rows, rows, segments=[16], lse=False, progress=False,
                      by_reference="never", **LIMITS)
    np.testing.assert_array_equal(result.out, rows)


@pytest.mark.parametrize("curve", [pb.CURVE_AUTO, 99, -1])
def test_a_curve_that_is_none(call, curve):
    with Liar(Plan=lambda *_: pb.PlanResponse(curve=curve), Attend=says()) as address:
        with refused(f"broke the protocol: curve {curve} for a job, which is none"):
            call(address, "attend", ROWS, ROWS, ROWS, segments=[16], ordering=hilbert_ring.Auto(grid=(4, 4)),
                 progress=False, by_reference="never", **LIMITS)


def test_an_error_of_a_small_job_that_is_none(call):
    fine = hilbert_ring.errors._Status(code=0, message="fine").SerializeToString()
    (result,) = many(call, many_pb.AttendManyResponse(results=[many_pb.SmallResult(error=fine)]))
    assert type(result) is hilbert_ring.InternalError and "an error that is none" in str(result)

"""Requests, results and refusals of encode, with a stand-in of the service in this process."""
import json
import warnings
from concurrent import futures

import grpc
import numpy as np
import pytest
from crc32c import crc32c

import hilbert_ring
from client_rig import ByAsyncio
from hilbert_ring._channel import ENCODER_SERVICE
from hilbert_ring.v1 import attention_pb2 as pb
from hilbert_ring.v1 import encoder_pb2 as encoder_pb

DIM, TILE_DIM, HEADS, LAYERS = 16, 4, 2, 2
CONFIG = {"architecture": "longnet_encoder", "input_dim": TILE_DIM, "embed_dim": DIM, "heads": HEADS, "ffn_dim": 32,
          "layers": LAYERS, "segments": [8], "dilations": [1], "layer_norm_eps": 1e-5, "norm_eps": 1e-6,
          "class_token": True, "output_norm": True, "position": {"kind": "sincos_2d", "tile_size": 10, "grid": 20}}


def small(**changes):
    fields = {"name": "small", "digest": "ab" * 32, "tile_dim": TILE_DIM, "embed_dim": DIM,
              "layers": LAYERS, "heads": HEADS, "class_token": True, "positions": True,
              "grid_pixels": 200.0, "pools": True,
              "config": json.dumps(CONFIG), **changes}
    return encoder_pb.Model(**fields)


class Encoder(grpc.GenericRpcHandler):
    """Returns 100 s + t for token or slide t of state s, and t / 2 for row t of the map."""

    def __init__(self, model, failures=0, away=0, spoilt=(), notes=()):
        self.model, self.failures, self.away, self.calls = model, failures, away, 0
        self.spoilt, self.notes = spoilt, notes
        self.open, self.tensors = None, {}
        self.planned, self.plans, self.asked = None, 0, 0
        self.server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[self])
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self):
        self.server.start()
        return self

    def __exit__(self, *_):
        self.server.stop(None).wait()

    def service(self, details):
        methods = {
            "Encode": grpc.stream_stream_rpc_method_handler(
                self.encode, pb.AttendRequest.FromString, pb.AttendResponse.SerializeToString),
            "PlanEncode": grpc.unary_unary_rpc_method_handler(
                self.plan, encoder_pb.PlanEncodeRequest.FromString,
                pb.PlanResponse.SerializeToString),
            "ListModels": grpc.unary_unary_rpc_method_handler(
                lambda request, context: encoder_pb.ListModelsResponse(models=[self.model]),
                encoder_pb.ListModelsRequest.FromString,
                encoder_pb.ListModelsResponse.SerializeToString),
            "GetModel": grpc.unary_unary_rpc_method_handler(
                self.get_model, encoder_pb.GetModelRequest.FromString,
                encoder_pb.Model.SerializeToString)}
        return methods.get(details.method.replace(ENCODER_SERVICE, ""))

    def get_model(self, request, context):
        self.asked += 1
        self.away -= 1
        if self.away >= 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "it starts")
        if request.name != self.model.name:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
        return self.model

    def plan(self, request, context):
        self.planned, self.plans = request, self.plans + 1
        if self.plans % 2 == 1:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", "1"),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "plans are being made")
        return pb.PlanResponse(flops=sum(request.spec.slide_tiles))

    def encode(self, requests, context):
        self.open = next(requests).open
        spec = self.open.encode
        tiles = sum(spec.slide_tiles)
        self.calls += 1
        if spec.digest != self.model.digest:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the model has changed")
        yield pb.AttendResponse(admitted=pb.Admitted(workers=1))
        missing = tiles * (2 if self.model.positions else 1)
        while missing:
            chunk = next(requests).chunk
            if self.calls <= self.failures:
                context.abort(grpc.StatusCode.UNAVAILABLE, "it stops")
            assert chunk.crc32c == crc32c(chunk.payload)
            part = self.tensors.setdefault(chunk.tensor, {})
            size = len(chunk.payload) // chunk.rows
            for row in range(chunk.rows):
                part[chunk.first_row + row] = chunk.payload[row * size:(row + 1) * size]
            missing -= chunk.rows
        pooled = spec.pooling != pb.POOLING_NONE
        tokens = tiles + len(spec.slide_tiles) * self.model.class_token
        for row in reversed(range(len(spec.slide_tiles) if pooled else tokens)):
            values = np.repeat(np.array(spec.states, "<f4") * 100 + row, DIM)
            if row in self.spoilt:
                values[3] = np.nan
            yield output(pb.TENSOR_POOLED if pooled else pb.TENSOR_STATES, row, values)
        if spec.attention_map_layer:
            columns = HEADS if spec.attention_map_by_head else 1
            for row in range(tokens):
                values = np.arange(columns, dtype="<f4") + row / 2
                yield output(pb.TENSOR_ATTENTION_MAP, row, values.astype("<f4"))
        yield pb.AttendResponse(report=pb.Report(job_id=self.open.job_id, tokens=tokens, notes=self.notes))

    def sent(self, tensor, dtype):
        rows = self.tensors[tensor]
        return np.stack([np.frombuffer(rows[row], dtype) for row in sorted(rows)])


def output(tensor, row, values):
    payload = values.tobytes()
    return pb.AttendResponse(output=pb.OutputChunk(tensor=tensor, rows=1, first_token=row,
                                                   payload=payload, crc32c=crc32c(payload)))


@pytest.fixture
def slides():
    tiles = np.random.default_rng(1).standard_normal((8, TILE_DIM)).astype("f4")
    return tiles, np.arange(16).reshape(8, 2) * 10


def test_a_slide(slides):
    tiles, coords = slides
    with Encoder(small()) as service, hilbert_ring.connect(service.address) as client:
        result = client.encode(tiles, coords, model="small", progress=False, job_id="slide-1")
        assert client.models() == [small()]
        assert result.embeddings.shape == (1, DIM) and (result.embeddings == 200).all()
        assert result.attention_map is None and result.report.job_id == "slide-1"
        assert service.open.encode == pb.EncodeSpec(
            model="small", digest="ab" * 32, slide_tiles=[8], dtype=pb.DATA_TYPE_FLOAT32,
            compute=pb.DATA_TYPE_FLOAT32, pooling=pb.POOLING_CLASS, states=[2])
        assert (service.sent(pb.TENSOR_TILES, "<f4") == tiles).all()
        assert (service.sent(pb.TENSOR_TILE_COORDS, "<f8") == coords).all()


def test_layers_slides_and_a_map(slides):
    tiles, coords = slides
    with Encoder(small()) as service, hilbert_ring.connect(service.address) as client:
        result = client.encode(tiles.astype("f2"), coords.astype("f4"), model="small", pool="mean",
                               layers="all", compute="bfloat16", sequence_lengths=[3, 5],
                               attention_map=1, attention_map_heads=True, progress=False)
        assert result.embeddings.shape == (2, 3, DIM)
        assert result.embeddings[1, 2, 0] == 201 and result.embeddings.dtype == np.float32
        assert result.attention_map.shape == (10, HEADS) and result.attention_map[7, 1] == 4.5
        spec = service.open.encode
        assert spec.skip_final_norm and spec.dtype == pb.DATA_TYPE_FLOAT16
        assert spec.compute == pb.DATA_TYPE_BFLOAT16 and spec.attention_map_layer == 1
        out = np.zeros((10, 2, DIM), "f4")
        result = client.encode(tiles, coords, model="small", pool="none", layers=[2, 0], out=out,
                               final_norm=True, sequence_lengths=[3, 5], progress=False)
        assert result.embeddings is out and list(out[9, :, 0]) == [209, 9]
        assert not service.open.encode.skip_final_norm


def test_by_asyncio(slides):
    with Encoder(small()) as service:
        made = ByAsyncio(service.address)
        assert [model.name for model in made.models()] == ["small"]
        result = made.encode(*slides, model="small", attention_map=True, progress=False)
    assert (result.embeddings == 200).all() and result.attention_map[8] == 4


def test_plans(slides):
    with Encoder(small()) as service, hilbert_ring.connect(service.address) as client:
        plan = client.plan_encode(8, model="small", pool="mean", sequence_lengths=[3, 5],
                                  compute="bfloat16", dtype="float16", workers=4)
        assert plan.flops == 8 and service.plans == 2  # after one retry-after
        assert service.planned == encoder_pb.PlanEncodeRequest(workers=4, spec=pb.EncodeSpec(
            model="small", digest="ab" * 32, slide_tiles=[3, 5], dtype=pb.DATA_TYPE_FLOAT16,
            compute=pb.DATA_TYPE_BFLOAT16, pooling=pb.POOLING_MEAN, states=[2]))
        assert ByAsyncio(service.address).plan_encode(8, model="small").flops == 8
        assert service.calls == 0
        for field, arguments in (("tiles", {"tiles": 0}), ("dtype", {"dtype": "float64"}),
                                 ("sequence_lengths", {"sequence_lengths": [9]}), ("workers", {"workers": "2"}),
                                 ("workers", {"workers": 2**31}), ("deadline", {"deadline": "5"})):
            with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
                client.plan_encode(**{"tiles": 8, "model": "small", **arguments})
            assert raised.value.field == field
    with Encoder(small(error="weights are missing")) as service, \
            hilbert_ring.connect(service.address) as client:
        with pytest.raises(hilbert_ring.FailedPreconditionError, match="weights are missing"):
            client.plan_encode(8, model="small")


def test_a_job_is_tried_again(slides):
    with Encoder(small(), failures=1) as service, hilbert_ring.connect(service.address) as client:
        result = client.encode(*slides, model="small", progress=False)
        assert (result.embeddings == 200).all()
        assert service.calls == 2 and service.open.attempt == 1


def test_a_service_that_is_away_is_waited_for(slides):
    with Encoder(small(), away=2) as service, hilbert_ring.connect(service.address) as client:
        assert (client.encode(*slides, model="small", progress=False).embeddings == 200).all()
        service.away = 1
        with hilbert_ring.connect(service.address) as other, \
                pytest.raises(hilbert_ring.UnavailableError, match="it starts"):
            other.encode(*slides, model="small", progress=False, max_attempts=1)


def test_a_model_that_changes_between_two_jobs(slides):
    """The client asks for a model once, and again if the service or the arguments refuse its digest or shape."""
    tiles, coords = slides
    with Encoder(small()) as service, hilbert_ring.connect(service.address) as client:
        for _ in range(2):
            client.encode(tiles, coords, model="small", progress=False)
        assert service.asked == 1
        service.model = small(digest="cd" * 32)
        client.encode(tiles, coords, model="small", progress=False)
        assert service.open.encode.digest == "cd" * 32 and service.asked == 2
        service.model = small(tile_dim=5)
        client.encode(np.zeros((8, 5), "f4"), coords, model="small", progress=False)
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="tiles has shape"):
            client.encode(tiles, coords, model="small", progress=False)


@pytest.mark.parametrize("field, arguments, model", [
    ("pool", {"pool": "max"}, {}),
    ("pool", {"pool": "mean"}, {"pools": False}),
    ("pool", {"pool": "class"}, {"class_token": False}),
    ("layers", {"layers": 3}, {}),
    ("layers[1]", {"layers": [1, True]}, {}),
    ("final_norm", {"final_norm": "no"}, {}),
    ("attention_map", {"attention_map": "yes"}, {}),
    ("attention_map_heads", {"attention_map_heads": "no"}, {}),
    ("compute", {"compute": "float16"}, {}),
    ("sequence_lengths", {"sequence_lengths": [3, 4]}, {}),
    ("sequence_lengths", {"sequence_lengths": [8, 0]}, {}),
    ("attention_map", {"attention_map": 3}, {}),
    ("attention_map", {"attention_map": True}, {"class_token": False}),
    ("tiles", {}, {"tile_dim": 5}),
    ("coords", {"coords": None}, {}),
    ("coords", {"coords": np.zeros((8, 3))}, {}),
    ("coords", {}, {"positions": False}),
    ("coords", {"coords": [[1, 2], [3]]}, {}),
    ("deadline", {"deadline": 9.2e9}, {}),
    ("model", {"model": 5}, {}),
    ("out", {"out": ""}, {}),
    ("attention_map_out", {"attention_map": True, "attention_map_out": ""}, {}),
])
def test_what_is_wrong_is_named_and_nothing_is_sent(slides, field, arguments, model):
    tiles, coords = slides
    with Encoder(small(**model)) as service, hilbert_ring.connect(service.address) as client:
        with pytest.raises(ValueError) as raised:
            client.encode(tiles, **{"coords": coords, "model": "small", "progress": False,
                                    **arguments})
        assert raised.value.field == field
        assert service.calls == 0


@pytest.mark.parametrize("output, name", [("out", "tiles"), ("out", "coords"), ("attention_map_out", "tiles"),
                                          ("attention_map_out", "out")])
def test_an_output_that_is_an_input_or_another_output(slides, tmp_path, output, name):
    for file, array in zip(("tiles", "coords"), slides):
        np.save(tmp_path / f"{file}.npy", array)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    outputs = {"out": tmp_path / "out.npy", "attention_map_out": tmp_path / "map.npy"}
    outputs[output] = tmp_path / ".." / tmp_path.name / f"{name}.npy"
    with Encoder(small()) as service, hilbert_ring.connect(service.address) as client:
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="is the same file as the .*put") as raised:
            client.encode(tmp_path / "tiles.npy", tmp_path / "coords.npy", model="small", attention_map=True,
                          progress=False, **outputs)
        assert raised.value.field == output and name in raised.value.message
        assert service.calls == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_is_said_of_a_job_that_is_done(slides):
    def warned(service, pool="none"):
        with hilbert_ring.connect(service.address) as client, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client.encode(*slides, model="small", pool=pool, sequence_lengths=[3, 5], progress=False)
        assert all(warning.filename == __file__ for warning in caught)
        return [(warning.category, str(warning.message)) for warning in caught]

    with Encoder(small(), failures=1) as service:
        assert warned(service) == []
    with Encoder(small(), failures=1, spoilt=(8, 3), notes=("segments of 5 tokens",)) as service:
        assert warned(service) == [
            (RuntimeWarning, "2 of 10 rows of the output are not finite, the first for token 3"),
            (UserWarning, "segments of 5 tokens")]
        assert service.calls == 2
    with Encoder(small(), spoilt=(1,)) as service:
        assert warned(service, "mean") == [
            (RuntimeWarning, "the embeddings of 1 of 2 slides are not finite, the first of slide 1")]


@pytest.mark.parametrize("value", [200.0, -0.5, np.nan, np.inf])
def test_coordinates_outside_of_the_grid(slides, value):
    tiles, coords = slides[0], slides[1].astype(float)
    coords[6, 1] = value
    with Encoder(small()) as service, hilbert_ring.connect(service.address) as client:
        with pytest.raises(hilbert_ring.OutOfRangeError, match=r"coords\[6\]\[1\] is .*\[0, 200\)"):
            client.encode(tiles, coords, model="small", progress=False)
        assert service.calls == 0

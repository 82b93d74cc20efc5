"""Wrong arguments are refused before a row is sent, with field and limit."""
import array
import sys
from collections import deque
from datetime import timedelta

import numpy as np
import pytest

import hilbert_ring
from fake_torch import FakeTorch
from hilbert_ring import _spec, flash_attn_func, flash_attn_varlen_func
from hilbert_ring._job import AttendOptions, prepare
from hilbert_ring.v1 import attention_pb2 as pb


def arrays(tokens=16, heads=4, kv_heads=2, dim=8, value_dim=16):
    return (np.zeros((tokens, heads, dim), "f4"), np.zeros((tokens, kv_heads, dim), "f4"),
            np.zeros((tokens, kv_heads, value_dim), "f4"))


def pattern(**changes):
    return {"segments": [8], "dilations": None, "mixing": "head_groups", "causal": False,
            "scale": None, "tail": "mask", "average_groups": True, "sequence_lengths": None,
            **changes}


def call(q=None, k=None, v=None, dtype=None, lse=True, out=None, ordering=None, options=None,
         **changes):
    base = arrays()
    given = [base[i] if x is None else x for i, x in enumerate((q, k, v))]
    return prepare(*given, dtype=dtype, lse=lse, out=out, ordering=ordering,
                   options=AttendOptions(**(options or {})), pattern=pattern(**changes))


def refused(field, limit=None, **arguments):
    with pytest.raises(hilbert_ring.HilbertRingError) as raised:
        call(**arguments)
    error = raised.value
    assert isinstance(error, ValueError)
    assert error.field == field, str(error)
    if limit is not None:
        assert error.limit == limit
    assert field.split("[")[0] in error.message


def test_the_spec_is_what_was_asked_for():
    spec = call(segments=np.array([4, 8]), dilations=(1, 2), mixing="lse", causal=True, scale=0.5,
                tail="zero", average_groups=False, sequence_lengths=[10, 6],
                ordering=hilbert_ring.Morton(grid=(4, 4), scope="kv")).open.spec
    assert spec == pb.JobSpec(
        tokens=16, heads=4, kv_heads=2, head_dim=8, value_dim=16, dtype=pb.DATA_TYPE_FLOAT32,
        segments=[4, 8], dilations=[1, 2], mixing=pb.MIXING_LSE, causal=True, scale=0.5,
        tail=pb.TAIL_ZERO, average_groups=False, sequence_lengths=[10, 6], align=pb.ALIGN_END,
        ordering=pb.Ordering(curve=pb.CURVE_MORTON, scope=pb.ORDER_SCOPE_KV, grid=[4, 4]))


@pytest.mark.parametrize("lists", [list, tuple, np.array, lambda values: array.array("d", values)])
def test_what_changes_scores(lists):
    spec = call(window=(3, None), softcap=np.float32(30), alibi={"slopes": lists([0.5, 0.25, 0, -1]), "distance": "tokens"},
                sinks=lists([1, -2.5, 0, 7])).open.spec
    expected = call().open.spec
    expected.window.left, expected.softcap = 3, 30
    expected.sinks.extend([1, -2.5, 0, 7])
    expected.alibi.CopyFrom(pb.Alibi(slopes=[0.5, 0.25, 0, -1], distance=pb.ALIBI_DISTANCE_TOKENS))
    assert spec == expected
    assert call(alibi=lists([0.5, 0.25, 0, -1])).open.spec.alibi == expected.alibi
    assert call(window=np.array([0, 5])).open.spec.window == pb.Window(left=0, right=5)


def test_coordinates_of_biases_go_first():
    coords = np.full((16, 3), np.nan, ">f4")
    coords[5] = 2.0**60, -2.0**60, 0
    made = call(alibi=[1.0] * 4, bias_coords=coords, ordering=hilbert_ring.Hilbert(coords=np.zeros((16, 2), int)))
    assert made.open.spec.alibi == pb.Alibi(slopes=[1] * 4, distance=pb.ALIBI_DISTANCE_COORDS, axes=3)
    assert made.inputs.ahead == (pb.TENSOR_COORDS, pb.TENSOR_BIAS_COORDS)
    assert bytes(made.inputs.readers[pb.TENSOR_BIAS_COORDS](5, 1)) == coords[5:6].astype("<f4").tobytes()


def test_keys_of_another_number():
    _, k, v = arrays(21)
    made = call(q=arrays(6)[0], k=k, v=v, sequence_lengths=[0, 6], key_sequence_lengths=(9, 12), align="start",
                ordering=hilbert_ring.Hilbert(coords=np.zeros((21, 2), int)))
    spec = made.open.spec
    assert (spec.tokens, spec.key_tokens, spec.align) == (6, 21, pb.ALIGN_START)
    assert (list(spec.sequence_lengths), list(spec.key_sequence_lengths)) == ([0, 6], [9, 12])
    assert made.inputs.total_bytes() == 6 * 128 + 21 * (64 + 128 + 8)
    assert {len(output.bytes) for output in made.outputs.values()} == {6} and made.tokens == 6
    assert not call().open.spec.HasField("key_tokens")
    without = call(k=k[:0], v=v[:0])
    assert without.open.spec.key_tokens == 0 and without.inputs.total_bytes() == 16 * 128


def test_bytes_of_a_row():
    spec = call().open.spec
    spec.ordering.coordinate_axes = 3
    rows = [_spec.row_bytes(spec, tensor) for tensor in (
        pb.TENSOR_COORDS, pb.TENSOR_Q, pb.TENSOR_K, pb.TENSOR_V, pb.TENSOR_OUT, pb.TENSOR_LSE)]
    assert rows == [12, 128, 64, 128, 256, 16]


@pytest.mark.parametrize("field, arguments", [
    ("q", {"q": np.zeros((16, 32), "f4")}),
    ("q", {"q": np.zeros((16, 4, 8))}),                        # float64
    ("q", {"q": np.zeros((16, 4, 8), "u2")}),                  # without a dtype
    ("q", {"q": np.zeros((16, 4, 8), "f2"), "dtype": "bfloat16"}),
    ("q", {"q": [[1.0]]}),
    ("k", {"k": np.zeros((16, 2, 16), "f4")}),
    ("v", {"k": np.zeros((15, 2, 8), "f4")}),
    ("k", {"k": np.zeros((16, 2, 8), "f2")}),
    ("v", {"v": np.zeros((16, 4, 8), "f4")}),
    ("dilations", {"dilations": [1, 2]}),
    ("segments", {"segments": 8}),
    ("segments[0]", {"segments": [8.5]}),
    ("segments[1]", {"segments": [8, 2**63]}),
    ("causal", {"causal": "false"}),
    ("average_groups", {"average_groups": "no"}),
    ("lse", {"lse": 0}),
    ("progress", {"options": {"progress": "no"}}),
    ("by_reference", {"options": {"by_reference": "sometimes"}}),
    ("mixing", {"mixing": "sum"}),
    ("tail", {"tail": None}),
    *(("align", {"align": value}) for value in (None, "middle", 1)),
    ("key_sequence_lengths", {"key_sequence_lengths": 16}),
    ("key_sequence_lengths[0]", {"key_sequence_lengths": [16.0]}),
    ("ordering", {"ordering": "hilbert"}),
    ("ordering.scope", {"ordering": hilbert_ring.Hilbert(scope="q")}),
    ("ordering.coords", {"ordering": hilbert_ring.Hilbert(coords=np.zeros((16, 4), int))}),
    ("ordering.coords", {"ordering": hilbert_ring.Hilbert(coords=np.zeros((15, 2), int))}),
    ("ordering.coords", {"ordering": hilbert_ring.Hilbert(coords=np.zeros((16, 2)))}),
    ("ordering.coords", {"ordering": hilbert_ring.Hilbert(coords=np.full((16, 2), -1))}),
    ("out", {"out": np.zeros((16, 4, 8), "f4")}),
    ("out", {"out": np.zeros((16, 4, 16), "f2")}),
    ("out", {"out": np.zeros((4, 16, 16), "f4").transpose(1, 0, 2)}),
    ("lse", {"lse": np.zeros((16, 4))}),
    ("max_attempts", {"options": {"max_attempts": 0}}),
    ("chunk_bytes", {"options": {"chunk_bytes": 0}}),
    ("q", {"q": np.ma.masked_array(np.zeros((16, 4, 8), "f4"), mask=True)}),
    ("sequence_lengths[1]", {"sequence_lengths": np.ma.masked_array([8, 8], [False, True])}),
    ("job_id", {"options": {"job_id": "a\ud800"}}),           # a lone surrogate
    ("q", {"q": np.zeros((16, 4, 8), [("x", "<f2")])}),
    ("q", {"q": np.zeros((16, 4, 8), "S2"), "dtype": "bfloat16"}),
    ("out", {"out": np.zeros((16, 4, 16), ">f4")}),
    ("deadline", {"options": {"deadline": 0}}),
    ("deadline", {"options": {"deadline": float("nan")}}),
    ("outage_timeout", {"options": {"outage_timeout": -1}}),
    *((name, {"options": {name: value}}) for name in ("deadline", "outage_timeout")
      for value in ("5", timedelta(seconds=5), True, 9.2e9, 1000000001, 10**400, [5], np.array([5.0]))),
    *((name, {"options": {name: value}}) for name in ("chunk_bytes", "max_attempts")
      for value in (1024.0, "3", float("nan"), True, None, 2**63)),
    ("job_id", {"options": {"job_id": 5}}),
    *((name, {name: value}) for name in ("scale", "softcap") for value in ("0.5", [1], True, 1j)),
    *(("window", {"window": value}) for value in (3, "33", (3,), (1, 2, 3), {3, 5}, {0: 3, 1: 5}, np.array(3))),
    *(("window[1]", {"window": (3, value)}) for value in (True, 5.0, "5", 2**63)),
    *((field, {argument: value}) for field, argument in (("sinks", "sinks"), ("alibi.slopes", "alibi"))
      for value in (1.0, "1234", (), np.array(1.0), iter([1.0]), np.zeros(0))),
    *((f"{field}[0]", {argument: value}) for field, argument in (("sinks", "sinks"), ("alibi.slopes", "alibi"))
      for value in ([True], ["1"], [None], np.ones((4, 1)), np.ones(4, bool), np.ma.masked_array([1.0], True))),
    ("alibi", {"alibi": {"slopes": [1.0], "distence": "tokens"}}),
    ("alibi.slopes", {"alibi": {"distance": "tokens"}}),
    *(("alibi.distance", {"alibi": {"slopes": [1.0], "distance": value}}) for value in ("cells", 1, [1])),
    ("bias_coords", {"alibi": {"slopes": [1.0], "distance": "coords"}}),
    ("alibi", {"bias_coords": np.zeros((16, 2), "f4")}),
    ("alibi.axes", {"alibi": {"slopes": [1.0] * 4, "axes": 3}, "bias_coords": np.zeros((16, 2), "f4")}),
    ("alibi.distance", {"alibi": {"slopes": [1.0] * 4, "distance": "tokens"}, "bias_coords": np.zeros((16, 2), "f4")}),
    *(("bias_coords", {"alibi": [1.0] * 4, "bias_coords": value}) for value in (
        np.zeros((16, 2)), np.zeros((15, 2), "f4"), np.zeros((16, 1), "f4"), np.zeros(16, "f4"), [[0.0, 1.0]] * 16,
        np.full((16, 2), np.inf, "f4"), np.full((16, 2), -2.0**61, "f4"))),
    *((name, {name: value}) for name in ("out", "lse") for value in ([[1.0]], {}, "", "a\0b", array.array("f", [1]))),
    *((name, {name: np.zeros(shape, "f4")}) for name in "qkv" for shape in ((16, 0, 8), (16, 2, 0))),
    ("q", {"q": np.zeros((0, 4, 8), "f4")}),
    ("ordering.coords", {"ordering": hilbert_ring.Hilbert(coords=[[1, 2], [3]])}),
])
def test_what_is_refused(field, arguments):
    refused(field, **arguments)


def test_options_are_made_pythons_own_numbers():
    options = AttendOptions(deadline=np.float32(5), max_attempts=np.int8(3), chunk_bytes=np.uint8(200))
    assert (options.deadline, options.max_attempts, options.chunk_bytes) == (5.0, 3, 200)
    assert type(options.chunk_bytes) is int and type(options.deadline) is float
    AttendOptions(deadline=0.001, outage_timeout=0)
    AttendOptions(deadline=1e9, outage_timeout=1e9)


@pytest.mark.parametrize("field, arguments", [
    ("workers", {"workers": "2"}), ("workers", {"workers": 2.0}), ("workers", {"workers": 2**31}),
    ("workers", {"workers": True}), ("deadline", {"deadline": "5"}), ("deadline", {"deadline": 9.2e9}),
    ("scale", {"scale": "1"}), ("ordering.coords", {"ordering": hilbert_ring.Hilbert(coords=[[1, 2], [3]])})])
def test_what_a_plan_refuses(client, field, arguments):
    given = {"tokens": 16, "heads": 4, "head_dim": 8, "segments": [8], **arguments}
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        client.plan(**given)
    assert raised.value.field == field


@pytest.mark.parametrize("field, value", [
    ("segments", [8, 16]), ("dilations", [1, 2]), ("sequence_lengths", [6, 10]), ("ordering.grid", [4, 4])])
def test_lists_are_read_once_and_have_an_order(field, value):
    def given(numbers):
        arguments = {"segments": [8, 16], "dilations": [1, 2]}
        if field == "ordering.grid":
            return {**arguments, "ordering": hilbert_ring.Hilbert(grid=numbers)}
        return {**arguments, field: numbers}

    expected = call(**given(value)).open.spec
    for numbers in (tuple(value), np.array(value), np.array(value, "u1"), deque(value)):
        assert call(**given(numbers)).open.spec == expected
    for numbers in (iter(value), (number for number in value), map(int, value), set(value), frozenset(value),
                    dict.fromkeys(value), dict.fromkeys(value).keys(), b"12", "12", np.array(8)):
        refused(field, **given(numbers))


@pytest.mark.parametrize("axes, limit", [(2, 2**32 - 1), (3, 2**21 - 1)])
def test_coordinates_have_a_limit(axes, limit):
    coords = np.zeros((16, axes), np.int64)
    coords[3, 1] = limit
    call(ordering=hilbert_ring.Hilbert(coords=coords))
    coords[3, 1] += 1
    refused("ordering.coords", limit, ordering=hilbert_ring.Hilbert(coords=coords))


def test_coordinates_may_be_lists():
    rows = call(ordering=hilbert_ring.Hilbert(coords=[[i, 2 * i] for i in range(16)]))
    sent = np.frombuffer(rows.inputs.readers[pb.TENSOR_COORDS](3, 2), "<u4")
    assert list(sent) == [3, 6, 4, 8]


def test_an_output_that_cannot_be_written_to():
    out = np.zeros((16, 4, 16), "f4")
    out.flags.writeable = False
    refused("out", out=out)


def test_names_that_the_service_refuses_come_back_as_fields(client):
    q, k, v = arrays()
    for field, arguments in (("window[0]", {"window": (-1, 0)}), ("softcap", {"softcap": 0}), ("sinks", {"sinks": [1]}),
                             ("alibi.slopes", {"alibi": [1]}), ("window", {"window": (1, 0), "dilations": [2]})):
        for refusing in (lambda: client.attend(q, k, v, segments=[8], progress=False, **arguments),
                         lambda: client.plan(tokens=16, heads=4, head_dim=8, segments=[8], **arguments),
                         lambda: list(client.attend_stream([(q, k, v)], segments=[8], **arguments))):
            with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
                refusing()
            assert raised.value.field == field
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        client.attend(q, k, v, segments=[0], progress=False)
    assert raised.value.reason == "INVALID_SPEC"
    assert (raised.value.field, raised.value.limit) == ("segments[0]", 1)
    with pytest.raises(hilbert_ring.OutOfRangeError) as raised:
        client.plan(tokens=2**41, heads=1, head_dim=8, segments=[8])
    assert (raised.value.field, raised.value.limit) == ("tokens", 2**40)


@pytest.mark.parametrize("argument", ["token", "token_file", "ca", "data_root"])
@pytest.mark.parametrize("value", [5, ""])
def test_texts_and_paths_of_a_connection(argument, value):
    for connect in (hilbert_ring.connect, hilbert_ring.aio.connect):
        with pytest.raises(hilbert_ring.InvalidArgumentError, match=argument) as raised:
            connect("localhost:8001", **{argument: value})
        assert raised.value.field == argument


TORCH = FakeTorch()


def zeros(*shape, dtype="f4"):
    return TORCH.Tensor(np.zeros(shape, dtype))


@pytest.fixture
def torch_of_zeros(monkeypatch):
    """The stand-in is enough, because nothing is computed."""
    monkeypatch.setitem(sys.modules, "torch", TORCH)


@pytest.mark.parametrize("field, changes", [
    ("v", {"v": zeros(1, 2, 1, 8)}), ("v", {"v": zeros(3, 2, 1, 8)}), ("v", {"v": zeros(2, 3, 1, 8)}),
    ("v", {"v": zeros(2, 1, 2, 8)}), ("v", {"v": zeros(2, 1, 8)}), ("v", {"v": zeros(2, 1, 1, 8, dtype="f2")}),
    ("k", {"k": zeros(1, 1, 1, 8), "v": zeros(1, 1, 1, 8)}), ("k", {"k": zeros(1, 2, 1, 8), "v": zeros(1, 2, 1, 8)}),
    ("k", {"k": zeros(2, 1, 1, 4)}), ("q", {"q": zeros(2, 1, 8)}), ("q", {"q": np.zeros((2, 1, 1, 8), "f4")}),
    ("q", {"q": None}), ("v", {"v": zeros(2, 1, 1, 257)}), ("window_size", {"window_size": (1, 2, 3)}),
    ("window_size", {"window_size": (-2, 0)}), ("window_size[0]", {"window_size": (0.5, 0)}),
    ("softcap", {"softcap": "0"}), ("softcap", {"softcap": np.zeros(2)}), ("dropout_p", {"dropout_p": np.zeros(2)}),
    ("alibi_slopes", {"alibi_slopes": np.zeros(4)}),
    ("return_attn_probs", {"return_attn_probs": "no"}), ("deterministic", {"deterministic": 1})])
@pytest.mark.usefixtures("torch_of_zeros")
def test_flash_attention_refuses_what_is_not_of_its_kind(field, changes):
    given = {"q": zeros(2, 1, 1, 8), "k": zeros(2, 1, 1, 8), "v": zeros(2, 1, 1, 8), **changes}
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        flash_attn_func(**given)
    assert raised.value.field == field


def test_arrays_of_numpy_are_refused_without_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="q is of type ndarray, must be a torch.Tensor"):
        flash_attn_func(*[np.zeros((2, 1, 1, 8), "f4")] * 3)


@pytest.mark.parametrize("field, changes", [
    ("v", {"v": zeros(3, 1, 8)}), ("v", {"v": zeros(4, 2, 8)}), ("k", {"k": zeros(4, 1, 4)}),
    ("q", {"q": zeros(1, 4, 1, 8)}),
    ("cu_seqlens_q[0]", {"cu_seqlens_q": [0.0, 1.9, 3.9]}), ("cu_seqlens_k[1]", {"cu_seqlens_k": [0, 4.0]}),
    ("cu_seqlens_q[0]", {"cu_seqlens_q": [[0, 4]]}), ("cu_seqlens_q", {"cu_seqlens_q": []}),
    ("cu_seqlens_q", {"cu_seqlens_q": [1, 4]}), ("cu_seqlens_k", {"cu_seqlens_k": [0, 5]}),
    ("cu_seqlens_k", {"cu_seqlens_k": [0, 3, 2, 4]}), ("cu_seqlens_k", {"cu_seqlens_k": [0, 2, 4]})])
@pytest.mark.usefixtures("torch_of_zeros")
def test_packed_flash_attention_refuses(field, changes):
    given = {"q": zeros(4, 1, 8), "k": zeros(4, 1, 8), "v": zeros(4, 1, 8), "cu_seqlens_q": [0, 4],
             "cu_seqlens_k": [0, 4], **changes}
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        flash_attn_varlen_func(**given, max_seqlen_q=4, max_seqlen_k=4)
    assert raised.value.field == field

"""flash-attn's signatures and LongNet's dilated attention, compared with a local computation."""
import numpy as np
import pytest

import hilbert_ring
import hilbert_ring.longnet

torch = pytest.importorskip("torch")


def tensors(batch, queries, keys, heads=4, kv_heads=2, dim=16, dtype=torch.float32):
    torch.manual_seed(1)
    return (torch.randn(batch, queries, heads, dim).to(dtype),
            torch.randn(batch, keys, kv_heads, dim).to(dtype),
            torch.randn(batch, keys, kv_heads, dim).to(dtype))


def expected(q, k, v, causal, scale=None):
    """Computes the definition in float64: out [B, S, H, D], lse [B, H, S]."""
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (scale or q.shape[3] ** -0.5)
    if causal:
        queries, keys = scores.shape[2:]
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        scores = scores.masked_fill(~seen, -torch.inf)
    weights = torch.softmax(scores, dim=-1).nan_to_num(0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), torch.logsumexp(scores, dim=-1)


def check(out, lse, want, tolerance=1e-5):
    torch.testing.assert_close(out.double(), want[0], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(lse.double(), want[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("batch, queries, keys", [
    (1, 33, 33), (3, 20, 20), (2, 1, 40), (2, 7, 40), (1, 40, 7), (2, 14, 7), (1, 5, 1), (3, 9, 2)])
def test_func(client, batch, queries, keys, causal):
    q, k, v = tensors(batch, queries, keys)
    call = dict(causal=causal, return_attn_probs=True, client=client)
    out, lse, probabilities = hilbert_ring.flash_attn_func(q, k, v, **call)
    assert out.shape == q.shape and lse.shape == (batch, 4, queries) and probabilities is None
    assert lse.dtype == torch.float32
    check(out, lse, expected(q, k, v, causal))


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_types_and_scale(client, dtype, tolerance):
    q, k, v = tensors(2, 30, 30, dtype=dtype)
    out, lse, _ = hilbert_ring.flash_attn_func(q, k, v, softmax_scale=0.5, return_attn_probs=True,
                                               client=client)
    assert out.dtype == dtype
    check(out, lse, expected(q, k, v, False, 0.5), tolerance)


@pytest.mark.parametrize("causal", [False, True])
def test_varlen(client, causal):
    lengths_q = [5, 0, 1, 17, 11, 8, 3]
    lengths_k = [5, 4, 9, 17, 3, 4, 0]
    q, _, _ = tensors(1, sum(lengths_q), 1)
    _, k, v = tensors(1, 1, sum(lengths_k))
    q, k, v = q[0], k[0], v[0]
    cumulative = [torch.tensor([0, *x], dtype=torch.int32).cumsum(0, dtype=torch.int32)
                  for x in (lengths_q, lengths_k)]
    out, lse, _ = hilbert_ring.flash_attn_varlen_func(
        q, k, v, *cumulative, 17, 17, causal=causal, return_attn_probs=True, client=client)
    assert out.shape == q.shape and lse.shape == (4, len(q))
    at_q = at_k = 0
    for queries, keys in zip(lengths_q, lengths_k):
        rows = slice(at_q, at_q + queries)
        own = slice(at_k, at_k + keys)
        want = expected(q[None, rows], k[None, own], v[None, own], causal)
        check(out[None, rows], lse[None, :, rows], want)
        at_q, at_k = rows.stop, own.stop
    assert torch.equal(out[-3:], torch.zeros_like(out[-3:])) and (lse[:, -3:] == -torch.inf).all()


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("queries, keys, causal", [(20, 20, True), (7, 40, True), (40, 7, False)])
@pytest.mark.parametrize("dim, value_dim", [(1, 1), (20, 20), (33, 16), (16, 33), (255, 255)])
def test_head_dims_that_are_no_multiple_of_8(client, dim, value_dim, queries, keys, causal, dtype, tolerance):
    q, k, _ = tensors(2, queries, keys, dim=dim, dtype=dtype)
    _, _, v = tensors(2, queries, keys, dim=value_dim, dtype=dtype)
    for scale in (None, 0.3):
        out, lse, _ = hilbert_ring.flash_attn_func(q, k, v, softmax_scale=scale, causal=causal, return_attn_probs=True,
                                                   client=client)
        assert out.shape == (2, queries, 4, value_dim)
        check(out, lse, expected(q, k, v, causal, scale), tolerance)


@pytest.mark.parametrize("causal, options", [
    (False, {"window_size": None}), (False, {"window_size": (None, None)}), (False, {"window_size": [-1, -1]}),
    (False, {"window_size": (11, 8)}), (False, {"window_size": (100, -1)}), (False, {"softcap": None, "dropout_p": None}),
    (False, {"softcap": 0, "dropout_p": np.float32(0)}), (True, {"window_size": (11, 0)}), (True, {"window_size": (-1, 0)}),
    (True, {"window_size": (11, 3), "causal": True}), (True, {"window_size": None, "causal": True})])
def test_options_that_hide_no_key(client, causal, options):
    q, k, v = tensors(2, 9, 12)
    call = {**options, "return_attn_probs": True, "client": client}
    out, lse, _ = hilbert_ring.flash_attn_func(q, k, v, **call)
    check(out, lse, expected(q, k, v, causal))
    out, lse, _ = hilbert_ring.flash_attn_varlen_func(q[0], k[0], v[0], [0, 9], [0, 12], 9, 12, **call)
    check(out[None], lse[None], expected(q[:1], k[:1], v[:1], causal))


@pytest.mark.parametrize("field, value", [
    ("dropout_p", 0.1), ("window_size", (2, 0)), ("window_size", (-1, 2)), ("softcap", 30.0),
    ("alibi_slopes", torch.ones(4)), ("causal", "false"), ("causal", torch.tensor(True))])
def test_what_the_service_does_not_compute_is_refused(field, value):
    q, k, v = tensors(1, 4, 4)
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        hilbert_ring.flash_attn_func(q, k, v, **{field: value})
    assert raised.value.field == field
    with pytest.raises(hilbert_ring.InvalidArgumentError):
        hilbert_ring.flash_attn_varlen_func(q[0], k[0], v[0], [0, 4], [0, 4], 4, 4,
                                            **{field: value})


def local_core(q, k, v, segment_length, dilated_ratio):
    """Computes [B, S, H, D] in float64: gathers each branch's rows, pads them with zeros, mixes by lse."""
    batch, tokens, heads, dim = q.shape
    outs, lses = [], []
    for segment, ratio in zip(segment_length, dilated_ratio):
        out = torch.zeros(batch, tokens, heads, dim, dtype=torch.float64)
        lse = torch.full((batch, tokens, heads), -torch.inf, dtype=torch.float64)
        heads_per_offset = -(-heads // ratio)
        for head in range(heads):
            for begin in range(0, tokens, min(segment, tokens)):
                end = min(begin + min(segment, tokens), tokens)
                rows = torch.arange(begin + head // heads_per_offset, end, ratio)
                slots = -(-min(segment, tokens) // ratio)
                if not len(rows):
                    continue
                pad = torch.zeros(batch, slots - len(rows), dim, dtype=torch.float64)
                own = [torch.cat([x[:, rows, head].double(), pad], dim=1) for x in (k, v)]
                scores = q[:, rows, head].double() @ own[0].transpose(1, 2) * dim**-0.5
                out[:, rows, head] = torch.softmax(scores, dim=-1) @ own[1]
                lse[:, rows, head] = torch.logsumexp(scores, dim=-1)
        outs.append(out)
        lses.append(lse)
    weights = torch.softmax(torch.stack(lses), dim=0).nan_to_num(0)
    return (weights[..., None] * torch.stack(outs)).sum(dim=0)


@pytest.mark.parametrize("batch, tokens, dim", [(1, 64, 16), (2, 100, 16), (3, 37, 20)])
@pytest.mark.parametrize("segments, ratios", [([16], [1]), ([16, 64], [1, 2]),
                                              ([8, 32, 4096], [1, 2, 4])])
def test_one_job_is_longnets_computation(client, batch, tokens, dim, segments, ratios):
    q, k, v = tensors(batch, tokens, tokens, kv_heads=4, dim=dim)
    out = hilbert_ring.longnet.dilated_attention(q, k, v, segments, ratios, client=client)
    assert out.shape == q.shape
    torch.testing.assert_close(out.double(), local_core(q, k, v, segments, ratios), rtol=1e-5,
                               atol=1e-5)


@pytest.mark.parametrize("field, changes", [
    ("segment_length", {"segment_length": 4}), ("dilated_ratio", {"dilated_ratio": [1.0]}), ("q", {"q": [[1.0]]}),
    ("k", {"k": torch.zeros(10, 4, 16)}), ("v", {"v": torch.zeros(1, 10, 4, 16).numpy()})])
def test_what_longnets_attention_refuses(client, field, changes):
    given = {**dict(zip("qkv", tensors(1, 10, 10, kv_heads=4))), "segment_length": [4], "dilated_ratio": [1], **changes}
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        hilbert_ring.longnet.dilated_attention(**given, client=client)
    assert raised.value.field.split("[")[0] == field

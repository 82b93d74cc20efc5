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


def expected(q, k, v, causal, scale=None, window=(-1, -1), softcap=0.0, slopes=None):
    """Computes the definition in float64: out [B, S, H, D], lse [B, H, S]."""
    q, k, v = (x.double() for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (scale or q.shape[3] ** -0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    queries, keys = scores.shape[2:]
    ahead = torch.arange(keys) - torch.arange(queries)[:, None] - (keys - queries)
    if slopes is not None:
        scores = scores - slopes.double().expand(len(q), -1)[:, :, None, None] * ahead.abs()
    left, right = window[0], 0 if causal else window[1]
    seen = (ahead >= (-left if left >= 0 else -keys)) & (ahead <= (right if right >= 0 else keys + queries))
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


SLOPES = torch.tensor([0.5, 0.25, 0.03, -0.1])


@pytest.mark.parametrize("queries, keys", [(20, 20), (1, 20), (6, 20), (20, 6)])
@pytest.mark.parametrize("causal, options", [
    (True, {"window_size": (4, -1)}), (True, {"window_size": (0, 0)}), (False, {"window_size": (4, 0)}),
    (False, {"window_size": (3, 2)}), (False, {"window_size": (-1, 2)}), (False, {"window_size": (2, -1)}),
    (False, {"softcap": 0.7}), (True, {"softcap": 0.7, "window_size": (5, 0)}), (True, {"alibi_slopes": SLOPES}),
    (False, {"alibi_slopes": SLOPES}), (False, {"alibi_slopes": torch.stack((SLOPES, SLOPES.flip(0)))}),
    (False, {"alibi_slopes": torch.stack((SLOPES, SLOPES)), "softcap": 1.5, "window_size": (3, 3)})])
def test_what_changes_scores(client, queries, keys, causal, options):
    q, k, v = tensors(2, queries, keys)
    want = expected(q, k, v, causal, 0.6, options.get("window_size", (-1, -1)), options.get("softcap"),
                    options.get("alibi_slopes"))
    out, lse, _ = hilbert_ring.flash_attn_func(q, k, v, softmax_scale=0.6, causal=causal, return_attn_probs=True,
                                               client=client, **options)
    check(out, lse, want)


@pytest.mark.parametrize("field, value", [
    ("dropout_p", 0.1), ("window_size", (2, -2)), ("window_size", 5), ("window_size", (1.5, 0)), ("softcap", -30.0),
    ("alibi_slopes", torch.ones(3)), ("alibi_slopes", torch.ones(3, 4)), ("alibi_slopes", [1.0] * 4),
    ("causal", "false"), ("causal", torch.tensor(True))])
def test_what_is_refused(client, field, value):
    q, k, v = tensors(2, 4, 4)
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        hilbert_ring.flash_attn_func(q, k, v, client=client, **{field: value})
    assert raised.value.field.split("[")[0] == field
    with pytest.raises(hilbert_ring.InvalidArgumentError):
        hilbert_ring.flash_attn_varlen_func(q[0], k[0], v[0], [0, 4], [0, 4], 4, 4, client=client, **{field: value})


def test_packed_forms(client):
    q, k, v = tensors(2, 12, 12, heads=4, kv_heads=4)
    call = {"causal": True, "window_size": (3, 0), "return_attn_probs": True, "client": client}
    want = hilbert_ring.flash_attn_func(q, k, v, **call)[:2]
    flat, ends = [x.flatten(0, 1) for x in (q, k, v)], torch.tensor([0, 12, 24])
    varlen = [want[0].flatten(0, 1), want[1].transpose(0, 1).flatten(1, 2)]
    for made, wanted in (
            (hilbert_ring.flash_attn_qkvpacked_func(torch.stack((q, k, v), 2), **call), want),
            (hilbert_ring.flash_attn_kvpacked_func(q, torch.stack((k, v), 2), **call), want),
            (hilbert_ring.flash_attn_varlen_qkvpacked_func(torch.stack(flat, 1), ends, 12, **call), varlen),
            (hilbert_ring.flash_attn_varlen_kvpacked_func(flat[0], torch.stack(flat[1:], 1), ends, ends, 12, 12, **call),
             varlen)):
        assert made[2] is None and all(torch.equal(one, other) for one, other in zip(made, wanted))
    for packed in (torch.stack((q, k), 2), torch.stack(flat, 1), [1.0]):
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="qkv has shape"):
            hilbert_ring.flash_attn_qkvpacked_func(packed, client=client)


def test_rows_that_are_not_used(client):
    q, k, v = (x[0] for x in tensors(1, 30, 40))
    ends_q, ends_k, used_q, used_k = [0, 10, 30], [0, 25, 40], torch.tensor([4, 20]), torch.tensor([9, 15])
    out, lse, _ = hilbert_ring.flash_attn_varlen_func(
        q, k, v, ends_q, ends_k, 20, 25, causal=True, return_attn_probs=True, seqused_q=used_q, seqused_k=used_k,
        client=client)
    for own, keys in ((slice(0, 4), slice(0, 9)), (slice(10, 30), slice(25, 40))):
        check(out[None, own], lse[None, :, own], expected(q[None, own], k[None, keys], v[None, keys], True))
    assert not out[4:10].any() and (lse[:, 4:10] == -torch.inf).all()
    for used in ([9], [9, 16], [-1, 3]):
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="seqused_k"):
            hilbert_ring.flash_attn_varlen_func(q, k, v, ends_q, ends_k, 20, 25, seqused_k=used, client=client)


def rotary(positions, dim, base=1e4):
    angles = torch.arange(positions)[:, None] * base ** (-torch.arange(0, dim, 2) / dim)
    return angles.cos(), angles.sin()


def turned(x, cos, sin, interleaved):
    """Multiplies the first numbers of x [tokens, heads, dim] as complex numbers. cos: [tokens, pairs]."""
    pairs, x = cos.shape[1], x.double()
    parts = (x[..., 0:2 * pairs:2], x[..., 1:2 * pairs:2]) if interleaved else (x[..., :pairs], x[..., pairs:2 * pairs])
    made = torch.complex(*parts) * torch.complex(cos.double(), sin.double())[:, None]
    made = torch.view_as_real(made).flatten(-2) if interleaved else torch.cat((made.real, made.imag), -1)
    return torch.cat((made, x[..., 2 * pairs:]), -1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("causal, window", [(True, (-1, -1)), (False, (5, 2)), (False, (-1, -1)), (False, (64, 64))])
def test_a_cache(client, causal, window, interleaved):
    torch.manual_seed(3)
    cache = [torch.randn(5, 32, 2, 16) for _ in "kv"]
    q, k, v = torch.randn(3, 4, 4, 16), torch.randn(3, 4, 2, 16), torch.randn(3, 4, 2, 16)
    cos, sin = rotary(40, 12)
    filled, rows, leftpad = torch.tensor([9, 0, 28], dtype=torch.int32), torch.tensor([4, 0, 2]), torch.tensor([2, 0, 5])
    before = [x.clone() for x in cache]
    out, lse = hilbert_ring.flash_attn_with_kvcache(
        q, *cache, k, v, cos, sin, filled, rows, leftpad, causal=causal, window_size=window, softcap=2.0,
        rotary_interleaved=interleaved, return_softmax_lse=True, client=client)
    for own, (at, row, pad) in enumerate(zip(filled.tolist(), rows.tolist(), leftpad.tolist())):
        end = at + 4
        new = turned(k[own], cos[at:end], sin[at:end], interleaved)
        torch.testing.assert_close(cache[0][row, at:end].double(), new, rtol=1e-6, atol=1e-6)
        assert torch.equal(cache[1][row, at:end], v[own])
        for now, then in zip(cache, before):
            then[row, at:end] = now[row, at:end]
        places = slice(at, end) if causal or window == (5, 2) else slice(at, at + 1)
        asked = turned(q[own], cos[places], sin[places], interleaved)
        keys, values = torch.cat((cache[0][row, pad:at].double(), new)), cache[1][row, pad:end]
        check(out[None, own], lse[None, own], expected(asked[None], keys[None], values[None], causal, None, window, 2.0))
    assert all(torch.equal(now, then) for now, then in zip(cache, before))  # all other rows are as they were


def test_a_cache_that_is_read_alone(client):
    q, k, v = tensors(2, 1, 20)
    for filled in (None, 20, 7):
        out = hilbert_ring.flash_attn_with_kvcache(q, k, v, cache_seqlens=filled, causal=True, client=client)
        torch.testing.assert_close(out.double(), expected(q, k[:, :filled], v[:, :filled], True)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("field, changes", [
    ("cache_seqlens", {"cache_seqlens": None}), ("cache_seqlens", {"cache_seqlens": 29}),
    ("cache_seqlens", {"cache_seqlens": [1]}), ("cache_seqlens", {"cache_seqlens": torch.tensor([1.0, 2.0])}),
    ("cache_batch_idx", {"cache_batch_idx": [0, 2]}), ("cache_leftpad", {"cache_leftpad": [0, 9]}),
    ("block_table", {"block_table": [[0]]}), ("k", {"k": torch.zeros(2, 4, 2, 8)}), ("v", {"v": None}),
    ("rotary_cos", {"rotary_cos": torch.zeros(9, 8), "rotary_sin": torch.zeros(9, 8)}),
    ("rotary_cos", {"rotary_cos": torch.zeros(32, 8)}),
    ("rotary_cos", {"rotary_cos": torch.zeros(32, 8), "rotary_sin": torch.zeros(32, 8), "k": None, "v": None}),
    ("k", {"k": [1.0], **{name: torch.zeros(32, 8) for name in ("rotary_cos", "rotary_sin")}})])
def test_what_a_cache_refuses(client, field, changes):
    cache = [torch.ones(2, 32, 2, 16) for _ in "kv"]
    given = {"k": torch.zeros(2, 4, 2, 16), "v": torch.zeros(2, 4, 2, 16), "cache_seqlens": 6, **changes}
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        hilbert_ring.flash_attn_with_kvcache(torch.zeros(2, 4, 4, 16), *cache, **given, client=client)
    assert raised.value.field.split("[")[0] == field
    assert all((one == 1).all() for one in cache)


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

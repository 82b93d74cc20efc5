"""LongNet's dilated attention, against a local computation of it as its encoders do it."""
import pytest

import hilbert_ring
import hilbert_ring.longnet

torch = pytest.importorskip("torch")


def local_core(q, k, v, segment_length, dilated_ratio):
    """[B, S, H, D], float64: gathers each branch's rows, pads them with zeros, mixes by lse."""
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


def tensors(batch, tokens, heads=4, dim=16):
    torch.manual_seed(6)
    return tuple(torch.randn(batch, tokens, heads, dim) for _ in "qkv")


@pytest.mark.parametrize("batch, tokens, dim", [(1, 64, 16), (2, 100, 16), (3, 37, 20)])
@pytest.mark.parametrize("segments, ratios", [([16], [1]), ([16, 64], [1, 2]),
                                              ([8, 32, 4096], [1, 2, 4])])
def test_one_job_is_the_cores_computation(client, batch, tokens, dim, segments, ratios):
    q, k, v = tensors(batch, tokens, dim=dim)
    out = hilbert_ring.longnet.dilated_attention(q, k, v, segments, ratios, client=client)
    assert out.shape == q.shape
    torch.testing.assert_close(out.double(), local_core(q, k, v, segments, ratios), rtol=1e-5,
                               atol=1e-5)


class DilatedAttention(torch.nn.Module):
    """As LongNet-style encoders have it: projections around a core."""

    def __init__(self, core):
        super().__init__()
        torch.manual_seed(7)
        self.qkv = torch.nn.Linear(64, 192)
        self.norm = torch.nn.LayerNorm(64)
        self.out = torch.nn.Linear(64, 64)
        self.core = core

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).unbind(2)  # strided views
        return self.out(self.norm(self.core(q, k, v).to(x.dtype).flatten(2)))


def test_an_encoders_layer_with_the_service_in_its_core(client):
    pattern = ([16, 100], [1, 3])
    ours = DilatedAttention(
        lambda q, k, v: hilbert_ring.longnet.dilated_attention(q, k, v, *pattern, client=client))
    theirs = DilatedAttention(lambda q, k, v: local_core(q, k, v, *pattern))
    x = torch.randn(2, 100, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("field, change", [
    ("k", lambda q, k, v: (q, k[:, :9], v[:, :9])), ("k", lambda q, k, v: (q, k[:, :, :2], v[:, :, :2])),
    ("q", lambda q, k, v: (q.numpy(), k, v)), ("q", lambda q, k, v: (q[0], k[0], v[0])),
    ("q", lambda q, k, v: (q.double(), k.double(), v.double())), ("v", lambda q, k, v: (q, k, v.bfloat16()))])
def test_tensors_of_another_kind_are_refused(field, change):
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        hilbert_ring.longnet.dilated_attention(*change(*tensors(1, 10)), [4], [1])
    assert raised.value.field == field


@pytest.mark.parametrize("field, changes", [
    ("segment_length", {"segment_length": 4}), ("dilated_ratio", {"dilated_ratio": [1.0]}), ("q", {"q": [[1.0]]}),
    ("k", {"k": torch.zeros(10, 4, 16)}), ("v", {"v": torch.zeros(1, 10, 4, 16).numpy()})])
def test_what_is_wrong_is_named(client, field, changes):
    given = {**dict(zip("qkv", tensors(1, 10))), "segment_length": [4], "dilated_ratio": [1], **changes}
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        hilbert_ring.longnet.dilated_attention(**given, client=client)
    assert raised.value.field.split("[")[0] == field


def test_a_flag_that_is_no_bool_is_refused(client):
    q, k, v = tensors(1, 10)
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="is_causal is 'no', must be True or False"):
        hilbert_ring.longnet.dilated_attention(q, k, v, [4], [1], is_causal="no", client=client)

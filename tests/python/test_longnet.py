"""LongNet's dilated attention, compared with a local computation."""
import pytest

import hilbert_ring
import hilbert_ring.longnet

torch = pytest.importorskip("torch")


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


@pytest.mark.parametrize("field, changes", [
    ("segment_length", {"segment_length": 4}), ("dilated_ratio", {"dilated_ratio": [1.0]}), ("q", {"q": [[1.0]]}),
    ("k", {"k": torch.zeros(10, 4, 16)}), ("v", {"v": torch.zeros(1, 10, 4, 16).numpy()})])
def test_what_is_wrong_is_named(client, field, changes):
    given = {**dict(zip("qkv", tensors(1, 10))), "segment_length": [4], "dilated_ratio": [1], **changes}
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        hilbert_ring.longnet.dilated_attention(**given, client=client)
    assert raised.value.field.split("[")[0] == field

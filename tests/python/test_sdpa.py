"""scaled_dot_product_attention beside PyTorch's, and graphs of torch.compile without a break."""
import pytest

import hilbert_ring

torch = pytest.importorskip("torch")


def tensors(queries, keys, heads=4, kv_heads=4, outer=(2,), dim=16, value_dim=16):
    torch.manual_seed(1)
    return (torch.randn(*outer, heads, queries, dim), torch.randn(*outer, kv_heads, keys, dim),
            torch.randn(*outer, kv_heads, keys, value_dim))


def compare(client, *given, **more):
    made = hilbert_ring.scaled_dot_product_attention(*given, **more, client=client)
    want = torch.nn.functional.scaled_dot_product_attention(*given, **more)
    assert made.shape == want.shape
    torch.testing.assert_close(made, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("queries, keys", [(20, 20), (1, 20), (7, 20), (20, 7)])
def test_lengths(client, queries, keys, is_causal):
    """PyTorch's causal mask is aligned to the top left."""
    compare(client, *tensors(queries, keys), is_causal=is_causal)


@pytest.mark.parametrize("more", [{"scale": 0.3}, {"enable_gqa": True}])
@pytest.mark.parametrize("outer", [(), (2,), (2, 3)])
def test_shapes(client, outer, more):
    compare(client, *tensors(9, 12, kv_heads=2 if "enable_gqa" in more else 4, outer=outer, value_dim=24), **more)


TRI = torch.ones(12, 12).tril().bool()
REAL = torch.tensor([[1] * 12, [0] * 3 + [1] * 9]).bool()[:, None, None]


@pytest.mark.parametrize("mask", [
    TRI, TRI & ~torch.ones(12, 12).tril(-4).bool(), torch.where(TRI, 0.0, -torch.inf), REAL, REAL & (TRI | ~REAL.mT),
    torch.block_diag(torch.ones(5, 5), torch.ones(7, 7)).bool(), REAL.expand(2, 4, 12, 12)])
def test_masks(client, mask):
    compare(client, *tensors(12, 12), mask)
    compare(client, *tensors(12, 12, outer=(3, 2)), mask)


NEAR = TRI & ~torch.ones(12, 12).tril(-4).bool()
WIDE = torch.ones(12, 12).tril(2).bool() & ~torch.ones(12, 12).tril(-4).bool()
AT_ENDS = torch.tensor([[0] * 5 + [1] * 7, [1] * 4 + [0] * 8, [1] * 12]).bool()[:, None, None]


@pytest.mark.parametrize("shown", ["by position", "nothing", "no empty row"])
@pytest.mark.parametrize("sees", [TRI, NEAR, WIDE], ids=["causal", "causal window", "window"])
def test_padding_at_both_ends(client, sees, shown):
    mask = sees & AT_ENDS
    if shown == "nothing":
        mask = mask & AT_ENDS.mT
    elif shown == "no empty row":
        mask = mask | ~mask.any(-1, keepdim=True)
    given = tensors(12, 12, kv_heads=2, outer=(3,))
    made = hilbert_ring.scaled_dot_product_attention(*given, mask, enable_gqa=True, client=client)
    scores = given[0] @ given[1].repeat_interleave(2, 1).mT / 4
    want = scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num() @ given[2].repeat_interleave(2, 1)
    torch.testing.assert_close(made, want, rtol=1e-5, atol=1e-5)


def test_a_batch_without_heads(client):
    """PyTorch's 3 axes are a batch, whose rows may differ in their masks."""
    compare(client, *tensors(12, 12, outer=()), torch.stack([TRI, TRI & REAL[1, 0], TRI.new_ones(12, 12), TRI]))


def test_no_queries(client):
    compare(client, *tensors(0, 12), torch.ones(0, 12).bool())


@pytest.mark.parametrize("field, more", [
    ("dropout_p", {"dropout_p": 0.1}), ("attn_mask", {"attn_mask": TRI, "is_causal": True}), ("key", {"enable_gqa": False}),
    ("attn_mask", {"attn_mask": torch.randn(12, 12)}),
    ("attn_mask", {"attn_mask": torch.ones(3, 1, 12, 12).bool()}), ("attn_mask", {"attn_mask": TRI[0]}),
    ("query", {"query": [1.0]}), ("value", {"value": torch.zeros(2, 2, 11, 16)}), ("key", {"key": torch.zeros(3, 2, 12, 16), "value": torch.zeros(3, 2, 12, 16)})])
def test_what_is_refused(client, field, more):
    given = {**dict(zip(("query", "key", "value"), tensors(12, 12, kv_heads=2))), "enable_gqa": True, **more}
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        hilbert_ring.scaled_dot_product_attention(**given, client=client)
    assert raised.value.field == field


def cached(client):
    def function(q, k, filled):
        caches = [torch.zeros(2, 32, 2, 16) for _ in "kv"]
        angles = torch.arange(32)[:, None] * torch.tensor([1.0, 0.1])
        out, lse = hilbert_ring.flash_attn_with_kvcache(
            q[:, :4], *caches, k[:, :4], k[:, :4], angles.cos(), angles.sin(), filled, causal=True, return_softmax_lse=True,
            client=client)
        return out, lse, *caches
    return function


CALLS = {
    "flash_attn_func": lambda client: lambda q, k, _: hilbert_ring.flash_attn_func(
        q, k, k, causal=True, window_size=(3, 0), softcap=2.0, alibi_slopes=q[0, 0, :, 0], return_attn_probs=True,
        client=client)[:2],
    "flash_attn_varlen_func": lambda client: lambda q, k, ends: hilbert_ring.flash_attn_varlen_func(
        q.flatten(0, 1), k.flatten(0, 1), k.flatten(0, 1), torch.nn.functional.pad(ends, (1, 0)),
        torch.nn.functional.pad(ends, (1, 0)), 40, 40, causal=True, client=client),
    "flash_attn_with_kvcache": cached,
    "top left": lambda client: lambda q, k, _: hilbert_ring.scaled_dot_product_attention(
        q.transpose(1, 2), *[k[:, :7].transpose(1, 2)] * 2, is_causal=True, enable_gqa=True, client=client),
    "a mask": lambda client: lambda q, k, _: hilbert_ring.scaled_dot_product_attention(
        q.transpose(1, 2), *[k.transpose(1, 2)] * 2, torch.ones(20, 20).tril().bool(), enable_gqa=True, client=client),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_graph_without_a_break(client, name, dynamic):
    torch.manual_seed(2)
    given = torch.randn(2, 20, 4, 16), torch.randn(2, 20, 2, 16), torch.tensor([3, 28] if "kvcache" in name else [3, 40])
    function = CALLS[name](client)
    torch.compiler.reset()
    compiled = torch.compile(lambda *tensors: function(*(tensors[0] * 2, *tensors[1:])), fullgraph=True, backend="aot_eager",
                             dynamic=dynamic)
    made, want = compiled(*given), function(given[0] * 2, *given[1:])
    torch.testing.assert_close(made, want, rtol=0, atol=0)


@pytest.mark.parametrize("family", ["Llama", "Gemma 2", "gpt-oss", "ModernBERT"])
def test_a_model_without_a_break(client, family):
    pytest.importorskip("transformers")
    import hilbert_ring.transformers
    from model_families import inputs_of, main_output, model_of
    hilbert_ring.transformers.register("compiled", client)
    model = model_of(family)
    model.set_attn_implementation("compiled")
    more = {} if family == "ModernBERT" else {"use_cache": False}
    for given in (*inputs_of(model, False), *inputs_of(model, True)):
        torch.compiler.reset()
        with torch.no_grad():
            want = main_output(model(**given.given, **more))
            made = torch.compile(lambda: main_output(model(**given.given, **more)), fullgraph=True, backend="aot_eager")()
        real = slice(None) if given.real is None else given.real
        torch.testing.assert_close(made[real], want[real], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("field, filled, rows", [("cache_seqlens", [3, 29], [1, 0]), ("cache_seqlens", [-1, 3], [1, 0]),
                                                 ("cache_batch_idx", [3, 4], [2, 0])])
def test_a_graph_checks_before_it_writes(client, field, filled, rows):
    caches = [torch.ones(2, 32, 2, 16) for _ in "kv"]

    def write(q, k, filled, rows):
        return hilbert_ring.flash_attn_with_kvcache(q, *caches, k, k, cache_seqlens=filled, cache_batch_idx=rows, client=client)
    torch.compiler.reset()
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        torch.compile(write, fullgraph=True, backend="aot_eager")(
            torch.zeros(2, 4, 4, 16), torch.zeros(2, 4, 2, 16), torch.tensor(filled), torch.tensor(rows))
    assert raised.value.field == field
    assert all((cache == 1).all() for cache in caches)


def test_what_a_graph_keeps(client):
    """A graph does not own its client and pattern."""
    from hilbert_ring import _torch_ops
    from hilbert_ring._packed import Pattern
    pattern = Pattern(segments=[4])
    number = _torch_ops._number(pattern)
    assert _torch_ops._number(pattern) == number != _torch_ops._number(client)
    assert _torch_ops._pattern_of(number) is pattern and _torch_ops._client_of(0) is None
    del pattern
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="segments of a compiled graph is deleted"):
        _torch_ops._pattern_of(number)


def test_operators(client):
    """The fake kernels have the shapes and types of the real ones."""
    from hilbert_ring import _torch_ops
    kept = _torch_ops._number(client), 0
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in tensors(6, 8, kv_heads=2, value_dim=24))
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.hilbert_ring.sequences.default, (
        q, k, v, torch.tensor([0, 6, 12]), torch.tensor([0, 8, 16]), None, torch.tensor([3, 8]), None, True, 2, None, None,
        1.5, torch.ones(4), torch.ones(4), *kept), test_utils=checks)
    torch.library.opcheck(torch.ops.hilbert_ring.checked.default, (torch.tensor([3, 8]), torch.tensor([8, 8]), "f"),
                          test_utils=checks)
    torch.library.opcheck(torch.ops.hilbert_ring.masked.default, (
        *tensors(6, 8, kv_heads=2, value_dim=24), None, True, None, None, 0.2, None, None, "end", "attn_mask", *kept), test_utils=checks)

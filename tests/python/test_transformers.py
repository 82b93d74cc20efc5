"""Small models with random weights: the service's logits against those of sdpa."""
import pytest

import hilbert_ring

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module", autouse=True)
def registered(client):
    import hilbert_ring.transformers
    hilbert_ring.transformers.register(client=client)


def llama(**changes):
    torch.manual_seed(2)
    config = transformers.LlamaConfig(
        vocab_size=101, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, **changes)
    return transformers.LlamaForCausalLM(config).eval()


def bert():
    torch.manual_seed(3)
    return transformers.BertModel(transformers.BertConfig(
        vocab_size=101, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=128)).eval()


def tokens(batch=3, length=29):
    torch.manual_seed(4)
    return torch.randint(0, 101, (batch, length))


def by(model, name, *arguments, **more):
    model.set_attn_implementation(name)
    with torch.no_grad():
        return model(*arguments, **more)


def compare(model, seen, output, *arguments, **more):
    ours = getattr(by(model, "hilbert_ring", *arguments, **more), output)
    theirs = getattr(by(model, "sdpa", *arguments, **more), output)
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours[seen], theirs[seen], rtol=1e-4, atol=1e-4)
    return ours


EVERYWHERE = torch.ones(3, 29, dtype=torch.bool)


def test_causal(client):
    before = client.status()
    compare(llama(), EVERYWHERE, "logits", tokens())
    assert before.ready


def test_full():
    compare(bert(), EVERYWHERE, "last_hidden_state", tokens())


def padding(side):
    mask = torch.ones(3, 29, dtype=torch.long)
    for row, count in enumerate((0, 5, 28)):
        if count:
            mask[row, slice(0, count) if side == "left" else slice(29 - count, 29)] = 0
    return mask


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("make, output", [(llama, "logits"), (bert, "last_hidden_state")])
def test_padding(side, make, output):
    mask = padding(side)
    compare(make(), mask.bool(), output, tokens(), attention_mask=mask)


def test_generation_with_a_cache():
    model = llama()
    said = []
    for name in ("hilbert_ring", "sdpa"):
        model.set_attn_implementation(name)
        said.append(model.generate(tokens(2, 7), attention_mask=padding("left")[:2, -7:],
                                   max_new_tokens=6, do_sample=False, pad_token_id=0))
    assert torch.equal(*said)


def test_is_causal_of_the_module(client):
    attention = transformers.AttentionInterface()["hilbert_ring"]
    q = torch.randn(1, 4, 9, 16)
    k = torch.randn(1, 2, 9, 16)

    class Module:
        is_causal = False

    class Causal:
        is_causal = True

    def run(module, said):
        return attention(module, q, k, k, None, scaling=0.25, is_causal=said)[0]

    full, causal = run(Module, None), run(Causal, None)
    assert full.shape == (1, 9, 4, 16)
    assert torch.equal(run(Causal, False), full) and torch.equal(run(Module, True), causal)
    torch.testing.assert_close(causal[:, -1], full[:, -1])
    assert not torch.allclose(causal[:, 0], full[:, 0])


def test_a_sliding_window_is_refused():
    torch.manual_seed(5)
    model = transformers.MistralForCausalLM(transformers.MistralConfig(
        vocab_size=101, hidden_size=64, intermediate_size=96, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=8)).eval()
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="mask other than causal or full"):
        by(model, "hilbert_ring", tokens())


def test_packed_positions_are_refused():
    positions = torch.cat([torch.arange(10), torch.arange(19)])[None]
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="mask other than causal or full"):
        by(llama(), "hilbert_ring", tokens(1), position_ids=positions, use_cache=False)


def test_a_mask_of_ones_own_is_refused():
    mask = torch.zeros(1, 1, 29, 29)
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="attention_mask"):
        by(llama(), "hilbert_ring", tokens(1), attention_mask=mask)


def test_a_static_cache_is_refused():
    model = llama()
    cache = transformers.StaticCache(config=model.config, max_cache_len=64)
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="cache"):
        by(model, "hilbert_ring", tokens(1), past_key_values=cache)


def test_gradients_are_refused():
    model = llama()
    model.set_attn_implementation("hilbert_ring")
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="gradient"):
        model(tokens(1))


@pytest.mark.parametrize("field, value", [
    ("softcap", 30.0), ("s_aux", torch.ones(4)), ("position_bias", torch.ones(1)),
    ("cu_seq_lens_q", torch.tensor([0, 9])), ("sliding_window", 4), ("dropout", 0.1)])
def test_what_changes_attention_is_refused(field, value):
    attention = transformers.AttentionInterface()["hilbert_ring"]
    q = torch.randn(1, 4, 9, 16)
    with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
        attention(object(), q, q, q, None, **{field: value})
    assert raised.value.field == field

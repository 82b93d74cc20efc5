"""The logits of small random models by the service and by sdpa."""
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
def test_padding(side):
    mask = padding(side)
    ours = compare(llama(), mask.bool(), "logits", tokens(), attention_mask=mask)
    assert torch.isfinite(ours).all()
    # Every token has a query here, also padding, like a decoder's tokens.
    compare(bert(), EVERYWHERE, "last_hidden_state", tokens(), attention_mask=mask)


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


def test_packed_positions():
    positions = torch.cat([torch.arange(10), torch.arange(19)])[None]
    for model in (llama(), windowed("Mistral", 4)):
        alike(model, lambda: model(tokens(1), position_ids=positions, use_cache=False).logits)


def test_ends_of_sequences():
    """A model gets the ends of sequences in the form that flash-attn takes."""
    positions = torch.cat([torch.arange(10), torch.arange(19)])[None]
    ends = torch.tensor([0, 10, 29], dtype=torch.int32)
    given = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 19, "max_length_k": 19, "use_cache": False}
    for model in (llama(), windowed("Mistral", 4)):
        want = by(model, "eager", tokens(1), position_ids=positions, use_cache=False).logits
        for more in ({}, {"position_ids": positions}):
            torch.testing.assert_close(by(model, "hilbert_ring", tokens(1), **given, **more).logits, want, rtol=1e-4,
                                       atol=1e-4)
        for batch, more in ((1, {"position_ids": positions.roll(3, 1)}), (3, {}), (1, {"cu_seq_lens_k": None}),
                            (1, {"attention_mask": padding("left")[1:2]})):
            with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
                by(model, "hilbert_ring", tokens(batch), **{**given, **more})
            assert raised.value.field == "cu_seq_lens_q"


def windowed(family, window, **changes):
    torch.manual_seed(5)
    return getattr(transformers, f"{family}ForCausalLM")(getattr(transformers, f"{family}Config")(
        vocab_size=101, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, head_dim=16,
        num_key_value_heads=2, sliding_window=window, max_position_embeddings=128, initializer_range=0.2, **changes)).eval()


@pytest.mark.parametrize("window", [1, 2, 28, 29, 30, 1000])
def test_a_window_beside_the_length_of_the_text(window):
    model = windowed("Mistral", window)
    alike(model, lambda: model(tokens()).logits)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_prompt_in_pieces(cache):
    """Later pieces have more than one query, and keys from before the cache's window."""
    model = windowed("Gemma2", 6)

    def run():
        held = (transformers.StaticCache(config=model.config, max_cache_len=40) if cache == "static" else
                transformers.DynamicCache(config=model.config))
        return torch.cat([model(piece, past_key_values=held).logits for piece in tokens().split([3, 9, 1, 16], 1)], 1)
    alike(model, run)


def test_a_window_without_a_mask(client):
    attention = transformers.AttentionInterface()["hilbert_ring"]
    q, k = torch.randn(1, 4, 9, 16), torch.randn(1, 2, 9, 16)

    class Causal:
        is_causal = True

    want = hilbert_ring.flash_attn_func(*(x.transpose(1, 2) for x in (q, k, k)), causal=True, window_size=(2, 0),
                                        client=client)
    assert torch.equal(attention(Causal, q, k, k, None, sliding_window=3)[0], want)
    assert not torch.equal(attention(Causal, q, k, k, None, sliding_window=4)[0], want)
    full = attention(Causal, q, k, k, None, is_causal=False)[0]
    assert torch.equal(attention(Causal, q, k, k, None, is_causal=False, sliding_window=9)[0], full)
    for field, more in (("sliding_window", {"is_causal": False, "sliding_window": 8}), ("position_bias", {"position_bias": q}),
                        ("sliding_window", {"sliding_window": 2.5}), ("dropout", {"dropout": 0.1}),
                        ("softcap", {"softcap": 0.0}), ("sinks", {"s_aux": torch.ones(3)})):
        with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
            attention(Causal, q, k, k, None, **more)
        assert raised.value.field.split("[")[0] == field


class TestPatterns:
    """Models with segments, dilations and an ordering."""

    PATTERN = dict(segments=[8, 32], dilations=[1, 2], mixing="lse")

    @pytest.fixture(autouse=True)
    def named(self, client):
        hilbert_ring.transformers.register("pattern", client, **self.PATTERN)

    @pytest.mark.parametrize("ordering", [None, hilbert_ring.Hilbert(window=16)])
    def test_a_batch_is_packed_sequences(self, client, ordering):
        hilbert_ring.transformers.register("pattern", client, **self.PATTERN, ordering=ordering)
        q, k, v = torch.randn(2, 4, 29, 16), torch.randn(2, 2, 29, 16), torch.randn(2, 2, 29, 16)
        mask = hilbert_ring.transformers.mask(2, 29, 29, attention_mask=padding("left")[:2])
        ours = transformers.AttentionInterface()["pattern"](None, q, k, v, mask, scaling=0.3)[0]
        for row, first in enumerate((0, 5)):
            want = client.attend(*(x[row, :, first:].transpose(0, 1).contiguous() for x in (q, k, v)), causal=True, scale=0.3,
                                 ordering=ordering, **self.PATTERN)
            torch.testing.assert_close(ours[row, first:], want.out, rtol=1e-5, atol=1e-6)

    def test_cached_keys_give_what_the_whole_text_gives(self):
        model = llama()
        whole = by(model, "pattern", tokens()).logits
        assert (whole - by(model, "sdpa", tokens()).logits).abs().max() > 0.01
        cache = transformers.DynamicCache(config=model.config)
        for piece in tokens().split([17, 11, 1], 1):
            last = by(model, "pattern", piece, past_key_values=cache).logits
        torch.testing.assert_close(last[:, -1], whole[:, -1], rtol=1e-4, atol=1e-4)

    def test_a_window_is_refused_if_it_hides_keys(self):
        by(windowed("Mistral", 29), "pattern", tokens())
        with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
            by(windowed("Mistral", 28), "pattern", tokens())
        assert raised.value.field == "window"

    def test_cross_attention_is_refused(self):
        q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 2, 9, 16)
        for queries, keys in ((q, k), (k, q[:, :2])):
            with pytest.raises(hilbert_ring.InvalidArgumentError) as raised:
                transformers.AttentionInterface()["pattern"](None, queries, keys, keys, None, is_causal=False)
            assert raised.value.field == "segments"

    def test_segments_are_needed(self):
        with pytest.raises(hilbert_ring.InvalidArgumentError, match="segments must be set"):
            hilbert_ring.transformers.register("pattern", dilations=[2])


TRI = torch.ones(29, 29).tril().bool()[None, None]
LOW = torch.finfo(torch.float32).min


@pytest.mark.parametrize("mask", [
    torch.zeros(1, 1, 29, 29), TRI.expand(3, 1, 29, 29), torch.where(TRI, 0.0, LOW),
    torch.where(TRI, 0.0, LOW).bfloat16().float(), padding("left").bool()[:, None, None],
    torch.where(padding("right").bool(), 0.0, -torch.inf)[:, None, None]])
def test_a_mask_of_ones_own(mask):
    compare(llama(), EVERYWHERE, "logits", tokens(), attention_mask=mask)


def test_a_mask_of_ones_own_with_a_window():
    model = windowed("Mistral", 1000)
    near = TRI & ~torch.ones(29, 29).tril(-5).bool()
    compare(model, EVERYWHERE, "logits", tokens(), attention_mask=near)
    for side in ("left", "right"):
        real = padding(side).bool()
        compare(model, real, "logits", tokens(), attention_mask=torch.where(near & real[:, None, None], 0.0, LOW))
    model = windowed("Mistral", 5)
    want = by(model, "eager", tokens()).logits
    torch.testing.assert_close(by(windowed("Mistral", 1000), "hilbert_ring", tokens(), attention_mask=near).logits, want,
                               rtol=1e-4, atol=1e-4)


def test_a_model_in_float64_or_of_mixed_types_is_refused():
    with pytest.raises(hilbert_ring.InvalidArgumentError, match="q is torch.float64, must be .*: model.float()"):
        by(llama().double(), "hilbert_ring", tokens(1))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(hilbert_ring.InvalidArgumentError, match="torch.autocast"):
        by(llama(), "hilbert_ring", tokens(1), use_cache=False)


SEQ2SEQ = dict(
    vocab_size=101, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64, init_std=0.3,
    pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=0, forced_eos_token_id=None)
DECODER = dict(
    vocab_size=101, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
    max_position_embeddings=64, initializer_range=0.3, pad_token_id=1, bos_token_id=0, eos_token_id=2, sep_token_id=3,
    is_decoder=True, add_cross_attention=True)
GPT2 = dict(vocab_size=101, n_positions=64, n_embd=32, n_layer=2, n_head=2, initializer_range=0.3, pad_token_id=1,
            bos_token_id=0, eos_token_id=2, add_cross_attention=True)
MOONSHINE = dict(
    SEQ2SEQ, hidden_size=32, intermediate_size=48, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2,
    encoder_num_attention_heads=2, decoder_num_attention_heads=2, initializer_range=0.3)
FAMILIES = {
    "BartForConditionalGeneration": ("BartConfig", SEQ2SEQ),
    "MoonshineForConditionalGeneration": ("MoonshineConfig", MOONSHINE),
    "BertLMHeadModel": ("BertConfig", DECODER),
    "GPT2LMHeadModel": ("GPT2Config", GPT2),
}
PADDED = torch.tensor([[1] * 5 + [0] * 3, [1] * 8, [1] * 2 + [0] * 6])  # tokens of the encoder


def of_family(name):
    """Returns a model, its encoder's input or output, and the name of its decoder's tokens."""
    config, values = FAMILIES[name]
    torch.manual_seed(1)
    model = getattr(transformers, name)(getattr(transformers, config)(**values)).eval()
    torch.manual_seed(2)
    if values is MOONSHINE:  # 384 samples, and the filters' edge
        given = {"input_values": torch.randn(3, 8 * 384 + 600),
                 "attention_mask": torch.nn.functional.pad(PADDED.repeat_interleave(384, 1), (0, 600))}
    elif model.config.is_encoder_decoder:
        given = {"input_ids": torch.randint(4, 101, (3, 8)), "attention_mask": PADDED}
    else:
        return model, {"encoder_hidden_states": torch.randn(3, 8, 32), "encoder_attention_mask": PADDED}, "input_ids"
    return model, given, "decoder_input_ids"


def alike(model, function):
    """Compares a function by the service with transformers' own code."""
    results = []
    for name in ("hilbert_ring", "eager"):
        model.set_attn_implementation(name)
        with torch.no_grad():
            results.append(function())
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_cross_attention_over_a_padded_batch(name):
    model, given, decoder = of_family(name)
    for length in (1, 8, 11):  # fewer tokens than the encoder's, as many, more
        read = torch.randint(4, 101, (3, length))
        alike(model, lambda: model(**given, **{decoder: read}, use_cache=False).logits)
    if model.config.is_encoder_decoder:
        first = {}
    else:
        first = {"input_ids": torch.randint(4, 101, (3, 4)), "use_cache": False}
    alike(model, lambda: model.generate(**given, **first, max_new_tokens=5, min_new_tokens=5, do_sample=False))


@pytest.mark.parametrize("padded", [False, True])
def test_a_model_that_computes_attention_itself_is_refused(padded):
    from transformers.models.blip.modeling_blip_text import BlipTextLMHeadModel
    config = transformers.BlipTextConfig(**{**DECODER, "add_cross_attention": False}, encoder_hidden_size=32)
    model = BlipTextLMHeadModel._from_config(config, attn_implementation="hilbert_ring").eval()
    mask = PADDED if padded else None
    with torch.no_grad(), pytest.raises(hilbert_ring.InvalidArgumentError, match="does not compute it by transformers"):
        model(input_ids=tokens(3, 4), encoder_hidden_states=torch.randn(3, 8, 32), encoder_attention_mask=mask)

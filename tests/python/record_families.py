"""Writes tests/python/families: transformers' attention of one layer of each model family.

    python tests/python/record_families.py     # with torch 2.15 and transformers 5.23

A file holds the arguments of an attention function (q, k, v, mask, sinks; is_causal of its module; given: numbers),
the arguments that made the mask (padding; mask_function and its window; made_by: numbers), and the result of eager
attention (out). Only row 0 of a batch has padding. Weights are random, of a fixed seed.

The file llama_kvcache has a step with a cache: q, k and v before the rotary embedding, the cache before the step, the
embedding's base, and the result.
"""
import inspect
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import masking_utils
from transformers.models.llama import modeling_llama

FOLDER = Path(__file__).with_name("families")
TOKENS = 11
LEFT = torch.tensor([[0] * 4 + [1] * 7, [1] * 11])
RIGHT = LEFT.flip(1)

HEADS = dict(vocab_size=61, hidden_size=32, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4,
             max_position_embeddings=32, initializer_range=0.25, pad_token_id=1, bos_token_id=0, eos_token_id=2)
GROUPED = dict(HEADS, num_key_value_heads=2)
IMAGES = dict(hidden_size=32, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4, image_size=12,
              patch_size=4, initializer_range=0.25, initializer_factor=2.0)
SEQ2SEQ = dict(vocab_size=61, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
               decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, init_std=0.25, pad_token_id=1,
               bos_token_id=0, eos_token_id=2, decoder_start_token_id=0)
# Families: model, configuration, its values, mask of padding, names of the attention calls.
FAMILIES = [
    ("LlamaModel", "LlamaConfig", GROUPED, LEFT, ["llama"]),
    ("MistralModel", "MistralConfig", dict(GROUPED, sliding_window=None), LEFT, ["mistral"]),
    ("Qwen2Model", "Qwen2Config", GROUPED, LEFT, ["qwen2"]),
    ("Qwen3Model", "Qwen3Config", dict(GROUPED, head_dim=16), LEFT, ["qwen3"]),
    ("Phi3Model", "Phi3Config", GROUPED, LEFT, ["phi3"]),
    ("GPT2Model", "GPT2Config", dict(HEADS, n_inner=24), LEFT, ["gpt2"]),
    ("GPTNeoXModel", "GPTNeoXConfig", HEADS, LEFT, ["gpt_neox"]),
    ("BertModel", "BertConfig", HEADS, RIGHT, ["bert"]),
    ("RobertaModel", "RobertaConfig", HEADS, RIGHT, ["roberta"]),
    ("ViTModel", "ViTConfig", IMAGES, None, ["vit"]),
    ("CLIPVisionModel", "CLIPVisionConfig", IMAGES, None, ["clip_vision"]),
    ("CLIPTextModel", "CLIPTextConfig", dict(HEADS, initializer_factor=2.0), RIGHT, ["clip_text"]),
    ("WhisperModel", "WhisperConfig", dict(SEQ2SEQ, num_mel_bins=8, max_source_positions=8, max_target_positions=32),
     RIGHT, ["whisper_encoder", "whisper_decoder", "whisper_cross"]),
    ("BartModel", "BartConfig", dict(SEQ2SEQ, max_position_embeddings=32), RIGHT,
     ["bart_encoder", "bart_decoder", "bart_cross"]),
    ("MistralModel", "MistralConfig", dict(GROUPED, sliding_window=5), LEFT, ["mistral_window"]),
    ("Gemma2Model", "Gemma2Config", dict(GROUPED, head_dim=8, attn_logit_softcapping=1.5, query_pre_attn_scalar=8,
                                       sliding_window=4), LEFT,
     ["gemma2"]),
    ("GptOssModel", "GptOssConfig", dict(GROUPED, head_dim=8, sliding_window=6, num_local_experts=2, num_experts_per_tok=1,
                                         layer_types=["sliding_attention"]), LEFT, ["gpt_oss"]),
    ("ModernBertModel", "ModernBertConfig", dict(HEADS, local_attention=4, layer_types=["sliding_attention"]), RIGHT,
     ["modernbert"]),
]
masks, calls = [], []


def mask(**given):
    made = masking_utils.eager_mask(**given)
    masks.append((made, given))
    return made


def attention(module, query, key, value, attention_mask, **more):
    out, weights = sys.modules[type(module).__module__].eager_attention_forward(
        module, query, key, value, attention_mask, **more)
    numbers = {name: value for name, value in more.items() if value is None or isinstance(value, (bool, int, float))}
    record = {"q": query, "k": key, "v": value, "out": out}
    about = {"is_causal": module.is_causal, "given": numbers}
    if attention_mask is not None:
        record["mask"] = attention_mask
        [made_by] = [given for made, given in masks if made is attention_mask]
        record["padding"] = made_by["attention_mask"]
        about["made_by"] = {name: value for name, value in made_by.items()
                            if isinstance(value, (bool, int)) and name != "batch_size"}
        about["mask_function"], window = kind(made_by["mask_function"])
        if window is not None:
            about["window"] = window
    if more.get("s_aux") is not None:
        record["sinks"] = more["s_aux"]
    calls.append(({name: tensor.numpy() for name, tensor in record.items()}, about))
    return out, weights


def kind(function):
    """Returns the begin of a mask function's name in masking_utils, and its window."""
    parts = inspect.getclosurevars(function).nonlocals.get("mask_functions")
    if parts is None:
        assert function is getattr(masking_utils, function.__name__)
        return function.__name__.removesuffix("_mask_function"), None
    window = inspect.getclosurevars(parts[0]).nonlocals["sliding_window"]
    return f"sliding_window_{kind(parts[1])[0]}", window


def inputs(model, padding):
    tokens = torch.randint(3, 61, (2, TOKENS))
    names = inspect.signature(model.forward).parameters
    if "pixel_values" in names:
        return {"pixel_values": torch.randn(2, 3, 12, 12)}
    if "input_features" in names:
        return {"input_features": torch.randn(2, 8, 16), "decoder_input_ids": tokens, "decoder_attention_mask": padding}
    given = {"input_ids": tokens, "attention_mask": padding}
    if "decoder_input_ids" in names:
        given.update(decoder_input_ids=tokens[:, 4:], decoder_attention_mask=padding[:, 4:])
    return given


def record(model, names, **given):
    calls.clear()
    masks.clear()
    with torch.no_grad():
        result = model(**given)
    assert len(calls) == len(names)
    for name, (arrays, about) in zip(names, calls):
        scores = arrays["q"] @ np.repeat(arrays["k"], arrays["q"].shape[1] // arrays["k"].shape[1], 1).swapaxes(2, 3)
        print(f"{name:16}", {key: value.shape for key, value in arrays.items()}, json.dumps(about),
              f"scores {scores.std() * about['given'].get('scaling', 1):.2f}, out {arrays['out'].std():.2f}")
        np.savez(FOLDER / f"{name}.npz", said=json.dumps(about), **arrays)
    return result


def main():
    transformers.AttentionInterface.register("record", attention)
    transformers.AttentionMaskInterface.register("record", mask)
    FOLDER.mkdir(exist_ok=True)
    for number, (name, config, values, padding, names) in enumerate(FAMILIES):
        torch.manual_seed(number)
        model = getattr(transformers, name)._from_config(
            getattr(transformers, config)(**values), attn_implementation="record").eval()
        result = record(model, names, **inputs(model, padding))
        if name == "LlamaModel":  # three more tokens, with keys after the cache's
            cache = result.past_key_values
            held = [tensor.transpose(1, 2).clone() for tensor in (cache.layers[0].keys, cache.layers[0].values)]
            turned = []
            turn = modeling_llama.apply_rotary_pos_emb
            modeling_llama.apply_rotary_pos_emb = lambda q, k, *more: turned.append((q, k)) or turn(q, k, *more)
            record(model, ["llama_cached"], input_ids=torch.randint(3, 61, (2, 3)),
                   attention_mask=torch.nn.functional.pad(padding, (0, 3), value=1), past_key_values=cache)
            modeling_llama.apply_rotary_pos_emb = turn
            arrays, about = calls[0]
            before = {name: tensor.detach().transpose(1, 2).numpy() for name, tensor in zip("qk", turned[0])}
            np.savez(FOLDER / "llama_kvcache.npz", **before, v=arrays["v"][:, :, -3:].swapaxes(1, 2), out=arrays["out"],
                     k_cache=held[0].numpy(), v_cache=held[1].numpy(), leftpad=np.array([4, 0]),
                     base=model.config.rope_parameters["rope_theta"], scale=about["given"]["scaling"],
                     k_after=arrays["k"].swapaxes(1, 2))


if __name__ == "__main__":
    main()

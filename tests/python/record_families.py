"""Writes tests/python/families: transformers' attention of one layer of each model family.

    python tests/python/record_families.py     # with torch 2.15 and transformers 5.23

A file holds the arguments of an attention function (q, k, v, mask; is_causal of its module; given: numbers), the
arguments that made the mask (padding, mask_function; made_by: numbers), and the result of eager attention (out). Only
row 0 of a batch has padding. Weights are random, of a fixed seed.
"""
import inspect
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import masking_utils

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
        function = "causal" if made_by["mask_function"] is masking_utils.causal_mask_function else "bidirectional"
        assert made_by["mask_function"] is getattr(masking_utils, f"{function}_mask_function")
        record["padding"] = made_by["attention_mask"]
        about["made_by"] = {name: value for name, value in made_by.items()
                            if isinstance(value, (bool, int)) and name != "batch_size"}
        about["mask_function"] = function
    calls.append(({name: tensor.numpy() for name, tensor in record.items()}, about))
    return out, weights


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
            record(model, ["llama_cached"], input_ids=torch.randint(3, 61, (2, 3)),
                   attention_mask=torch.nn.functional.pad(padding, (0, 3), value=1),
                   past_key_values=result.past_key_values)


if __name__ == "__main__":
    main()

"""Small models of transformers' families with random weights, and their inputs."""
import inspect
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import torch
import transformers

BATCH, TOKENS, WINDOW = 3, 23, 7
IDS = dict(vocab_size=101, pad_token_id=1, bos_token_id=0, eos_token_id=2)
HEADS = dict(IDS, hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=128, initializer_range=0.25)
GROUPED = dict(HEADS, num_key_value_heads=2)
NARROW = dict(GROUPED, head_dim=16)
EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2)
WINDOWED = dict(sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"])
IMAGES = dict(hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=12,
              patch_size=4, initializer_range=0.25, initializer_factor=2.0)
TOWERS = dict(text_config=dict(HEADS, projection_dim=32), vision_config=dict(IMAGES, projection_dim=32), projection_dim=32)
SEQ2SEQ = dict(IDS, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
               encoder_ffn_dim=48, decoder_ffn_dim=48, init_std=0.25, decoder_start_token_id=0, forced_eos_token_id=None,
               max_position_embeddings=128)
MOONSHINE = dict(IDS, hidden_size=64, intermediate_size=48, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2,
                 encoder_num_attention_heads=4, decoder_num_attention_heads=4, initializer_range=0.25,
                 decoder_start_token_id=0)
WAV2VEC2 = dict(vocab_size=31, hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), feat_extract_norm="layer",
                num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, initializer_range=0.25)
T5 = dict(IDS, d_model=64, d_kv=16, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4, decoder_start_token_id=0)


@dataclass(frozen=True)
class Family:
    """A row of the table.

    Attributes:
        model, config: classes of transformers.
        values: of the configuration.
        attention: what the service computes.
        calls: attention calls of a forward pass.
    """

    model: str
    config: str
    values: Dict[str, Any]
    attention: str = "causal"
    calls: int = 2


FAMILIES = {
    "Llama": Family("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "Mistral": Family("MistralForCausalLM", "MistralConfig", dict(GROUPED, sliding_window=None)),
    "Mistral, window": Family("MistralForCausalLM", "MistralConfig", dict(GROUPED, sliding_window=WINDOW), "window"),
    "Mixtral": Family("MixtralForCausalLM", "MixtralConfig", dict(GROUPED, **EXPERTS)),
    "Ministral": Family("MinistralForCausalLM", "MinistralConfig", dict(NARROW, sliding_window=WINDOW), "window"),
    "Qwen 2": Family("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    "Qwen 3": Family("Qwen3ForCausalLM", "Qwen3Config", NARROW),
    "Gemma": Family("GemmaForCausalLM", "GemmaConfig", NARROW),
    "Gemma 2": Family("Gemma2ForCausalLM", "Gemma2Config", dict(NARROW, attn_logit_softcapping=1.5, **WINDOWED),
                      "causal, window, softcap"),
    "Gemma 3": Family("Gemma3ForCausalLM", "Gemma3TextConfig", dict(NARROW, **WINDOWED), "causal, window"),
    "Cohere 2": Family("Cohere2ForCausalLM", "Cohere2Config", dict(GROUPED, **WINDOWED), "causal, window"),
    "gpt-oss": Family("GptOssForCausalLM", "GptOssConfig", dict(NARROW, **EXPERTS, **WINDOWED), "causal, window, sinks"),
    "Exaone 4": Family("Exaone4ForCausalLM", "Exaone4Config", dict(GROUPED, sliding_window_pattern=2, **WINDOWED),
                       "causal, window"),
    "Phi 3": Family("Phi3ForCausalLM", "Phi3Config", GROUPED),
    "Granite": Family("GraniteForCausalLM", "GraniteConfig", GROUPED),
    "OLMo 2": Family("Olmo2ForCausalLM", "Olmo2Config", GROUPED),
    "SmolLM 3": Family("SmolLM3ForCausalLM", "SmolLM3Config", GROUPED),
    "GLM 4": Family("Glm4ForCausalLM", "Glm4Config", NARROW),
    "StarCoder 2": Family("Starcoder2ForCausalLM", "Starcoder2Config", GROUPED),
    "GPT-2": Family("GPT2LMHeadModel", "GPT2Config",
                    dict(IDS, n_embd=64, n_inner=48, n_layer=2, n_head=4, initializer_range=0.25)),
    "GPT-NeoX": Family("GPTNeoXForCausalLM", "GPTNeoXConfig", HEADS),
    "OPT": Family("OPTForCausalLM", "OPTConfig", dict(IDS, hidden_size=64, word_embed_proj_dim=64, ffn_dim=48, init_std=0.25,
                                                      num_hidden_layers=2, num_attention_heads=4)),
    "BERT": Family("BertModel", "BertConfig", HEADS, "full"),
    "RoBERTa": Family("RobertaModel", "RobertaConfig", HEADS, "full"),
    "ModernBERT": Family("ModernBertModel", "ModernBertConfig",
                         dict(HEADS, local_attention=8, global_attn_every_n_layers=2), "full, window on both sides"),
    "ESM": Family("EsmModel", "EsmConfig", dict(HEADS, position_embedding_type="rotary"), "full"),
    "ViT": Family("ViTModel", "ViTConfig", IMAGES, "full"),
    "CLIP": Family("CLIPModel", "CLIPConfig", TOWERS, "full, causal", 4),
    "SigLIP": Family("SiglipModel", "SiglipConfig", TOWERS, "full", 4),
    "DINOv2": Family("Dinov2Model", "Dinov2Config", IMAGES, "full"),
    "Whisper": Family("WhisperForConditionalGeneration", "WhisperConfig",
                      dict(SEQ2SEQ, num_mel_bins=8, max_source_positions=12, max_target_positions=128,
                           suppress_tokens=None, begin_suppress_tokens=None), "full, causal, cross", 6),
    "Bart": Family("BartForConditionalGeneration", "BartConfig", SEQ2SEQ, "full, causal, cross", 6),
    "Marian": Family("MarianMTModel", "MarianConfig", dict(SEQ2SEQ, share_encoder_decoder_embeddings=True),
                     "full, causal, cross", 6),
    "Pegasus": Family("PegasusForConditionalGeneration", "PegasusConfig", SEQ2SEQ, "full, causal, cross", 6),
    "Moonshine": Family("MoonshineForConditionalGeneration", "MoonshineConfig", MOONSHINE, "full, causal, cross", 6),
    "wav2vec 2.0": Family("Wav2Vec2ForCTC", "Wav2Vec2Config", WAV2VEC2, "full"),
    "T5": Family("T5ForConditionalGeneration", "T5Config", T5, "position bias", 6),
}


def model_of(name: str, seed: int = 1) -> Any:
    family = FAMILIES[name]
    torch.manual_seed(seed)
    model = getattr(transformers, family.model)(getattr(transformers, family.config)(**family.values))
    with torch.no_grad():
        for parameter in model.parameters():  # families begin some parts with 0 or 1
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


@dataclass
class Input:
    """The arguments of a model, and the real tokens of its output."""

    given: Dict[str, Any]
    real: Optional[torch.Tensor] = None  # bool [batch, tokens]


def padding(side: str, tokens: int) -> torch.Tensor:
    mask = torch.ones(BATCH, tokens, dtype=torch.long)
    for row, count in enumerate((5, 0, tokens - 6)):
        if count:
            mask[row, slice(0, count) if side == "left" else slice(tokens - count, tokens)] = 0
    return mask


def inputs_of(model: Any, padded: bool, dtype: torch.dtype = torch.float32) -> List[Input]:
    """Returns inputs of a forward pass: a padded batch on each side that the family takes, or one without padding."""
    torch.manual_seed(2)
    ids = torch.randint(3, 101, (BATCH, TOKENS))
    names = inspect.signature(model.forward).parameters
    sides = ["left", "right"] if padded else [None]
    if "pixel_values" in names:
        images = torch.randn(BATCH, 3, 12, 12).to(dtype)
        if "input_ids" not in names:
            return [] if padded else [Input({"pixel_values": images})]
        ids[:, -1] = 2  # the token whose output stands for the text
        mask = padding("right", TOKENS) if padded else None
        if padded:
            ids[torch.arange(BATCH), mask.sum(1) - 1] = 2
        return [Input({"pixel_values": images, "input_ids": ids, "attention_mask": mask})]
    if type(model).__name__ == "Wav2Vec2ForCTC":
        sound = torch.randn(BATCH, 260).to(dtype)
        if not padded:
            return [Input({"input_values": sound})]
        mask = padding("right", 260)
        frames = model._get_feat_extract_output_lengths(mask.sum(1))
        real = torch.arange(int(model._get_feat_extract_output_lengths(260))) < frames[:, None]
        return [Input({"input_values": sound, "attention_mask": mask}, real)]
    if not model.config.is_encoder_decoder:
        masks = [None if side is None else padding(side, TOKENS) for side in sides]
        return [Input({"input_ids": ids, "attention_mask": mask}, None if mask is None else mask.bool()) for mask in masks]
    encoder = encoder_input(model, padded, dtype)
    mask = padding("right", 9) if padded else None
    return [Input({**encoder, "decoder_input_ids": ids[:, :9], "decoder_attention_mask": mask},
                  None if mask is None else mask.bool())]


def encoder_input(model: Any, padded: bool, dtype: torch.dtype = torch.float32) -> Dict[str, Any]:
    torch.manual_seed(3)
    if "input_features" in inspect.signature(model.forward).parameters:
        return {"input_features": torch.randn(BATCH, 8, 24).to(dtype)}
    mask = padding("right", TOKENS)
    if "input_values" in inspect.signature(model.forward).parameters:  # 384 samples a token, and the filters' edge
        mask = torch.nn.functional.pad(mask.repeat_interleave(384, 1), (0, 600))
        given = {"input_values": torch.randn(BATCH, TOKENS * 384 + 600).to(dtype)}
    else:
        given = {"input_ids": torch.randint(3, 101, (BATCH, TOKENS))}
    return {**given, "attention_mask": mask} if padded else given


def main_output(result: Any) -> torch.Tensor:
    if result.get("text_embeds") is not None:
        return torch.cat((result.text_embeds, result.image_embeds), -1)
    return result.logits if result.get("logits") is not None else result.last_hidden_state


def generated(model: Any, cache: Optional[str] = None) -> Any:
    """Returns the logits of 8 tokens after a padded batch."""
    if model.config.is_encoder_decoder:
        given = encoder_input(model, True)
    else:
        torch.manual_seed(2)
        given = {"input_ids": torch.randint(3, 101, (BATCH, TOKENS)), "attention_mask": padding("left", TOKENS)}
    made = model.generate(**given, max_new_tokens=8, min_new_tokens=8, do_sample=False, num_beams=1, output_logits=True,
                          return_dict_in_generate=True, cache_implementation=cache, disable_compile=True)
    return torch.stack(made.logits, 1)

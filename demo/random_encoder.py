"""Makes a model's folder of an encoder with random weights, to check the service against the definition."""
import sys
from pathlib import Path

from hilbert_ring import convert

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "golden"))
import attention_map_oracle  # noqa: E402
import encoder_oracle  # noqa: E402


def config(tile, grid, layers, width=192, heads=6):
    """Returns the config for tiles of tile x tile grey pixels, on a grid of `grid` tiles a side."""
    return {"architecture": "longnet_encoder", "input_dim": tile * tile, "embed_dim": width,
            "heads": heads, "ffn_dim": 4 * width, "layers": layers, "segments": [512, 2048, 8192],
            "dilations": [1, 2, 4], "layer_norm_eps": 1e-5, "norm_eps": 1e-6, "class_token": True,
            "output_norm": True,
            "position": {"kind": "sincos_2d", "tile_size": tile, "grid": grid}}


def weights(model_config, seed):
    return encoder_oracle.random_weights(model_config, seed)


def write(folder, model_config, model_weights):
    convert.write_model(folder, model_config, {
        name: convert.Tensor("F32", value.shape, value.astype("<f4").tobytes())
        for name, value in model_weights.items()})


def defined(tiles, coords, model_weights, model_config):
    """Computes the definition in float64: rows of the last layer after the final norm, the mean, the map by head."""
    out = encoder_oracle.encode(tiles, coords, model_weights, model_config)["out"]
    pooled = encoder_oracle.pool(out, model_weights, model_config, "mean")
    received = attention_map_oracle.attention_map(tiles, coords, model_weights, model_config,
                                                  model_config["layers"])
    return out, pooled, received

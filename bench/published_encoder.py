"""Configs of the benchmarks' slide encoders: of the published size, and a small one for smoke tests."""

TILE_SIZE = 256  # side in pixels

SIZES = {
    "published": {"input_dim": 1536, "embed_dim": 768, "heads": 16, "ffn_dim": 3072, "layers": 12},
    "small": {"input_dim": 96, "embed_dim": 128, "heads": 4, "ffn_dim": 256, "layers": 2},
}


def config_of(size, grid=1000):
    """Returns a config with positions on a grid of `grid` cells a side."""
    return {"architecture": "longnet_encoder", **SIZES[size], "segments": [1024, 5792, 32768, 185363, 1048576],
            "dilations": [1, 2, 4, 8, 16], "layer_norm_eps": 1e-5, "norm_eps": 1e-6, "class_token": True,
            "output_norm": True, "position": {"kind": "sincos_2d", "tile_size": TILE_SIZE, "grid": grid}}

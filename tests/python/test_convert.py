"""Converts checkpoints with the golden encoders' weights to models."""
import json
import os
from pathlib import Path

import numpy as np
import pytest

from hilbert_ring import convert
from hilbert_ring.convert import ConvertError, Settings, Tensor

CASES = Path(__file__).resolve().parent.parent / "golden" / "encoder_cases"
SETTINGS = Settings(heads=4, max_slide_size=25600, grid=100)


def golden(case="slide_small"):
    folder = CASES / case
    raw = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    data = raw[8 + length:]
    weights = {name: Tensor(entry["dtype"], tuple(entry["shape"]),
                            data[slice(*entry["data_offsets"])]) for name, entry in header.items()}
    return json.loads((folder / "config.json").read_text()), weights


@pytest.mark.parametrize("case", ["slide_small", "slide_bfloat16_weights", "slide_float16_weights",
                                  "slide_odd_dims", "bare_longnet"])
def test_a_models_weights_give_its_config_back(case, tmp_path):
    expected, weights = golden(case)
    config, kept, dropped = convert.convert(
        weights, Settings(heads=expected["heads"], max_slide_size=25600, grid=100))
    assert dropped == []
    # convert derives segments and dilations from the slide's size. The golden cases have others.
    own = ("segments", "dilations")
    assert {k: v for k, v in config.items() if k not in own} == \
        {k: v for k, v in expected.items() if k not in own}
    assert kept == weights
    convert.write_model(tmp_path / "model", config, kept)
    raw = (tmp_path / "model" / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    assert length % 8 == 0
    entries = json.loads(raw[8:8 + length])
    for name, tensor in weights.items():
        begin, end = entries[name]["data_offsets"]
        assert raw[8 + length + begin:8 + length + end] == tensor.data
        assert (entries[name]["dtype"], tuple(entries[name]["shape"])) == (tensor.dtype, tensor.shape)
    assert json.loads((tmp_path / "model" / "config.json").read_text()) == config
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json", "model.safetensors"]


def test_segments_dilations_and_the_epsilon_may_be_given():
    expected, weights = golden()
    config, _, _ = convert.convert(weights, Settings(
        heads=4, grid=100, segments=tuple(expected["segments"]),
        dilations=tuple(expected["dilations"]), eps=1e-4))
    assert config == {**expected, "layer_norm_eps": 1e-4}
    with pytest.raises(ConvertError, match="segments has 2 entries, must have 5"):
        convert.convert(weights, Settings(heads=4, segments=(32, 64)))


def test_unknown_names_are_an_error_unless_they_are_dropped():
    _, weights = golden()
    weights["projector.weight"] = Tensor("F32", (1,), b"abcd")
    with pytest.raises(ConvertError, match="projector.weight is not known"):
        convert.convert(weights, SETTINGS)
    settings = Settings(heads=4, max_slide_size=25600, grid=100, drop=("projector.",))
    assert convert.convert(weights, settings)[2] == ["projector.weight"]


def long_vit():
    """Returns random weights with the names of torchscale's LongViT (examples/longvit).

    LongViT convolves patches of pixels, adds a table of positions, and has no norm after its layers.
    """
    config, _ = golden("bare_longnet")
    config = {**config, "output_norm": False, "class_token": False, "norm_eps": 0, "input_dim": 0}
    shapes = {**convert.weight_shapes(config),
              "patch_embed.proj.weight": (config["embed_dim"], 3, 4, 4),
              "patch_embed.proj.bias": (config["embed_dim"],),
              "pos_embed": (1, 64, config["embed_dim"])}
    random = np.random.default_rng(7)
    return config, {name: Tensor("F32", shape, random.standard_normal(shape, np.float32).tobytes())
                    for name, shape in shapes.items()}


@pytest.mark.parametrize("kind", ["pretrained", "tuned"])
def test_a_long_vit_gives_its_layers(kind, tmp_path):
    bare, weights = long_vit()
    width = bare["embed_dim"]
    layers = {name: tensor for name, tensor in weights.items() if name.startswith("encoder.")}
    norm = {part: Tensor("F32", (width,), bytes(4 * width)) for part in ("weight", "bias")}
    settings = Settings(heads=bare["heads"], segments=tuple(bare["segments"]),
                        dilations=tuple(bare["dilations"]))
    gone = ["patch_embed.proj.bias", "patch_embed.proj.weight", "pos_embed"]
    if kind == "pretrained":  # its norm applies to rows before their mean, not to the mean
        weights |= {f"norm.{part}": tensor for part, tensor in norm.items()}
        gone = ["norm.bias", "norm.weight", *gone]
    else:  # a tuned model wraps the encoder, and adds a norm and a head
        weights = {f"model.{name}": tensor for name, tensor in weights.items()}
        weights |= {f"fc_norm.{part}": tensor for part, tensor in norm.items()}
        weights["head.weight"] = Tensor("F32", (2, width), bytes(8 * width))
        with pytest.raises(ConvertError, match="fc_norm.weight is not known"):
            convert.convert(weights, settings)
        settings = Settings(heads=bare["heads"], segments=settings.segments,
                            dilations=settings.dilations, drop=("fc_norm.",))
        gone = sorted([*gone, "fc_norm.bias", "fc_norm.weight", "head.weight"])
    config, kept, dropped = convert.convert(weights, settings)
    assert config == bare
    assert kept == layers and dropped == gone
    convert.write_model(tmp_path, config, kept)


def test_of_two_copies_of_an_encoder_none_is_taken_unseen():
    _, weights = golden()
    averaged = {f"ema.{name}": Tensor(tensor.dtype, tensor.shape, bytes(len(tensor.data)))
                for name, tensor in weights.items()}
    with pytest.raises(ConvertError, match="ema.* is not known"):
        convert.convert({**weights, **averaged}, SETTINGS)
    settings = Settings(heads=4, max_slide_size=25600, grid=100, drop=("ema.",))
    assert convert.convert({**averaged, **weights}, settings)[1] == weights
    within = {f"student.{name}": tensor for name, tensor in weights.items()}
    with pytest.raises(ConvertError, match="several encoders: ema.encoder, student.encoder"):
        convert.convert({**within, **averaged}, SETTINGS)


def test_a_model_is_not_written_over(tmp_path):
    config, weights = golden()
    convert.write_model(tmp_path, config, weights)
    with pytest.raises(FileExistsError, match="config.json is there already"):
        convert.write_model(tmp_path, config, weights)


def test_a_conversion_that_is_ended_leaves_no_model(tmp_path, monkeypatch):
    config, weights = golden()
    replace, there = os.replace, []

    def ended(old, new):
        there.append(sorted(path.name.rsplit(".", 1)[0] for path in tmp_path.iterdir()))
        if len(there) == 2:
            raise KeyboardInterrupt
        replace(old, new)

    monkeypatch.setattr(os, "replace", ended)
    with pytest.raises(KeyboardInterrupt):
        convert.write_model(tmp_path, config, weights)
    assert len(there[0]) == 2 and all(name.startswith(".") for name in there[0])  # both are pending
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    monkeypatch.undo()
    with pytest.raises(FileExistsError, match="without a config.json: remove it"):
        convert.write_model(tmp_path, config, weights)
    (tmp_path / "model.safetensors").unlink()
    convert.write_model(tmp_path, config, weights)


def test_entries_of_a_checkpoint_that_are_no_weights(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    _, weights = golden()
    state = {name: torch.from_numpy(np.frombuffer(tensor.data, np.float32).reshape(tensor.shape).copy())
             for name, tensor in weights.items()}
    torch.save({**state, "epoch": 3, "seen": torch.tensor([5])}, tmp_path / "in.pth")
    command = [str(tmp_path / "in.pth"), str(tmp_path / "model"), "--heads=4", "--max-slide-size=25600"]
    assert convert.main(command) == 1
    said = capsys.readouterr().err
    assert "epoch is no tensor" in said and "seen is of torch.int64" in said
    assert convert.main([*command, "--drop=epoch", "--drop=seen"]) == 0
    assert "dropped epoch\ndropped seen\n" in capsys.readouterr().out


def test_nothing_in_a_checkpoint_is_run(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save({"model": {"a": Settings()}}, tmp_path / "odd.pth")
    assert convert.main([str(tmp_path / "odd.pth"), str(tmp_path / "model")]) == 1
    assert "odd.pth" in capsys.readouterr().err
    torch.save([torch.ones(1)], tmp_path / "list.pth")
    assert convert.main([str(tmp_path / "list.pth"), str(tmp_path / "model")]) == 1
    assert not (tmp_path / "model").exists()

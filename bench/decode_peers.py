#!/usr/bin/env python3
"""Compares the engine and its peers on a CPU: decode steps, windows and cross-attention.

    decode_peers.py --engine-case build/release/bench/engine_case [--rounds N] [JOB...]

A sum of all keys and values is in the same rounds: memory gives them no faster. Each peer gets its inputs in its best
layout, prepared before the clock starts. Query heads of a kv head are queries of one head. A window is blocks of
queries, each with the keys that they see, and a mask. flex_attention has a BlockMask instead. An absent peer has a row
with the reason. `./dev bench decode` makes the environment (bench/peers_requirements.txt).
"""
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional, Tuple

import numpy as np
import torch

from contest import Engine, Peer, arguments, race

BLOCK = 256  # queries of a block of a window


@dataclass
class Job:
    name: str
    tokens: int
    keys: int
    heads: int = 8
    kv_heads: int = 8
    dim: int = 64
    dtype: str = "float32"
    window: Optional[Tuple[int, int]] = None

    def spec(self):
        left, right = self.window or (None, None)
        return {"tokens": self.tokens, "key_tokens": self.keys, "heads": self.heads, "kv_heads": self.kv_heads,
                "head_dim": self.dim, "dtype": self.dtype, "segments": [max(self.tokens, self.keys)], "dilations": [1],
                "causal": right == 0, "window": None if left is None else [left, right or None]}

    def flops(self):
        """Returns the flop of the scores that are seen."""
        scores = self.tokens * self.keys
        if self.window:
            place, (left, right) = np.arange(self.tokens), self.window
            scores = int((np.minimum(place + right + 1, self.keys) - np.maximum(place - left, 0)).sum())
        return 4 * self.dim * self.heads * scores

    def bytes(self):
        return 2 * self.keys * self.kv_heads * self.dim * (2 if self.dtype == "bfloat16" else 4)


JOBS = [
    *(Job(f"decode-{queries}-{name}{'' if dtype == 'float32' else '-' + dtype}", queries, keys, 32, 8, 128, dtype)
      for keys, name in ((131_072, "128k"), (1_048_576, "1m")) for dtype in ("bfloat16", "float32")
      for queries in (1, 4, 16)),
    Job("window-1024", 65_536, 65_536, window=(512, 511)),
    Job("causal-window-1024", 65_536, 65_536, window=(1023, 0)),
    Job("cross-1024-65536", 1024, 65_536),
    Job("cross-65536-1024", 65_536, 1024),
]


class Inputs(list):
    """q, k and v as views [tokens, heads, dim] of tensors [heads, tokens, dim]."""

    def __init__(self, job):
        make = torch.Generator().manual_seed(1)
        shapes = (job.heads, job.tokens), (job.kv_heads, job.keys), (job.kv_heads, job.keys)
        super().__init__(torch.randn(*shape, job.dim, dtype=getattr(torch, job.dtype), generator=make).transpose(0, 1)
                         for shape in shapes)


class Dense(Peer):
    """q, k and v [blocks, kv_heads, rows, dim], and a mask of a window that expands to [blocks, kv_heads, rows, keys]."""

    def __init__(self, job, inputs, options, _):
        self.job, self.threads = job, options.threads
        q, k, v = (x.transpose(0, 1) for x in inputs)
        self.mask = None
        if job.window is None:
            self.q, self.k, self.v = q.reshape(1, job.kv_heads, -1, job.dim), k[None], v[None]
        else:
            left, right = job.window
            width, blocks = BLOCK + left + right, job.tokens // BLOCK
            self.q = q.unflatten(1, (blocks, BLOCK)).transpose(0, 1)
            self.k, self.v = (torch.nn.functional.pad(x, (0, 0, left, right)).unfold(1, width, BLOCK).permute(1, 0, 3, 2)
                              for x in (k, v))
            ahead = torch.arange(width) - torch.arange(BLOCK)[:, None]
            key = torch.arange(blocks)[:, None, None] * BLOCK - left + torch.arange(width)
            seen = (ahead >= 0) & (ahead <= left + right) & (key >= 0) & (key < job.keys)
            self.mask = torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)[:, None].to(q.dtype)
        self.prepare()

    def out(self):
        made = torch.as_tensor(self.result).float()
        if self.job.window is not None and made.shape[0] > 1:
            made = made.transpose(0, 1)
        return made.reshape(self.job.heads, self.job.tokens, self.job.dim).transpose(0, 1).numpy()


class Sum(Peer):
    name = "sum of keys and values"

    def __init__(self, job, inputs, *_):
        self.words = [x.transpose(0, 1).view(torch.int64) for x in inputs[1:]]

    def compute(self):
        for words in self.words:
            words.sum()

    def out(self):
        return None


class Sdpa(Dense):
    name = "PyTorch, scaled_dot_product_attention"

    def prepare(self):
        pass

    def compute(self):
        with torch.inference_mode():
            self.result = torch.nn.functional.scaled_dot_product_attention(self.q, self.k, self.v, attn_mask=self.mask)


class Flex(Dense):
    name = "PyTorch, flex_attention"

    def prepare(self):
        from torch.nn.attention.flex_attention import BlockMask, flex_attention
        torch.compiler.reset()
        self.attend, self.blocks = torch.compile(flex_attention, dynamic=False), None
        if self.job.window is not None:
            self.blocks = self.band(BlockMask, *self.job.window)

    def band(self, kind, left, right):
        self.q, self.k, self.v = self.q.transpose(0, 1).flatten(1, 2)[None], self.whole(self.k, left), self.whole(self.v, left)
        size = 128
        count = self.job.tokens // size
        places = torch.arange(count)
        low = (places - -(-left // size)).clamp(min=0)
        number = (places + -(-right // size)).clamp(max=count - 1) - low + 1
        return kind.from_kv_blocks(
            number.int()[None, None], (low[:, None] + places).clamp(max=count - 1).int()[None, None], BLOCK_SIZE=size,
            mask_mod=lambda _, head, query, key: (key - query >= -left) & (key - query <= right))

    def whole(self, x, left):
        """Returns [1, heads, tokens, dim] of keys of blocks."""
        return x[:, :, left:left + BLOCK].transpose(0, 1).flatten(1, 2)[None].contiguous()

    def compute(self):
        with torch.inference_mode():
            self.result = self.attend(self.q, self.k, self.v, block_mask=self.blocks)


class Onnx(Dense):
    name = "ONNX Runtime, Attention (opset 23)"

    def nodes(self, feeds, make):
        return [make("Attention", list(feeds), ["out"])], self.q.shape

    def prepare(self):
        import onnx
        import onnxruntime
        feeds = {name: x.contiguous() for name, x in zip(("q", "k", "v", "mask"), (self.q, self.k, self.v, self.mask))
                 if x is not None}
        nodes, shape = self.nodes(feeds, onnx.helper.make_node)
        kind = onnx.TensorProto.BFLOAT16 if self.job.dtype == "bfloat16" else onnx.TensorProto.FLOAT
        graph = onnx.helper.make_graph(
            nodes, "attention", [onnx.helper.make_tensor_value_info(name, kind, x.shape) for name, x in feeds.items()],
            [onnx.helper.make_tensor_value_info("out", kind, shape)])
        model = onnx.helper.make_model(graph, ir_version=11, opset_imports=[
            onnx.helper.make_opsetid("", 23), onnx.helper.make_opsetid("com.microsoft", 1)])
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = self.threads
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        self.feeds = {name: x.numpy() for name, x in feeds.items()}

    def compute(self):
        self.result, = self.session.run(None, self.feeds)


class OnnxMultiHead(Onnx):
    name = "ONNX Runtime, MultiHeadAttention"

    def nodes(self, feeds, make):
        if self.mask is not None:
            raise NotImplementedError("windows are measured by Attention")
        feeds["q"] = feeds["q"].transpose(1, 2).flatten(2, 3).contiguous()
        return [make("MultiHeadAttention", list(feeds), ["out"], domain="com.microsoft",
                     num_heads=self.job.kv_heads)], feeds["q"].shape

    def out(self):
        self.result = torch.as_tensor(self.result).unflatten(2, (self.job.kv_heads, -1)).transpose(1, 2)
        return super().out()


class OpenVino(Dense):
    name = "OpenVINO"

    def prepare(self):
        import openvino
        import openvino.opset13 as ops
        free = int(re.search(r"MemAvailable: *(\d+)", Path("/proc/meminfo").read_text())[1]) * 1024
        if 2.5 * self.job.bytes() > free:
            raise MemoryError(f"its two copies take {2e-9 * self.job.bytes():.1f} GB, memory has {1e-9 * free:.1f} GB")
        kind, view = ((openvino.Type.bf16, torch.int16) if self.job.dtype == "bfloat16" else
                      (openvino.Type.f32, torch.float32))
        inputs = [x.contiguous() for x in (self.q, self.k, self.v, self.mask) if x is not None]
        parameters = [ops.parameter(list(x.shape), kind) for x in inputs]
        made = ops.convert(ops.scaled_dot_product_attention(*parameters), "f32")
        compiled = openvino.Core().compile_model(openvino.Model([made], parameters), "CPU", {
            "INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if self.job.dtype == "bfloat16" else "f32"})
        self.request, self.kept = compiled.create_infer_request(), inputs
        for i, x in enumerate(inputs):
            self.request.set_input_tensor(i, openvino.Tensor(x.view(view).numpy(), openvino.Shape(list(x.shape)), kind))

    def compute(self):
        self.request.infer()
        self.result = self.request.get_output_tensor(0).data


CONTESTANTS = (Engine, Sum, Sdpa, Flex, Onnx, OnnxMultiHead, OpenVino)


def main():
    options = arguments(__doc__, JOBS)
    print(f"{options.threads} threads, best of {options.rounds} rounds\n")
    print("| job | contestant | best s | median s | GB/s of keys and values | GFLOP/s | time over the sum's "
          "| time over the engine's | max difference to the engine |\n| --- | --- |" + " ---: |" * 7)
    peak = 0.0
    for job in JOBS:
        if options.jobs and job.name not in options.jobs:
            continue
        if options.quick:
            job = replace(job, keys=job.keys // 16, tokens=job.tokens if job.tokens < BLOCK else job.tokens // 16)
        results, now = race(job, CONTESTANTS, Inputs(job), options)
        peak = max(peak, now)
        bound = next((one.best for one in results if one.name == Sum.name and one.seconds), float("nan"))
        for one in results:
            cells = [one.name + f", absent: {one.absent.split(' : ')[-1]:.90}" * bool(one.absent)]
            if one.seconds:
                rate = float("nan") if one.name == Sum.name else job.flops() / one.best * 1e-9
                cells += [f"{one.best:.4f}", f"{one.median:.4f}", f"{job.bytes() / one.best * 1e-9:.2f}", f"{rate:.1f}",
                          f"{one.best / bound:.2f}", f"{one.best / results[0].best:.2f}", f"{one.difference:.1e}"]
            cells += ["–"] * (8 - len(cells))
            print(f"| {job.name} | {' | '.join(cells).replace('nan', '–')} |", flush=True)
    print(f"\nMultiply-add peak of the run: {peak:.1f} GFLOP/s")


if __name__ == "__main__":
    main()

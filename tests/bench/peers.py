#!/usr/bin/env python3
"""The engine beside what one would pick instead on a CPU: the same work on the same inputs with the
same threads, in rounds that run every contestant once, best of all rounds.

    peers.py --engine-case build/release/tests/bench/engine_case [--rounds N] [JOB...]

`./dev bench peers` makes the environment that this needs (tests/bench/peers_requirements.txt).

Each peer gets its inputs in the layout that suits it, prepared before the clock starts, and each
pattern in the best way that we know to write with it:
  PyTorch       scaled_dot_product_attention on [heads, segments, rows, dim]; dilated rows as strided
                views, or gathered first; for `lse`, the flash operator that returns log-sum-exps
  ONNX Runtime  com.microsoft MultiHeadAttention on token-major rows, and for dense work the standard
                Attention of opset 23; one graph for the whole pattern
  OpenVINO      ScaledDotProductAttention on head-major rows; one graph for the whole pattern
The last two return no log-sum-exps. For `lse` each segment gets one more key of score 0 whose value
is 1 in a column of its own, where others have 0. That column comes out as t = 1 / (Z + 1), Z being
the softmax denominator without that key, so that branches mix as sum(out / t) / sum(1 / t - 1).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass
class Job:
    name: str
    tokens: int
    segments: tuple = ()  # none: one segment, dense
    dilations: tuple = (1,)
    mixing: str = "head_groups"
    causal: bool = False
    dtype: str = "float32"
    heads: int = 8
    dim: int = 64

    def __post_init__(self):
        self.segments = self.segments or (self.tokens,)

    @property
    def scale_out(self):
        """Averaging over head groups."""
        return 1 / len(self.segments) if self.mixing == "head_groups" else 1.0

    def units(self):
        """[[(heads, segment, dilation, offset)] by branch], as tests/golden/attention_oracle.py says."""
        branches = list(zip(self.segments, self.dilations))
        if self.mixing == "lse":
            result = []
            for w, r in branches:
                share = -(-self.heads // r)
                result.append([(slice(o * share, min((o + 1) * share, self.heads)), w, r, o)
                               for o in range(r) if o * share < self.heads])
            return result
        count = len(branches)
        sizes = [self.heads // count + (i < self.heads % count) for i in range(count)]
        ends = [sum(sizes[:i + 1]) for i in range(count)]
        return [[(slice(ends[i] - sizes[i], ends[i]), w, r, i % r)]
                for i, (w, r) in enumerate(branches)]

    def flops(self):
        """Multiplications and additions of unmasked scores."""
        scores = 0
        for heads, w, r, _ in (unit for branch in self.units() for unit in branch):
            rows = w // r
            pairs = rows * (rows + 1) // 2 if self.causal else rows * rows
            scores += (heads.stop - heads.start) * (self.tokens // w) * pairs
        return 4 * self.dim * scores


LONG = 32768
JOBS = [
    Job("dense", 8192),
    Job("causal", 8192, causal=True),
    Job("dense-bfloat16", 8192, dtype="bfloat16"),
    Job("causal-bfloat16", 8192, causal=True, dtype="bfloat16"),
    Job("segment-2048", LONG, (2048,)),
    Job("segment-4096-dilation-2", LONG, (4096,), (2,)),
    Job("segment-8192-dilation-4", LONG, (8192,), (4,)),
    Job("published", LONG, (2048, 4096, 8192), (1, 2, 4)),
    Job("published-bfloat16", LONG, (2048, 4096, 8192), (1, 2, 4), dtype="bfloat16"),
    Job("published-lse", LONG, (2048, 4096, 8192), (1, 2, 4), "lse"),
]


class Engine:
    """The engine in a process of its own. Inputs [tokens, heads, dim]."""
    name = "Hilbert Ring"

    def __init__(self, job, inputs, options, folder):
        spec = {"tokens": job.tokens, "heads": job.heads, "head_dim": job.dim, "dtype": job.dtype,
                "segments": list(job.segments), "dilations": list(job.dilations),
                "mixing": job.mixing, "causal": job.causal}
        (folder / "spec.json").write_text(json.dumps(spec))
        for name, x in zip("qkv", inputs):
            raw = torch.from_numpy(x)
            raw = raw.bfloat16().view(torch.int16) if job.dtype == "bfloat16" else raw
            raw.numpy().tofile(folder / name)
        self.job, self.folder = job, folder
        self.process = subprocess.Popen(
            [options.engine_case, *(folder / name for name in ("spec.json", *"qkv")),
             str(options.threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.kernel = self.process.stdout.readline().strip()
        self.name += f" ({self.kernel})"

    def ask(self, line):
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline()

    def run(self):
        return float(self.ask("run"))

    def peak(self):
        return float(self.ask("peak"))

    def out(self):
        self.ask(f"write {self.folder / 'out'}")
        raw = np.fromfile(self.folder / "out",
                          np.int16 if self.job.dtype == "bfloat16" else np.float32)
        raw = torch.from_numpy(raw)
        raw = raw.view(torch.bfloat16).float() if self.job.dtype == "bfloat16" else raw
        return raw.numpy().reshape(self.job.tokens, self.job.heads, self.job.dim)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


class Peer:
    """A contestant of this process: `compute` is what is timed."""

    def run(self):
        start = time.perf_counter()
        self.compute()
        return time.perf_counter() - start

    def close(self):
        pass


class Torch(Peer):
    name = "PyTorch, views"
    gathers = False

    def __init__(self, job, inputs, options, folder):
        self.job = job
        dtype = getattr(torch, job.dtype)
        self.inputs = [torch.from_numpy(x).transpose(0, 1).contiguous().to(dtype) for x in inputs]
        self.result = torch.zeros_like(self.inputs[0])  # [heads, tokens, dim]
        if self.job.mixing == "lse":
            self.lse = torch.zeros(job.heads, job.tokens)

    def rows(self, x, unit):
        """[heads, segments, rows, ...] of a unit, a view."""
        heads, w, r, o = unit
        x = x[heads]
        return x.view(x.shape[0], self.job.tokens // w, w // r, r, *x.shape[2:])[:, :, :, o]

    def compute(self):
        with torch.inference_mode():
            for number, branch in enumerate(self.job.units()):
                for unit in branch:
                    q, k, v = (self.rows(x, unit) for x in self.inputs)
                    if self.gathers:
                        q, k, v = (x.contiguous() for x in (q, k, v))
                    if self.job.mixing == "lse":
                        self.merge(unit, number == 0, q, k, v)
                        continue
                    out = torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=self.job.causal)
                    torch.mul(out, self.job.scale_out, out=self.rows(self.result, unit))

    def merge(self, unit, first, q, k, v):
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
        to, to_lse = self.rows(self.result, unit), self.rows(self.lse, unit)
        if first:
            to.copy_(out)
            to_lse.copy_(lse)
            return
        to.lerp_(out, torch.sigmoid(lse - to_lse).unsqueeze(-1))
        torch.logaddexp(to_lse, lse, out=to_lse)

    def out(self):
        self.compute()
        return self.result.transpose(0, 1).float().numpy()


class TorchGathered(Torch):
    name = "PyTorch, gathered"
    gathers = True


class OnnxRuntime(Peer):
    name = "ONNX Runtime, MultiHeadAttention"
    standard = False

    def __init__(self, job, inputs, options, folder):
        self.job = job
        self.nodes, self.constants = [], []
        n, d = job.tokens, job.dim
        if self.standard:
            inputs = [np.ascontiguousarray(x.transpose(1, 0, 2))[None] for x in inputs]
            self.shape = [1, job.heads, n, d]
            self.node("Attention", [*"qkv"], "out", is_causal=int(job.causal))
        else:
            inputs = [x.reshape(1, n, -1) for x in inputs]
            self.shape = [1, n, job.heads * d]
            self.pattern()
        values = [onnx.helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, self.shape)
                  for x in (*"qkv", "out")]
        graph = onnx.helper.make_graph(self.nodes, "pattern", values[:3], values[3:],
                                       self.constants)
        opsets = [onnx.helper.make_opsetid("", 23), onnx.helper.make_opsetid("com.microsoft", 1)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=11)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), settings,
                                                    providers=["CPUExecutionProvider"])
        self.feeds = dict(zip("qkv", inputs))

    def node(self, kind, inputs, output=None, domain="", **attributes):
        output = output or f"{kind}{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, inputs, [output], domain=domain, **attributes))
        return output

    def constant(self, value, dtype="int64"):
        name = f"constant{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def reshape(self, x, shape):
        return self.node("Reshape", [x, self.constant(shape)])

    def part(self, x, begin, end, axis):
        return self.node("Slice", [x, *(self.constant([i]) for i in (begin, end, axis))])

    def pad(self, x, unit, width):
        """[segments, rows, width] -> [1, tokens, width], zero where nothing was selected."""
        _, w, r, o = unit
        if r > 1:
            x = self.reshape(x, [self.job.tokens // w, w // r, 1, width])
            x = self.node("Pad", [x, self.constant([0, 0, o, 0, 0, 0, r - 1 - o, 0])])
        return self.reshape(x, [1, self.job.tokens, width])

    def unit(self, unit):
        """q, k and v of a unit, [segments, rows, heads * dim]."""
        heads, w, r, o = unit
        width = (heads.stop - heads.start) * self.job.dim
        for x in "qkv":
            if heads.stop - heads.start < self.job.heads:
                x = self.part(x, heads.start * self.job.dim, heads.stop * self.job.dim, 2)
            if r > 1:
                x = self.reshape(x, [self.job.tokens // w, w // r, r, width])
                x = self.node("Gather", [x, self.constant(o)], axis=2)
            else:
                x = self.reshape(x, [self.job.tokens // w, w, width])
            yield x

    def attention(self, q, k, v, heads):
        return self.node("MultiHeadAttention", [q, k, v], domain="com.microsoft", num_heads=heads,
                         unidirectional=int(self.job.causal))

    def pattern(self):
        numerators, denominators = [], []
        for branch in self.job.units():
            tops, bottoms = [], []
            for unit in branch:
                count = unit[0].stop - unit[0].start
                q, k, v = self.unit(unit)
                if self.job.mixing == "lse":
                    top, bottom = self.weighted(q, k, v, unit, count)
                    bottoms.append(self.pad(bottom, unit, count))
                else:
                    top = self.attention(q, k, v, count)
                    if len(self.job.segments) > 1:
                        top = self.node("Mul", [top, self.constant(self.job.scale_out, np.float32)])
                tops.append(self.pad(top, unit, count * self.job.dim))
            numerators.append(tops[0] if len(tops) == 1 else self.node("Concat", tops, axis=2))
            if bottoms:
                denominators.append(self.node("Concat", bottoms, axis=2))
        if self.job.mixing != "lse":
            if len(numerators) == 1:
                self.node("Identity", numerators, "out")
            else:
                self.node("Concat", numerators, "out", axis=2)
            return
        n, heads, d = self.job.tokens, self.job.heads, self.job.dim
        top = self.reshape(self.node("Sum", numerators), [1, n, heads, d])
        bottom = self.reshape(self.node("Sum", denominators), [1, n, heads, 1])
        self.node("Reshape", [self.node("Div", [top, bottom]), self.constant([1, n, heads * d])],
                  "out")

    def weighted(self, q, k, v, unit, count):
        """out / t [segments, rows, heads * dim] and 1 / t - 1 [segments, rows, heads]."""
        _, w, r, _ = unit
        many, rows, d, wide = self.job.tokens // w, w // r, self.job.dim, self.job.dim + 8
        k = self.node("Concat", [k, self.constant(np.zeros((many, 1, count * d)), np.float32)],
                      axis=1)
        v = self.reshape(v, [many, rows, count, d])
        v = self.node("Pad", [v, self.constant([0, 0, 0, 0, 0, 0, 0, 8])])
        last = np.zeros((many, 1, count, wide))
        last[..., d] = 1
        v = self.node("Concat", [v, self.constant(last, np.float32)], axis=1)
        out = self.attention(q, k, self.reshape(v, [many, rows + 1, count * wide]), count)
        out = self.reshape(out, [many, rows, count, wide])
        t = self.node("Reciprocal", [self.part(out, d, d + 1, 3)])
        top = self.node("Mul", [self.part(out, 0, d, 3), t])
        bottom = self.node("Sub", [t, self.constant(1, np.float32)])
        return (self.reshape(top, [many, rows, count * d]), self.reshape(bottom, [many, rows, count]))

    def compute(self):
        self.result, = self.session.run(None, self.feeds)

    def out(self):
        self.compute()
        n, heads, d = self.job.tokens, self.job.heads, self.job.dim
        if self.standard:
            return self.result[0].transpose(1, 0, 2)
        return self.result.reshape(n, heads, d)


class OnnxStandard(OnnxRuntime):
    name = "ONNX Runtime, Attention (opset 23)"
    standard = True


class OpenVino(Peer):
    name = "OpenVINO"

    def __init__(self, job, inputs, options, folder):
        self.job = job
        self.inputs = [np.ascontiguousarray(x.transpose(1, 0, 2)) for x in inputs]
        shape = [job.heads, job.tokens, job.dim]
        self.parameters = [ops.parameter(shape, np.float32) for _ in "qkv"]
        model = openvino.Model([self.pattern()], self.parameters)
        compiled = openvino.Core().compile_model(model, "CPU", {
            "INFERENCE_NUM_THREADS": options.threads, "NUM_STREAMS": 1,
            "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"})
        self.request = compiled.create_infer_request()
        for i, x in enumerate(self.inputs):
            self.request.set_input_tensor(i, openvino.Tensor(x))

    def rows(self, x, unit):
        """[heads, segments, rows, dim] of a unit."""
        heads, w, r, o = unit
        job, count = self.job, heads.stop - heads.start
        if count < job.heads:
            x = ops.slice(x, [heads.start], [heads.stop], [1], [0])
        if r == 1:
            return ops.reshape(x, [count, job.tokens // w, w, job.dim], False)
        x = ops.reshape(x, [count, job.tokens // w, w // r, r, job.dim], False)
        return ops.gather(x, np.int64(o), np.int64(3))

    def pad(self, x, unit, width):
        """[heads, segments, rows, width] -> [heads, tokens, width], zero where none was selected."""
        heads, w, r, o = unit
        count = heads.stop - heads.start
        if r > 1:
            x = ops.unsqueeze(x, np.int64(3))
            x = ops.pad(x, [0, 0, 0, o, 0], [0, 0, 0, r - 1 - o, 0], "constant", np.float32(0))
        return ops.reshape(x, [count, self.job.tokens, width], False)

    def pattern(self):
        job, numerators, denominators = self.job, [], []
        for branch in job.units():
            tops, bottoms = [], []
            for unit in branch:
                q, k, v = (self.rows(x, unit) for x in self.parameters)
                if job.mixing == "lse":
                    top, bottom = self.weighted(q, k, v, unit)
                    bottoms.append(self.pad(bottom, unit, 1))
                else:
                    top = ops.scaled_dot_product_attention(q, k, v, causal=job.causal)
                    if len(job.segments) > 1:
                        top = ops.multiply(top, np.float32(job.scale_out))
                tops.append(self.pad(top, unit, job.dim))
            numerators.append(tops[0] if len(tops) == 1 else ops.concat(tops, 0))
            if bottoms:
                denominators.append(bottoms[0] if len(bottoms) == 1 else ops.concat(bottoms, 0))
        if job.mixing != "lse":
            return numerators[0] if len(numerators) == 1 else ops.concat(numerators, 0)
        top, bottom = numerators[0], denominators[0]
        for more, below in zip(numerators[1:], denominators[1:]):
            top, bottom = ops.add(top, more), ops.add(bottom, below)
        return ops.divide(top, bottom)

    def weighted(self, q, k, v, unit):
        """out / t [heads, segments, rows, dim] and 1 / t - 1 [heads, segments, rows, 1]."""
        heads, w, _, _ = unit
        d, wide = self.job.dim, self.job.dim + 8
        lead = (heads.stop - heads.start, self.job.tokens // w, 1)
        last = np.zeros((*lead, wide), np.float32)
        last[..., d] = 1
        k = ops.concat([k, ops.constant(np.zeros((*lead, d), np.float32))], 2)
        v = ops.pad(v, [0, 0, 0, 0], [0, 0, 0, 8], "constant", np.float32(0))
        v = ops.concat([v, ops.constant(last)], 2)
        out = ops.scaled_dot_product_attention(q, k, v)
        t = ops.divide(np.float32(1), ops.slice(out, [d], [d + 1], [1], [3]))
        return (ops.multiply(ops.slice(out, [0], [d], [1], [3]), t),
                ops.subtract(t, np.float32(1)))

    def compute(self):
        self.request.infer()

    def out(self):
        self.compute()
        result = self.request.get_output_tensor(0).data
        return result.reshape(self.job.heads, self.job.tokens, self.job.dim).transpose(1, 0, 2)


def contestants(job):
    yield Engine
    yield Torch
    if any(r > 1 for r in job.dilations):
        yield TorchGathered
    if job.dtype == "float32":  # bfloat16 on a CPU without instructions for it: only PyTorch
        yield OnnxRuntime
        if job.segments == (job.tokens,):
            yield OnnxStandard
        yield OpenVino


def compete(job, options):
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((job.tokens, job.heads, job.dim), dtype=np.float32) for _ in "qkv"]
    if job.dtype == "bfloat16":
        inputs = [torch.from_numpy(x).bfloat16().float().numpy() for x in inputs]
    with tempfile.TemporaryDirectory() as folder:
        running, differences = [], []
        for kind in contestants(job):
            try:
                one = kind(job, inputs, options, Path(folder))
                one.run()
                out = one.out()
            except Exception as error:  # a peer that cannot do the job is a row of the table too
                print(f"{job.name}: {kind.name}: {str(error).splitlines()[0]}", file=sys.stderr)
                if kind is Engine:
                    raise
                continue
            if kind is Engine:
                engine, expected = one, out
            running.append(one)
            differences.append(float(np.abs(out - expected).max()))
        times, peak = [[] for _ in running], 0.0
        for _ in range(options.rounds):
            for one, seconds in zip(running, times):
                time.sleep(0.05)  # until the threads of the one before have stopped to spin
                peak = max(peak, engine.peak())
                seconds.append(one.run())
        for one in running:
            one.close()
    ours = min(times[0])
    for one, seconds, difference in zip(running, times, differences):
        best = min(seconds)
        rate = job.flops() / best * 1e-9
        print(f"| {job.name} | {one.name} | {best:.3f} | {sorted(seconds)[len(seconds) // 2]:.3f} "
              f"| {rate:.1f} | {100 * rate / peak:.1f} | {best / ours:.2f} | {difference:.1e} |",
              flush=True)
    return peak


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine-case", required=True, help="path of the program engine_case")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, one round")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(j.name for j in JOBS))
    options = parser.parse_args()
    unknown = set(options.jobs) - {job.name for job in JOBS}
    if unknown:
        parser.error(f"no job {', '.join(sorted(unknown))}")

    if options.quick:
        options.rounds = 1
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before the peers are loaded
    global np, onnx, onnxruntime, openvino, ops, torch
    import numpy as np
    import onnx
    import onnxruntime
    import openvino
    import openvino.opset13 as ops
    import torch
    torch.set_num_threads(options.threads)

    print(f"PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), "
          f"ONNX Runtime {onnxruntime.__version__}, OpenVINO {openvino.__version__.split('-')[0]}; "
          f"{options.threads} threads, best of {options.rounds} rounds\n")
    print("| job | contestant | best s | median s | GFLOP/s | % of peak | time over the engine's "
          "| max difference to the engine |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    peak = 0.0
    for job in JOBS:
        if options.jobs and job.name not in options.jobs:
            continue
        if options.quick:
            job = replace(job, tokens=job.tokens // 16,
                          segments=tuple(max(1, w // 16) for w in job.segments))
        peak = max(peak, compete(job, options))
    print(f"\nMultiply-add peak of the run: {peak:.1f} GFLOP/s")


if __name__ == "__main__":
    main()

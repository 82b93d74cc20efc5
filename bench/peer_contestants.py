"""The contestants of bench/peers.py: the engine and its peers.

Each peer gets its inputs in its best layout, prepared before the clock starts, and each pattern in its
fastest known form:
  PyTorch       scaled_dot_product_attention on [heads, segments, rows, dim]; dilated rows as strided
                views, or gathered first; with `lse`, the flash operator that returns log-sum-exps
  ONNX Runtime  com.microsoft MultiHeadAttention on token-major rows, and the standard Attention of
                opset 23 on dense work; one graph for the whole pattern
  OpenVINO      ScaledDotProductAttention on head-major rows; one graph for the whole pattern
The last two return no log-sum-exps. With `lse` each segment therefore gets another key of score 0. Its
value is 1 in an additional column, in which others have 0. The column's result is t = 1 / (Z + 1), Z
being the softmax denominator without that key. Branches mix as sum(out / t) / sum(1 / t - 1).
"""
import numpy as np
import onnx
import onnxruntime
import openvino
import openvino.opset13 as ops
import torch

from contest import Engine, Peer


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
        """Returns a view [heads, segments, rows, ...] of a unit."""
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
        """Turns [segments, rows, width] into [1, tokens, width], with zeros in rows that are not selected."""
        _, w, r, o = unit
        if r > 1:
            x = self.reshape(x, [self.job.tokens // w, w // r, 1, width])
            x = self.node("Pad", [x, self.constant([0, 0, o, 0, 0, 0, r - 1 - o, 0])])
        return self.reshape(x, [1, self.job.tokens, width])

    def unit(self, unit):
        """Returns q, k and v of a unit, [segments, rows, heads * dim]."""
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
        """Returns out / t [segments, rows, heads * dim] and 1 / t - 1 [segments, rows, heads]."""
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
        """Returns rows of a unit, [heads, segments, rows, dim]."""
        heads, w, r, o = unit
        job, count = self.job, heads.stop - heads.start
        if count < job.heads:
            x = ops.slice(x, [heads.start], [heads.stop], [1], [0])
        if r == 1:
            return ops.reshape(x, [count, job.tokens // w, w, job.dim], False)
        x = ops.reshape(x, [count, job.tokens // w, w // r, r, job.dim], False)
        return ops.gather(x, np.int64(o), np.int64(3))

    def pad(self, x, unit, width):
        """Turns [heads, segments, rows, width] into [heads, tokens, width]. Rows that are not selected are zeros."""
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
        """Returns out / t [heads, segments, rows, dim] and 1 / t - 1 [heads, segments, rows, 1]."""
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
    if job.dtype == "float32":  # only PyTorch has bfloat16 on CPUs without bfloat16 instructions
        yield OnnxRuntime
        if job.segments == (job.tokens,):
            yield OnnxStandard
        yield OpenVino

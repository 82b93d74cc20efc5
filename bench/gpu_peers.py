#!/usr/bin/env python3
"""PyTorch's attention on the GPU beside gpu_bench: the same work on the same numbers, in the same Markdown tables.

    gpu_bench --values=FILE && gpu_peers.py --values FILE [--part layers|jobs] [--type TYPE] [--tokens N]
    gpu_peers.py --device cpu --quick     a smoke test without a GPU: small, one round

Needs PyTorch and NumPy. `./dev gpu-check` runs both programs. Without --values the numbers are others of the same kind.
Both programs count operations alike. gpu_bench times whole calls, with launches and waits; here times are those of
CUDA's events, the median of some rounds after 200 ms. Rows are printed as they come. Each kernel of
scaled_dot_product_attention gets the rows in several layouts:
  token-major    [rows, heads, dim], the layout of the service's rows
  head-major     [heads, rows, dim], made before the clock starts
  strided views  dilated rows (of the reports' configuration, all) in place
  gathered       the same, copied together first; the time includes the copies
The time of the last two also includes writing the output's rows to their places.

The reports' configuration is first computed for 16,384 tokens and compared with tests/golden/attention_oracle.py; a
kernel that disagrees is not timed. A kernel that refuses a job is a row of the table too. Exits with 1 after wrong
results, and with 2 without PyTorch or a GPU.
"""
import argparse
import contextlib
import math
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
VALUES = 262_139
HEADS = 8
WARM_SECONDS = 0.2
CHECKED_ROWS = 4  # compared with float64

# The reports' configuration: a branch for each of three groups of heads.
SEGMENTS = [2048, 4096, 8192]
DILATIONS = [1, 2, 4]
DIM = 64
CHECKED_TOKENS = 16_384
# The largest error relative to the root mean square of all values. PyTorch 2.11's two CPU kernels have 0.04; a wrong
# row, head or divisor gives more than 1.
MOST_ERROR = 0.25


@dataclass(frozen=True)
class Pattern:
    name: str
    dilation: int = 1
    causal: bool = False

    def layouts(self):
        if self.dilation == 1:
            return ["token-major", "head-major"]
        return ["strided views", "gathered"]


PATTERNS = [Pattern("dense"), Pattern("causal", causal=True),
            *(Pattern(f"dilation {r}", r) for r in (2, 4, 8))]


@dataclass
class Sizes:
    rows: int = 32_768  # selected by a pattern
    tokens: int = 425_984  # of the reports' configuration
    rounds: int = 9
    warm_seconds: float = WARM_SECONDS


class Wrong(Exception):
    """A result that contradicts the definition."""


def fail(message):
    print(f"gpu_peers: {message}", file=sys.stderr)
    sys.exit(2)


def load():
    """Imports PyTorch and NumPy, once the command line is checked."""
    global np, torch, attention, SDPBackend, sdpa_kernel
    try:
        import torch
        import numpy as np
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention as attention
    except ImportError as error:
        name = {"torch": "PyTorch", "numpy": "NumPy"}.get(error.name)
        fail(f"{name} not found" if name else f"PyTorch does not load: {error}")


def read_values(path):
    """Returns the numbers of every tensor, exact in bfloat16 and float16."""
    if path is None:
        print("The numbers differ from gpu_bench's: --values is not given.\n")
        values = np.random.default_rng(1).standard_normal(VALUES, dtype=np.float32)
        return np.where(abs(values) > 4, np.round(values * 8) / 8, np.round(values * 32) / 32)
    try:
        values = np.fromfile(path, "<f4")
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    if len(values) != VALUES:
        fail(f"{path} holds {len(values)} numbers, must hold {VALUES}")
    return values


def tensors(values, shape, dtype, device):
    """Returns Q, K and V: element i of tensor t is values[(i + 7919 * t) % VALUES]."""
    elements = math.prod(shape)
    values = torch.from_numpy(values).to(device, dtype)
    return [values.roll(-7919 * t).repeat(-(-elements // VALUES))[:elements].view(shape)
            for t in range(3)]


def kernels(device):
    if device == "cpu":
        return {"PyTorch, math": SDPBackend.MATH, "PyTorch, default": None}
    return {"PyTorch, cuDNN": SDPBackend.CUDNN_ATTENTION,
            "PyTorch, flash": SDPBackend.FLASH_ATTENTION}


def chosen(backend):
    return contextlib.nullcontext() if backend is None else sdpa_kernel([backend])


def seconds_of(work, device):
    if device == "cpu":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3


def median_seconds(work, device, sizes):
    warm = seconds_of(work, device)
    while warm < sizes.warm_seconds:
        warm += max(seconds_of(work, device), 1e-6)
    return sorted(seconds_of(work, device) for _ in range(sizes.rounds))[sizes.rounds // 2]


def reason(error, warned):
    """Returns why a kernel refuses a job, as a cell of a table."""
    texts = [str(error) or type(error).__name__]
    for warning in warned:  # from all kernels that PyTorch tried
        text = str(warning.message)
        if "runtime disabled" not in text and "not used because" not in text:
            texts.append(text)
    sentences = [text.strip().partition("\n")[0].partition(" (Triggered")[0].partition(". ")[0]
                 for text in texts[:2]]
    return "not run: " + ". ".join(sentences).replace("|", "/")[:120]


def attempt(work, backend):
    """Returns (result of the work, None), or (None, reason)."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with torch.inference_mode(), chosen(backend):
                return work(), None
        except Wrong as error:
            return None, f"WRONG: {error}"
        except Exception as error:  # any refusal of a kernel
            return None, reason(error, warned)


def print_row(row):
    print("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in row) + " |",
          flush=True)


def print_head(*columns):
    print_row(columns)
    print_row(["---"] * len(columns))


# ---------------------------------------------------------------- dense, causal, dilated

def head_first(x):
    """Turns [rows, heads, dim] into a view [1, heads, rows, dim]."""
    return x.transpose(0, 1)[None]


def layer(inputs, pattern, layout):
    """Returns a function that gives the rows selected by a pattern, [rows, heads, dim]."""
    if pattern.dilation == 1:
        q, k, v = (head_first(x) for x in inputs)
        if layout == "head-major":
            q, k, v = (x.contiguous() for x in (q, k, v))
        return lambda: attention(q, k, v, is_causal=pattern.causal)[0].transpose(0, 1)
    out = torch.zeros_like(inputs[0])

    def work():
        selected = [x[::pattern.dilation] for x in inputs]
        if layout == "gathered":
            selected = [x.contiguous() for x in selected]
        to = out[::pattern.dilation]
        return to.copy_(attention(*map(head_first, selected))[0].transpose(0, 1))
    return work


def error_of(out, inputs, pattern):
    """Returns the root mean square error of a few rows of the first head, relative to float64's values."""
    q, k, v = (x[::pattern.dilation, 0].double() for x in inputs)
    rows, dim = q.shape
    wrong = right = 0.0
    for n in range(CHECKED_ROWS):
        row = (2 * n + 1) * rows // (2 * CHECKED_ROWS)
        keys = row + 1 if pattern.causal else rows
        weights = torch.softmax(k[:keys] @ q[row] / math.sqrt(dim), 0)
        expected = weights @ v[:keys]
        wrong += (out[row, 0].double() - expected).square().sum().item()
        right += expected.square().sum().item()
    return math.sqrt(wrong / right)


def measure_layer(inputs, pattern, layout, device, sizes):
    """Returns (TFLOP/s, error), without scores above the diagonal."""
    rows, dim = inputs[0].shape[0] // pattern.dilation, inputs[0].shape[2]
    work = layer(inputs, pattern, layout)
    scores = rows * (rows + 1) / 2 if pattern.causal else rows * rows
    seconds = median_seconds(work, device, sizes)
    return 4e-12 * dim * HEADS * scores / seconds, error_of(work(), inputs, pattern)


def layers(values, dtype, sizes, device):
    name = str(dtype).removeprefix("torch.")
    print(f"PyTorch in {name}: {sizes.rows} rows selected, {HEADS} heads, median of "
          f"{sizes.rounds} rounds after {sizes.warm_seconds} s\n")
    print_head("type", "head dim", "pattern", "kernel", "layout", "TFLOP/s", "over dense", "error")
    for dim in (64, 128):
        dense = {}  # by kernel, in the better layout
        for pattern in PATTERNS:
            shape = [sizes.rows * pattern.dilation, HEADS, dim]
            inputs = tensors(values, shape, dtype, device)
            for kernel, backend in kernels(device).items():
                results = [attempt(lambda: measure_layer(inputs, pattern, layout, device,
                                                         sizes), backend)
                           for layout in pattern.layouts()]
                rates = [found[0] for found, _ in results if found]
                if pattern.name == "dense" and rates:
                    dense[kernel] = max(rates)
                for layout, (found, why) in zip(pattern.layouts(), results):
                    cells = [why, "", ""]
                    if found:
                        rate, error = found
                        over = f"{rate / dense[kernel]:.3f}" if kernel in dense else ""
                        cells = [f"{rate:.6g}" if rate < 1 else f"{rate:.1f}", over, f"{error:.1e}"]
                    print_row([name, str(dim), pattern.name, kernel, layout, *cells])
    print(flush=True)


# ---------------------------------------------------------------- the reports' configuration

def branches():
    """Returns (heads, segment, dilation, offset) of each unit, like tests/golden/attention_oracle.py."""
    count = len(SEGMENTS)
    sizes = [HEADS // count + (i < HEADS % count) for i in range(count)]
    ends = [sum(sizes[:i + 1]) for i in range(count)]
    return [(slice(ends[i] - sizes[i], ends[i]), w, r, i % r)
            for i, (w, r) in enumerate(zip(SEGMENTS, DILATIONS))]


def rows_of(x, branch):
    """Turns [tokens, heads, dim] into a view [segments, heads of the branch, rows, dim]."""
    heads, w, r, offset = branch
    tokens, _, dim = x.shape
    return x.view(tokens // w, w // r, r, HEADS, dim)[:, :, offset, heads].transpose(1, 2)


def compute_job(inputs, out, layout):
    out.zero_()
    for branch in branches():
        q, k, v = (rows_of(x, branch) for x in inputs)
        if layout == "gathered":
            q, k, v = (x.contiguous() for x in (q, k, v))
        torch.div(attention(q, k, v), len(SEGMENTS), out=rows_of(out, branch))


def definition(inputs):
    sys.path.insert(0, str(GOLDEN))
    import attention_oracle
    q, k, v = (x.cpu().double().numpy() for x in inputs)
    out, _ = attention_oracle.attention(q, k, v, segments=SEGMENTS, dilations=DILATIONS,
                                        mixing="head_groups", average_groups=True)
    return torch.from_numpy(out)


def check_job(inputs, expected, layout):
    """Returns the largest error, relative to the root mean square of the definition's values."""
    out = torch.empty_like(inputs[0])
    compute_job(inputs, out, layout)
    scale = expected.square().mean().sqrt()
    error = ((out.cpu().double() - expected).abs().max() / scale).item()
    if not error <= MOST_ERROR:
        raise Wrong(f"off by {error:.1e}, may be {MOST_ERROR}")
    return error


def measure_job(inputs, layout, device, sizes):
    """Returns (seconds, GiB of the GPU's memory with inputs and output)"""
    out = torch.empty_like(inputs[0])
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    seconds = median_seconds(lambda: compute_job(inputs, out, layout), device, sizes)
    return seconds, "" if device == "cpu" else f"{torch.cuda.max_memory_allocated() / 2**30:.1f}"


def jobs(values, sizes, device):
    """Returns whether all results were right."""
    contestants = kernels(device)
    if device != "cpu":
        contestants["PyTorch, efficient"] = SDPBackend.EFFICIENT_ATTENTION
    small = tensors(values, [CHECKED_TOKENS, HEADS, DIM], torch.bfloat16, device)
    expected = definition(small)
    inputs = tensors(values, [sizes.tokens, HEADS, DIM], torch.bfloat16, device)
    print("PyTorch: the reports' configuration in bfloat16, rows in the device's memory; the "
          f"largest error is that of {CHECKED_TOKENS} tokens against the definition in float64, "
          "over the root mean square of its values\n")
    print_head("kernel", "layout", "tokens", "seconds", "million tokens/s",
               "GiB of the GPU's memory", "largest error")
    right = True
    for kernel, backend in contestants.items():
        for layout in ("strided views", "gathered"):
            error, why = attempt(lambda: check_job(small, expected, layout), backend)
            if error is not None:
                found, why = attempt(lambda: measure_job(inputs, layout, device, sizes),
                                     backend)
            row = [kernel, layout, str(sizes.tokens)]
            if why is not None:
                right = right and not why.startswith("WRONG")
                print_row([*row, why, "", "", ""])
                continue
            seconds, memory = found
            print_row([*row, f"{seconds:.4f}", f"{1e-6 * sizes.tokens / seconds:.3f}", memory,
                       f"{error:.1e}"])
    print(flush=True)
    return right


def machine_line(device):
    if device == "cpu":
        return f"PyTorch {torch.__version__}, CPU"
    return (f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN "
            f"{torch.backends.cudnn.version()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values", metavar="FILE", help="File of gpu_bench --values=FILE")
    parser.add_argument("--part", choices=["layers", "jobs"], help="Run this part alone")
    parser.add_argument("--type", choices=["bfloat16", "float16"], default="bfloat16",
                        help="Type of layers (without --part: both)")
    parser.add_argument("--tokens", type=int, default=Sizes.tokens, help="Tokens of the job, a multiple of 8192")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="Run a smoke test: small, one round")
    options = parser.parse_args()
    load()
    if options.device == "cuda" and not torch.cuda.is_available():
        fail("PyTorch finds no GPU")
    sizes = Sizes(tokens=options.tokens)
    if options.quick:
        sizes = Sizes(rows=512, tokens=CHECKED_TOKENS, rounds=1, warm_seconds=0)
    if sizes.tokens < 1 or sizes.tokens % max(SEGMENTS):
        parser.error(f"--tokens is {sizes.tokens}, must be a multiple of {max(SEGMENTS)}")
    print(f"{machine_line(options.device)}\n")
    values = read_values(options.values)
    right = True
    if options.part != "jobs":
        layers(values, getattr(torch, options.type), sizes, options.device)
    if options.part != "layers":
        right = jobs(values, sizes, options.device)
    if options.part is None:
        layers(values, torch.float16, sizes, options.device)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()

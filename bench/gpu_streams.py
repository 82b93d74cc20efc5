#!/usr/bin/env python3
"""Checks that the Python client reads tensors on a GPU after the kernels that write them: a step of tools/gpu_check.py.

Needs PyTorch with CUDA, but no other module of the client. Exits with 2 without PyTorch, with 1 after a failure.
"""
import importlib.util
import sys
import threading
from pathlib import Path

STREAMS = Path(__file__).resolve().parents[1] / "client" / "python" / "hilbert_ring" / "_torch_streams.py"
CYCLES = 400_000_000  # length of the waiting kernel, about a fifth of a second
ROWS = 1 << 20


def fail(message):
    print(f"gpu_streams: {message}", file=sys.stderr)
    sys.exit(2)


try:
    import torch
except ImportError as error:
    fail("PyTorch not found" if error.name == "torch" else f"PyTorch does not load: {error}")
if not torch.cuda.is_available():
    fail("PyTorch finds no GPU")
loaded = importlib.util.spec_from_file_location("torch_streams", STREAMS)
torch_streams = importlib.util.module_from_spec(loaded)
loaded.loader.exec_module(torch_streams)


def in_thread(function):
    """Returns the function's result from another thread, whose current stream is the default one."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def late_ones():
    """Zeros that a late kernel of the current stream turns into ones."""
    made = torch.zeros(ROWS, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    return made.fill_(1)


def rows_of_another_stream(side):
    with torch.cuda.stream(side):
        rows = late_ones()
        await_rows = torch_streams.CallerStreams().written(rows)
    early = in_thread(lambda: int(rows.cpu().sum()))
    late = in_thread(lambda: (await_rows(), int(rows.cpu().sum()))[1])
    return early == 0 and late == ROWS, f"read at once: {early} of {ROWS} rows, awaited: {late}"


def blocks_that_another_thread_asks_for(side):
    with torch.cuda.stream(side):
        blocks = torch_streams.CallerStreams().iterate(torch.cuda.current_stream() for _ in range(1))
    return in_thread(lambda: next(blocks)) == side, "of another stream than the caller's"


def results_on_the_callers_stream(side):
    with torch.cuda.stream(side):
        streams = torch_streams.CallerStreams()
        late_ones()  # queued before by the caller
    with streams.placing(torch.device("cuda", torch.cuda.current_device())):
        placed = torch.ones(ROWS).to("cuda")
    with torch.cuda.stream(side):
        found = int(placed.sum())
    return found == ROWS, f"{found} of {ROWS} rows are there"


TESTS = [rows_of_another_stream, blocks_that_another_thread_asks_for, results_on_the_callers_stream]
failed = 0
for test in TESTS:
    right, why = test(torch.cuda.Stream())
    print(f"[       OK ] {test.__name__}" if right else f"[  FAILED  ] {test.__name__}: {why}")
    failed += not right
print(f"[  PASSED  ] {len(TESTS) - failed} tests.")
sys.exit(failed > 0)

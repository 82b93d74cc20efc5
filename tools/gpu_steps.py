"""What tools/gpu_check.py runs, in the order in which it is worth a lent GPU's minutes: whether each
kernel works at all, the benchmarks that matter, correctness, other benchmarks, random jobs."""
from dataclasses import dataclass, field

KERNELS = ["cuda/native", "cuda/native-sm90", "cuda/native-sm90-pipelined", "cuda/cudnn"]
TOKENS = [425_984, 4_194_304]  # of the published job, and one that fills more of a GPU
PEERS = "gpu_peers.py"
STREAMS = "gpu_streams.py"
TORCH_SCRIPTS = (PEERS, STREAMS)  # in Python, which need it
SERVICE = "service"
GROUPS = ["smoke", "bench", "correct", "more", "random"]
PROGRAMS = ["gpu_bench", "gpu_encoder_bench", "gpu_graph_bench", "hopper_alone", "device_test",
            "row_math_test", "attention_test", "engine_golden_test", "engine_encoder_golden_test",
            "engine_random_test", "ring_processes_test", "ring_rank"]


@dataclass(frozen=True)
class Step:
    group: str
    title: str
    program: str
    arguments: list
    seconds: float  # at most
    kernel: str = ""  # that alone is used
    rows: int = 0  # of tables that are printed at least; 0: it runs tests
    environment: dict = field(default_factory=dict)
    checker: list = field(default_factory=list)  # options of compute-sanitizer, under which it runs


def kernels_of(capability):
    """Those that must be there, by the GPU's compute capability ("9.0")."""
    major = int(capability.partition(".")[0] or 0)
    return [kernel for kernel, there in zip(KERNELS, (True, major == 9, major == 9, major >= 8)) if there]


def bench(group, title, seconds, rows, *arguments, kernel="", quick=False):
    words = [*arguments, *([f"--kernel={kernel}"] if kernel else []), *["--quick"] * quick]
    return Step(group, title, "gpu_bench", words, seconds, kernel, rows)


def peers(title, seconds, rows, *arguments, values, quick=False, group="bench"):
    return Step(group, title, PEERS, [*arguments, "--values", values, *["--quick"] * quick], seconds,
                rows=rows)


def filter_of(kernel, tests="*"):
    return ":".join(f"{test}/{kernel.replace('/', '_').replace('-', '_')}"
                    for test in tests.split(":"))


def tests_of(kernel):
    """Correctness of one kernel."""
    engine = {"HILBERT_RING_TEST_KERNEL": kernel}
    return [
        Step("correct", f"Attention against float64, {kernel}", "attention_test",
             [f"--gtest_filter={filter_of(kernel)}"], 90, kernel),
        Step("correct", f"Golden cases, {kernel}", "engine_golden_test",
             ["--gtest_filter=*AllKernels*"], 90, kernel, environment=engine)]


# Libraries probe the GPU by calls that may fail.
MEMORY = ["--tool=memcheck", "--leak-check=full", "--report-api-errors=no"]


def checker_of(kernel):
    tests = "*EveryDim*:*ManyRows*:*TinySegments*:*WithoutKeys*"
    return Step("correct", f"Memory checker, {kernel}", "attention_test",
                [f"--gtest_filter={filter_of(kernel, tests)}"], 60, kernel, checker=MEMORY)


def hopper_checkers():
    """Threads that touch shared memory at once, and warps of a group that go different ways at one of its
    instructions, which the memory checker does not see."""
    return [Step("correct", f"{title}, the Hopper kernels alone", "hopper_alone", ["--quick"], 40, rows=10,
                 checker=[f"--tool={tool}"])
            for title, tool in (("Races", "racecheck"), ("Order of instructions", "synccheck"))]


def random_of(kernel, seconds):
    return Step("random", f"Random jobs, {kernel}", "engine_random_test",
                ["--gtest_filter=*AllKernels*"], 2 * seconds + 20, kernel,
                environment={"HILBERT_RING_TEST_KERNEL": kernel,
                             "HILBERT_RING_RANDOM_SECONDS": str(seconds)})


def steps(kernels, values, quick=False):
    """All of them for these kernels. values: the file with the numbers that layers are made of."""
    result = [bench("smoke", f"Smoke test, {kernel}", 20, 14, "--part=smoke", kernel=kernel,
                    quick=quick) for kernel in kernels]
    result += [bench("bench", f"Layers in bfloat16, {kernel}", 45, 10, "--part=layers", kernel=kernel,
                     quick=quick) for kernel in kernels]
    for tokens in [256] if quick else TOKENS:
        result += [bench("bench", f"Job of {tokens:,} tokens, {kernel}", 30, 1, "--part=jobs",
                         f"--tokens={tokens}", kernel=kernel, quick=quick)
                   for kernel in [*kernels, "cuda"]]
    result += [peers("PyTorch: layers in bfloat16", 60, 10, "--part=layers", values=values,
                     quick=quick),
               *(peers(f"PyTorch: job of {tokens:,} tokens", 45, 2, "--part=jobs",
                       f"--tokens={tokens}", values=values, quick=quick)
                 for tokens in ([16_384] if quick else TOKENS))]
    result += [Step("bench", f"Encoder of the published size, {compute}", "gpu_encoder_bench",
                    ["--kernel=cuda", f"--compute={compute}", *["--quick"] * quick], 60, rows=1)
               for compute in ("bfloat16", "float32")]
    for kernel in kernels:
        result += tests_of(kernel)
    result += [
        Step("correct", "Device", "device_test", ["--gtest_filter=*cuda*"], 60),
        Step("correct", "Rows of models", "row_math_test", [], 60),
        Step("correct", "Golden encoders", "engine_encoder_golden_test", [], 120,
             environment={"HILBERT_RING_TEST_KERNEL": "cuda"}),
        Step("correct", "Rings over NCCL, 2 and 4 processes on one GPU", "ring_processes_test",
             ["--gtest_filter=*nccl*"], 60),
        Step("correct", "PyTorch: rows and results of the caller's stream", STREAMS, [], 60),
        Step("correct", "Service: jobs on two workers of one GPU", SERVICE, [], 60),
        *(step for kernel in kernels if kernel == "cuda/native-sm90" for step in hopper_checkers()),
        *(checker_of(kernel) for kernel in kernels if kernel != "cuda/cudnn"),
        bench("more", "Small jobs", 20, 1, "--part=small", kernel="cuda", quick=quick),
        Step("more", "Launches beside a graph of them", "gpu_graph_bench", [], 20, rows=3),
        *(Step("more", "The Hopper kernels alone", "hopper_alone", ["--quick"] * quick, 40, rows=10)
          for kernel in kernels if kernel == "cuda/native-sm90")]
    for dtype in ("float16", "float32"):
        used = kernels if dtype == "float16" else ["cuda/native"]
        result += [bench("more", f"Layers in {dtype}, {kernel}", 45, 10, "--part=layers",
                         f"--type={dtype}", kernel=kernel, quick=quick) for kernel in used]
    result += [peers("PyTorch: layers in float16", 60, 10, "--part=layers", "--type=float16",
                     values=values, quick=quick, group="more"),
               bench("more", "A job that fills the GPU's memory", 60, 1, "--part=resident",
                     kernel="cuda", quick=quick)]
    result += [random_of(kernel, 1 if quick else 30) for kernel in kernels]
    return [step for group in GROUPS for step in result if step.group == group]

#!/usr/bin/python3
"""Stands in for any program that tools/gpu_check.py runs: it prints what that program prints where all is
well, or does what plan.json beside it says of the step, {"gpu_bench smoke cuda/native": "hang"}; what a
step is called is appended to steps.txt. The folder's own name of this file says which program it is."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(sys.argv[0]).parent
NAME = Path(sys.argv[0]).name


def option(name, default=""):
    found = [word.partition("=")[2] for word in sys.argv if word.startswith(f"--{name}=")]
    return found[0] if found else default


KERNEL = option("kernel") or os.environ.get("HILBERT_RING_TEST_KERNEL", "")
STEP = " ".join(word for word in (NAME, option("tool"), option("part"), KERNEL) if word)
if "gtest_filter" in str(sys.argv) and not KERNEL:
    STEP += " " + option("gtest_filter").rpartition("/")[2]


def table(columns, rows):
    print("| " + " | ".join(columns) + " |\n|" + " --- |" * len(columns), flush=True)
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def layers(rate="400.0", error="2.1e-03", kernel=KERNEL, count=10):
    columns = ["type", "head dim", "pattern", "kernel", "TFLOP/s", "over dense", "error"]
    patterns = ["dense", "causal", "dilation 2", "dilation 4", "dilation 8"]
    table(columns, [[option("type", "bfloat16"), str(dim), pattern, kernel, rate, "1.000", error]
                    for dim in (64, 128) for pattern in patterns][:count])


def smoke(starts="0", error="2.1e-03"):
    rows = [[KERNEL, "", "", "starts", starts]]
    if starts == "0":
        rows += [[KERNEL, "bfloat16", "64", f"pattern {i}", error] for i in range(13)]
    table(["kernel", "type", "head dim", "pattern", "error"], rows)


def honest():
    part = option("part")
    if NAME == "compute-sanitizer":
        program = next(i for i, word in enumerate(sys.argv) if i > 0 and not word.startswith("--"))
        os.execv(sys.argv[program], sys.argv[program:])
    if part == "device":
        print("NVIDIA H200, compute capability 9.0")
    elif part == "smoke":
        smoke()
    elif part == "layers":
        layers()
    elif part in ("jobs", "resident", "small"):
        table(["tokens", "kernel", "seconds"], [[option("tokens", "256"), KERNEL, "0.0040"]])
    elif NAME == "gpu_encoder_bench":
        table(["kernel", "tiles", "seconds", "tiles/s", "TFLOP/s"],
              [["cuda/cudnn+native", "10000", "0.0500", "200000", "36.000"]])
    elif NAME in ("gpu_graph_bench", "hopper_alone"):
        honest_alone()
    elif NAME.endswith("_test"):
        print("[ RUN      ] A.b\n[       OK ] A.b (1 ms)\n[  PASSED  ] 1 test.")


def daemon():
    """A child in a session of its own, whose parent is gone, and which holds the output open."""
    honest()
    subprocess.run([sys.executable, "-c", "import os, sys, time\n"
                    "if os.fork(): os._exit(0)\n"
                    "os.setsid()\n"
                    "if os.fork(): os._exit(0)\n"
                    f"open({str(HERE / 'daemon.pid')!r}, 'w').write(str(os.getpid()))\n"
                    "time.sleep(1000)"], check=True)
    while not (HERE / "daemon.pid").exists() or not (HERE / "daemon.pid").read_text():
        time.sleep(0.01)


def hang():
    print("before it hangs", flush=True)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"],
                             start_new_session=True)
    (HERE / "child.pid").write_text(str(child.pid))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)


def garbage():
    while True:
        os.write(1, b"\x1b[31m```\n| a | b |\n# \xff\x00\x07 not a report " + b"x" * 1000 + b"\n")


def honest_alone():
    table(["launches", "seconds"], [["1", "0.1"]] * 10)


def hide_gpu():
    (HERE / "lost").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def keep_report():
    shutil.copy(os.environ["FAKE_REPORT"], HERE / "report_meanwhile.md")
    honest()


BEHAVIOURS = {
    "hang": hang, "garbage": garbage, "daemon": daemon, "lose the GPU": hide_gpu,
    "keep the report": keep_report,
    "segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "fail": lambda: (print("[  FAILED  ] A.b (1 ms)"), sys.exit(1)),
    "found something": lambda: (honest_alone(), sys.exit(int(option("error-exitcode")))),
    "no library": lambda: (print(f"{NAME}: error while loading shared libraries: libnccl.so.2: cannot"),
                           sys.exit(127)),
    "no GPU": lambda: (print("gpu_bench: no CUDA device 0: cudaErrorNoDevice"), sys.exit(3)),
    "no cuDNN": lambda: (smoke("not run: FAILED_PRECONDITION: cuDNN: libcudnn.so.9 is not found"),
                         sys.exit(1)),
    "wrong": lambda: (smoke(error="WRONG: 7.0e-01, may be 1.0e-02"), sys.exit(1)),
    "wrong and well": lambda: layers(error="WRONG: 7.0e-01, may be 1.0e-02"),
    "not a number": lambda: layers(error="nan"), "no speed": lambda: layers(rate="0.0"),
    "too fast": lambda: layers(rate="1500.0"), "another kernel": lambda: layers(kernel="cuda/native"),
    "too few": lambda: layers(count=9), "nothing": lambda: None,
    "failed and well": lambda: print("[       OK ] A.a\n[  FAILED  ] A.b\n[  PASSED  ] 1 test."),
}


def main():
    if option("values"):
        return
    with open(HERE / "steps.txt", "a") as steps:
        print(STEP, file=steps)
    if option("part") == "device" and (HERE / "lost").exists():
        time.sleep(1000)
    plan = json.loads((HERE / "plan.json").read_text())
    BEHAVIOURS[plan[STEP]]() if STEP in plan else honest()


main()

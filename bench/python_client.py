#!/usr/bin/env python3
"""The Python client beside the C++ client, on the published job and one service.

    python_client.py --client-case build/release/bench/client_case [--tokens 425984]

`./dev bench python` builds the programs and calls this. Jobs of both are interleaved. Both clients keep their arrays in
memory; the first job of each is a warm-up.
"""
import argparse
import os
import platform
import subprocess
import time

import crc32c
import grpc
import numpy as np

import hilbert_ring
from tls_cost import processor

PATTERN = {"segments": [2048, 4096, 8192], "dilations": [1, 2, 4]}


class CppClient:
    def __init__(self, program, server, tokens):
        self.process = subprocess.Popen([program, server, str(tokens)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def processor(self):
        """Returns the CPU seconds of the client alone."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            user, system = stat.read().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def seconds(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class PythonClient:
    def __init__(self, client, tokens):
        random = np.random.default_rng(1)
        self.client = client
        self.tensors = [random.standard_normal((tokens, 8, 64), dtype="f4") for _ in "qkv"]
        self.out = np.zeros((tokens, 8, 64), "f4")

    def processor(self):
        return time.process_time()

    def seconds(self):
        start = time.perf_counter()
        self.client.attend(*self.tensors, lse=False, out=self.out, progress=False, **PATTERN)
        return time.perf_counter() - start

    def close(self):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--client-case", required=True)
    parser.add_argument("--tokens", type=int, default=425_984)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{processor()}; Python {platform.python_version()}, gRPC {grpc.__version__}, CRC32C in "
          f"{'hardware' if crc32c.hardware_based else 'software'}")
    with hilbert_ring.local(workers=arguments.workers) as client:
        clients = {"C++": CppClient(arguments.client_case, client.server, arguments.tokens),
                   "Python": PythonClient(client, arguments.tokens)}
        measured = {name: [] for name in clients}
        try:
            for turn in range(arguments.rounds + 1):
                for name, one in clients.items():
                    before = one.processor()
                    seconds = one.seconds()
                    if turn > 0:
                        measured[name].append(seconds)
                        print(f"{name}: {arguments.tokens / seconds:,.0f} tokens/s, "
                              f"{seconds:.2f} s, the client's processor "
                              f"{one.processor() - before:.2f} s", flush=True)
        finally:
            for one in clients.values():
                one.close()
    pairs = sorted(cpp / python for cpp, python in zip(measured["C++"], measured["Python"]))
    print(f"pairs: Python at {pairs[0]:.0%} to {pairs[-1]:.0%} of the C++ client beside it, in the "
          f"middle {pairs[len(pairs) // 2]:.0%}")
    best = {name: arguments.tokens / min(seconds) for name, seconds in measured.items()}
    median = {name: arguments.tokens / sorted(seconds)[len(seconds) // 2]
              for name, seconds in measured.items()}
    for what, rates in (("best", best), ("median", median)):
        print(f"{what}: Python {rates['Python']:,.0f}, C++ {rates['C++']:,.0f} tokens/s: "
              f"{rates['Python'] / rates['C++']:.0%}")


if __name__ == "__main__":
    main()

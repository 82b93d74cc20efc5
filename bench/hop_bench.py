#!/usr/bin/env python3
"""Round trips between a Python process and a C++ process of one host.

    hop_bench.py build/release/bench/hop_bench [--trips 2000] [--apart]

It starts `hop_bench --serve`, which answers messages. Blocks of trips are interleaved. With --apart each process stays
on its own processor.
"""
import argparse
import ctypes
import mmap
import os
import platform
import queue
import statistics
import struct
import subprocess
import time
from typing import Callable, Dict, List, Tuple

import grpc

LENGTHS = (64, 16 << 10)
BLOCKS = 20
# The options of wire/transport.h: 16 KiB and its header are one frame.
OPTIONS = [("grpc.http2.max_frame_size", 4 << 20), ("grpc.experimental.tcp_min_read_chunk_size", 64 << 10),
           ("grpc.experimental.tcp_max_read_chunk_size", 4 << 20)]
# The stores are plain: x86 keeps their order.
SYS_FUTEX, FUTEX_WAIT, FUTEX_WAKE = {"x86_64": 202}[platform.machine()], 0, 1
ASKED, ANSWERED, BYTES, REQUEST, ANSWER = 0, 64, 128, 192, 192 + (16 << 10)  # offsets of Shared in bench/hop_bench.cc

Trip = Callable[[bytes], bytes]


def futex_trip(path: str) -> Trip:
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    asked, answered, length = (ctypes.c_uint32.from_buffer(memory, at) for at in (ASKED, ANSWERED, BYTES))
    asked_at, answered_at = ctypes.byref(asked), ctypes.byref(answered)
    syscall = ctypes.CDLL(None).syscall

    def trip(message: bytes) -> bytes:
        before = answered.value
        length.value = len(message)
        memory[REQUEST:REQUEST + len(message)] = message
        asked.value += 1
        syscall(SYS_FUTEX, asked_at, FUTEX_WAKE, 1, None, None, 0)
        while answered.value == before:
            syscall(SYS_FUTEX, answered_at, FUTEX_WAIT, before, None, None, 0)
        return memory[ANSWER:ANSWER + len(message)]

    return trip


def stream_trip(channel: grpc.Channel) -> Trip:
    requests: "queue.SimpleQueue[bytes]" = queue.SimpleQueue()
    answers = channel.stream_stream("/hop.Echo/Stream")(iter(requests.get, None))

    def trip(message: bytes) -> bytes:
        requests.put(message)
        return next(answers)

    return trip


def microseconds(trip: Trip, length: int, trips: int) -> List[float]:
    took = []
    for number in range(trips):
        message = struct.pack("<i", number).ljust(length, b"x")
        start = time.perf_counter()
        answer = trip(message)
        took.append(1e6 * (time.perf_counter() - start))
        assert answer == message
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="hop_bench")
    parser.add_argument("--trips", type=int, default=2000, help="Trips of each way and length")
    parser.add_argument("--apart", action="store_true")
    given = parser.parse_args()
    if given.apart:
        os.sched_setaffinity(0, {0})
    serve = [given.program, "--serve"] + ["--apart"] * given.apart
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        address, path = server.stdout.readline().split()
        channel = grpc.insecure_channel(address, options=OPTIONS)
        ways = {"gRPC unary call": channel.unary_unary("/hop.Echo/Unary"), "gRPC stream": stream_trip(channel),
                "shared memory with a futex": futex_trip(path)}
        times: Dict[Tuple[str, int], List[float]] = {(way, length): [] for length in LENGTHS for way in ways}
        for block in range(BLOCKS + 1):
            for (way, length), all_took in times.items():
                took = microseconds(ways[way], length, -(-given.trips // BLOCKS))
                all_took += took if block > 0 else []  # block 0 is a warm-up
        channel.close()
        server.kill()
    print(f"grpcio {grpc.__version__}; load {os.getloadavg()[0]:.1f}\n")
    print("| Python, by | bytes | trips | median us | 10th percentile | 90th |\n" + "| --- " * 6 + "|")
    for (way, length), took in times.items():
        tenths = statistics.quantiles(took, n=10)
        print(f"| {way} | {length} | {len(took)} | {tenths[4]:.1f} | {tenths[0]:.1f} | {tenths[8]:.1f} |")


if __name__ == "__main__":
    main()

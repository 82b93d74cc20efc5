#!/usr/bin/env python3
"""Simulates how the blocks of a GPU share the tiles of causal layers, one head after another or interleaved.

    tile_schedule.py [--multiprocessors 132] [--heads 8]

A block is alone on its multiprocessor. It takes the next tile when it begins one. A tile's time is that of the key tiles
that it sees, and OVERHEAD more. Launches are cut as engine/device/cuda/launch_plan.cc cuts them: it did count a triangle
as a square at 1,024 operations a cycle, and counts its tiles at 1,600. A cell is the ideal time over the simulated one.
"""
import argparse
import heapq

LANES, KEYS = {64: 192, 128: 128}, 128  # query lanes (by head dim) and keys in a tile of the pipelined kernel
OVERHEAD = 1.5  # key tiles, a guess
CYCLES = 0.02 * 1.98e9  # a launch takes 20 ms


def triangle(rows, lanes):
    """Returns the costs of a head's tiles in key tiles, the longest first."""
    tiles = -(-rows // lanes)
    return [-(-(tiles - tile) * lanes // KEYS) + OVERHEAD for tile in range(tiles)]


def launches(costs, planned, limit):
    """Cuts tiles into launches of at most `limit` of their planned costs."""
    found, left = [], 0
    for cost, plan in zip(costs, planned):
        if not found or plan > left:
            found.append([])
            left = limit
        found[-1].append(cost)
        left -= plan
    return found


def duration(costs, blocks):
    free = [(0.0, block, block) for block in range(min(blocks, len(costs)))]  # time, block, its next tile
    counter, end = len(free), 0.0
    while free:
        time, block, tile = heapq.heappop(free)
        end = max(end, time + costs[tile])
        if counter < len(costs):
            heapq.heappush(free, (time + costs[tile], block, counter))
            counter += 1
    return end


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--multiprocessors", type=int, default=132)
    parser.add_argument("--heads", type=int, default=8)
    given = parser.parse_args()
    print("| head dim | rows | one head after another | interleaved |\n| ---: | ---: | ---: | ---: |")
    for dim, lanes in LANES.items():
        flops = 2 * lanes * 2 * dim * KEYS  # operations in a key tile
        for rows in (2048, 8192, 32_768, 131_072):
            head = triangle(rows, lanes)
            ideal = given.heads * sum(head) / given.multiprocessors
            in_order, interleaved = head * given.heads, [cost for cost in head for _ in range(given.heads)]
            cut = {1024: launches(in_order, [max(head)] * len(in_order), CYCLES * given.multiprocessors * 1024 / flops),
                   1600: launches(interleaved, interleaved, CYCLES * given.multiprocessors * 1600 / flops)}
            shares = [ideal / sum(duration(launch, given.multiprocessors) for launch in parts) for parts in cut.values()]
            print(f"| {dim} | {rows:,} | {shares[0]:.0%} in {len(cut[1024])} | {shares[1]:.0%} in {len(cut[1600])} |")


if __name__ == "__main__":
    main()

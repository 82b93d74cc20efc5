// The producer of attention_pipelined.cuh: runs ahead of the consumers, up to the free buffers.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_panels.cuh"
#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"
#include "engine/device/cuda/kernels/pipeline.cuh"
#include "engine/device/cuda/kernels/pipeline_memory.cuh"
#include "engine/device/cuda/kernels/warpgroup.cuh"

namespace hilbert_ring::cuda {

struct PipelineWorks {
  const AttentionWork* works = nullptr;
  int count = 0;
  const TensorMap* maps = nullptr;
  int64_t tiles = 0;
  unsigned long long* taken = nullptr;  // LaunchNotes
};

// Starts the copy of a tile of keys, or of values, when its buffer is free.
template <typename Kernel>
__device__ __forceinline__ void FillBuffer(typename Kernel::Element* buffer, PhaseBarrier& full,
                                           PhaseBarrier& free, const Place<Kernel>& place,
                                           const TensorMap* map, int row, int batch) {
  Await(free, place.parity ^ 1);
  ArriveExpecting(full, Kernel::kTileBytes);
#pragma unroll
  for (int x = 0; x < Kernel::kDim; x += kPanel) {
    CopyBox(buffer + x * Kernel::kKeys, map, full, x, row, batch);
  }
}

// The key tiles that consumers walk for a tile of lanes.
struct KeyTiles {
  int first;  // key
  int count;
};
template <typename Kernel>
__device__ __forceinline__ KeyTiles KeyTilesOf(const QueryTile& tile) {
  const auto of = [](const auto& walk) { return KeyTiles{walk.begin(), walk.Tiles()}; };
  if (tile.work->mask == kWorkMaskNone) {
    return of(KeyWalk<Kernel::kLanes, Kernel::kKeys, kWorkMaskNone>(tile, nullptr));
  }
  return of(KeyWalk<Kernel::kLanes, Kernel::kKeys, kWorkMaskDiagonal>(tile, nullptr));
}

// Loads all keys and values of the block's tiles in the order of their use: the next keys come
// before the last values. Called by one thread.
template <typename Kernel>
__device__ __forceinline__ void ProduceKeys(PipelineMemory<Kernel>& memory,
                                            const PipelineWorks& launch) {
  Place<Kernel> keys, values;
  const TensorMap* acquired = nullptr;
  for (QueryPlace queries;; queries.Next()) {
    Await(memory.queries_full[queries.stage], queries.parity);
    if (memory.tile_numbers[queries.stage] == kNoTile) return;
    const TensorMap* const maps = launch.maps + 2 * memory.work_numbers[queries.stage];
    const int batch = static_cast<int>(memory.tiles[queries.stage].batch);
    const KeyTiles tiles = KeyTilesOf<Kernel>(memory.tiles[queries.stage]);
    Arrive(memory.queries_free[queries.stage]);
    if (maps != acquired) {
      acquired = maps;
      AcquireMap(maps);
      AcquireMap(maps + 1);
    }
#pragma unroll 1
    for (int n = 0; n <= tiles.count; ++n) {
      const int key = tiles.first + n * Kernel::kKeys;
      if (n < tiles.count) {
        FillBuffer<Kernel>(memory.keys[keys.stage], memory.keys_full[keys.stage],
                           memory.keys_free[keys.stage], keys, maps, key, batch);
        keys.Next();
      }
      if (n > 0) {
        FillBuffer<Kernel>(memory.values[values.stage], memory.values_full[values.stage],
                           memory.values_free[values.stage], values, maps + 1, key - Kernel::kKeys,
                           batch);
        values.Next();
      }
    }
  }
}

// Copies the tile's queries asynchronously; missing lanes are zeros.
template <typename Kernel, int kThreads>
__device__ __forceinline__ void CopyQueries(typename Kernel::Element* shared, const QueryTile& tile,
                                            int thread) {
  using T = typename Kernel::Element;
  constexpr int kPieces = Kernel::kDim / kPiece;
  const WorkView q = tile.work->q;
  const T* const from = static_cast<const T*>(q.data) + thread % kPieces * kPiece;
  const bool inside = thread % kPieces * kPiece < tile.work->head_dim;
  for (int lane = thread / kPieces; lane < Kernel::kLanes; lane += kThreads / kPieces) {
    const bool there = inside && lane < tile.lanes;
    CopyAsync16(shared + PieceAt(Kernel::kLanes, lane, thread % kPieces),
                there ? from + tile.At(q, lane) : from, there);
  }
  CopyAsyncWait();
}

// Takes the block's tiles, each when a slot is free, and loads their queries. A triangle's tiles
// take unequal times, so blocks take tiles at run time. thread: of kQueryWarps warps.
template <typename Kernel>
__device__ __forceinline__ void ProduceQueries(PipelineMemory<Kernel>& memory,
                                               const PipelineWorks& launch, int thread) {
  constexpr int kThreads = kQueryWarps * 32;
  constexpr int kWords = sizeof(AttentionWork) / sizeof(uint64_t);
  static_assert(kWords <= kThreads && sizeof(AttentionWork) % sizeof(uint64_t) == 0);
  int number = static_cast<int>(blockIdx.x);
  for (QueryPlace place; number != kNoTile; place.Next()) {
    const int slot = place.stage;
    Await(memory.queries_free[slot], place.parity ^ 1);
    if (number >= launch.tiles) {
      number = kNoTile;
      if (thread == 0) memory.tile_numbers[slot] = number;
      Arrive(memory.queries_full[slot]);
      continue;
    }
    QueryTile tile = FindTile(launch.works, launch.count, number, Kernel::kLanes);
    unsigned long long taken = 0;
    if (thread == 0) taken = atomicAdd(launch.taken, 1ull);  // arrives while queries do
    AttentionWork& work = memory.works[slot];
    if (thread < kWords) {
      reinterpret_cast<uint64_t*>(&work)[thread] =
          reinterpret_cast<const uint64_t*>(tile.work)[thread];
    }
    if (tile.work->queries_aligned != 0 && tile.work->query_sign > 0) {
      CopyQueries<Kernel, kThreads>(memory.queries[slot], tile, thread);
    } else {
      LoadQueries<Kernel, kThreads>(memory.queries[slot], tile, thread);
    }
    if (thread == 0) {
      memory.tile_numbers[slot] = number;
      memory.work_numbers[slot] = static_cast<int>(tile.work - launch.works);
      memory.next_tiles[slot] = static_cast<int>(gridDim.x + taken);
      tile.work = &work;
      memory.tiles[slot] = tile;
    }
    PublishToProducts();
    Arrive(memory.queries_full[slot]);
    Await(memory.queries_full[slot], place.parity);
    number = memory.next_tiles[slot];
  }
}

template <typename Kernel>
__device__ __forceinline__ void Produce(PipelineMemory<Kernel>& memory,
                                        const PipelineWorks& launch) {
  const int thread = static_cast<int>(threadIdx.x) - Kernel::kLaneThreads;
  if (UniformOfWarp(thread / 32) < kQueryWarps) {
    ProduceQueries(memory, launch, thread);
  } else if (thread == kQueryWarps * 32) {
    ProduceKeys(memory, launch);
  }
}

}  // namespace hilbert_ring::cuda

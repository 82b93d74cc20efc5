// The producer's part of attention_pipelined.cuh: it goes through the block's tiles ahead of the
// consumers, as far as there are free buffers.
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

// Of a tile of lanes: how many tiles of keys consumers walk.
template <typename Kernel>
__device__ __forceinline__ int KeyTiles(const QueryTile& tile) {
  if (tile.work->mask == kWorkMaskNone) {
    return KeyWalk<Kernel::kLanes, Kernel::kKeys, kWorkMaskNone>(tile, nullptr).Tiles();
  }
  return KeyWalk<Kernel::kLanes, Kernel::kKeys, kWorkMaskDiagonal>(tile, nullptr).Tiles();
}

// All keys and values of the block's tiles, in the order in which consumers need them: the next
// scores come before the values of the last. By one thread.
template <typename Kernel>
__device__ __forceinline__ void ProduceKeys(PipelineMemory<Kernel>& memory,
                                            const PipelineWorks& launch) {
  Place<Kernel> keys, values;
  const AttentionWork* acquired = nullptr;
  for (int64_t number = blockIdx.x; number < launch.tiles; number += gridDim.x) {
    const QueryTile tile = FindTile(launch.works, launch.count, number, Kernel::kLanes);
    const TensorMap* const maps = launch.maps + 2 * (tile.work - launch.works);
    if (tile.work != acquired) {
      acquired = tile.work;
      AcquireMap(maps);
      AcquireMap(maps + 1);
    }
    const int batch = static_cast<int>(tile.batch);
    const int tiles = KeyTiles<Kernel>(tile);
#pragma unroll 1
    for (int n = 0; n <= tiles; ++n) {
      if (n < tiles) {
        FillBuffer<Kernel>(memory.keys[keys.stage], memory.keys_full[keys.stage],
                           memory.keys_free[keys.stage], keys, maps, n * Kernel::kKeys, batch);
        keys.Next();
      }
      if (n > 0) {
        FillBuffer<Kernel>(memory.values[values.stage], memory.values_full[values.stage],
                           memory.values_free[values.stage], values, maps + 1,
                           (n - 1) * Kernel::kKeys, batch);
        values.Next();
      }
    }
  }
}

// The tile's queries as asynchronous copies; lanes that are not there are zeros.
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

// Queries of the block's tiles, and the tiles. `thread`: of kQueryWarps warps.
template <typename Kernel>
__device__ __forceinline__ void ProduceQueries(PipelineMemory<Kernel>& memory,
                                               const PipelineWorks& launch, int thread) {
  constexpr int kThreads = kQueryWarps * 32;
  constexpr int kWords = sizeof(AttentionWork) / sizeof(uint64_t);
  static_assert(kWords <= kThreads && sizeof(AttentionWork) % sizeof(uint64_t) == 0);
  QueryPlace place;
  for (int64_t number = blockIdx.x; number < launch.tiles; number += gridDim.x, place.Next()) {
    QueryTile tile = FindTile(launch.works, launch.count, number, Kernel::kLanes);
    Await(memory.queries_free[place.stage], place.parity ^ 1);
    AttentionWork& work = memory.works[place.stage];
    if (thread < kWords) {
      reinterpret_cast<uint64_t*>(&work)[thread] =
          reinterpret_cast<const uint64_t*>(tile.work)[thread];
    }
    if (tile.work->queries_aligned != 0 && tile.work->query_sign > 0) {
      CopyQueries<Kernel, kThreads>(memory.queries[place.stage], tile, thread);
    } else {
      LoadQueries<Kernel, kThreads>(memory.queries[place.stage], tile, thread);
    }
    tile.work = &work;
    if (thread == 0) memory.tiles[place.stage] = tile;
    PublishToProducts();
    Arrive(memory.queries_full[place.stage]);
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

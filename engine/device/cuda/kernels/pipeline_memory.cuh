// The memory that a block's producer and consumers share (attention_pipelined.cuh).
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/pipeline.cuh"
#include "engine/device/cuda/kernels/tensor_map.h"

namespace hilbert_ring::cuda {

inline constexpr int kQuerySlots = 2;  // the computed tile's and the next
inline constexpr int kQueryWarps = 3;  // the producer's warps that load queries
inline constexpr int kNoTile = -1;

template <typename Kernel>
struct PipelineMemory {
  using T = typename Kernel::Element;

  alignas(1024) T queries[kQuerySlots][Kernel::kQueries];
  T keys[Kernel::kStages][Kernel::kTileRows];
  T values[Kernel::kStages][Kernel::kTileRows];

  // Each slot's tile, whose `work` is the copy here; its number in the launch, or kNoTile after the
  // last; its work's number; and the number of the tile after it.
  QueryTile tiles[kQuerySlots];
  AttentionWork works[kQuerySlots];
  int tile_numbers[kQuerySlots];
  int work_numbers[kQuerySlots];
  int next_tiles[kQuerySlots];

  PhaseBarrier queries_full[kQuerySlots], queries_free[kQuerySlots];
  PhaseBarrier keys_full[Kernel::kStages], keys_free[Kernel::kStages];
  PhaseBarrier values_full[Kernel::kStages], values_free[Kernel::kStages];
};

template <typename T, int kDimension, int kWarpgroups, int kBuffers, int kPolynomials = 0>
struct Pipelined16 {
  using Element = T;
  static constexpr int kDim = kDimension;      // head_dim and value_dim are at most this
  static constexpr int kGroups = kWarpgroups;  // consumers
  static constexpr int kStages = kBuffers;     // buffers of keys, and as many of values
  static constexpr int kRowTiles = 1;
  static constexpr int kPolynomialEvery = kPolynomials;  // attention_fragments.cuh
  static constexpr int kKeys = kMapRows;
  static constexpr int kGroupThreads = 128;
  static constexpr int kLaneThreads = kGroups * kGroupThreads;
  static constexpr int kThreads = kLaneThreads + kGroupThreads;
  static constexpr int kLanes = kGroups * 64;
  static constexpr int kQueries = kLanes * kDim;  // elements in shared memory
  static constexpr int kTileRows = kKeys * kDim;  // elements of a buffer of keys or values
  static constexpr int kTileBytes = kTileRows * static_cast<int>(sizeof(T));
  static constexpr int kSharedBytes = static_cast<int>(sizeof(PipelineMemory<Pipelined16>));
  static_assert(kSharedBytes <= 227 << 10, "what a block may have on compute capability 9.0");

  // Shares of the multiprocessor's 512 for each thread of a warpgroup: the producer needs few.
  static constexpr int kProducerRegisters = kGroups == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kGroups == 3 ? 160 : 232;
  static_assert(kProducerRegisters + kGroups * kConsumerRegisters <= 512);
};

// The next of kCount buffers, and the parity of the phase in which it is full.
template <int kCount>
struct BufferPlace {
  int stage = 0;
  int parity = 0;

  __device__ void Next() {
    if (++stage < kCount) return;
    stage = 0;
    parity ^= 1;
  }
};
template <typename Kernel>
using Place = BufferPlace<Kernel::kStages>;
using QueryPlace = BufferPlace<kQuerySlots>;

// Called by one thread.
template <typename Kernel>
__device__ inline void MakeBarriers(PipelineMemory<Kernel>& memory) {
  for (int slot = 0; slot < kQuerySlots; ++slot) {
    MakeBarrier(memory.queries_full[slot], kQueryWarps * 32);
    MakeBarrier(memory.queries_free[slot], Kernel::kLaneThreads + 1);  // readers of the tile
  }
  for (int stage = 0; stage < Kernel::kStages; ++stage) {
    for (PhaseBarrier* full : {&memory.keys_full[stage], &memory.values_full[stage]}) {
      MakeBarrier(*full, 1);
    }
    for (PhaseBarrier* free : {&memory.keys_free[stage], &memory.values_free[stage]}) {
      MakeBarrier(*free, Kernel::kLaneThreads / 32);
    }
  }
  PublishBarriers();
}

}  // namespace hilbert_ring::cuda

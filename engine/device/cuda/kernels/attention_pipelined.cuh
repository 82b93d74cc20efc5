// Attention of 16-bit types by a producer and consumers, on compute capability 9.0.
//
// A block stays on its multiprocessor and computes one tile of lanes after the other. Its last
// warpgroup is the producer. A thread makes the bulk tensor engine copy keys and values into
// kStages buffers each; three warps load the next tile's queries. The others are consumers of 64
// lanes each: they wait for a full buffer, multiply, and mark it free. They start products by
// turns: while one turns scores into weights, the tensor cores work for another.
#pragma once

#include <cstdint>

#include "engine/device/cuda/kernels/attention_change.cuh"
#include "engine/device/cuda/kernels/attention_fragments.cuh"
#include "engine/device/cuda/kernels/attention_panels.cuh"
#include "engine/device/cuda/kernels/attention_products.cuh"
#include "engine/device/cuda/kernels/attention_tile.cuh"
#include "engine/device/cuda/kernels/attention_work.h"
#include "engine/device/cuda/kernels/intrinsics.cuh"
#include "engine/device/cuda/kernels/pipeline.cuh"
#include "engine/device/cuda/kernels/pipeline_memory.cuh"
#include "engine/device/cuda/kernels/pipeline_producer.cuh"
#include "engine/device/cuda/kernels/pipeline_results.cuh"
#include "engine/device/cuda/kernels/warpgroup.cuh"

namespace hilbert_ring::cuda {

// Named barriers of a block: each consumer's turn, and all consumers.
template <typename Kernel>
struct Turns {
  static constexpr int kFirst = 1;
  static constexpr int kAll = kFirst + Kernel::kGroups;
  static constexpr int kThreads = 2 * Kernel::kGroupThreads;  // the previous consumer's and its own

  // The last consumer lets the first begin.
  __device__ static void Begin(int group) {
    if (group == Kernel::kGroups - 1) Pass(group);
  }
  __device__ static void Await(int group) { AwaitNamed<kThreads>(kFirst + group); }
  __device__ static void Pass(int group) {
    ArriveNamed<kThreads>(kFirst + (group == Kernel::kGroups - 1 ? 0 : group + 1));
  }
  // The first consumer takes the last turn: the barriers end balanced.
  __device__ static void End(int group) {
    if (group == 0) Await(group);
  }
};

// A consumer's part in a tile: softmax and sums of values of its lanes. `keys` and `values` are the
// places of the tile's first buffers. kCapped: scores have a softcap. Returns the number of scores.
template <typename Kernel, int kMask, bool kCapped>
__device__ __forceinline__ int64_t SumPipelined(PipelineMemory<Kernel>& memory,
                                                const QueryTile& tile, int slot, int group,
                                                Place<Kernel>& keys, Place<Kernel>& values,
                                                Softmax16<Kernel>& state,
                                                float (&out)[1][Kernel::kDim / 8][4]) {
  using T = typename Kernel::Element;
  const float score_scale = tile.work->score_scale;
  const float softcap = tile.work->change.softcap, cap_factor = tile.work->change.cap_factor;
  KeyWalk<Kernel::kLanes, Kernel::kKeys, kMask> walk(tile, nullptr);
  walk.CountFromBegin();
  const int thread = threadIdx.x % 32;
  const int own_lane = static_cast<int>(threadIdx.x) / 32 * 16 + thread / 4;  // and 8 below
  const int rows_below[2] = {tile.RowsBelow(min(own_lane, tile.lanes - 1)),
                             tile.RowsBelow(min(own_lane + 8, tile.lanes - 1))};
  const SharedMatrix own_queries = MatrixAt(memory.queries[slot] + group * 64 * kPanel);
  const SharedMatrix all_keys = MatrixAt(memory.keys[0]);
  const SharedMatrix all_values = MatrixAt(memory.values[0]);
  float scores[1][Kernel::kKeys / 8][4];
  uint32_t weights[Kernel::kKeys / 16][4];
  int computed = 0;  // keys

  const auto start_scores = [&] {
    StartScores<Kernel>(scores[0], own_queries, PartAt(all_keys, keys.stage * Kernel::kTileRows));
  };
  const auto await_keys = [&] { Await(memory.keys_full[keys.stage], keys.parity); };
  const auto await_values = [&] { Await(memory.values_full[values.stage], values.parity); };
  const auto start_values = [&] {
    StartValues<Kernel>(out[0], weights, PartAt(all_values, values.stage * Kernel::kTileRows));
  };
  // Frees the place for the producer: the warp has read it.
  const auto free = [&](PhaseBarrier(&barriers)[Kernel::kStages], Place<Kernel>& place) {
    if (thread == 0) Arrive(barriers[place.stage]);
    place.Next();
  };
  const auto weigh = [&](const KeyTile& of) {
    if constexpr (kCapped) CapScores(scores[0], softcap, cap_factor);
    if (!walk.AllSeen(of)) HideOutside<Kernel>(scores[0], walk, of, rows_below, thread);
    computed += of.count;
    return Weigh<Kernel>(state, scores, score_scale);
  };
  const auto pack = [&] {
#pragma unroll
    for (int n = 0; n < Kernel::kKeys / 16; ++n) PackWeights<T>(weights[n], scores[0], n);
  };
  const auto hold = [&] {
    WarpgroupHold(scores[0]);
    WarpgroupHold(weights);
    WarpgroupHold(out[0]);
  };

  // Uniform steps keep buffer places, and so the descriptors, in registers of the warp.
  const int steps = UniformOfWarp(walk.Tiles());
  if (steps == 0) return 0;
  await_keys();
  Turns<Kernel>::Await(group);
  WarpgroupBegin();
  start_scores();
  Turns<Kernel>::Pass(group);
  WarpgroupWait<0>();
  WarpgroupHold(scores[0]);
  free(memory.keys_free, keys);
  weigh(walk.First());
  pack();
  if (steps > 1) await_keys();
  for (int step = 1; step < steps; ++step) {
    await_values();
    Turns<Kernel>::Await(group);
    hold();
    WarpgroupBegin();
    start_scores();
    start_values();
    Turns<Kernel>::Pass(group);
    WarpgroupWait<1>();
    WarpgroupHold(scores[0]);
    free(memory.keys_free, keys);
    const Rescale16<Kernel> rescale = weigh(walk.Next(step * Kernel::kKeys));
    WarpgroupHold(scores[0]);  // weights are made before the wait for the values' product
    if (step + 1 < steps) await_keys();
    WarpgroupWait<0>();  // all four warps wait, with or without rows to rescale
    hold();
    RescaleOut<Kernel>(rescale, out);
    free(memory.values_free, values);
    pack();
  }
  await_values();
  hold();
  WarpgroupBegin();
  start_values();
  WarpgroupWait<0>();
  hold();
  free(memory.values_free, values);
  return int64_t{tile.lanes} * computed;
}

template <typename Kernel, bool kCapped>
__device__ __forceinline__ void ConsumeTiles(PipelineMemory<Kernel>& memory, int group,
                                             const LaunchNotes& notes) {
  Place<Kernel> keys, values;
  Turns<Kernel>::Begin(group);
  for (QueryPlace queries;; queries.Next()) {
    Await(memory.queries_full[queries.stage], queries.parity);
    if (UniformOfWarp(memory.tile_numbers[queries.stage]) == kNoTile) break;
    const QueryTile tile = memory.tiles[queries.stage];
    float out[1][Kernel::kDim / 8][4];
    Softmax16<Kernel> state;
    Clear<Kernel>(state, out);
    int64_t computed = 0;
    if (UniformOfWarp(tile.work->mask) == kWorkMaskNone) {
      computed = SumPipelined<Kernel, kWorkMaskNone, kCapped>(memory, tile, queries.stage, group,
                                                              keys, values, state, out);
    } else {
      computed = SumPipelined<Kernel, kWorkMaskDiagonal, kCapped>(memory, tile, queries.stage,
                                                                  group, keys, values, state, out);
    }
    CountScores(notes, computed);
    // Read and computed anew, to save registers in the loop over keys.
    uint32_t own = threadIdx.x, slot = queries.stage;
    WarpgroupHold(own);
    WarpgroupHold(slot);
    const AttentionWork& work = memory.works[slot];
    const auto note = [&](bool careful) {
      const bool any =
          AnyOfNamed<Kernel::kLaneThreads>(Turns<Kernel>::kAll, careful) || work.careful != 0;
      if (own == 0) NoteTile(notes, memory.tile_numbers[slot], any);
      return any;
    };
    StoreRows<Kernel>(memory.tiles[slot], state, out, static_cast<int>(own / 32 * 16),
                      static_cast<int>(own % 32), note, StagedRows<Kernel>{memory.queries[slot]});
    Arrive(memory.queries_free[slot]);
  }
  Turns<Kernel>::End(group);
}

// Computes all tiles of the works: a block takes the tile of its number, then the next free tile.
// maps: of the keys and the values of each work. kCapped: all works have a softcap; else no work
// does.
template <typename Kernel, bool kCapped>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    AttendPipelined(const AttentionWork* works, int count, const TensorMap* maps, int64_t tiles,
                    LaunchNotes notes) {
  static_assert(Kernel::kDim == kPanel || Kernel::kDim == 2 * kPanel);
  auto& memory = *reinterpret_cast<PipelineMemory<Kernel>*>(SharedMemory());
  const int group = UniformOfWarp(static_cast<int>(threadIdx.x) / Kernel::kGroupThreads);
  if (threadIdx.x == 0) MakeBarriers(memory);
  __syncthreads();
  if (group == Kernel::kGroups) {
    GiveRegisters<Kernel::kProducerRegisters>();
    Produce(memory,
            {.works = works, .count = count, .maps = maps, .tiles = tiles, .taken = notes.taken});
  } else {
    TakeRegisters<Kernel::kConsumerRegisters>();
    ConsumeTiles<Kernel, kCapped>(memory, group, notes);
  }
}

}  // namespace hilbert_ring::cuda

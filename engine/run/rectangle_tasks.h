// Attention tasks of a rectangular job: blocks of queries, by their numbers, against blocks of
// keys, by their slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/run/rank_views.h"
#include "engine/run/tasks.h"

namespace hilbert_ring {

// Dense rows of some queries.
struct QueryBlock {
  Rows rows;                           // numbers of the queries
  const std::byte* q = nullptr;        // [rows, heads, head_dim]
  float* out = nullptr;                // [rows, heads, value_dim]
  float* max = nullptr;                // [rows, heads]
  float* sum = nullptr;                // [rows, heads]
  const int64_t* positions = nullptr;  // [rows], on the device; if kernels compare them
  std::span<const int64_t> slots;      // [rows], on the host; if they are not the positions
  const float* coordinates = nullptr;  // [rows, axes] of a bias
};

// Dense rows of some keys.
struct KeyRows {
  Rows rows;  // slots
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const int64_t* tokens = nullptr;     // [rows], on the device; of an ordering
  const float* coordinates = nullptr;  // [rows, axes] of a bias
};

// Tasks of every block of queries with every block of keys. slopes: [heads] on the device, or null.
Rounds RectangleTasks(const Plan& plan, std::span<const QueryBlock> queries,
                      std::span<const KeyRows> keys, const float* slopes);

// Zero keys of the tail for a block of queries, by branch.
TaskBuilder::ZeroKeys RectangleZeroKeys(const Plan& plan, const QueryBlock& queries);

// The position of a query among the keys of its sequence, as a key's token.
int64_t PositionOf(const SequencePair& pair, int64_t query);

}  // namespace hilbert_ring

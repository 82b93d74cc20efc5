// A shard's outputs as chunks that name their tokens.
#pragma once

#include <cstdint>

#include "engine/plan/plan.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::server {

// One after the other, in the order of the shard: all of OUT, then all of LSE if wanted.
class OutputRows {
 public:
  // Both must outlive it.
  OutputRows(const Plan& plan, int rank, const ShardStore& store, bool want_lse)
      : plan_(plan), rank_(rank), store_(store), want_lse_(want_lse) {}

  // Fills in the next chunk; false when there is none. A chunk that is handed in again keeps its
  // memory.
  bool Next(v1::OutputChunk& chunk);

 private:
  void Fill(TensorKind tensor, int64_t first_row, int64_t rows, v1::OutputChunk& chunk) const;

  const Plan& plan_;
  const int rank_;
  const ShardStore& store_;
  const bool want_lse_;
  TensorKind tensor_ = TensorKind::kOut;
  size_t range_ = 0;  // of the shard's ranges
  int64_t row_ = 0;   // local
};

}  // namespace hilbert_ring::server

// A shard's outputs as chunks that name their tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/plan/plan.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/attention.pb.h"

namespace hilbert_ring::server {

// In the order of the shard: rows of OUT as they become final, and of LSE if wanted.
class OutputRows {
 public:
  // All must outlive it.
  OutputRows(const Plan& plan, int rank, const ShardStore& store, bool want_lse)
      : plan_(plan), rank_(rank), store_(store), want_lse_(want_lse) {}

  // The next chunk of local rows [0, rows_final), without its payload, which is where it lies in
  // the store, or in memory that is used again for the next chunk where the store is not host
  // memory; false when there is none, or when it could not be read: then status() says why.
  bool Next(int64_t rows_final, v1::OutputChunk& chunk, std::string_view& payload);

  const absl::Status& status() const { return status_; }

 private:
  struct Cursor {
    size_t range = 0;  // of the shard's ranges
    int64_t row = 0;   // local
  };
  bool Next(TensorKind tensor, Cursor& cursor, int64_t rows_final, v1::OutputChunk& chunk,
            std::string_view& payload);

  const Plan& plan_;
  const int rank_;
  const ShardStore& store_;
  const bool want_lse_;
  Cursor out_;
  Cursor lse_;
  absl::Status status_;
  std::string copied_;  // the payload, where the store is not host memory
};

}  // namespace hilbert_ring::server

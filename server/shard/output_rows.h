// A shard's outputs as chunks that name their tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "engine/plan/plan.h"
#include "engine/run/shard_store.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/shard/row_set.h"

namespace hilbert_ring::server {

// Slots of a job whose outputs the client has: a later attempt does not send them again.
struct Delivered {
  explicit Delivered(int64_t tokens) : out(tokens), lse(tokens) {}
  RowSet out;
  RowSet lse;
};

// In the order of the shard: rows of OUT as they become final, and of LSE if wanted.
class OutputRows {
 public:
  // plan and store must outlive it. Rows of `delivered` are left out.
  OutputRows(const Plan& plan, int rank, const ShardStore& store, bool want_lse,
             Delivered delivered)
      : plan_(plan),
        rank_(rank),
        store_(store),
        want_lse_(want_lse),
        delivered_(std::move(delivered)) {}

  // The next chunk of local rows [0, rows_final), without its payload, which is where it lies in
  // the store, or in memory that is used again for the next chunk where the store is not host
  // memory; false when there is none, or when it could not be read: then status() says why.
  bool Next(int64_t rows_final, v1::OutputChunk& chunk, std::string_view& payload);

  // Of the last chunk's first row; the others follow it.
  int64_t first_slot() const { return first_slot_; }

  const absl::Status& status() const { return status_; }

 private:
  struct Cursor {
    size_t range = 0;  // of the shard's ranges
    int64_t row = 0;   // local
  };
  bool SkipDelivered(const RowSet& delivered, Cursor& cursor, int64_t rows_final,
                     RowSpan& undelivered) const;
  bool Next(TensorKind tensor, Cursor& cursor, int64_t rows_final, v1::OutputChunk& chunk,
            std::string_view& payload);

  const Plan& plan_;
  const int rank_;
  const ShardStore& store_;
  const bool want_lse_;
  const Delivered delivered_;
  Cursor out_;
  Cursor lse_;
  int64_t first_slot_ = 0;
  absl::Status status_;
  std::string copied_;  // the payload, where the store is not host memory
};

}  // namespace hilbert_ring::server

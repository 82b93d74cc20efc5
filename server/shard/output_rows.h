// A shard's outputs as chunks with their tokens.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/plan/plan.h"
#include "engine/plan/shard_layout.h"
#include "engine/spec/tensor.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/shard/row_set.h"

namespace hilbert_ring::server {

class Delivered {  // slots whose outputs the client has, by tensor: later executions omit them
 public:
  explicit Delivered(int64_t tokens) : slots_(std::size(kOutputKinds), RowSet(tokens)) {}

  RowSet& of(TensorKind tensor) { return slots_[Place(tensor)]; }
  const RowSet& of(TensorKind tensor) const { return slots_[Place(tensor)]; }

 private:
  static size_t Place(TensorKind tensor) {
    return static_cast<size_t>(std::ranges::find(kOutputKinds, tensor) - std::begin(kOutputKinds));
  }
  std::vector<RowSet> slots_;  // by place in kOutputKinds
};

struct OutputSource {
  std::span<const int64_t> tokens;  // of the shard's slots; only for jobs with an ordering
  // The rows stay valid until the next call.
  std::function<absl::StatusOr<std::string_view>(TensorKind tensor, int64_t local_row,
                                                 int64_t rows)>
      read;
};

// The shard's memory outlives the source, and its rows stay valid.
OutputSource SourceOf(const HostShard& shard);

class OutputRows {  // chunks of each output in the order of the shard
 public:
  // The plan outlives it. Omits rows of `delivered`.
  OutputRows(const Plan& plan, int rank, OutputSource source, bool want_lse, Delivered delivered)
      : plan_(plan),
        rank_(rank),
        source_(std::move(source)),
        want_lse_(want_lse),
        delivered_(std::move(delivered)) {}

  // Returns the next chunk of local rows [0, rows_final), with its payload beside it; false without
  // another, or after an error of the source (status()).
  [[nodiscard]] bool Next(int64_t rows_final, v1::OutputChunk& chunk, std::string_view& payload);

  int64_t first_slot() const { return first_slot_; }  // the slot of the last chunk's first row

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
  const OutputSource source_;
  const bool want_lse_;
  const Delivered delivered_;
  std::array<Cursor, std::size(kOutputKinds)> cursors_;
  int64_t first_slot_ = 0;
  absl::Status status_;
};

}  // namespace hilbert_ring::server

// The attention map of one layer: each row's weight in its slide's class token's attention.
//
//   AttentionMap map(plan, rank, MapColumns::kMeanOfHeads);
//   RETURN_IF_ERROR(map.Exchange(store, communicator, step, deadline));   // after the attention
//   map.RowsOf(store, local_row, rows, values);                           // by any thread
//
// A key has weight exp(score - mixed lse) once for each branch that shows it to the class token
// (tests/golden/attention_map_oracle.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/communicator.h"
#include "engine/model/files/encoder_plan.h"
#include "engine/model/files/map_transfers.h"
#include "engine/run/shard_store.h"

namespace hilbert_ring {

class AttentionMap {
 public:
  // The plan has class tokens and outlives the map.
  AttentionMap(const EncoderPlan& plan, int rank, MapColumns columns);

  int64_t columns() const { return columns_; }
  bool exchanges() const { return !transfers_.empty(); }  // this rank sends or receives
  int64_t bytes_sent() const { return (std::ssize(transfers_) - receives()) * row_bytes_; }
  int64_t bytes_received() const { return receives() * row_bytes_; }

  // All ranks call it once, with the same step. `communicator` may be null if no rank exchanges.
  absl::Status Exchange(const ShardStore& store, Communicator* communicator, int64_t step,
                        Deadline deadline);

  // values: [rows, columns] of local rows [first, first + rows) in one range of the shard.
  absl::Status RowsOf(const ShardStore& store, int64_t first, int64_t rows, float* values) const;

 private:
  int64_t receives() const { return std::ssize(received_); }

  struct ClassRow {
    const std::byte* query = nullptr;  // [heads, head_dim] of the compute type
    const float* lse = nullptr;        // [heads]
  };
  // `kept` holds the row if the store is not in host memory.
  absl::StatusOr<ClassRow> ClassRowOf(const ShardStore& store, int64_t slide,
                                      std::vector<std::byte>& kept) const;

  const EncoderPlan& plan_;
  const int rank_;
  const int64_t columns_;
  const int64_t query_bytes_, row_bytes_;
  std::vector<MapTransfer> transfers_;                  // of this rank, in slide order
  std::map<int64_t, std::vector<std::byte>> received_;  // by slide: query, then lse
};

}  // namespace hilbert_ring

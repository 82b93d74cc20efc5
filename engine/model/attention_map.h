// How much of its slide's class token each row is in one layer: the weights of the class token's
// attention, from the layer's queries, keys and log-sum-exps as they lie in the ranks' shards.
//
//   AttentionMap map(plan, rank, MapColumns::kMeanOfHeads);
//   RETURN_IF_ERROR(map.Exchange(store, communicator, step, deadline));   // after the attention
//   map.RowsOf(store, local_row, rows, values);                           // by any thread
//
// tests/golden/attention_map_oracle.py is the definition. A head's branches are mixed by their
// log-sum-exps, so that a key's weight is exp(score - lse) of the mixed lse, once for each branch
// that shows the key to the class token.
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
  // The plan, of a model with class tokens, outlives it.
  AttentionMap(const EncoderPlan& plan, int rank, MapColumns columns);

  int64_t columns() const { return columns_; }
  bool exchanges() const { return !transfers_.empty(); }  // whether this rank does
  int64_t bytes_sent() const { return (std::ssize(transfers_) - receives()) * row_bytes_; }
  int64_t bytes_received() const { return receives() * row_bytes_; }  // and held

  // Brings the class tokens' queries and log-sum-exps to the ranks that have keys of them; all
  // ranks call it, once, with the same step. `communicator` may be null where the plan has no
  // exchange. Errors of the communicator.
  absl::Status Exchange(const ShardStore& store, Communicator* communicator, int64_t step,
                        Deadline deadline);

  // Local rows [first, first + rows), which lie in one range of the shard: values [rows, columns].
  // Errors of the store's copies, where it is not in host memory.
  absl::Status RowsOf(const ShardStore& store, int64_t first, int64_t rows, float* values) const;

 private:
  int64_t receives() const { return std::ssize(received_); }

  // Query and lse of a slide's class token.
  struct ClassRow {
    const std::byte* query = nullptr;  // [heads, head_dim] of the compute type
    const float* lse = nullptr;        // [heads]
  };
  // kept: where it lies, unless the store has it in host memory.
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

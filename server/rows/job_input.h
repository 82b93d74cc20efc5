// What a job's client has sent: which rows have come, and the order that its coordinates make.
//
//   JobInput input(shape, orders);
//   input.Begin();                      // the order, where it needs no coordinates
//   input.Accept(chunk, payload);       // checked and taken down
//   if (input.order_known()) ...        // rows can be placed
//   input.CheckComplete();
//
// It outlives the executions of the job: rows that went down with a worker are forgotten and come
// again.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "engine/order/order_cache.h"
#include "engine/order/permutation.h"
#include "engine/spec/job_spec.h"
#include "server/rows/chunk_ledger.h"
#include "server/rows/coordinates.h"

namespace hilbert_ring::server {

class JobInput {
 public:
  // orders must outlive it.
  JobInput(const JobShape& shape, OrderCache& orders);

  // Does nothing where it has begun. Errors here and in Accept: the order's (BAD_COORDINATES), and
  // as of ChunkLedger::Accept.
  absl::Status Begin();
  absl::Status Accept(const v1::Chunk& chunk, const wire::Payload& payload,
                      Checksum checksum = Checksum::kToCheck);

  bool order_known() const { return order_known_; }
  // Null for a job without ordering.
  const std::shared_ptr<const Permutation>& order() const { return order_; }

  const RowSet& Rows(v1::Tensor tensor) const { return ledger_.Rows(tensor); }
  bool Complete() const { return ledger_.Complete(); }
  double fraction() const { return ledger_.fraction(); }  // of all rows, those that have come
  absl::Status CheckComplete() const { return ledger_.CheckComplete(); }

  // Rows in these slots are gone. Forgets them, and says of each tensor which tokens
  // must come again: of those that had come. With an ordering that scatters a tensor's tokens over
  // the slots all of its rows are meant.
  struct Missing {
    v1::Tensor tensor;
    std::vector<RowSpan> tokens;
  };
  std::vector<Missing> Forget(std::span<const RowSpan> slots);

 private:
  absl::Status MakeOrder(std::span<const int64_t> coords);

  const JobShape shape_;
  OrderCache& orders_;
  ChunkLedger ledger_;
  std::optional<Coordinates> coordinates_;  // until all are there
  bool order_known_ = false;
  std::shared_ptr<const Permutation> order_;  // shared with the cache
};

}  // namespace hilbert_ring::server

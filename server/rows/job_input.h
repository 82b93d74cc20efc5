// The input of a job: which rows have come, and the order. It outlives executions: rows that are
// lost with a worker are forgotten and come again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/order/order_cache.h"
#include "engine/order/permutation.h"
#include "engine/spec/job_spec.h"
#include "server/rows/bias_coordinates.h"
#include "server/rows/chunk_ledger.h"

namespace hilbert_ring::server {

class Coordinates {  // of a job's tokens, collected from COORDS chunks
 public:
  static int64_t MemoryBytes(const JobSpec& spec);

  static int64_t OrderBytes(const JobSpec& spec);

  explicit Coordinates(const JobSpec& spec);

  void Place(const v1::Chunk& chunk, const wire::Payload& payload);

  const std::vector<int64_t>& values() const { return values_; }  // [tokens, axes], row-major

 private:
  int64_t axes_;
  std::vector<int64_t> values_;
};

class JobInput {
 public:
  JobInput(const JobShape& shape, OrderCache& orders);  // `orders` outlives it

  // Once. Errors here and in Accept: the order's (BAD_COORDINATES), and those of ChunkLedger.
  absl::Status Begin();
  absl::Status Accept(const v1::Chunk& chunk, const wire::Payload& payload,
                      Checksum checksum = Checksum::kToCheck);

  // All coordinates are there, so that rows have places.
  bool order_known() const { return order_known_ && ledger_.Complete(v1::TENSOR_BIAS_COORDS); }
  // Null for a job without ordering.
  const std::shared_ptr<const Permutation>& order() const { return order_; }

  // [key tokens, axes]; empty: no biases measure coordinates.
  std::span<const float> bias_coordinates() const {
    return bias_ ? std::span<const float>(bias_->values()) : std::span<const float>();
  }

  const RowSet& Rows(v1::Tensor tensor) const { return ledger_.Rows(tensor); }
  bool Complete() const { return ledger_.Complete(); }
  double fraction() const { return ledger_.fraction(); }
  absl::Status CheckComplete() const { return ledger_.CheckComplete(); }

  // Forgets the rows in these places, and returns the tokens that must come again, by tensor: all
  // of them if an ordering scatters them over the slots.
  struct Missing {
    v1::Tensor tensor;
    std::vector<RowSpan> tokens;
  };
  std::vector<Missing> Forget(const LostRows& lost);

 private:
  absl::Status MakeOrder(std::span<const int64_t> coords);

  const JobShape shape_;
  OrderCache& orders_;
  ChunkLedger ledger_;
  std::optional<Coordinates> coordinates_;  // until the order is known
  std::optional<BiasCoordinates> bias_;
  bool order_known_ = false;
  std::shared_ptr<const Permutation> order_;
};

}  // namespace hilbert_ring::server

// From a client's chunk to the workers that own its rows. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/order/permutation.h"
#include "engine/plan/shards.h"
#include "engine/spec/job_spec.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/worker.pb.h"

namespace hilbert_ring::server {

struct RoutedRows {
  int rank = 0;
  v1::ShardRows rows;
};

class RowRouter {
 public:
  // `shards` must outlive the router.
  RowRouter(const JobSpec& spec, const Shards& shards, std::shared_ptr<const Permutation> order)
      : spec_(spec), shards_(shards), order_(std::move(order)) {}

  // The rows of a chunk that the ledger accepted, by owner, each with a checksum. A chunk that goes
  // to one worker as a whole is moved, others are copied once.
  std::vector<RoutedRows> Route(v1::Chunk&& chunk) const;

  // The tokens of a rank's slots, in parts, for jobs with an ordering; nothing otherwise. Ends
  // early and returns false when `send` does.
  bool SendOrder(int rank, const std::function<bool(v1::OrderPart&&)>& send) const;

 private:
  bool InOrder(v1::Tensor tensor) const;  // slots of this tensor are tokens
  std::vector<RoutedRows> RouteRange(v1::Chunk&& chunk) const;
  std::vector<RoutedRows> RouteScattered(v1::Chunk&& chunk) const;

  const JobSpec spec_;
  const Shards& shards_;
  const std::shared_ptr<const Permutation> order_;  // shared with the cache of orders
};

}  // namespace hilbert_ring::server

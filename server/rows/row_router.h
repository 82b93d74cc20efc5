// From a client's chunk to the workers that own its rows. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/order/permutation.h"
#include "engine/plan/shards.h"
#include "grpcpp/support/byte_buffer.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/shard/job_shape.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::server {

// Rows of a chunk that follow each other there and in a worker's shard.
struct RowRun {
  int rank = 0;
  int64_t local_row = 0;  // of the first
  int64_t rows = 0;
};

class RowRouter {
 public:
  // `shards` must outlive the router.
  RowRouter(JobShape shape, const Shards& shards, std::shared_ptr<const Permutation> order)
      : shape_(std::move(shape)), shards_(shards), order_(std::move(order)) {}

  // Where rows [first_row, first_row + rows) of a tensor that lies in shards go, in their order.
  std::vector<RowRun> Runs(v1::Tensor tensor, int64_t first_row, int64_t rows) const;

  // Where one row goes.
  RowRun Find(v1::Tensor tensor, int64_t row) const;

  // For jobs with an ordering, nothing otherwise: the tokens of a rank's slots, written by local
  // row or sent in parts, as RunRequests. Sending ends early and returns false when `send` does.
  // pool: whose buffers hold MostPayloadBytes of the job.
  void WriteOrder(int rank, std::span<int64_t> tokens) const;
  bool SendOrder(int rank, wire::SlicePool& pool,
                 const std::function<bool(const grpc::ByteBuffer&)>& send) const;

 private:
  void AddSlots(int64_t begin, int64_t end, std::vector<RowRun>& runs) const;

  const JobShape shape_;
  const Shards& shards_;
  const std::shared_ptr<const Permutation> order_;  // shared with the cache of orders
};

}  // namespace hilbert_ring::server

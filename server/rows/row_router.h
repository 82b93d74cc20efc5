// The places of a chunk's rows in the workers' shards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/order/permutation.h"
#include "engine/plan/plan.h"
#include "engine/plan/shard_layout.h"
#include "grpcpp/support/byte_buffer.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/shard/job_shape.h"
#include "server/shard/row_set.h"
#include "wire/slice_pool.h"

namespace hilbert_ring::server {

struct RowRun {  // rows that follow each other in a chunk and in a worker's shard
  int rank = 0;
  int64_t local_row = 0;  // of the first row
  int64_t rows = 0;
};

class RowRouter {
 public:
  // The plan and the coordinates of biases, [key tokens, axes] or empty, outlive the router.
  RowRouter(JobShape shape, const Plan& plan, std::shared_ptr<const Permutation> order,
            std::span<const float> bias_coordinates = {})
      : shape_(std::move(shape)),
        plan_(plan),
        order_(std::move(order)),
        bias_coordinates_(bias_coordinates) {}

  // Places of rows [first_row, first_row + rows), in their order.
  std::vector<RowRun> Runs(v1::Tensor tensor, int64_t first_row, int64_t rows) const;

  RowRun Find(v1::Tensor tensor, int64_t row) const;

  // The numbers of a rank's order (ShardLayout) and the coordinates of its biases, in memory or as
  // RunRequests; nothing without an ordering and coordinates. SendOrder returns false when `send`
  // does. pool: of the job's MostPayloadBytes.
  void WriteOrder(int rank, const HostShard& shard) const;
  bool SendOrder(int rank, wire::SlicePool& pool,
                 const std::function<bool(const grpc::ByteBuffer&)>& send) const;

 private:
  const Shards& ShardsOf(v1::Tensor tensor) const;

  // Visits the order's numbers in the order of places: at most `most` at once, from place `first`
  // on. Ends when `visit` returns false.
  template <typename Number>
  using Fill = std::function<void(std::span<Number>)>;
  template <typename Number>
  using Visit = std::function<bool(int64_t first, int64_t count, const Fill<Number>&)>;
  bool VisitOrder(int rank, int64_t most, const Visit<int64_t>& visit) const;

  // Visits rows of coordinates in the same way.
  bool VisitCoordinates(int rank, int64_t most, const Visit<float>& visit) const;

  // Visits `end - begin` rows from local_row on, whose positions are slots [begin, end) of the
  // order or [begin, end) themselves.
  struct Positions {
    int64_t local_row, begin, end;
    bool are_slots;
  };
  bool VisitPositions(const Positions& positions, int64_t most, const Visit<float>& visit) const;

  const JobShape shape_;
  const Plan& plan_;
  const std::shared_ptr<const Permutation> order_;  // the cache shares it
  const std::span<const float> bias_coordinates_;
};

// Visits the places of all `rows` in their order, at most `piece` rows at a time, so that each row
// is routed once and memory holds a piece. Ends with the first error.
absl::Status VisitPlaces(const RowRouter& router, v1::Tensor tensor, const RowSet& rows,
                         int64_t piece,
                         const std::function<absl::Status(const std::vector<RowRun>&)>& visit);

}  // namespace hilbert_ring::server

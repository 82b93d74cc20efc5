// Rows of a job, drawn at random, that are computed again by the definition and compared with what
// the client is sent: a second opinion on order, plan, exchange and kernels together, which sees
// what checksums of bytes on their way cannot.
//
//   RowCheck check(spec, rows, seed);
//   check.Take(chunk, payload, worker);              // outputs on their way to the client
//   auto wrong = check.Compare(router, order, shards, stop);   // when all of them have left
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/order/permutation.h"
#include "engine/plan/shard_layout.h"
#include "engine/reference/deviation.h"
#include "server/cluster/membership.h"
#include "server/process/job_stop.h"
#include "server/rows/row_router.h"

namespace hilbert_ring::server {

class RowCheck {
 public:
  // Of all rows, where there are fewer than `rows`.
  RowCheck(const JobSpec& spec, int64_t rows, uint64_t seed);

  // Keeps the drawn rows among the chunk's, which `worker` has sent. Thread-safe.
  void Take(const v1::OutputChunk& chunk, std::string_view payload,
            const std::shared_ptr<const Member>& worker);

  // The row that is off most.
  struct Mismatch {
    // "OUT of token 7, head 0, dim 3 is 1, computed again in float64 it is 2 ..."
    std::string What() const;

    Deviation deviation;
    v1::Tensor tensor = v1::TENSOR_OUT;
    std::shared_ptr<const Member> worker;  // that sent it
  };

  struct Verdict {
    std::optional<Mismatch> mismatch;
    int64_t judged = 0;
    // Rows of which some head sees what is not finite, or whose scores leave float32.
    int64_t not_judged = 0;
  };

  // shards: of all ranks, with the rows that the client sent. Takes the time of two float64
  // softmaxes over all that the drawn rows see. Errors: the stop's reason.
  absl::StatusOr<Verdict> Compare(const RowRouter& router, const Permutation& order,
                                  std::span<const HostShard> shards, const JobStop& stop) const;

  // Drawn, rising.
  const std::vector<int64_t>& tokens() const { return tokens_; }

  // Drawn ones that have left, which are those that Compare looks at.
  int64_t rows() const;

 private:
  struct Sent {
    std::vector<double> values;  // empty: not sent
    std::shared_ptr<const Member> worker;
  };
  struct Row {
    Sent out, lse;
  };
  void Keep(const v1::OutputChunk& chunk, std::string_view payload, int64_t place, int64_t token,
            const std::shared_ptr<const Member>& worker);

  const JobSpec spec_;
  const std::vector<int64_t> tokens_;  // ascending
  mutable Mutex mutex_;
  std::map<int64_t, Row> rows_ ABSL_GUARDED_BY(mutex_);  // by token
};

}  // namespace hilbert_ring::server

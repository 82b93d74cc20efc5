// Rows drawn at random, computed again by the definition and compared with the client's outputs:
// finds errors of order, plan, exchange and kernels, which checksums do not.
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
  RowCheck(const JobSpec& spec, int64_t rows, uint64_t seed);  // draws `rows` rows, at most all

  // Keeps the chunk's drawn rows. worker: their sender. Thread-safe.
  void Take(const v1::OutputChunk& chunk, std::string_view payload,
            const std::shared_ptr<const Member>& worker);

  struct Mismatch {  // the row with the largest deviation
    std::string What() const;

    Deviation deviation;
    v1::Tensor tensor = v1::TENSOR_OUT;
    std::shared_ptr<const Member> worker;  // its sender
  };

  struct Verdict {
    std::optional<Mismatch> mismatch;
    int64_t judged = 0;
    int64_t not_judged = 0;  // rows with a head that sees infinities, or scores beyond float32
  };

  // shards: of all ranks. bias_coordinates: of JobInput. Takes two float64 softmaxes over
  // everything that the drawn rows see. Errors: the stop's reason.
  absl::StatusOr<Verdict> Compare(const RowRouter& router, const Permutation& order,
                                  std::span<const HostShard> shards,
                                  std::span<const float> bias_coordinates,
                                  const JobStop& stop) const;

  const std::vector<int64_t>& tokens() const { return tokens_; }

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
  const std::vector<int64_t> tokens_;  // rising
  mutable Mutex mutex_;
  std::map<int64_t, Row> rows_ ABSL_GUARDED_BY(mutex_);  // by token
};

}  // namespace hilbert_ring::server

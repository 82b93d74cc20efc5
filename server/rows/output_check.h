// Rows of a job that are computed again at the coordinator and compared with what the client is
// sent (--check-rows). Attention's are in row_check.h, those of encoders in encode_check.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/order/permutation.h"
#include "engine/plan/shard_layout.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "server/cluster/membership.h"
#include "server/process/job_stop.h"
#include "server/rows/row_router.h"

namespace hilbert_ring::server {

class OutputCheck {
 public:
  virtual ~OutputCheck() = default;

  // Keeps the drawn rows among the chunk's; `worker` has sent them, null: they were put together
  // here. Thread-safe.
  virtual void Take(const v1::OutputChunk& chunk, std::string_view payload,
                    const std::shared_ptr<const Member>& worker) = 0;

  // Whose rows of outputs it wants, rising: where workers write them to files, they are read there.
  virtual std::span<const int64_t> wanted() const { return {}; }

  // The row that is off most.
  struct Mismatch {
    std::string
        what;  // "OUT of token 7, head 0, dim 3 is 1, computed again in float64 it is 2 ..."
    std::shared_ptr<const Member> worker;  // that sent it
  };

  struct Verdict {
    std::optional<Mismatch> mismatch;
    int64_t judged = 0;
    int64_t not_judged = 0;  // they see what is not finite, or leave float32
    std::string note;        // what was checked, for the report; may be empty
  };

  // What the execution has at its end; shards: of all ranks, with the rows that the client sent.
  struct Execution {
    const RowRouter& router;
    const Permutation& order;
    std::span<const HostShard> shards;
    std::span<const std::shared_ptr<const Member>> members;  // by rank
    const JobStop& stop;
  };

  // Errors: the stop's reason, and INTERNAL where a worker has not told what it was to tell.
  virtual absl::StatusOr<Verdict> Compare(const Execution& execution) const = 0;
};

}  // namespace hilbert_ring::server

// A source of a job's rows, and a sink of its outputs. Implementations: client_rows.h (a call, an
// epoch of a stream) and named_files.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/worker.pb.h"
#include "server/cluster/membership.h"
#include "server/job/job_client.h"
#include "server/process/deadline.h"
#include "server/process/job_stop.h"
#include "server/rows/job_input.h"
#include "server/rows/row_check.h"
#include "server/shard/row_set.h"

namespace hilbert_ring::server {

class RowSource {
 public:
  using TakeRows = std::function<absl::Status(const ClientMessage& message)>;

  virtual ~RowSource() = default;

  // Whether the worker can take the rows; an error if no live worker can.
  virtual bool Reaches(const Member& worker) const { return true; }
  virtual absl::Status CheckReachable(const Members& live) const { return absl::OkStatus(); }

  virtual bool ReadByWorkers() const { return false; }  // rows are not sent, held or lost

  // Before each execution, without workers. The first call takes the rows that this process reads.
  virtual absl::Status Prepare(const TakeRows& take) { return absl::OkStatus(); }

  virtual bool AwaitArrived(int64_t bytes, JobClient::Input input) { return false; }

  // Before another execution: requests lost rows again. ROWS_LOST if the source cannot.
  virtual absl::Status Resume(const std::vector<JobInput::Missing>& missing) {
    return absl::OkStatus();
  }

  virtual absl::Status Feed(const JobInput& input, const TakeRows& take, const JobStop& stop) = 0;

  virtual void AddTo(v1::RunOpen& open) const {}
};

class OutputSink {
 public:
  virtual ~OutputSink() = default;

  // Bytes of outputs that workers write; empty if outputs pass through Take.
  virtual std::optional<int64_t> BytesByWorkers() const { return std::nullopt; }

  virtual absl::StatusOr<bool> Take(const v1::OutputChunk& chunk, std::string_view payload,
                                    const std::shared_ptr<const void>& owner,
                                    Clock::duration patience, const JobStop& stop,
                                    JobClient::SendMode mode) = 0;

  // Passes rows of written outputs to the check. of: a token's worker.
  virtual absl::Status ReadBack(RowCheck& check,
                                const std::function<std::shared_ptr<const Member>(int64_t)>& of) {
    return absl::OkStatus();
  }

  virtual absl::Status Commit(const JobStop& stop) { return absl::OkStatus(); }  // after success
};

}  // namespace hilbert_ring::server

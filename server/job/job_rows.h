// A source of a job's rows, and a sink of its outputs. Implementations: client_rows.h (a call, an
// epoch of a stream) and named_files.h (tensors by path).
//
//   source.Prepare(take);             // before each execution
//   source.Resume(missing);           // before another execution, after lost workers
//   source.Feed(input, take, stop);   // during it
//   sink.Take(chunk, ...);            // for each output that does not go to a file
//   sink.Commit(stop);                // the job has succeeded
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

  // Returns whether the worker can read the rows. CheckReachable returns an error if no live worker
  // can.
  virtual bool Reaches(const Member& worker) const { return true; }
  virtual absl::Status CheckReachable(const Members& live) const { return absl::OkStatus(); }

  // Workers read the rows from files: the coordinator sends and holds no rows.
  virtual bool ReadByWorkers() const { return false; }

  // Called before each execution, when the job has no workers yet. The first call passes the rows
  // that the coordinator reads itself to `take`.
  virtual absl::Status Prepare(const TakeRows& take) { return absl::OkStatus(); }

  // Follows JobClient::AwaitArrived.
  virtual bool AwaitArrived(int64_t bytes, JobClient::Input input) { return false; }

  // Requests lost rows again, before another execution. ROWS_LOST: the source cannot send them
  // again.
  virtual absl::Status Resume(const std::vector<JobInput::Missing>& missing) {
    return absl::OkStatus();
  }

  // Passes messages to `take` until the input is complete.
  virtual absl::Status Feed(const JobInput& input, const TakeRows& take, const JobStop& stop) = 0;

  // Adds the files that the worker reads and writes.
  virtual void AddTo(v1::RunOpen& open) const {}
};

class OutputSink {
 public:
  virtual ~OutputSink() = default;

  // Returns the bytes of outputs that workers write to files; nothing if outputs pass through Take.
  virtual std::optional<int64_t> BytesByWorkers() const { return std::nullopt; }

  // Follows JobClient::Write.
  virtual absl::StatusOr<bool> Take(const v1::OutputChunk& chunk, std::string_view payload,
                                    const std::shared_ptr<const void>& owner,
                                    Clock::duration patience, const JobStop& stop,
                                    JobClient::SendMode mode) = 0;

  // Reads the checked tokens' outputs from the files and passes them to the check. of: returns the
  // worker that computed a token.
  virtual absl::Status ReadBack(RowCheck& check,
                                const std::function<std::shared_ptr<const Member>(int64_t)>& of) {
    return absl::OkStatus();
  }

  // Called once, after success: gives written outputs their names.
  virtual absl::Status Commit(const JobStop& stop) { return absl::OkStatus(); }
};

}  // namespace hilbert_ring::server

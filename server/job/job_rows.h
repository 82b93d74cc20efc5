// Where the rows of a job come from, and where its outputs go: one interface each.
//
//   source.Prepare(take);                // before the job has workers: what this process must read
//   source.Feed(input, take, stop);      // the rows of one execution, until all have come
//   sink.Take(chunk, payload, ...);      // outputs as workers finish them
//   sink.Commit(stop);                   // the job ended well
//
// A client's call and an epoch of a stream are client_rows.h, files are named_files.h.
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
  // Takes a message with rows. Its errors end what calls it.
  using TakeRows = std::function<absl::Status(const ClientMessage& message)>;

  virtual ~RowSource() = default;

  // Whether the worker can take the rows, and an error if no live worker can.
  virtual bool Reaches(const Member& worker) const { return true; }
  virtual absl::Status CheckReachable(const Members& live) const { return absl::OkStatus(); }

  // Workers read the rows themselves: none are sent or held here, and none are lost with a worker.
  virtual bool ReadByWorkers() const { return false; }

  // Before each execution, while the job has no workers. The first time, takes the rows that this
  // process must read itself.
  virtual absl::Status Prepare(const TakeRows& take) { return absl::OkStatus(); }

  // Whether the bytes of all rows have arrived, for a job on one worker whose rows are few.
  virtual bool AwaitArrived(int64_t bytes, JobClient::Input input) { return false; }

  // Another execution begins: asks for rows again that were lost. ROWS_LOST where nobody has them.
  virtual absl::Status Resume(const std::vector<JobInput::Missing>& missing) {
    return absl::OkStatus();
  }

  // Takes rows until the input is complete.
  virtual absl::Status Feed(const JobInput& input, const TakeRows& take, const JobStop& stop) = 0;

  virtual void AddTo(v1::RunOpen& open) const {}
};

class OutputSink {
 public:
  virtual ~OutputSink() = default;

  // Of outputs that workers write themselves; nothing where outputs pass through Take.
  virtual std::optional<int64_t> BytesByWorkers() const { return std::nullopt; }

  // An output, as JobClient::Write.
  virtual absl::StatusOr<bool> Take(const v1::OutputChunk& chunk, std::string_view payload,
                                    const std::shared_ptr<const void>& owner,
                                    Clock::duration patience, const JobStop& stop,
                                    JobClient::SendMode mode) = 0;

  // Takes the rows that are checked from outputs that workers wrote. of: the worker of a token.
  virtual absl::Status ReadBack(RowCheck& check,
                                const std::function<std::shared_ptr<const Member>(int64_t)>& of) {
    return absl::OkStatus();
  }

  // The job ended well: its outputs are whole from here on.
  virtual absl::Status Commit(const JobStop& stop) { return absl::OkStatus(); }
};

}  // namespace hilbert_ring::server

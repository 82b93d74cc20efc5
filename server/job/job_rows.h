// A job's rows and outputs: of a client (here), or in files (named_files.h).
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

class JobRows {
 public:
  using TakeRows = std::function<absl::Status(const ClientMessage& message)>;

  virtual ~JobRows() = default;

  // Bytes of outputs that workers write to files, from which they read the rows; empty if rows and
  // outputs pass through this process.
  virtual std::optional<int64_t> BytesByWorkers() const { return std::nullopt; }
  bool InFiles() const { return BytesByWorkers().has_value(); }

  // Returns whether the worker can read the rows. CheckReachable returns an error if no live worker
  // can.
  virtual bool Reaches(const Member& worker) const { return true; }
  virtual absl::Status CheckReachable(const Members& live) const { return absl::OkStatus(); }

  // Before each execution, without workers. The first call takes the rows that this process reads.
  virtual absl::Status Prepare(const TakeRows& take) { return absl::OkStatus(); }

  // Before another execution: requests lost rows again. ROWS_LOST if that is impossible.
  virtual absl::Status Resume(const std::vector<JobInput::Missing>& missing) {
    return absl::OkStatus();
  }

  virtual absl::Status Feed(const JobInput& input, const TakeRows& take, const JobStop& stop) {
    return absl::OkStatus();
  }

  // Adds the files that the worker reads and writes.
  virtual void AddTo(v1::RunOpen& open) const {}

  // Outputs that no worker writes. False if the client has not made room within `patience`. `owner`
  // keeps the payload alive.
  virtual absl::StatusOr<bool> Take(const v1::OutputChunk& chunk, std::string_view payload,
                                    const std::shared_ptr<const void>& owner,
                                    Clock::duration patience, const JobStop& stop,
                                    JobClient::SendMode mode) {
    return absl::InternalError("a worker sent rows that it must write to a file");
  }

  // Reads the checked tokens' outputs from the files and passes them to the check. of: returns the
  // worker that computed a token.
  virtual absl::Status ReadBack(RowCheck& check,
                                const std::function<std::shared_ptr<const Member>(int64_t)>& of) {
    return absl::OkStatus();
  }

  // Called once, after success: gives written outputs their names.
  virtual absl::Status Commit(const JobStop& stop) { return absl::OkStatus(); }
};

class ClientRows : public JobRows {  // of a call, or of an epoch of a stream
 public:
  // Both outlive it.
  ClientRows(JobClient& client, const v1::Open& open) : client_(client), open_(open) {}

  absl::Status Resume(const std::vector<JobInput::Missing>& missing) override;
  absl::Status Feed(const JobInput& input, const TakeRows& take, const JobStop& stop) override;

  absl::StatusOr<bool> Take(const v1::OutputChunk& chunk, std::string_view payload,
                            const std::shared_ptr<const void>& owner, Clock::duration patience,
                            const JobStop& stop, JobClient::SendMode mode) override {
    return client_.Write(chunk, payload, owner, patience, stop, mode);
  }

 private:
  JobClient& client_;
  const v1::Open& open_;
};

}  // namespace hilbert_ring::server

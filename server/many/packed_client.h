// The client of the job that small jobs are computed in: its rows are those of their message, its
// outputs are put together here, and cut into theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/many.pb.h"
#include "server/job/job_client.h"
#include "server/many/packed_jobs.h"
#include "server/process/job_stop.h"

namespace hilbert_ring::server {

class PackedClient : public JobClient {
 public:
  // Both outlive it.
  PackedClient(const PackedJobs& jobs, JobStop& stop);

  JobStop& stop() override { return stop_; }
  void ReadAhead() override {}
  bool AwaitArrived(int64_t /*bytes*/, Input /*input*/) override { return true; }

  // Open, then the chunks.
  absl::StatusOr<bool> Read(ClientMessage& message, const JobStop& stop) override;

  using JobClient::Write;
  absl::Status Write(const v1::AttendResponse& /*response*/, const JobStop& stop,
                     Leaves /*leaves*/) override {
    return stop.why();
  }
  absl::StatusOr<bool> Write(const v1::OutputChunk& chunk, std::string_view payload,
                             std::shared_ptr<const void> owner, Clock::duration patience,
                             const JobStop& stop, Leaves leaves) override;
  absl::Status AwaitTaken(const JobStop& stop) override { return stop.why(); }
  void Offer(const v1::AttendResponse& /*response*/) override {}

  // Outputs of one of the jobs, once theirs has ended well.
  void AddOutputs(int64_t job, v1::SmallResult& result);

 private:
  struct Output {
    v1::Tensor tensor;
    int64_t row_bytes;
    std::string rows;  // of all tokens
  };
  absl::Status Put(Output& output, int64_t token, int64_t rows, std::string_view payload) const;

  const PackedJobs& jobs_;
  JobStop& stop_;
  const std::vector<PackedChunk> chunks_;
  size_t next_ = 0;  // 0: Open
  Mutex mutex_;
  std::vector<Output> outputs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hilbert_ring::server

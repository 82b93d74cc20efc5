// A job's rows and outputs over its client: a call, or an epoch of a stream.
#pragma once

#include <vector>

#include "server/job/job_client.h"
#include "server/job/job_rows.h"

namespace hilbert_ring::server {

class ClientRows : public JobRows {
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

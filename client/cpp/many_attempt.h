// One call of AttendMany, to its status.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/attempt.h"
#include "client/cpp/attend_many.h"
#include "client/cpp/job_options.h"
#include "client/cpp/progress_teller.h"
#include "client/cpp/retry.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/many.pb.h"
#include "wire/raw_stream.h"

namespace hilbert_ring::client {

// Of each job: nothing before it has ended.
using ManyEnds = std::vector<std::optional<absl::StatusOr<v1::Report>>>;

// Of Q, K, V and coordinates.
int64_t InputBytes(const AttendInputs& inputs);

// Runs once.
class ManyAttempt {
 public:
  // All must outlive the object. ends: of the jobs; those that have ended are not sent.
  ManyAttempt(std::span<const SmallJob> jobs, ManyEnds& ends, const JobOptions& options,
              int attempt, ProgressTeller& progress);

  // A report without figures, once all jobs have ended. Those for which there is no worker at the
  // moment have not: the attempt fails with the error of one.
  std::variant<v1::Report, AttemptFailure> Run(const std::shared_ptr<grpc::Channel>& channel,
                                               absl::Time deadline);

 private:
  void SendAll();
  v1::SmallJob MessageOf(const SmallJob& job) const;
  absl::Status Handle(grpc::ByteBuffer& message);
  absl::Status Take(const v1::SmallResult& result);
  absl::StatusOr<v1::Report> Place(const SmallJob& job, const v1::SmallResult& result) const;

  const std::span<const SmallJob> jobs_;
  ManyEnds& ends_;
  const JobOptions& options_;
  const int attempt_;
  ProgressTeller& progress_;
  std::vector<size_t> sent_;     // jobs, by their numbers in the call
  std::set<size_t> come_;        // jobs of which there is a result
  absl::Status passing_;         // of a job that is to be sent again
  bool taken_ = false;           // some job has ended
  grpc::ClientContext context_;  // before the stream, which uses it
  std::unique_ptr<wire::RawStream> stream_;
};

}  // namespace hilbert_ring::client

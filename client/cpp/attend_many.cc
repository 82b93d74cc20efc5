#include "client/cpp/attend_many.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/connector.h"
#include "client/cpp/job_call.h"
#include "client/cpp/many_attempt.h"
#include "client/cpp/service.h"
#include "engine/base/return_if_error.h"
#include "wire/codec.h"

namespace hilbert_ring::client {
namespace {

absl::Status CheckOutput(v1::Tensor tensor, int64_t actual, const JobSpec& spec) {
  const int64_t expected = spec.tokens * wire::TensorRowBytes(spec, tensor);
  if (actual == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(wire::TensorName(tensor), ": has ", actual, " bytes, the spec says ", expected));
}

absl::Status Check(const SmallJob& job) {
  const JobSpec& spec = job.inputs.spec;
  RETURN_IF_ERROR(CheckInputs(job.inputs));
  RETURN_IF_ERROR(CheckOutput(v1::TENSOR_OUT, std::ssize(job.outputs.out), spec));
  if (!job.outputs.lse.empty()) {
    RETURN_IF_ERROR(CheckOutput(v1::TENSOR_LSE, std::ssize(job.outputs.lse), spec));
  }
  if (InputBytes(job.inputs) <= wire::kMaxPayloadBytes) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("rows of the job take ", InputBytes(job.inputs),
                                            " bytes, a call of many jobs sends at most ",
                                            wire::kMaxPayloadBytes, " of each: call Attend"));
}

std::vector<absl::StatusOr<v1::Report>> AttendMany(Connector connector,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options) {
  ManyEnds ends(jobs.size());
  JobProgress begin;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (absl::Status status = Check(jobs[i]); !status.ok()) {
      ends[i] = std::move(status);
      continue;
    }
    begin.tokens += jobs[i].inputs.spec.tokens;
    begin.bytes_to_send += InputBytes(jobs[i].inputs);
  }
  begin.rows = begin.tokens;
  const auto run = [&](const std::shared_ptr<grpc::Channel>& channel, absl::Time deadline,
                       const AttemptName& name, ProgressTeller& progress) {
    return ManyAttempt(jobs, ends, options, name.attempt, progress).Run(channel, deadline);
  };
  const absl::Status ended = CallJob(std::move(connector), run, begin, options).status();
  std::vector<absl::StatusOr<v1::Report>> reports;
  reports.reserve(jobs.size());
  for (auto& end : ends) {
    // A call that ended well has no job that did not.
    reports.push_back(end ? *std::move(end) : absl::StatusOr<v1::Report>(ended));
  }
  return reports;
}

}  // namespace

std::vector<absl::StatusOr<v1::Report>> AttendMany(const std::string& server,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options) {
  return AttendMany(Connector([&server, &options] { return Connect(server, options.access); }),
                    jobs, options);
}

std::vector<absl::StatusOr<v1::Report>> AttendMany(const std::shared_ptr<grpc::Channel>& channel,
                                                   std::span<const SmallJob> jobs,
                                                   const JobOptions& options) {
  return AttendMany(Connector(channel), jobs, options);
}

}  // namespace hilbert_ring::client

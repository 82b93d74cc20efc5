// Channels to a coordinator, and its short calls.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/access.h"
#include "client/cpp/call_timing.h"
#include "engine/spec/job_spec.h"
#include "grpcpp/channel.h"
#include "hilbert_ring/v1/attention.pb.h"
#include "hilbert_ring/v1/encoder.pb.h"

namespace hilbert_ring::client {

// server: "host:port", "[IPv6]:port" or a name of gRPC's own kinds (wire/server_address.h). With
// another one, or with a server_name that is too long, calls end at once with INVALID_ARGUMENT.
// Calls also fail if a file of `access` cannot be read; CheckAccess detects that earlier. The first
// call connects. The channel is shared by its calls, and thread-safe.
std::shared_ptr<grpc::Channel> Connect(const std::string& server, const Access& access = {});

// A channel for calls of unbounded length: at most kStreamAheadBytes that this client has not read
// yet lie here. Channels of Connect read ahead more and more if the service sends fast.
std::shared_ptr<grpc::Channel> ConnectForStream(const std::string& server,
                                                const Access& access = {});
inline constexpr int kStreamAheadBytes = 4 << 20;

inline constexpr absl::Duration kShortCallDeadline = absl::Seconds(60);

struct PlanOptions {
  absl::Duration deadline = kShortCallDeadline;  // of the whole call with all attempts
  std::function<void(const CallRetry&)> retry;   // called before the wait; may be empty
  CallTiming timing;
};

// Requests the plan of a job over `workers` (0: all that the service has now). If the service makes
// too many plans (RESOURCE_EXHAUSTED with a retry-after), the call tries again after that time.
// Errors of the service; UNAVAILABLE if it is unreachable.
absl::StatusOr<v1::PlanResponse> RequestPlan(const std::shared_ptr<grpc::Channel>& channel,
                                             const JobSpec& spec, int workers,
                                             const PlanOptions& options = {});

// Requests the plan of an encoder's job; 0 workers: all that have the model.
absl::StatusOr<v1::PlanResponse> RequestEncodePlan(const std::shared_ptr<grpc::Channel>& channel,
                                                   const v1::EncodeSpec& spec, int workers,
                                                   const PlanOptions& options = {});

absl::StatusOr<v1::ListModelsResponse> RequestModels(const std::shared_ptr<grpc::Channel>& channel);

struct AskOptions {
  // Time for which the call tries to reach a service that is away.
  absl::Duration outage_timeout = absl::ZeroDuration();
  // Limit of the whole call; each attempt takes at most kShortCallDeadline.
  absl::Duration deadline = absl::InfiniteDuration();
  CallTiming timing;
};

// NOT_FOUND: the service has no model of this name.
absl::StatusOr<v1::Model> RequestModel(const std::shared_ptr<grpc::Channel>& channel,
                                       const std::string& name, const AskOptions& options = {});

// Errors of the call; NO_DATA_ROOT, DATA_ROOT_GONE.
absl::StatusOr<v1::GetDataRootResponse> RequestDataRoot(
    const std::shared_ptr<grpc::Channel>& channel, const AskOptions& options = {});

absl::StatusOr<v1::GetClusterResponse> RequestCluster(
    const std::shared_ptr<grpc::Channel>& channel);

// Requests the caller's jobs; all jobs if the token's role allows that.
absl::StatusOr<v1::ListJobsResponse> RequestJobs(const std::shared_ptr<grpc::Channel>& channel);

// Ends a job. caller: its owner, given by an administrator; empty: the caller itself. NOT_FOUND:
// the owner has no waiting or running job of this id.
absl::Status RequestCancel(const std::shared_ptr<grpc::Channel>& channel, const std::string& job_id,
                           const std::string& caller = "");

}  // namespace hilbert_ring::client

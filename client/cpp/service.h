// A connection to a coordinator, and its short calls.
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

// server: "host:port", "[IPv6]:port" or a name of gRPC's own kinds (wire/server_address.h). Calls
// to another, or with a server_name that is too long, end at once with INVALID_ARGUMENT. Connects
// with the first call. The channel is shared with its calls, and thread-safe. Calls fail if a file
// of `access` cannot be read; CheckAccess says so before.
std::shared_ptr<grpc::Channel> Connect(const std::string& server, const Access& access = {});

// For calls whose length has no bound: of what the service sends a call, at most kStreamAheadBytes
// lie here that were not asked for, however long and fast it sends. Connect's channels take more
// and more ahead from a service that sends fast.
std::shared_ptr<grpc::Channel> ConnectForStream(const std::string& server,
                                                const Access& access = {});
inline constexpr int kStreamAheadBytes = 4 << 20;

inline constexpr absl::Duration kShortCallDeadline = absl::Seconds(60);

struct PlanOptions {
  absl::Duration deadline = kShortCallDeadline;  // of the whole call, all attempts together
  std::function<void(const CallRetry&)> retry;   // called before the wait; may be empty
  CallTiming timing;
};

// The plan of a job over `workers` (0: as many as the service has now). A service that makes too
// many plans (RESOURCE_EXHAUSTED with a retry-after) is asked again after the time that it names.
// Errors of the service, and UNAVAILABLE when there is none.
absl::StatusOr<v1::PlanResponse> RequestPlan(const std::shared_ptr<grpc::Channel>& channel,
                                             const JobSpec& spec, int workers,
                                             const PlanOptions& options = {});

// The same of an encoder's job (SpecOf in client/cpp/encode.h). 0 workers: as many as have the
// model.
absl::StatusOr<v1::PlanResponse> RequestEncodePlan(const std::shared_ptr<grpc::Channel>& channel,
                                                   const v1::EncodeSpec& spec, int workers,
                                                   const PlanOptions& options = {});

// Models of encoders that the service has, by name.
absl::StatusOr<v1::ListModelsResponse> RequestModels(const std::shared_ptr<grpc::Channel>& channel);

// A short call on behalf of a job.
struct AskOptions {
  // A service that is away is asked again for as long, as soon as there is a connection.
  absl::Duration outage_timeout = absl::ZeroDuration();
  // Of the whole call; each answer may take kShortCallDeadline at most.
  absl::Duration deadline = absl::InfiniteDuration();
  CallTiming timing;
};

// One of them. NOT_FOUND: the service has none of the name.
absl::StatusOr<v1::Model> RequestModel(const std::shared_ptr<grpc::Channel>& channel,
                                       const std::string& name, const AskOptions& options = {});

// Errors of the call; NO_DATA_ROOT, DATA_ROOT_GONE.
absl::StatusOr<v1::GetDataRootResponse> RequestDataRoot(
    const std::shared_ptr<grpc::Channel>& channel, const AskOptions& options = {});

absl::StatusOr<v1::GetClusterResponse> RequestCluster(
    const std::shared_ptr<grpc::Channel>& channel);

// This caller's jobs; those of all, where its token's role sees them.
absl::StatusOr<v1::ListJobsResponse> RequestJobs(const std::shared_ptr<grpc::Channel>& channel);

// Ends one of them; `caller`: whose, for an administrator, empty: one's own. NOT_FOUND when none of
// that id waits or runs.
absl::Status RequestCancel(const std::shared_ptr<grpc::Channel>& channel, const std::string& job_id,
                           const std::string& caller = "");

}  // namespace hilbert_ring::client

#include "client/cpp/service.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/cpp/call_with_retries.h"
#include "client/cpp/connector.h"
#include "client/cpp/grpc_deadline.h"
#include "client/cpp/job_options.h"
#include "client/cpp/protocol_error.h"
#include "client/cpp/retry.h"
#include "client/cpp/settled_channel.h"
#include "client/cpp/steady_clock.h"
#include "client/cpp/token_sender.h"
#include "engine/base/return_if_error.h"
#include "grpc/grpc.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "hilbert_ring/v1/attention.grpc.pb.h"
#include "hilbert_ring/v1/encoder.grpc.pb.h"
#include "wire/before_connecting.h"
#include "wire/codec.h"
#include "wire/server_address.h"
#include "wire/status.h"
#include "wire/transport.h"

namespace hilbert_ring::client {
namespace {

// Chunks have at most 4 MiB. The plan of tens of thousands of workers, with its JSON, has more.
constexpr int kMaxReceiveBytes = 256 << 20;

// Reconnects of a channel by itself. gRPC's default backoff of 1 s to 2 minutes would delay calls
// after a service returns.
constexpr std::pair<const char*, int> kReconnectArguments[] = {
    {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
    {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500},
    {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},  // a fresh channel makes a fresh connection
    // Detects a machine that is gone or cut off, which sends no end of its connection.
    {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
    // Input right after Open leaves in one piece.
    {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, wire::kLookaheadBytes},
};

constexpr absl::Duration kKeepalive = absl::Seconds(10);

// gRPC has its own message for an unparsable response.
absl::Status FailureOf(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED &&
      status.error_message() == "No message returned for unary request") {
    return ProtocolError("a malformed response");
  }
  return wire::FromGrpc(status);
}

// Retries only after a retry-after: the service makes too many plans.
RetriedCall PlanRetries(const PlanOptions& options) {
  return {.policy = {.deadline = options.deadline},
          .timing = options.timing,
          .final = [](const AttemptFailure& failure) { return !failure.retry_after; },
          .tell = options.retry};
}

// UNAVAILABLE with DATA_ROOT_GONE is an answer: the service is up without its data root.
RetriedCall AskRetries(const AskOptions& options) {
  const bool once = options.outage_timeout == absl::ZeroDuration();
  return {.policy = {.max_attempts = once ? 1 : JobOptions().max_attempts,
                     .deadline = options.deadline,
                     .outage_timeout = options.outage_timeout},
          .timing = options.timing,
          .final =
              [](const AttemptFailure& failure) {
                return !absl::IsUnavailable(failure.status) ||
                       wire::HasReason(failure.status, wire::reason::kDataRootGone);
              },
          .longest_attempt = kShortCallDeadline};
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Ask(const std::shared_ptr<grpc::Channel>& channel,
                             grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                          Response*),
                             const Request& request, RetriedCall call = AskRetries({})) {
  Stub stub(channel);
  Response response;
  call.timing = WithDefaults(call.timing);
  call.policy.end = call.timing.now() + call.policy.deadline;
  call.make = [&](absl::Time deadline) -> std::optional<AttemptFailure> {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(deadline));
    const grpc::Status status = (stub.*method)(&context, request, &response);
    if (status.ok()) return std::nullopt;
    return AttemptFailure{.status = FailureOf(status), .retry_after = RetryAfterOf(context)};
  };
  Connector connector(channel);
  RETURN_IF_ERROR(CallWithRetries(connector, call));
  return response;
}

std::shared_ptr<grpc::Channel> RefusingChannel(const std::string& why) {
  grpc_init();  // this may be the process's first channel
  auto channel = grpc::CreateChannelInternal(
      "", grpc_lame_client_channel_create(nullptr, GRPC_STATUS_INVALID_ARGUMENT, why.c_str()), {});
  grpc_shutdown();
  return channel;
}

// keepalive: the default if `access` has no interval.
std::shared_ptr<grpc::Channel> ConnectWith(grpc::ChannelArguments arguments,
                                           const std::string& server, const Access& access,
                                           absl::Duration keepalive) {
  wire::BeforeConnecting();
  absl::Status refused = wire::CheckServerAddress("server", server);
  refused.Update(wire::CheckServerName("server_name", access.server_name));
  refused.Update(CheckKeepalive(access));
  const auto credentials = CredentialsOf(access);
  refused.Update(credentials.status());
  if (!refused.ok()) return RefusingChannel(std::string(refused.message()));
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  // The environment's web proxy must not be used for a service of the same network.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  for (const auto& [name, value] : wire::kTransportArguments) arguments.SetInt(name, value);
  for (const auto& [name, value] : kReconnectArguments) arguments.SetInt(name, value);
  if (access.keepalive_interval > absl::ZeroDuration()) keepalive = access.keepalive_interval;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(keepalive)));
  if (!access.server_name.empty()) arguments.SetSslTargetNameOverride(access.server_name);
  return Settled(grpc::experimental::CreateCustomChannelWithInterceptors(
      server, *credentials, arguments, TokenSender(access)));
}

}  // namespace

std::shared_ptr<grpc::Channel> Connect(const std::string& server, const Access& access) {
  return ConnectWith({}, server, access, kKeepalive);
}

std::shared_ptr<grpc::Channel> ConnectForStream(const std::string& server, const Access& access) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamAheadBytes);
  return ConnectWith(arguments, server, access, kIdleKeepalive);
}

absl::StatusOr<v1::PlanResponse> RequestPlan(const std::shared_ptr<grpc::Channel>& channel,
                                             const JobSpec& spec, int workers,
                                             const PlanOptions& options) {
  v1::PlanRequest request;
  *request.mutable_spec() = wire::EncodeJobSpec(spec);
  request.set_workers(workers);
  return Ask(channel, &v1::AttentionService::Stub::Plan, request, PlanRetries(options));
}

absl::StatusOr<v1::PlanResponse> RequestEncodePlan(const std::shared_ptr<grpc::Channel>& channel,
                                                   const v1::EncodeSpec& spec, int workers,
                                                   const PlanOptions& options) {
  v1::PlanEncodeRequest request;
  *request.mutable_spec() = spec;
  request.set_workers(workers);
  return Ask(channel, &v1::EncoderService::Stub::PlanEncode, request, PlanRetries(options));
}

absl::StatusOr<v1::ListModelsResponse> RequestModels(
    const std::shared_ptr<grpc::Channel>& channel) {
  return Ask(channel, &v1::EncoderService::Stub::ListModels, v1::ListModelsRequest());
}

absl::StatusOr<v1::Model> RequestModel(const std::shared_ptr<grpc::Channel>& channel,
                                       const std::string& name, const AskOptions& options) {
  v1::GetModelRequest request;
  request.set_name(name);
  return Ask(channel, &v1::EncoderService::Stub::GetModel, request, AskRetries(options));
}

absl::StatusOr<v1::GetClusterResponse> RequestCluster(
    const std::shared_ptr<grpc::Channel>& channel) {
  return Ask(channel, &v1::AttentionService::Stub::GetCluster, v1::GetClusterRequest());
}

absl::StatusOr<v1::GetDataRootResponse> RequestDataRoot(
    const std::shared_ptr<grpc::Channel>& channel, const AskOptions& options) {
  return Ask(channel, &v1::AttentionService::Stub::GetDataRoot, v1::GetDataRootRequest(),
             AskRetries(options));
}

absl::StatusOr<v1::ListJobsResponse> RequestJobs(const std::shared_ptr<grpc::Channel>& channel) {
  return Ask(channel, &v1::AttentionService::Stub::ListJobs, v1::ListJobsRequest());
}

absl::Status RequestCancel(const std::shared_ptr<grpc::Channel>& channel, const std::string& job_id,
                           const std::string& caller) {
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  request.set_caller(caller);
  return Ask(channel, &v1::AttentionService::Stub::CancelJob, request).status();
}

}  // namespace hilbert_ring::client

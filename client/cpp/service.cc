#include "client/cpp/service.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/connector.h"
#include "client/cpp/errors.h"
#include "client/cpp/job_options.h"
#include "client/cpp/retry.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/mutex.h"
#include "engine/base/return_if_error.h"
#include "grpc/grpc.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_interceptor.h"
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

// gRPC gives up on a connection after 20 s. Consecutive short calls each leave one until then.
constexpr size_t kMostKept = 1000;

constexpr auto kSettle = std::chrono::milliseconds(50);

// With gRPC 1.51 a channel may end while its connection is being made, for example after a call's
// deadline. The connection is then still made and stays open until the process ends, if channels do
// not share connections.
class ConnectingChannels {
 public:
  // Drops the channel when it has settled. Does not wait if other channels are unsettled: their
  // service does not answer.
  void LetGo(std::shared_ptr<grpc::Channel> channel) {
    if (DropSettled() == 0) {
      channel->WaitForStateChange(GRPC_CHANNEL_CONNECTING,
                                  std::chrono::system_clock::now() + kSettle);
    }
    DropSettled(std::move(channel));
  }

 private:
  // Returns the number of channels that stay.
  size_t DropSettled(std::shared_ptr<grpc::Channel> added = nullptr) {
    std::vector<std::shared_ptr<grpc::Channel>> going;  // dropped after the lock
    const MutexLock lock(mutex_);
    if (added) channels_.push_back(std::move(added));
    const auto settled = std::stable_partition(
        channels_.begin(), channels_.end(),
        [](const auto& kept) { return kept->GetState(false) == GRPC_CHANNEL_CONNECTING; });
    going.assign(std::make_move_iterator(settled), std::make_move_iterator(channels_.end()));
    channels_.erase(settled, channels_.end());
    if (channels_.size() > kMostKept) {
      going.push_back(std::move(channels_.front()));
      channels_.erase(channels_.begin());
    }
    return channels_.size();
  }

  Mutex mutex_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

// Wraps a channel so that it ends only after its connection is made or refused. Its last owner
// waits up to 50 ms for that; a slower channel is kept and checked when another one ends.
std::shared_ptr<grpc::Channel> Settled(std::shared_ptr<grpc::Channel> channel) {
  static auto* const connecting =
      new ConnectingChannels;  // never destroyed: threads may outlive main
  grpc::Channel* const raw = channel.get();
  return {raw, [channel = std::move(channel)](grpc::Channel*) mutable {
            connecting->LetGo(std::move(channel));
          }};
}

// Sends the caller's token with each call of a channel.
class TokenSender : public grpc::experimental::Interceptor {
 public:
  explicit TokenSender(const Access& access) : access_(access) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      // Without a token the service refuses the call with its own message.
      if (const auto token = TokenOf(access_); token.ok()) {
        methods->GetSendInitialMetadata()->insert(
            {"authorization", absl::StrCat("Bearer ", *token)});
      }
    }
    methods->Proceed();
  }

 private:
  const Access& access_;  // owned by the factory, which outlives its channel's calls
};

class TokenSenders : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenders(Access access) : access_(std::move(access)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new TokenSender(access_);
  }

 private:
  const Access access_;
};

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
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> senders;
  if (!access.token.empty() || !access.token_file.empty()) {
    senders.push_back(std::make_unique<TokenSenders>(access));
  }
  return Settled(grpc::experimental::CreateCustomChannelWithInterceptors(
      server, *credentials, arguments, std::move(senders)));
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

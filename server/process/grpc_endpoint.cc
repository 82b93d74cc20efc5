#include "server/process/grpc_endpoint.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/return_if_error.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "server/process/deadline.h"
#include "server/process/interceptors.h"
#include "server/process/tls.h"
#include "wire/before_connecting.h"
#include "wire/codec.h"
#include "wire/transport.h"

namespace hilbert_ring::server {
namespace {

constexpr int kKeepaliveMs = 10'000;         // a dead machine sends no end of its connections
constexpr int kHandshakeMs = 20'000;         // until a connection speaks HTTP/2
constexpr int kLeastPingIntervalMs = 5'000;  // of clients

constexpr int kShortCalls = 128;  // health, figures and lists beside streams

constexpr std::chrono::milliseconds kLeastSilence{500};
constexpr std::chrono::milliseconds kMostSilence{600'000};

// Two chunks. By default up to 16 MiB of a connection pile up, and a coordinator has a connection
// for each worker.
constexpr int kWorkerLookaheadBytes = 2 * wire::kMaxMessageBytes;

// Removes reflection, which gRPC adds to every server once it is linked.
class WithoutReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    std::erase_if(*plugins, [](const auto& plugin) {
      return dynamic_cast<grpc::reflection::ProtoServerReflectionPlugin*>(plugin.get()) != nullptr;
    });
  }
};

const grpc::ResourceQuota& AnswersQuota(int64_t bytes) {
  static auto& quota = *new grpc::ResourceQuota("hilbert-ring-answers");
  return quota.Resize(static_cast<size_t>(bytes));
}

int AsMilliseconds(std::chrono::milliseconds silence) {
  return static_cast<int>(std::clamp(silence, kLeastSilence, kMostSilence).count());
}

void SetTcp(int socket, int option, int value) {
  setsockopt(socket, IPPROTO_TCP, option, &value, sizeof(value));
}

void Serve(grpc::experimental::ExternalConnectionAcceptor& acceptor, int listening,
           int connection) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listening;
  parameters.fd = connection;
  acceptor.HandleNewConnection(&parameters);
}

}  // namespace

absl::StatusOr<GrpcEndpoint> StartGrpc(const GrpcListen& listen,
                                       const std::vector<grpc::Service*>& services) {
  // Debian builds Abseil, of gRPC's locks, with a search for deadlocks at every lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  grpc::EnableDefaultHealthCheckService(true);
  ASSIGN_OR_RETURN(auto sockets,
                   ListeningSockets::Open(
                       listen.flag.empty() ? "grpc" : absl::StrCat("grpc (", listen.flag, ")"),
                       listen.host, listen.port));
  // Accepted connections inherit both.
  for (const int socket : sockets.descriptors()) {
    SetTcp(socket, TCP_NODELAY, 1);
    SetTcp(socket, TCP_USER_TIMEOUT, AsMilliseconds(listen.silence));
  }
  grpc::ServerBuilder builder;
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor =
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
          listen.credentials != nullptr ? listen.credentials : grpc::InsecureServerCredentials());
  if (!listen.reflection) builder.SetOption(std::make_unique<WithoutReflection>());
  builder.experimental().SetInterceptorCreators(InterceptorsOf(listen.reflection));
  for (grpc::Service* service : services) builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(wire::kMaxMessageBytes);
  builder.SetMaxSendMessageSize(-1);  // plans of many workers are longer than a chunk
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, AsMilliseconds(listen.silence));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kLeastPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, listen.streams_per_connection);
  for (const auto& [name, value] : wire::kTransportArguments)
    builder.AddChannelArgument(name, value);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  if (listen.idle.count() > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                               static_cast<int>(std::min<int64_t>(listen.idle.count(), INT_MAX)));
  }
  if (listen.lookahead_bytes > 0) {
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, listen.lookahead_bytes);
  }
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, listen.kept_threads);
  grpc::ResourceQuota quota("hilbert-ring");
  quota.SetMaxThreads(listen.max_threads);
  quota.Resize(listen.memory_bytes);
  builder.SetResourceQuota(quota);
  GrpcEndpoint endpoint{.credentials = listen.credentials,
                        .server = builder.BuildAndStart(),
                        .listener = nullptr,
                        .port = sockets.port()};
  if (endpoint.server == nullptr) return absl::InternalError("gRPC built no server");
  endpoint.server->GetHealthCheckService()->SetServingStatus(false);
  endpoint.listener = std::make_unique<ConnectionListener>(
      std::move(sockets),
      [acceptor](int socket, int connection) { Serve(*acceptor, socket, connection); });
  return endpoint;
}

int StreamsOfConnection(int calls_per_peer) {
  return kShortCalls + std::min(calls_per_peer, INT_MAX - kShortCalls);
}

void GrpcEndpoint::Shutdown(std::chrono::milliseconds grace) {
  listener.reset();
  server->Shutdown(std::chrono::system_clock::now() + grace);
  server->Wait();
}

absl::StatusOr<Calling> CallingOf(const SecuritySettings& settings) {
  if (settings.tls.ca.empty()) return Calling{};
  ASSIGN_OR_RETURN(auto credentials, CallCredentials(settings.tls));
  return Calling{.credentials = std::move(credentials), .peer_name = settings.peer_name};
}

// gRPC sets TCP_USER_TIMEOUT to the keepalive's timeout. A cancelled call whose bytes the kernel
// holds ends only then: a cut link must not block its writer for longer than a worker's silence.
std::shared_ptr<grpc::Channel> Dial(const std::string& address, std::chrono::milliseconds silence,
                                    const Calling& calling) {
  wire::BeforeConnecting();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(wire::kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(wire::kMaxMessageBytes);
  arguments.SetResourceQuota(AnswersQuota(calling.answers_bytes));
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWorkerLookaheadBytes);
  for (const auto& [name, value] : wire::kTransportArguments) arguments.SetInt(name, value);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, AsMilliseconds(silence));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  if (!calling.peer_name.empty()) arguments.SetSslTargetNameOverride(calling.peer_name);
  return grpc::CreateCustomChannel(
      address,
      calling.credentials != nullptr ? calling.credentials : grpc::InsecureChannelCredentials(),
      arguments);
}

}  // namespace hilbert_ring::server

// gRPC servers and channels of the service: message sizes, threads, keepalive.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "server/process/listening_sockets.h"
#include "server/process/security_settings.h"

namespace hilbert_ring::server {

struct GrpcListen {
  std::string flag;  // "--grpc-port"
  std::string host;
  int port = 0;         // 0: a free one
  int max_threads = 0;  // of calls that block one
  // Idle threads kept for calls. With fewer than concurrent calls, each call starts a thread.
  int kept_threads = 4;
  std::chrono::milliseconds silence{10'000};  // without acknowledgements, then calls end
  // Received bytes that no handler has taken, on all connections. A fuller account lets peers send
  // less at a time; beyond it, arbitrary calls with messages under way end with RESOURCE_EXHAUSTED.
  int64_t memory_bytes = int64_t{512} << 20;
  // Bytes that a peer may send on a stream ahead of the reads. 0: what the transport measures, up
  // to 16 MiB. A bound costs the peer a pause for each 64 KiB that no read waits for.
  int lookahead_bytes = 0;
  std::chrono::milliseconds idle{0};  // without a call closes a connection; 0: never
  // Concurrent calls of a connection. The peer knows the limit; its further calls wait on its side.
  int streams_per_connection = 1024;
  std::shared_ptr<grpc::ServerCredentials> credentials;  // null: plain text
  bool reflection = true;
};

// More than `calls_per_peer`: refused and silent calls need streams, too.
int StreamsOfConnection(int calls_per_peer);

struct Calling {
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // null: plain text
  std::string peer_name;  // required in the other's certificate; empty: the address's host
  int64_t answers_bytes = int64_t{2} << 30;  // of untaken answers, on all channels
};

// Call once in a process, because the result watches its files. Errors of CallCredentials.
absl::StatusOr<Calling> CallingOf(const SecuritySettings& settings);

struct GrpcEndpoint {
  void Shutdown(std::chrono::milliseconds grace);

  std::shared_ptr<grpc::ServerCredentials> credentials;  // watch their files
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<ConnectionListener> listener;  // destroyed before the server that it feeds
  int port = 0;
};

// Serves the services, which must outlive the server, health, and reflection if wanted. Health is
// NOT_SERVING at first. UNAVAILABLE if the address is taken; processes do not share it.
absl::StatusOr<GrpcEndpoint> StartGrpc(const GrpcListen& listen,
                                       const std::vector<grpc::Service*>& services);

// A channel within the service, which reconnects within seconds. Its calls end when the other side
// acknowledges nothing for `silence`.
std::shared_ptr<grpc::Channel> Dial(const std::string& address, std::chrono::milliseconds silence,
                                    const Calling& calling = {});

}  // namespace hilbert_ring::server

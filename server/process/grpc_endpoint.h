// What all gRPC servers and channels of the service have in common: message sizes, threads,
// keepalive.
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
#include "server/process/connection_listener.h"
#include "server/process/security_settings.h"

namespace hilbert_ring::server {

struct GrpcListen {
  std::string flag;  // of the port, as a message says it: "--grpc-port"
  std::string host;
  int port = 0;         // 0: a free one
  int max_threads = 0;  // of calls that block one
  // Threads that are kept for calls to come, at least one. With fewer than calls there are at once,
  // each that ends would end its thread, and the next start one.
  int kept_threads = 4;
  // Calls of a connection over which what was sent is not acknowledged for so long end.
  std::chrono::milliseconds silence{10'000};
  // Of what has come and no handler has taken, on all connections together. gRPC takes a message
  // whole before it finds it too long. As it fills up, peers may send less at a time; beyond it
  // calls end with RESOURCE_EXHAUSTED, any of those whose messages are under way.
  int64_t memory_bytes = int64_t{512} << 20;
  // What a peer may send on a stream before anybody reads it. 0: what the connection can carry,
  // which the transport measures, up to some 16 MiB of it. A bound costs the peer a pause for each
  // 64 KiB that nobody waits for.
  int lookahead_bytes = 0;
  // A connection that has no call for so long is closed; its peer makes another for its next call.
  // 0: never.
  std::chrono::milliseconds idle{0};
  // Calls of one connection that are open at once, whether or not a handler has them yet. The peer
  // is told, and its further calls wait on its side.
  int streams_per_connection = 1024;
  std::shared_ptr<grpc::ServerCredentials> credentials;  // null: plain text
  bool reflection = true;
};

// Streams of a connection whose host may have so many calls that a handler knows: some more may
// come to be refused with a reason, or have said nothing that a handler could see.
int StreamsOfConnection(int calls_per_peer);

// How a process calls another one of the service.
struct Calling {
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // null: plain text
  std::string peer_name;  // that the other's certificate must have; empty: the address's host
  // Of what the other sides have sent and no caller has taken, on all channels of the process.
  int64_t answers_bytes = int64_t{2} << 30;
};

// As the settings say, to be made once in a process: it looks at the files while it lives. Errors:
// those of CallCredentials.
absl::StatusOr<Calling> CallingOf(const SecuritySettings& settings);

struct GrpcEndpoint {
  // Accepts no more, lets calls end for so long, and ends those that are left.
  void Shutdown(std::chrono::milliseconds grace);

  std::shared_ptr<grpc::ServerCredentials> credentials;  // which look at their files meanwhile
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<ConnectionListener> listener;  // gone before the server that it feeds
  int port = 0;
};

// Serves the services and health, and reflection where it is asked for. They must outlive the
// server. Health is NOT_SERVING until it is told otherwise. UNAVAILABLE, naming host and port, when
// they cannot be listened on: no other process may share them.
absl::StatusOr<GrpcEndpoint> StartGrpc(const GrpcListen& listen,
                                       const std::vector<grpc::Service*>& services);

// A channel within the service. It connects again within seconds when the other side is back. Calls
// of a connection over which what was sent is not acknowledged for `silence` end.
std::shared_ptr<grpc::Channel> Dial(const std::string& address, std::chrono::milliseconds silence,
                                    const Calling& calling = {});

}  // namespace hilbert_ring::server

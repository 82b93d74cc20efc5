// Connects to a service that may be away for a while.
//
//   Connector connector([] { return Connect("localhost:8001"); });
//   ...                                             // a call over connector.channel() fails
//   if (connector.Await(longest, cancelled)) ...   // there is a connection again
//
// gRPC works on a channel's connection only while a thread waits on the channel, otherwise every 5
// s. Its backoff between tries grows, and it looks up a name every 30 s at most. Await therefore
// waits on the channel, and twice a second begins a fresh one beside channels whose host does not
// answer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace hilbert_ring::client {

// Used by one thread.
class Connector {
 public:
  using Dial = std::function<std::shared_ptr<grpc::Channel>()>;

  // dial: makes a channel that shares no connection with another one.
  explicit Connector(Dial dial) : dial_(std::move(dial)), channel_(dial_()) {}

  // Always uses this channel, which makes its connections as its arguments define.
  explicit Connector(std::shared_ptr<grpc::Channel> channel) : channel_(std::move(channel)) {}

  // Connects with its first call.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  bool connected() const;

  // Returns true once channel() is connected; it may then be another channel. Returns false after
  // `longest`, or within 0.1 s of `cancelled`, which may be empty.
  [[nodiscard]] bool Await(absl::Duration longest, const std::function<bool()>& cancelled);

 private:
  using Channels = std::vector<std::shared_ptr<grpc::Channel>>;

  void BeginAnother(Channels& trying) const;

  const Dial dial_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace hilbert_ring::client

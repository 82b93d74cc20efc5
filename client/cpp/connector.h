// The way to a service that may be away for a while.
//
//   Connector connector([] { return Connect("localhost:8001"); });
//   ...                                             // a call over connector.channel() fails
//   if (connector.Await(longest, cancelled)) ...   // there is a connection again
//
// gRPC works on a channel's connection only while somebody waits on the channel, else every 5 s; it
// waits longer and longer between its tries, and looks a name up again every 30 s at most. So Await
// waits on the channel, and begins a fresh one twice a second beside those whose host does not
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

  // Always this channel, which makes its connections as its arguments say.
  explicit Connector(std::shared_ptr<grpc::Channel> channel) : channel_(std::move(channel)) {}

  // For calls; connects with the first one.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  bool connected() const;

  // True once channel() is connected, which may be another one then. False after `longest`, or
  // within 0.1 s when `cancelled`, which may be empty, says so.
  [[nodiscard]] bool Await(absl::Duration longest, const std::function<bool()>& cancelled);

 private:
  using Channels = std::vector<std::shared_ptr<grpc::Channel>>;

  void BeginAnother(Channels& trying) const;

  const Dial dial_;  // empty: one channel
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace hilbert_ring::client

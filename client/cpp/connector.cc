#include "client/cpp/connector.h"

#include <algorithm>

#include "client/cpp/steady_clock.h"
#include "grpcpp/completion_queue.h"

namespace hilbert_ring::client {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50);
constexpr absl::Duration kRedial = absl::Milliseconds(500);
// gRPC gives up on a connection after 20 s.
constexpr size_t kMostChannels = 40;

void AwaitChange(const std::vector<std::shared_ptr<grpc::Channel>>& channels,
                 const std::vector<grpc_connectivity_state>& states, absl::Duration longest) {
  grpc::CompletionQueue changes;
  const gpr_timespec until = GrpcDeadlineIn(longest);
  for (size_t i = 0; i < channels.size(); ++i) {
    channels[i]->NotifyOnStateChange(states[i], until, &changes, nullptr);
  }
  changes.Shutdown();
  void* tag = nullptr;
  bool changed = false;
  while (changes.Next(&tag, &changed)) {
  }
}

}  // namespace

bool Connector::connected() const { return channel_->GetState(false) == GRPC_CHANNEL_READY; }

bool Connector::Await(absl::Duration longest, const std::function<bool()>& cancelled) {
  if (connected()) return true;
  Channels trying;
  if (!dial_) trying.push_back(channel_);
  absl::Time next_dial = absl::InfinitePast();
  const absl::Time begun = SteadyNow();
  for (absl::Time now = begun; now - begun < longest; now = SteadyNow()) {
    if (cancelled && cancelled()) return false;
    if (dial_ && now >= next_dial) {
      BeginAnother(trying);
      next_dial = now + kRedial;
    }
    std::vector<grpc_connectivity_state> states;
    for (const auto& channel : trying) {
      states.push_back(channel->GetState(true));
      if (states.back() != GRPC_CHANNEL_READY) continue;
      channel_ = channel;
      return true;
    }
    AwaitChange(trying, states, std::min(longest - (now - begun), kLook));
  }
  return false;
}

// A fresh channel retries a refused connection sooner than the old one. A channel without an answer
// is kept, because it may still connect.
void Connector::BeginAnother(Channels& trying) const {
  std::erase_if(trying, [](const auto& channel) {
    return channel->GetState(false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
  });
  if (trying.size() < kMostChannels) trying.push_back(dial_());
}

}  // namespace hilbert_ring::client

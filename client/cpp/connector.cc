#include "client/cpp/connector.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "grpcpp/completion_queue.h"

namespace hilbert_ring::client {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(50);
constexpr absl::Duration kRedial = absl::Milliseconds(500);
// gRPC gives a connection up after 20 s.
constexpr size_t kMostChannels = 40;

// Waits until the state of a channel changes, for kLook at most.
void AwaitChange(const std::vector<std::shared_ptr<grpc::Channel>>& channels,
                 const std::vector<grpc_connectivity_state>& states, absl::Time until) {
  grpc::CompletionQueue changes;
  for (size_t i = 0; i < channels.size(); ++i) {
    channels[i]->NotifyOnStateChange(states[i], absl::ToChronoTime(until), &changes, nullptr);
  }
  changes.Shutdown();
  void* tag = nullptr;
  bool changed = false;
  while (changes.Next(&tag, &changed)) {
  }
}

}  // namespace

bool Connector::connected() const { return channel_->GetState(false) == GRPC_CHANNEL_READY; }

bool Connector::Await(absl::Time deadline, const std::function<bool()>& cancelled) {
  if (connected()) return true;
  Channels trying;
  if (!dial_) trying.push_back(channel_);
  absl::Time next_dial = absl::InfinitePast();
  for (absl::Time now = absl::Now(); now < deadline; now = absl::Now()) {
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
    AwaitChange(trying, states, std::min(deadline, now + kLook));
  }
  return false;
}

// A connection that was refused is not tried again by its channel as soon as by a fresh one; one
// that has no answer yet may still get it.
void Connector::BeginAnother(Channels& trying) const {
  std::erase_if(trying, [](const auto& channel) {
    return channel->GetState(false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
  });
  if (trying.size() < kMostChannels) trying.push_back(dial_());
}

}  // namespace hilbert_ring::client

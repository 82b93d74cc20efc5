#include "client/cpp/settled_channel.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"

namespace hilbert_ring::client {
namespace {

using Channels = std::vector<std::shared_ptr<grpc::Channel>>;

// gRPC gives up on a connection after 20 s. Consecutive short calls each leave one until then.
constexpr size_t kMostKept = 1000;

constexpr auto kSettle = std::chrono::milliseconds(50);

class ConnectingChannels {
 public:
  // Drops the channel when it has settled. Does not wait if other channels are unsettled: their
  // service does not answer.
  void LetGo(std::shared_ptr<grpc::Channel> channel) {
    DropSettled();
    if (empty()) {
      channel->WaitForStateChange(GRPC_CHANNEL_CONNECTING,
                                  std::chrono::system_clock::now() + kSettle);
    }
    {
      const MutexLock lock(mutex_);
      channels_.push_back(std::move(channel));
    }
    DropSettled();
  }

 private:
  bool empty() const {
    const MutexLock lock(mutex_);
    return channels_.empty();
  }

  void DropSettled() {
    Channels going;  // dropped after the lock
    const MutexLock lock(mutex_);
    const auto settled = std::stable_partition(
        channels_.begin(), channels_.end(),
        [](const auto& kept) { return kept->GetState(false) == GRPC_CHANNEL_CONNECTING; });
    going.assign(std::make_move_iterator(settled), std::make_move_iterator(channels_.end()));
    channels_.erase(settled, channels_.end());
    if (channels_.size() <= kMostKept) return;
    going.push_back(std::move(channels_.front()));
    channels_.erase(channels_.begin());
  }

  mutable Mutex mutex_;
  Channels channels_ ABSL_GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace

std::shared_ptr<grpc::Channel> Settled(std::shared_ptr<grpc::Channel> channel) {
  static auto* const connecting =
      new ConnectingChannels;  // never destroyed: threads may outlive main
  grpc::Channel* const raw = channel.get();
  return {raw, [channel = std::move(channel)](grpc::Channel*) mutable {
            connecting->LetGo(std::move(channel));
          }};
}

}  // namespace hilbert_ring::client

// Hosts made of network namespaces, joined by a switch in this process that can cut, slow down and
// lose.
//
//   auto network = HostNetwork::Make(4);          // host 0 is this process itself
//   ... processes in network->name(1), reached at network->address(1)
//   network->Cut(2, 3);                           // these two no longer hear each other
//   network->Isolate(2);                          // nobody hears 2
//   network->Mend();
//
// Frames are carried over tap devices, so what is lost is lost silently, as on a wire: no end sees
// its connection reset.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace hilbert_ring::testing {

class HostNetwork {
 public:
  // Moves the calling thread, and all that it starts later, into namespaces of its own: to be
  // called once in a process, before it has other threads. UNAVAILABLE, saying why, where
  // namespaces or tap devices cannot be made.
  static absl::StatusOr<std::unique_ptr<HostNetwork>> Make(int hosts, uint64_t seed);
  ~HostNetwork();

  int hosts() const { return static_cast<int>(taps_.size()); }
  static std::string Name(int host);     // of its namespace; empty for host 0
  static std::string Address(int host);  // IPv4

  // Thread-safe, in either direction.
  void Cut(int a, int b);
  void Isolate(int host);
  void SetLinkDown(int host);                      // at the host itself
  void SetDelay(std::chrono::microseconds delay);  // of every frame
  void SetLoss(double part);                       // of all frames, 0 to 1
  void Mend();                                     // no cut, no link down, no delay, no loss

  int64_t frames() const;   // carried
  int64_t dropped() const;  // cut or lost

 private:
  using Clock = std::chrono::steady_clock;
  struct Frame {
    Clock::time_point due;
    int64_t number = 0;  // keeps the order of frames that are due at once
    int to = 0;
    std::string bytes;
    bool operator>(const Frame& other) const {
      return std::pair(due, number) > std::pair(other.due, other.number);
    }
  };

  HostNetwork(int hosts, uint64_t seed) : taps_(hosts, -1), random_(seed) {}
  absl::Status AddHost(int host);
  void Carry(const std::stop_token& stop);
  void Take(int from);
  void Pass(int from, int to, const std::string& bytes);
  void SendDue();

  std::vector<int> taps_;  // descriptors by host
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::set<std::pair<int, int>> cuts_;  // the lower host first
  std::set<int> down_;                  // hosts
  std::chrono::microseconds delay_{0};
  double loss_ = 0;
  int64_t frames_ = 0, dropped_ = 0;
  // The carrier's:
  std::mt19937_64 random_;
  std::priority_queue<Frame, std::vector<Frame>, std::greater<>> waiting_;
  std::jthread carrier_;  // last: it uses all of the above
};

}  // namespace hilbert_ring::testing

// Hosts made of network namespaces, joined by a switch in this process that can cut and lose.
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

#include <cstdint>
#include <memory>
#include <mutex>
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
  void SetLinkDown(int host);  // at the host itself
  void SetLoss(double part);   // of all frames, 0 to 1
  void Mend();                 // no cut, no link down, no loss

 private:
  HostNetwork(int hosts, uint64_t seed) : taps_(hosts, -1), random_(seed) {}
  absl::Status AddHost(int host);
  void Carry(const std::stop_token& stop);
  void Take(int from);
  void Pass(int from, int to, const std::string& bytes);

  std::vector<int> taps_;  // descriptors by host
  std::mutex mutex_;
  // Guarded by mutex_:
  std::set<std::pair<int, int>> cuts_;  // the lower host first
  std::set<int> down_;                  // hosts
  double loss_ = 0;
  std::mt19937_64 random_;  // the carrier's
  std::jthread carrier_;    // last: it uses all of the above
};

}  // namespace hilbert_ring::testing

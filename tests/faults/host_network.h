// Hosts of network namespaces, joined by a switch in this process that can cut links and lose
// frames.
//
//   auto network = HostNetwork::Make(4);          // host 0 is this process itself
//   ... processes in network->name(1), reached at network->address(1)
//   network->Cut(2, 3);                           // these two lose their connection
//   network->Isolate(2);                          // host 2 loses all connections
//   network->Mend();
//
// Tap devices carry the frames: a loss is silent, as on a wire, and resets no connection.
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
  // Moves the calling thread and its later children into new namespaces. Call it once in a process,
  // before other threads start. UNAVAILABLE, with the reason, without namespaces or tap devices.
  static absl::StatusOr<std::unique_ptr<HostNetwork>> Make(int hosts, uint64_t seed);
  ~HostNetwork();

  int hosts() const { return static_cast<int>(taps_.size()); }
  static std::string Name(int host);  // of its namespace; empty for host 0
  static std::string Address(int host);

  void Cut(int a, int b);
  void Isolate(int host);
  void SetLinkDown(int host);  // at the host itself
  void SetLoss(double part);   // part of all frames, 0 to 1
  void Mend();                 // restores all links

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
  std::set<int> down_;
  double loss_ = 0;
  std::mt19937_64 random_;  // the carrier's
  std::jthread carrier_;    // last: it uses all of the above
};

}  // namespace hilbert_ring::testing

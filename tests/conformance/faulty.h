// A communicator on a bad network: it drops, delays, corrupts, reorders and repeats what it sends.
//
//   auto faults = std::make_shared<Faults>(FaultOptions{.corrupt = 0.1}, seed);
//   ring = Wrapped(ring, [&](auto inner) { return MakeFaulty(std::move(inner), faults); });
//
// All ends agree on what travels where, so that any transport below takes it.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <random>

#include "engine/comm/communicator.h"

namespace hilbert_ring::testing {

struct FaultOptions {
  // Chances of each transfer.
  double drop = 0;
  double corrupt = 0;  // one bit
  // Chances of each step of a rank.
  double delay = 0;
  double reorder = 0;  // two transfers of one size to one peer change places
  double repeat = 0;   // the bytes of the step before, where sizes agree
  std::chrono::milliseconds longest_delay{20};
};

// Draws the faults of a ring and counts them. Thread-safe.
class Faults {
 public:
  Faults(const FaultOptions& options, uint64_t seed) : options_(options), random_(seed) {}

  const FaultOptions& options() const { return options_; }
  bool Happens(double chance);
  int64_t Draw(int64_t below);

  // That change or withhold bytes; delays are none.
  int count() const { return count_; }
  void Count() { ++count_; }

 private:
  const FaultOptions options_;
  std::mutex mutex_;
  std::mt19937_64 random_;  // guarded by mutex_
  std::atomic<int> count_ = 0;
};

std::unique_ptr<Communicator> MakeFaulty(std::unique_ptr<Communicator> inner,
                                         std::shared_ptr<Faults> faults);

}  // namespace hilbert_ring::testing

#include "client/cpp/call_timing.h"

#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "client/cpp/steady_clock.h"
#include "engine/base/random_bits.h"

namespace hilbert_ring::client {

CallTiming WithDefaults(CallTiming timing) {
  if (!timing.now) timing.now = SteadyNow;
  if (!timing.sleep) timing.sleep = [](absl::Duration duration) { absl::SleepFor(duration); };
  if (!timing.random) {
    timing.random = [engine = std::mt19937_64(DrawBits())]() mutable {
      return std::uniform_real_distribution<double>(0, 1)(engine);
    };
  }
  return timing;
}

}  // namespace hilbert_ring::client

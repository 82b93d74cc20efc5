#include "server/process/refusal_log.h"

#include <chrono>
#include <utility>

namespace hilbert_ring::server {
namespace {

constexpr std::chrono::minutes kBetweenLines{1};

}  // namespace

std::optional<int64_t> RefusalLog::Note(Clock::time_point now) {
  const MutexLock lock(mutex_);
  ++refused_;
  if (next_.has_value() && now < *next_) return std::nullopt;
  next_ = now + kBetweenLines;
  return std::exchange(refused_, 0);
}

}  // namespace hilbert_ring::server

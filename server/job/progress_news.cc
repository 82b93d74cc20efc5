#include "server/job/progress_news.h"

#include <algorithm>

namespace hilbert_ring::server {
namespace {

// A disk takes 10 MB/s, and may hang this long.
constexpr auto kDiskLimit = std::chrono::minutes(10);
constexpr int64_t kSlowDiskBytesPerMillisecond = 10'000;

}  // namespace

bool ProgressNews::Moves(const v1::RunProgress& progress, Does does, Clock::time_point now) {
  const bool computes =
      does == Does::kComputes &&
      (progress.fraction() > furthest_.fraction() || progress.layer() > furthest_.layer() ||
       progress.waiting_step() != furthest_.waiting_step());
  if (progress.file_bytes() > furthest_.file_bytes()) bytes_at_ = now;
  furthest_.set_fraction(std::max(progress.fraction(), furthest_.fraction()));
  furthest_.set_layer(std::max(progress.layer(), furthest_.layer()));
  furthest_.set_file_bytes(std::max(progress.file_bytes(), furthest_.file_bytes()));
  furthest_.set_waiting_step(progress.waiting_step());
  if (computes || !file_bytes_) return computes;
  const std::chrono::milliseconds transfer(*file_bytes_ / kSlowDiskBytesPerMillisecond);
  return now - bytes_at_ < kDiskLimit + transfer;
}

}  // namespace hilbert_ring::server

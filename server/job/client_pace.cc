#include "server/job/client_pace.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace hilbert_ring::server {
namespace {

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Clock::duration ClientPace::TimeOf(int64_t bytes) const {
  if (limits_.bytes_per_second == 0) return Clock::duration(0);
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
      static_cast<double>(bytes) / static_cast<double>(limits_.bytes_per_second)));
}

Deadline ClientPace::Due(Clock::time_point now, int64_t bytes) const {
  return now + limits_.idle - behind_ + TimeOf(bytes);
}

void ClientPace::Moved(Clock::duration waited, int64_t bytes) {
  behind_ = std::max(Clock::duration(0), behind_ + waited - TimeOf(bytes));
  waited_ += waited;
  bytes_ += bytes;
  if (behind_ > Clock::duration(0) && limits_.bytes_per_second > 0) return;
  behind_ = waited_ = Clock::duration(0);
  bytes_ = 0;
}

absl::Status ClientPace::Late(Clock::duration waited) const {
  if (bytes_ == 0 || waited >= limits_.idle) {
    return wire::ErrorOf(wire::reason::kClientIdle,
                         absl::StrCat("the client has not ", what_, " anything for ",
                                      Seconds(waited), " s (--idle-timeout)"));
  }
  const double seconds = Seconds(waited_ + waited);
  return wire::ErrorOf(wire::reason::kClientIdle,
                       absl::StrCat("the client has ", what_, " ",
                                    static_cast<int64_t>(static_cast<double>(bytes_) / seconds),
                                    " bytes a second over ", seconds, " s, the least rate is ",
                                    limits_.bytes_per_second, " (--least-rate)"));
}

}  // namespace hilbert_ring::server

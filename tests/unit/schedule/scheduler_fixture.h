#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/schedule/scheduler.h"

namespace hilbert_ring::server {

inline constexpr int64_t kGiB = int64_t{1} << 30;
inline const auto kSilent = [](int) {};

inline std::shared_ptr<const Member> MakeMember(int number, int64_t limit = kGiB, int threads = 1) {
  auto member = std::make_shared<Member>();
  member->address = absl::StrCat("worker-", number);
  member->memory_limit_bytes = limit;
  member->threads = threads;
  member->express_lanes = std::max(1, threads - 1);
  return member;
}

// The system's time until it is set.
struct SetTime : TimeSource {
  Clock::time_point Now() const override { return at.value_or(Clock::now()); }
  bool WaitUntil(std::condition_variable_any& changed, MutexLock& lock, const std::stop_token& stop,
                 Deadline deadline, absl::FunctionRef<bool()> done) const override {
    return SystemTime().WaitUntil(changed, lock, stop, deadline, done);
  }
  std::optional<Clock::time_point> at;
};

class SchedulerTest : public ::testing::Test {
 protected:
  void Start(int workers, int max_waiting = 64) {
    for (int i = 0; i < workers; ++i) live_.push_back(MakeMember(i));
    scheduler_.emplace([this] { return live_; }, max_waiting, time_);
  }

  static JobRequest Request(const std::string& caller, std::vector<JobSize> sizes) {
    return {.caller = caller, .sizes = std::move(sizes)};
  }

  Scheduler::Place Enter(const std::string& caller, std::vector<JobSize> sizes) {
    auto place = scheduler_->Enter(Request(caller, std::move(sizes)));
    EXPECT_TRUE(place.ok()) << place.status();
    return *std::move(place);
  }

  static std::optional<Grant> Now(Scheduler::Place& place) {
    const JobStop stop;
    auto grant = place.Await(stop, Deadline::min(), kSilent);
    if (!grant.ok()) return std::nullopt;
    return *grant;
  }

  // Time stands still from the first call on.
  void Pass(double seconds) {
    time_.at = time_.Now() +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    if (scheduler_) scheduler_->Changed();
  }

  Members live_;
  SetTime time_;
  std::optional<Scheduler> scheduler_;
};

}  // namespace hilbert_ring::server

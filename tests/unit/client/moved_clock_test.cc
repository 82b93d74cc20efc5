// Calls end in time although the machine's clock is set.
#include "tests/support/moved_clock.h"

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/cpp/service.h"
#include "gtest/gtest.h"
#include "tests/support/free_port.h"
#include "tests/support/sanitizer.h"
#include "tests/unit/client/echo_job.h"

namespace hilbert_ring::client {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kMuchLater{15};

// Sets the clock half a second after the call has begun. Returns the call's duration.
template <typename Call>
std::chrono::duration<double> Seconds(Call call) {
  const Clock::time_point begin = Clock::now();
  std::chrono::duration<double> taken{};
  std::thread calls([&] {
    call([begin] { return Clock::now() - begin > kMuchLater; });
    taken = Clock::now() - begin;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  MoveClockAhead(absl::Hours(1));
  calls.join();
  return taken;
}

TEST(MovedClock, ADeadlineAndAnOutagesLimitAreKept) {
  if (kAddressSanitizer || kThreadSanitizer) {
    GTEST_SKIP() << "the sanitizer has its own clock_gettime, which must come first";
  }
  const std::string away = absl::StrCat("127.0.0.1:", FreePort());
  for (const AttendOptions& limit : {AttendOptions{.deadline = absl::Seconds(1.5)},
                                     AttendOptions{.outage_timeout = absl::Seconds(1.5)}}) {
    absl::Status status;
    const auto taken = Seconds([&](auto gives_up) {
      AttendOptions options = limit;
      options.cancelled = gives_up;
      status = EchoJob().Attend(away, options).status();
    });
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_GT(taken.count(), 1);
    EXPECT_LT(taken, kMuchLater);
  }
}

}  // namespace
}  // namespace hilbert_ring::client

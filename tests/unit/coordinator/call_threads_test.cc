#include "server/coordinator/call_threads.h"

#include <latch>

#include "gtest/gtest.h"

namespace hilbert_ring::server {
namespace {

TEST(CallThreads, AreBounded) {
  KeptThreads kept;
  CallThreads threads(1, kept);
  std::latch end(1);
  ASSERT_TRUE(threads.Start([&] { end.wait(); }).ok());
  const absl::Status full = threads.Start([] { FAIL(); });
  EXPECT_EQ(wire::ReasonOf(full), "TOO_MANY_CALLS");
  EXPECT_FALSE(threads.AwaitIdle(std::chrono::milliseconds(0)));
  end.count_down();
  EXPECT_TRUE(threads.AwaitIdle(std::chrono::seconds(30)));
}

TEST(CallThreads, AThreadThatCannotBeStartedTakesNoPlace) {
  bool none_left = true;
  KeptThreads kept([&](std::function<void()> body) -> absl::StatusOr<std::thread> {
    if (none_left) return absl::ResourceExhaustedError("none");
    return std::thread(std::move(body));
  });
  CallThreads threads(1, kept);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(threads.Start([] { FAIL(); }).message(), "none") << "and the bound is not reached";
  }
  EXPECT_TRUE(threads.AwaitIdle(std::chrono::milliseconds(0)));
  none_left = false;
  std::latch ran(1);
  EXPECT_TRUE(threads.Start([&] { ran.count_down(); }).ok());
  ran.wait();
}

}  // namespace
}  // namespace hilbert_ring::server

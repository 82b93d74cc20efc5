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

}  // namespace
}  // namespace hilbert_ring::server

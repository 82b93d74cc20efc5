#include "server/process/stop_signals.h"

#include <unistd.h>

#include <chrono>

#include "gtest/gtest.h"
#include "server/process/logging.h"

namespace hilbert_ring::server {
namespace {

TEST(StopSignalsDeathTest, AStopThatTakesTooLongEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StartLogging("test", "info");
        LimitStop(std::chrono::milliseconds(50));
        pause();
      },
      ::testing::ExitedWithCode(kStopTimedOut), "not done within 50 ms");
}

}  // namespace
}  // namespace hilbert_ring::server

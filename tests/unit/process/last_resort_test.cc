#include "server/process/last_resort.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "gtest/gtest.h"
#include "server/process/logging.h"
#include "server/process/stop_signals.h"

namespace hilbert_ring::server {
namespace {

using std::chrono::milliseconds;

TEST(LastResortDeathTest, WhatIsStillThereThenEndsWithItsProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StartLogging("test", "info");
        LastResort last_resort;
        last_resort.EndIn(milliseconds(50));
        pause();  // for ever
      },
      ::testing::ExitedWithCode(LastResort::kExitStatus), "a thread does not end");
}

TEST(LastResort, WhatEndsInTimeIsLeftAlone) {
  const auto begun = std::chrono::steady_clock::now();
  {
    LastResort last_resort;
    last_resort.EndIn(milliseconds(500));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(400)) << "nothing is waited for";
  std::this_thread::sleep_for(milliseconds(600));  // or this process ends here
  { const LastResort not_told_to_stop; }
}

}  // namespace
}  // namespace hilbert_ring::server

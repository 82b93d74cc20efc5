// The engine's threads where the system has none left in the middle of starting them.
#include <atomic>
#include <memory>
#include <string>
#include <system_error>

#include "engine/device/cpu/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/random_slides.h"
#include "tests/support/few_threads.h"

namespace hilbert_ring::testing {
namespace {

using ::testing::HasSubstr;

TEST(NoThreads, OfAPoolIsAnExceptionAndNoMore) {
  for (const int started : {0, 1, 2}) {
    const FewThreads few(started);
    EXPECT_THROW(const ThreadPool pool(4), std::system_error) << started;
  }
  ThreadPool pool(4);
  std::atomic<int64_t> worked = 0;
  pool.Run(100, 1, [&](int, int64_t begin, int64_t end) {
    worked += end - begin;
    return true;
  });
  EXPECT_EQ(worked, 100);
}

using EncoderNoThreads = RandomSlidesTest;

TEST_F(EncoderNoThreads, OfARankAreAnError) {
  const EncoderPlan plan = MakeEncoderPlan(config(), DataType::kFloat32, {6000}, 1).value();
  const auto device = MakeDevice({.threads = 4}).value();
  for (const int started : {0, 1, 2}) {
    const FewThreads few(started);
    const absl::Status status =
        EncoderRank::Make(model_, plan, 0, *device, {.states = {kLast}}).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << started << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no thread can be started"));
  }
  EXPECT_TRUE(EncoderRank::Make(model_, plan, 0, *device, {.states = {kLast}}).ok());
}

}  // namespace
}  // namespace hilbert_ring::testing

// An encoder rank's control while it computes: progress, waits, spans, cancellations, deadlines.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/random_slides.h"

namespace hilbert_ring::testing {
namespace {

using EncoderCourse = RandomSlidesTest;

TEST_F(EncoderCourse, ACancelledJobEndsInAnyLayer) {
  const EncoderInput input = RandomSlides({900}, 8);
  // The first or a later call of `cancelled` returns true.
  for (const int asked : {1, 5, 12}) {
    std::atomic<int> left = asked;
    EncoderRun run{.outputs = {.states = {kLast}}, .ranks = 2};
    run.control.cancelled = [&left] { return --left <= 0; };
    EXPECT_TRUE(absl::IsCancelled(RunEncoder(model_, input, run).status())) << asked;
  }
  EncoderRun late{.outputs = {.states = {kLast}}};
  late.control.deadline = [] { return Deadline::min(); };
  EXPECT_TRUE(absl::IsDeadlineExceeded(RunEncoder(model_, input, late).status()));
}

// A worker without progress counts as stuck, so every part of a layer reports some.
TEST_F(EncoderCourse, ProgressRisesToTheEndBySmallSteps) {
  const EncoderInput input = RandomSlides({5000}, 9);
  std::mutex mutex;
  std::vector<double> reported = {0};
  EncoderRun run{.outputs = {.states = {kLast}}};
  run.control.progress = [&](double fraction) {
    const std::lock_guard lock(mutex);
    reported.push_back(fraction);
  };
  run.placing.progress = run.control.progress;
  Run(input, run);
  std::ranges::sort(reported);
  EXPECT_EQ(reported.front(), 0);
  EXPECT_NEAR(reported.back(), 1, 1e-9);
  for (size_t i = 1; i < reported.size(); ++i) {
    EXPECT_LT(reported[i] - reported[i - 1], 0.05) << reported[i];
  }
}

// Rising steps identify the rank that is behind.
TEST_F(EncoderCourse, StepsOfWaitingRiseOverLayersAndTheMap) {
  const EncoderInput input = RandomSlides({900}, 12);
  for (const int64_t layer : {int64_t{1}, kLast}) {
    EncoderRun run{
        .outputs = {.states = {kLast}, .attention_map = AttentionMapOutput{.layer = layer}},
        .ranks = 2};
    std::mutex mutex;
    std::map<std::thread::id, std::vector<int64_t>> reported;  // by rank
    run.control.waiting = [&](int64_t step) {
      const std::lock_guard lock(mutex);
      reported[std::this_thread::get_id()].push_back(step);
    };
    const EncoderResult result = Run(input, run);
    const int64_t of_layer = result.plan.attention.costs.steps + 1;
    ASSERT_EQ(reported.size(), 2U);
    for (const auto& [rank, steps] : reported) {
      std::vector<int64_t> waits;  // a 0 follows each
      for (size_t i = 0; i < steps.size(); ++i) {
        if (i % 2 == 0) {
          waits.push_back(steps[i]);
        } else {
          EXPECT_EQ(steps[i], 0);
        }
      }
      EXPECT_EQ(steps.size() % 2, 0U);
      EXPECT_THAT(waits, ::testing::Contains(layer * of_layer)) << "the map's";
      EXPECT_GT(std::ssize(waits), config().layers);
      for (size_t i = 1; i < waits.size(); ++i) EXPECT_GT(waits[i], waits[i - 1]);
      EXPECT_LE(waits.back(), StepsOf(result.plan));
    }
  }
}

}  // namespace
}  // namespace hilbert_ring::testing

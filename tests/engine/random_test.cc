// Random jobs through the engine against the float64 reference, on any number of ranks.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <tuple>
#include <utility>

#include "engine/reference/sample_tokens.h"
#include "engine/spec/job_spec_json.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_rows.h"
#include "tests/engine/run_engine.h"
#include "tests/random/random_spec.h"
#include "tests/support/plain_spec.h"
#include "tests/support/test_depth.h"
#include "tests/unit/device/forwarding_device.h"

namespace hilbert_ring::testing {
namespace {

// tokens: the rows to check; empty: all.
void CheckAgainstReference(const JobSpec& spec, uint64_t seed, int workers,
                           const std::string& kernel = "", std::vector<int64_t> tokens = {}) {
  const EngineInputs inputs = RandomInputs(spec, seed);
  const auto result = RunEngine(spec, inputs, workers, RingKind::kInProcess, kernel);
  ASSERT_TRUE(result.ok()) << result.status();
  if (tokens.empty()) tokens = SampleTokens(spec.tokens, spec.tokens, 0);
  const auto expected = ExpectRows(spec, inputs, std::move(tokens));
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_EQ(expected->judged, std::ssize(expected->tokens));
  EXPECT_EQ(Mismatch(spec, *result, *expected), "")
      << "seed " << seed << ", " << workers << " workers, " << kernel << " " << FormatJobSpec(spec);
  for (int rank = 0; rank < workers; ++rank) {
    const WorkerCost& planned = result->plan.costs.workers[rank];
    EXPECT_EQ(result->figures[rank].bytes_received, planned.bytes_received);
    EXPECT_EQ(result->figures[rank].bytes_sent, planned.bytes_sent);
    EXPECT_EQ(result->figures[rank].memory_peak_bytes, planned.resident_bytes());
  }
}

// The time in which a test draws jobs: HILBERT_RING_RANDOM_SECONDS, or unlimited.
class RandomTime {
 public:
  RandomTime() {
    const char* const seconds = std::getenv("HILBERT_RING_RANDOM_SECONDS");
    if (seconds != nullptr) end_ = Clock::now() + std::chrono::seconds(std::atoi(seconds));
  }
  bool over() const { return Clock::now() >= end_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_ = Clock::time_point::max();
};

class RandomJobs : public ::testing::TestWithParam<DataType> {};

TEST_P(RandomJobs, AgreeWithTheReference) {
  std::mt19937_64 random(1000 + static_cast<int>(GetParam()));
  for (int trial = 0; trial < AtDepth(40, 120, 250); ++trial) {
    JobSpec spec = RandomSpec(random);
    spec.dtype = GetParam();
    CheckAgainstReference(spec, random(), 1 + static_cast<int>(random() % 7));
    if (HasFailure()) return;
  }
}

TEST_P(RandomJobs, OfOtherNumbersOfKeysAgreeWithTheReference) {
  std::mt19937_64 random(9000 + static_cast<int>(GetParam()));
  for (int trial = 0; trial < AtDepth(60, 200, 600); ++trial) {
    JobSpec spec = RandomSpec(random);
    MakeRectangular(spec, random);
    ASSERT_TRUE(Validate(spec).ok()) << Validate(spec) << " " << FormatJobSpec(spec);
    spec.dtype = GetParam();
    CheckAgainstReference(spec, random(), 1 + static_cast<int>(random() % 7));
    if (HasFailure()) return;
  }
}

TEST_P(RandomJobs, AgreeWithTheReferenceOnAllKernels) {
  const std::vector<std::string> kernels = KernelsUnderTest();
  ASSERT_FALSE(kernels.empty()) << "no device for HILBERT_RING_TEST_KERNEL";
  const RandomTime time;
  for (const std::string& kernel : kernels) {
    std::mt19937_64 random(4000 + static_cast<int>(GetParam()));
    for (int trial = 0; trial < AtDepth(10, 20, 60); ++trial) {
      JobSpec spec = RandomSpec(random);
      spec.dtype = GetParam();
      CheckAgainstReference(spec, random(), 1 + static_cast<int>(random() % 4), kernel);
      if (HasFailure() || time.over()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RandomJobs,
                         ::testing::Values(DataType::kFloat32, DataType::kBFloat16,
                                           DataType::kFloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

// Jobs of several stretches (engine/run/stretches.h), on one rank and on two with a ring.
TEST(RandomJobs, LongJobsAgreeWithTheReference) {
  JobSpec spec = PlainSpec({.tokens = 30'000, .heads = 1, .dim = 8});
  spec.mixing = Mixing::kLse;
  for (const auto& branches :
       {std::vector<Branch>{{300, 1}, {1100, 2}}, std::vector<Branch>{{700, 1}, {30'000, 100}}}) {
    spec.branches = branches;
    for (const DataType dtype : {DataType::kFloat32, DataType::kFloat16}) {
      spec.dtype = dtype;
      for (const int workers : {1, 2}) {
        CheckAgainstReference(spec, 8, workers, "",
                              SampleTokens(spec.tokens, AtDepth(500, 1000, 30'000), 8));
      }
    }
  }
}

// Rows so wide that they travel in several rounds, of queries and of keys. Coordinates of biases
// travel with them.
TEST(RandomJobs, RoundsOfOtherNumbersOfKeysAgreeWithTheReference) {
  for (const auto& [queries, keys, travels] :
       {std::tuple{250, 400, Travels::kQueries}, std::tuple{700, 200, Travels::kKeys},
        std::tuple{399, 400, Travels::kKeys}}) {
    JobSpec spec = PlainSpec({.tokens = keys, .heads = 64, .dim = 256});
    spec.tokens = queries;
    spec.key_tokens = keys;
    spec.causal = true;
    if (queries == 399) spec.kv_heads = 32;  // narrow keys
    if (queries < keys) spec.alibi = Alibi{std::vector<double>(spec.heads, 0.25), 3};
    const auto plan = MakePlan(spec, 7);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->rectangle->travels, travels) << plan->rectangle->why;
    EXPECT_GT(plan->rectangle->rounds, 2);
    CheckAgainstReference(spec, 3, 7, "", SampleTokens(queries, 20, 8));
  }
}

// Reports that a library computed the first call, and a refusal in both.
class LibraryDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  absl::StatusOr<AttendFigures> Attend(std::span<const AttentionTask> tasks,
                                       const AttendControl& control) override {
    auto figures = ForwardingDevice::Attend(tasks, control);
    if (!figures.ok()) return figures;
    if (++calls_ == 1) figures->library_scores = 100;
    figures->library_refusal = calls_ == 1 ? "no engine" : "another";
    return figures;
  }

 private:
  int calls_ = 0;
};

TEST(Executor, SaysWhatALibraryComputed) {
  const JobSpec spec = PlainSpec({.tokens = 64, .heads = 1, .dim = 8});
  const auto ring = MakeCommunicatorRing(RingKind::kInProcess, 2);
  ASSERT_TRUE(ring.ok()) << ring.status();
  const auto result = RunEngineOver(*ring, spec, RandomInputs(spec, 1),
                                    {.wrap = [](std::unique_ptr<Device> device) {
                                      return std::make_unique<LibraryDevice>(std::move(device));
                                    }});
  ASSERT_TRUE(result.ok()) << result.status();
  for (const Figures& figures : result->figures) {
    EXPECT_EQ(figures.flops, 2.0 * (8 + 8) * 32 * 64);
    EXPECT_EQ(figures.library_flops, 2.0 * (8 + 8) * 100);
    EXPECT_EQ(figures.library_refusal, "no engine");
  }
}

}  // namespace
}  // namespace hilbert_ring::testing

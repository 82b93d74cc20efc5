// Random finite jobs with numbers of any magnitude, through every kernel and rings: rows are within
// their tolerance.
#include <cmath>
#include <iterator>
#include <random>
#include <utility>

#include "engine/spec/job_spec_json.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_rows.h"
#include "tests/engine/run_engine.h"
#include "tests/random/random_spec.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kHeadDims[] = {8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 200, 256};
constexpr int64_t kValueDims[] = {8, 16, 24, 32, 64, 136, 256};

// 1e-30 to 1e18, or float16's range.
double Magnitude(DataType dtype, std::mt19937_64& random) {
  const auto [least, greatest] =
      dtype == DataType::kFloat16 ? std::pair{-7.0, 4.0} : std::pair{-30.0, 18.0};
  return std::pow(10.0, std::uniform_real_distribution<double>(least, greatest)(random));
}

JobSpec MagnitudeSpec(DataType dtype, std::mt19937_64& random) {
  JobSpec spec = RandomSpec(random, {.max_tokens = 120, .max_heads = 2});
  spec.dtype = dtype;
  spec.head_dim = kHeadDims[random() % std::size(kHeadDims)];
  // Large ones are rare, because their reference takes long.
  spec.value_dim = kValueDims[random() % (random() % 8 == 0 ? std::size(kValueDims) : 4)];
  return spec;
}

EngineInputs MagnitudeInputs(const JobSpec& spec, std::mt19937_64& random) {
  EngineInputs inputs = RandomInputs(spec, random());
  for (std::vector<float>* values : {&inputs.q, &inputs.k, &inputs.v}) {
    const double size = Magnitude(spec.dtype, random);
    for (float& value : *values) value = static_cast<float>(value * size);
  }
  if (random() % 2 == 0) {
    // The largest scores are between 0.001 and 100,000.
    const double target = std::pow(10.0, std::uniform_real_distribution<double>(-3, 5)(random));
    double q = 0, k = 0;
    for (const float value : inputs.q) q = std::max(q, std::abs(static_cast<double>(value)));
    for (const float value : inputs.k) k = std::max(k, std::abs(static_cast<double>(value)));
    const double scores = q * k * std::sqrt(static_cast<double>(spec.head_dim));
    if (scores > 0 && std::isfinite(scores)) {
      const double both = std::sqrt(target / scores);
      for (float& value : inputs.q) value = static_cast<float>(value * both);
      for (float& value : inputs.k) value = static_cast<float>(value * both);
    }
  }
  return Rounded(spec, inputs);
}

// Values near the ends of float32, and any scale with queries and keys that give ordinary scores.
EngineInputs InputsAtTheEnds(JobSpec& spec, std::mt19937_64& random) {
  const auto power = [&](double least, double greatest) {
    return std::pow(10.0, std::uniform_real_distribution<double>(least, greatest)(random));
  };
  EngineInputs inputs = RandomInputs(spec, random());
  const auto multiply = [](std::vector<float>& values, double by) {
    for (float& value : values) value = static_cast<float>(value * by);
  };
  if (spec.dtype == DataType::kFloat16) {
    multiply(inputs.v, random() % 2 == 0 ? power(-7, -5) : power(3.5, 4.1));
    return Rounded(spec, inputs);
  }
  multiply(inputs.v, random() % 2 == 0 ? power(-45, -36) : power(36, 37.9));
  const double scale = power(-44, 38);
  const double scores = std::min(power(-1, 3) / scale, 1e37);
  // Queries and keys may differ much in size.
  const double of_q = std::clamp(std::sqrt(scores) * power(-8, 8), 1e-37, 1e37);
  const double of_k = std::clamp(scores / of_q, 1e-37, 1e37);
  multiply(inputs.q, of_q);
  multiply(inputs.k, of_k);
  spec.scale = random() % 2 == 0 ? scale : -scale;
  return Rounded(spec, inputs);
}

class Magnitudes : public ::testing::TestWithParam<DataType> {
 protected:
  struct Counts {
    int64_t rows = 0, judged = 0;
    int64_t jobs = 0;                    // with judged rows
    int64_t out_seen = 0, lse_seen = 0;  // jobs in which a wrong result would be detected
  };

  // Runs random jobs with inputs of `make_inputs`, each by one of the kernels.
  template <typename MakeInputs>
  Counts Run(int trials, std::mt19937_64& random, const MakeInputs& make_inputs) {
    const std::vector<std::string> kernels = KernelsUnderTest();
    EXPECT_FALSE(kernels.empty()) << "no device for HILBERT_RING_TEST_KERNEL";
    Counts counts;
    for (int trial = 0; trial < trials && !kernels.empty(); ++trial) {
      JobSpec spec = MagnitudeSpec(GetParam(), random);
      const EngineInputs inputs = make_inputs(spec, random);
      const auto expected = ExpectRows(spec, inputs);
      EXPECT_TRUE(expected.ok()) << expected.status();
      const int workers = 1 + static_cast<int>(random() % 4);
      const std::string& kernel = kernels[trial % kernels.size()];
      auto result = RunEngine(spec, inputs, workers, RingKind::kInProcess, kernel);
      EXPECT_TRUE(result.ok()) << result.status();
      if (!expected.ok() || !result.ok()) return counts;
      EXPECT_EQ(Mismatch(spec, *result, *expected), "")
          << "trial " << trial << ", " << workers << " workers, " << kernel << " "
          << FormatJobSpec(spec);
      counts.rows += spec.tokens;
      counts.judged += expected->judged;
      if (expected->judged == 0) continue;
      ++counts.jobs;
      auto off = *result;
      for (float& value : off.out) value *= 1.0625f;
      counts.out_seen += Mismatch(spec, off, *expected).empty() ? 0 : 1;
      off.out = result->out;
      for (float& value : off.lse) value += 0.0625f;
      counts.lse_seen += Mismatch(spec, off, *expected).empty() ? 0 : 1;
    }
    return counts;
  }
};

// Large scores make lse inexact, but not the result.
TEST_P(Magnitudes, RightRowsAreWithinTheirToleranceAndWrongOnesAreNot) {
  std::mt19937_64 random(90 + static_cast<int>(GetParam()));
  const Counts counts = Run(AtDepth(120, 250, 500), random, MagnitudeInputs);
  EXPECT_GT(counts.judged, counts.rows / 2);
  EXPECT_GT(counts.out_seen, counts.jobs * 95 / 100);
  EXPECT_GT(counts.lse_seen, counts.jobs * 80 / 100);
}

TEST_P(Magnitudes, RightRowsAtTheEndsOfFloat32AreWithinTheirTolerance) {
  std::mt19937_64 random(190 + static_cast<int>(GetParam()));
  const Counts counts = Run(AtDepth(100, 200, 400), random, InputsAtTheEnds);
  EXPECT_GT(counts.judged, counts.rows / 2);
  // A correct result of subnormal values may be 0.
  EXPECT_GT(counts.out_seen, counts.jobs / 2);
}

INSTANTIATE_TEST_SUITE_P(Types, Magnitudes,
                         ::testing::Values(DataType::kFloat32, DataType::kBFloat16,
                                           DataType::kFloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace hilbert_ring::testing

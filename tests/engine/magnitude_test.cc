// Random finite jobs whose numbers are of any magnitude, through every kernel and rings: rows are
// within the tolerance that row checks allow.
#include <cmath>
#include <iterator>
#include <random>
#include <utility>

#include "engine/spec/job_spec_json.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_rows.h"
#include "tests/engine/run_engine.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kHeadDims[] = {8, 16, 24, 32, 48, 64, 80, 96, 128};

// 1e-30 to 1e18, in float16 what it holds.
double Magnitude(DataType dtype, std::mt19937_64& random) {
  const auto [least, greatest] =
      dtype == DataType::kFloat16 ? std::pair{-7.0, 4.0} : std::pair{-30.0, 18.0};
  return std::pow(10.0, std::uniform_real_distribution<double>(least, greatest)(random));
}

JobSpec MagnitudeSpec(DataType dtype, std::mt19937_64& random) {
  JobSpec spec = RandomSpec(random, {.max_tokens = 120, .max_heads = 2});
  spec.dtype = dtype;
  spec.head_dim = kHeadDims[random() % std::size(kHeadDims)];
  spec.value_dim = kHeadDims[random() % 4];
  return spec;
}

EngineInputs MagnitudeInputs(const JobSpec& spec, std::mt19937_64& random) {
  EngineInputs inputs = RandomInputs(spec, random());
  for (std::vector<float>* values : {&inputs.q, &inputs.k, &inputs.v}) {
    const double size = Magnitude(spec.dtype, random);
    for (float& value : *values) value = static_cast<float>(value * size);
  }
  if (random() % 2 == 0) {
    // Scores of ordinary size up to some ten thousand.
    const double aim = std::pow(10.0, std::uniform_real_distribution<double>(-3, 5)(random));
    double q = 0, k = 0;
    for (const float value : inputs.q) q = std::max(q, std::abs(static_cast<double>(value)));
    for (const float value : inputs.k) k = std::max(k, std::abs(static_cast<double>(value)));
    const double scores = q * k * std::sqrt(static_cast<double>(spec.head_dim));
    if (scores > 0 && std::isfinite(scores)) {
      const double both = std::sqrt(aim / scores);
      for (float& value : inputs.q) value = static_cast<float>(value * both);
      for (float& value : inputs.k) value = static_cast<float>(value * both);
    }
  }
  return Rounded(spec, inputs);
}

class Magnitudes : public ::testing::TestWithParam<DataType> {};

TEST_P(Magnitudes, RightRowsAreWithinTheirTolerance) {
  const std::vector<std::string> kernels = KernelsUnderTest();
  ASSERT_FALSE(kernels.empty()) << "no device for HILBERT_RING_TEST_KERNEL";
  std::mt19937_64 random(90 + static_cast<int>(GetParam()));
  int64_t judged = 0, rows = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const JobSpec spec = MagnitudeSpec(GetParam(), random);
    const EngineInputs inputs = MagnitudeInputs(spec, random);
    const auto expected = ExpectRows(spec, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    rows += spec.tokens;
    judged += expected->judged;
    const int workers = 1 + static_cast<int>(random() % 4);
    const std::string& kernel = kernels[trial % kernels.size()];
    const auto result = RunEngine(spec, inputs, workers, RingKind::kInProcess, kernel);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Mismatch(spec, *result, *expected), "")
        << "trial " << trial << ", " << workers << " workers, " << kernel << " "
        << FormatJobSpec(spec);
  }
  EXPECT_GT(judged, rows / 2);
}

INSTANTIATE_TEST_SUITE_P(Types, Magnitudes,
                         ::testing::Values(DataType::kFloat32, DataType::kBFloat16,
                                           DataType::kFloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace hilbert_ring::testing

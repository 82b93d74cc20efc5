// Random jobs with numbers that are not finite, through every kernel and rings. Exactly those
// results are not finite that the definition's are not.
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/spec/job_spec_json.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_rows.h"
#include "tests/engine/run_engine.h"
#include "tests/random/random_spec.h"
#include "tests/support/reference_attention.h"

namespace hilbert_ring::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kOdd[] = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity};

void Spoil(std::vector<float>& numbers, int count, std::mt19937_64& random) {
  for (int i = 0; i < count; ++i) numbers[random() % numbers.size()] = kOdd[random() % 3];
}

// Never spoils both: a score of -infinity removes the weight of a value that is not finite, which a
// merged part may still show.
EngineInputs OddInputs(const JobSpec& spec, std::mt19937_64& random) {
  EngineInputs inputs = RandomInputs(spec, random());
  const int count = 1 + static_cast<int>(random() % 6);
  if (random() % 2 == 0) {
    Spoil(inputs.v, count, random);
  } else {
    Spoil(inputs.k, static_cast<int>(random() % (count + 1)), random);
    Spoil(inputs.q, count, random);
  }
  return Rounded(spec, std::move(inputs));
}

double Allowed(DataType dtype) {
  return dtype == DataType::kFloat32 ? 1e-4 : dtype == DataType::kBFloat16 ? 0.06 : 0.01;
}

std::string Difference(const std::vector<float>& found, const std::vector<double>& expected,
                       double allowed) {
  for (size_t i = 0; i < found.size(); ++i) {
    const bool alike = std::isnan(expected[i])   ? std::isnan(found[i])
                       : std::isinf(expected[i]) ? found[i] == expected[i]
                                                 : std::abs(found[i] - expected[i]) <=
                                                       allowed * (1 + std::abs(expected[i]));
    if (!alike) return absl::StrCat("number ", i, " is ", found[i], ", should be ", expected[i]);
  }
  return "";
}

class OddJobs : public ::testing::TestWithParam<DataType> {};

TEST_P(OddJobs, AreNotFiniteWhereTheDefinitionIs) {
  const std::vector<std::string> kernels = KernelsUnderTest();
  ASSERT_FALSE(kernels.empty()) << "no device for HILBERT_RING_TEST_KERNEL";
  const char* const seed = std::getenv("HILBERT_RING_RANDOM_SEED");
  const char* const jobs = std::getenv("HILBERT_RING_RANDOM_JOBS");
  std::mt19937_64 random((seed == nullptr ? 50 : std::atoi(seed)) + static_cast<int>(GetParam()));
  int64_t odd = 0, finite = 0;
  for (int trial = 0; trial < (jobs == nullptr ? 300 : std::atoi(jobs)); ++trial) {
    JobSpec spec = RandomSpec(random, {.max_tokens = 150, .max_heads = 3});
    spec.dtype = GetParam();
    const EngineInputs inputs = OddInputs(spec, random);
    const std::vector<double> q(inputs.q.begin(), inputs.q.end());
    const std::vector<double> k(inputs.k.begin(), inputs.k.end());
    const std::vector<double> v(inputs.v.begin(), inputs.v.end());
    const std::vector<double> bias(inputs.bias_coords.begin(), inputs.bias_coords.end());
    const auto expected = ReferenceAttention(spec, q, k, v, inputs.coords, bias);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const double number : expected->out) ++(std::isfinite(number) ? finite : odd);
    const int workers = 1 + static_cast<int>(random() % 5);
    const std::string& kernel = kernels[trial % kernels.size()];
    const auto result = RunEngine(spec, inputs, workers, RingKind::kInProcess, kernel);
    ASSERT_TRUE(result.ok()) << result.status();
    SCOPED_TRACE(absl::StrCat("trial ", trial, ", ", workers, " workers, ", kernel, " ",
                              FormatJobSpec(spec)));
    ASSERT_EQ(Difference(result->lse, expected->lse, 1e-3), "");
    ASSERT_EQ(Difference(result->out, expected->out, Allowed(spec.dtype)), "");
  }
  EXPECT_GT(odd, 10'000);
  EXPECT_GT(finite, 100'000);
}

INSTANTIATE_TEST_SUITE_P(Types, OddJobs,
                         ::testing::Values(DataType::kFloat32, DataType::kBFloat16,
                                           DataType::kFloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace hilbert_ring::testing

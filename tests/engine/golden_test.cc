// Every golden case in every type that holds its values: on 1 to 7 ranks with this machine's best
// kernel, and on one rank with every other kernel (at full depth on 1 to 7).
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/spec/job_spec_json.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_golden.h"
#include "tests/engine/run_engine.h"
#include "tests/golden/golden_case.h"
#include "tests/support/reference_attention.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

const std::vector<int> kSeven = {1, 2, 3, 4, 5, 6, 7};  // ranks

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

class Golden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto golden = LoadGoldenCase(GetParam());
    ASSERT_TRUE(golden.ok()) << golden.status();
    golden_ = *std::move(golden);
  }

  void Check(DataType dtype, const ExpectedRows& expected, int workers,
             const std::string& kernel = "") {
    JobSpec spec = golden_.spec;
    spec.dtype = dtype;
    const auto result = RunEngine(spec, InputsOf(golden_), workers, RingKind::kInProcess, kernel);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Mismatch(spec, *result, expected), "")
        << DataTypeName(dtype) << ", " << workers << " ranks " << kernel;
  }

  GoldenCase golden_;
};

TEST_P(Golden, ReferenceAgrees) {
  const std::vector<double> q(golden_.q.begin(), golden_.q.end());
  const std::vector<double> k(golden_.k.begin(), golden_.k.end());
  const std::vector<double> v(golden_.v.begin(), golden_.v.end());
  const std::vector<double> coords(golden_.bias_coords.begin(), golden_.bias_coords.end());
  const auto reference = ReferenceAttention(golden_.spec, q, k, v, golden_.coords, coords);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (size_t i = 0; i < golden_.out.size(); ++i) {
    if (Same(reference->out[i], golden_.out[i])) continue;
    ASSERT_NEAR(reference->out[i], golden_.out[i], 1e-6 * std::abs(golden_.out[i]) + 1e-9) << i;
  }
  for (size_t i = 0; i < golden_.lse.size(); ++i) {
    if (Same(reference->lse[i], golden_.lse[i])) continue;
    ASSERT_NEAR(reference->lse[i], golden_.lse[i], 1e-6 * (1 + std::abs(golden_.lse[i]))) << i;
  }
}

TEST_P(Golden, InProcess) {
  for (const DataType dtype : TypesThatHold(golden_)) {
    const ExpectedRows expected = ExpectGolden(golden_, dtype);
    for (const int workers : AtDepth<std::vector<int>>({1, 3, 7}, kSeven, kSeven)) {
      Check(dtype, expected, workers);
    }
  }
}

std::vector<int> RanksFor(const std::string& kernel) {
  if (DepthOfTests() != TestDepth::kAll) return {1};
  // Emulated GPU kernels take ten times as long.
  if (absl::StartsWith(kernel, "cuda/")) return {1, 3};
  return kSeven;
}

TEST_P(Golden, AllKernels) {
  const std::vector<std::string> kernels = KernelsUnderTest();
  ASSERT_FALSE(kernels.empty()) << "no device for HILBERT_RING_TEST_KERNEL";
  for (const DataType dtype : TypesThatHold(golden_)) {
    // Kernels differ most in bfloat16.
    if (DepthOfTests() == TestDepth::kFast && dtype != DataType::kBFloat16) continue;
    const auto expected = ExpectGoldenRows(golden_, dtype);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const std::string& kernel : kernels) {
      for (const int workers : RanksFor(kernel)) {
        Check(dtype, *expected, workers, kernel);
      }
    }
  }
}

std::vector<std::string> Cases() {
  const bool emulated = absl::StartsWith(KernelUnderTest(), "cuda");
  if (!emulated || DepthOfTests() == TestDepth::kAll) return GoldenCaseNames();
  const std::vector<std::string> spread = SpreadOf(GoldenCaseNames(), 8);
  std::set<std::string> cases(spread.begin(), spread.end());
  cases.insert({"alibi_causal", "alibi_coords_hilbert", "alibi_coords_last_rows", "sinks_dilated",
                "softcap_window"});
  return {cases.begin(), cases.end()};
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace hilbert_ring::testing

// Results that are merged, of many ranks or many branches, against those that are not, at scores of
// any size that float32 holds exactly: only what is lost to merging is then left.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/run_engine.h"
#include "tests/support/plain_spec.h"
#include "tests/support/reference_attention.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kTokens = 333;
constexpr int64_t kDim = 16;

// Scores of 2^bits and some eighths: keys have a dim that is 1, queries have 2^(bits + 2) there.
EngineInputs LevelScores(const JobSpec& spec, int bits) {
  EngineInputs inputs = RandomInputs(spec, 7);
  std::mt19937_64 random(11);
  for (float& x : inputs.q) x = static_cast<float>(random() % 5) - 2;
  for (float& x : inputs.k) x = (static_cast<float>(random() % 5) - 2) / 2;
  for (size_t i = 0; i < inputs.q.size(); i += kDim) inputs.q[i] = std::ldexp(1.0f, bits + 2);
  for (size_t i = 0; i < inputs.k.size(); i += kDim) inputs.k[i] = 1;
  return inputs;
}

JobSpec Spec(std::vector<Branch> branches) {
  JobSpec spec = PlainSpec({.tokens = kTokens, .dim = kDim});  // a scale of 1/4
  spec.mixing = Mixing::kLse;
  spec.branches = std::move(branches);
  return spec;
}

// The greatest error over the greatest output.
double ErrorOf(const JobSpec& spec, int bits, int ranks) {
  const EngineInputs inputs = LevelScores(spec, bits);
  const auto result = RunEngine(spec, inputs, ranks, RingKind::kInProcess);
  EXPECT_TRUE(result.ok()) << result.status();
  const std::vector<double> q(inputs.q.begin(), inputs.q.end());
  const std::vector<double> k(inputs.k.begin(), inputs.k.end());
  const std::vector<double> v(inputs.v.begin(), inputs.v.end());
  const auto expected = ReferenceAttention(spec, q, k, v, {});
  EXPECT_TRUE(expected.ok()) << expected.status();
  double error = 0, greatest = 0;
  for (size_t i = 0; i < expected->out.size(); ++i) {
    error = std::max(error, std::abs(result->out[i] - expected->out[i]));
    greatest = std::max(greatest, std::abs(expected->out[i]));
  }
  for (size_t i = 0; i < expected->lse.size(); ++i) {
    EXPECT_NEAR(result->lse[i], expected->lse[i], 0x1p-23 * (8 + std::abs(expected->lse[i])));
  }
  return error / greatest;
}

// An element is rounded once a merge: half of a last bit each.
double Merges(int merges) { return 0x1p-24 * merges; }

TEST(MergedAccuracy, ManyRanksAreAsGoodAsOneAtAnyScore) {
  const JobSpec spec = Spec({{kTokens, 1}});
  for (const int bits : {0, 6, 10, 14, 20}) {
    const double one = ErrorOf(spec, bits, 1);
    const double eight = ErrorOf(spec, bits, 8);
    printf("scores of 2^%d: error %.1e on one rank, %.1e on eight\n", bits, one, eight);
    EXPECT_LE(one, 1e-6) << bits;
    EXPECT_LE(eight, 2 * one + Merges(8)) << bits;
  }
}

TEST(MergedAccuracy, ManyBranchesAreAsGoodAsOneAtAnyScore) {
  for (const int bits : {0, 6, 10, 14, 20}) {
    for (const int ranks : {1, 5}) {
      const double one = ErrorOf(Spec({{kTokens, 1}}), bits, 1);
      const double mixed = ErrorOf(Spec({{kTokens, 1}, {100, 1}, {200, 2}}), bits, ranks);
      printf("scores of 2^%d, three branches, %d ranks: error %.1e, of one branch %.1e\n", bits,
             ranks, mixed, one);
      EXPECT_LE(mixed, 2 * one + Merges(3 + ranks)) << bits;
    }
  }
}

}  // namespace
}  // namespace hilbert_ring::testing

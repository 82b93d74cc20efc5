// Random jobs with an odd number, through every CPU kernel and rings: rows that do not see it keep
// their bits.
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "engine/order/permutation.h"
#include "engine/reference/seen_keys.h"
#include "engine/spec/job_spec_json.h"
#include "gtest/gtest.h"
#include "tests/engine/expected_rows.h"
#include "tests/engine/run_engine.h"
#include "tests/random/random_spec.h"
#include "tests/support/test_depth.h"

namespace hilbert_ring::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kOdd[] = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, 1e38f,
                          -3.3e38f};

enum class Tensor { kQ, kK, kV };

struct OddNumber {
  Tensor tensor = Tensor::kQ;
  int64_t token = 0, head = 0;  // of K and V: kv head
  int64_t dim = 0;
  float value = 0;
};

// Ordinary sizes, and sizes whose products with weights are at the ends of float32.
double Size(DataType dtype, std::mt19937_64& random) {
  if (dtype == DataType::kFloat16) return random() % 2 == 0 ? 1.0 : 0x1p-13;
  constexpr double kSizes[] = {1, 1e-38, 1e-41, 1e-30, 1e30, 1e37};
  return kSizes[random() % std::size(kSizes)];
}

EngineInputs Inputs(const JobSpec& spec, std::mt19937_64& random) {
  EngineInputs inputs = RandomInputs(spec, random());
  const double of_values = Size(spec.dtype, random);
  for (float& value : inputs.v) value = static_cast<float>(value * of_values);
  const double of_queries = std::ldexp(1.0, static_cast<int>(random() % 10) - 6);
  for (float& value : inputs.q) value = static_cast<float>(value * of_queries);
  return Rounded(spec, std::move(inputs));
}

OddNumber RandomOdd(const JobSpec& spec, std::mt19937_64& random) {
  const auto below = [&](int64_t end) {
    return std::uniform_int_distribution<int64_t>(0, end - 1)(random);
  };
  OddNumber odd{.tensor = static_cast<Tensor>(random() % 3),
                .token = below(spec.tokens),
                .value = kOdd[random() % std::size(kOdd)]};
  odd.head = below(odd.tensor == Tensor::kQ ? spec.heads : spec.kv_heads);
  odd.dim = below(odd.tensor == Tensor::kV ? spec.value_dim : spec.head_dim);
  return odd;
}

void Place(const JobSpec& spec, const OddNumber& odd, EngineInputs& inputs) {
  std::vector<float>& rows = odd.tensor == Tensor::kQ   ? inputs.q
                             : odd.tensor == Tensor::kK ? inputs.k
                                                        : inputs.v;
  const int64_t heads = odd.tensor == Tensor::kQ ? spec.heads : spec.kv_heads;
  const int64_t dim = odd.tensor == Tensor::kV ? spec.value_dim : spec.head_dim;
  rows[(odd.token * heads + odd.head) * dim + odd.dim] = odd.value;
}

bool SeesIt(const JobSpec& spec, const Permutation& order, const OddNumber& odd, int64_t token,
            int64_t head) {
  if (odd.tensor == Tensor::kQ) return token == odd.token && head == odd.head;
  if (head * spec.kv_heads / spec.heads != odd.head) return false;
  const SeenKeys seen(spec, order, token);
  bool sees = false;
  for (const int64_t branch : BranchesOf(spec, head)) {
    seen.Visit(branch, head, [&](int64_t key) { sees = sees || key == odd.token; });
  }
  return sees;
}

bool SameBits(const std::vector<float>& one, const std::vector<float>& other, int64_t first,
              int64_t count) {
  for (int64_t i = first; i < first + count; ++i) {
    if (std::bit_cast<uint32_t>(one[i]) != std::bit_cast<uint32_t>(other[i])) return false;
  }
  return true;
}

class UntouchedRows : public ::testing::TestWithParam<DataType> {};

TEST_P(UntouchedRows, HaveTheBitsThatTheyHaveWithoutIt) {
  std::mt19937_64 random(70 + static_cast<int>(GetParam()));
  int64_t untouched = 0, changed = 0, runs = 0;
  for (int trial = 0; trial < AtDepth(120, 250, 250); ++trial) {
    JobSpec spec = RandomSpec(random, {.max_tokens = 200, .max_heads = 4});
    spec.dtype = GetParam();
    const EngineInputs inputs = Inputs(spec, random);
    const OddNumber odd = RandomOdd(spec, random);
    EngineInputs with_it = inputs;
    Place(spec, odd, with_it);
    with_it = Rounded(spec, std::move(with_it));
    const auto order = Permutation::Make(spec, inputs.coords);
    ASSERT_TRUE(order.ok()) << order.status();
    std::set<std::pair<int64_t, int64_t>> seeing;
    for (int64_t token = 0; token < spec.tokens; ++token) {
      for (int64_t head = 0; head < spec.heads; ++head) {
        if (SeesIt(spec, **order, odd, token, head)) seeing.insert({token, head});
      }
    }
    const int workers = 1 + static_cast<int>(random() % 4);
    for (const std::string& kernel : KernelsUnderTest()) {
      if (absl::StartsWith(kernel, "cuda")) continue;  // a GPU computes odd tiles by another kernel
      SCOPED_TRACE(::testing::Message()
                   << "trial " << trial << ", " << workers << " workers, " << kernel << ", "
                   << static_cast<int>(odd.tensor) << " of " << odd.token << " is " << odd.value
                   << ": " << FormatJobSpec(spec));
      ++runs;
      const auto before = RunEngine(spec, inputs, workers, RingKind::kInProcess, kernel);
      ASSERT_TRUE(before.ok()) << before.status();
      const auto after = RunEngine(spec, with_it, workers, RingKind::kInProcess, kernel);
      ASSERT_TRUE(after.ok()) << after.status();
      for (int64_t token = 0; token < spec.tokens; ++token) {
        for (int64_t head = 0; head < spec.heads; ++head) {
          const int64_t row = token * spec.heads + head;
          const bool same =
              SameBits(before->out, after->out, row * spec.value_dim, spec.value_dim) &&
              SameBits(before->lse, after->lse, row, 1);
          if (seeing.contains({token, head})) {
            changed += same ? 0 : 1;
            continue;
          }
          ++untouched;
          ASSERT_TRUE(same) << "token " << token << ", head " << head << ": lse "
                            << before->lse[row] << ", " << after->lse[row] << ", out "
                            << before->out[row * spec.value_dim] << ", "
                            << after->out[row * spec.value_dim];
        }
      }
    }
  }
  EXPECT_GT(untouched, 67 * runs);
  EXPECT_GT(changed, 7 * runs);
}

INSTANTIATE_TEST_SUITE_P(Types, UntouchedRows,
                         ::testing::Values(DataType::kFloat32, DataType::kBFloat16,
                                           DataType::kFloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace hilbert_ring::testing

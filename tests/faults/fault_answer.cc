#include "tests/faults/fault_answer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/reference/sample_tokens.h"
#include "tests/engine/expected_rows.h"

namespace hilbert_ring::testing {
namespace {

constexpr int64_t kSampledRows = 16;

class ByDefinition final : public FaultAnswer {
 public:
  ByDefinition(const JobSpec& spec, ExpectedRows expected)
      : spec_(spec), expected_(std::move(expected)) {}
  std::string Mismatch(const EngineResult& result) const override {
    return testing::Mismatch(spec_, result, expected_);
  }

 private:
  const JobSpec spec_;
  const ExpectedRows expected_;
};

class OfRings final : public FaultAnswer {
 public:
  OfRings(const JobSpec& spec, EngineInputs inputs, EngineResult undisturbed,
          std::vector<int> other_rings)
      : spec_(spec), inputs_(std::move(inputs)), other_rings_(std::move(other_rings)) {
    results_.push_back(std::move(undisturbed));
  }

  std::string Mismatch(const EngineResult& result) const override {
    std::lock_guard lock(mutex_);
    const std::string out =
        Mismatch("OUT", result, &EngineResult::out, spec_.heads * spec_.value_dim);
    return out.empty() ? Mismatch("LSE", result, &EngineResult::lse, spec_.heads) : out;
  }

 private:
  // Under mutex_. Rows of OUT and LSE leave one by one: those of one token may be of two rings.
  std::string Mismatch(const char* tensor, const EngineResult& result,
                       std::vector<float> EngineResult::*rows, int64_t width) const {
    std::vector<int64_t> others(spec_.tokens);  // tokens whose rows are of none of the results yet
    std::iota(others.begin(), others.end(), 0);
    for (size_t i = 0;; ++i) {
      if (i == results_.size()) {
        if (i > other_rings_.size()) break;
        auto other = RunEngine(spec_, inputs_, other_rings_[i - 1], RingKind::kInProcess);
        if (!other.ok()) return other.status().ToString();
        results_.push_back(*std::move(other));
      }
      std::erase_if(others, [&](int64_t token) {
        const auto row = (result.*rows).begin() + token * width;
        return std::equal(row, row + width, (results_[i].*rows).begin() + token * width);
      });
      if (others.empty()) return "";
    }
    return absl::StrCat(others.size(), " rows of ", tensor, " are of no ring, the first of token ",
                        others[0]);
  }

  const JobSpec spec_;
  const EngineInputs inputs_;
  const std::vector<int> other_rings_;
  mutable std::mutex mutex_;
  // Guarded by mutex_: the undisturbed one, then those of other_rings_ that were asked for.
  mutable std::vector<EngineResult> results_;
};

class OfZeros final : public FaultAnswer {
 public:
  std::string Mismatch(const EngineResult& result) const override {
    for (size_t i = 0; i < result.out.size(); ++i) {
      if (result.out[i] != 0) return absl::StrCat("out[", i, "] is ", result.out[i]);
    }
    for (size_t i = 0; i < result.lse.size(); ++i) {
      if (!std::isfinite(result.lse[i])) return absl::StrCat("lse[", i, "] is ", result.lse[i]);
    }
    return "";
  }
};

}  // namespace

absl::StatusOr<std::shared_ptr<const FaultAnswer>> AnswerByDefinition(const JobSpec& spec,
                                                                      const EngineInputs& inputs) {
  auto expected = ExpectRows(spec, inputs);
  if (!expected.ok()) return expected.status();
  return std::make_shared<ByDefinition>(spec, *std::move(expected));
}

absl::StatusOr<std::shared_ptr<const FaultAnswer>> AnswerOfRings(const JobSpec& spec,
                                                                 EngineInputs inputs,
                                                                 EngineResult undisturbed,
                                                                 std::vector<int> other_rings) {
  const auto drawn = ExpectRows(spec, inputs, SampleTokens(spec.tokens, kSampledRows, 1));
  if (!drawn.ok()) return drawn.status();
  if (std::string off = Mismatch(spec, undisturbed, *drawn); !off.empty()) {
    return absl::DataLossError(absl::StrCat("undisturbed, ", off));
  }
  return std::make_shared<OfRings>(spec, std::move(inputs), std::move(undisturbed),
                                   std::move(other_rings));
}

std::shared_ptr<const FaultAnswer> AnswerOfZeros() { return std::make_shared<OfZeros>(); }

}  // namespace hilbert_ring::testing

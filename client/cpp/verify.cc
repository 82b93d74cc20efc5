#include "client/cpp/verify.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "engine/base/return_if_error.h"
#include "engine/order/permutation.h"
#include "engine/reference/sample_tokens.h"
#include "engine/spec/numbers.h"

namespace hilbert_ring::client {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Numbers [tokens, width] of Q, K, V, OUT or LSE; 16-bit integers hold bfloat16.
class NpyRows : public RowSource {
 public:
  explicit NpyRows(const NpyFile& file) : file_(file), width_(1) {
    for (size_t axis = 1; axis < file.shape().size(); ++axis) width_ *= file.shape()[axis];
  }

  int64_t width() const { return width_; }

  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    const int64_t index = token * width_ + first;
    const std::byte* const from = file_.data() + index * wire::NpyItemBytes(file_.type());
    switch (file_.type()) {
      case wire::NpyType::kFloat64:
        std::memcpy(values.data(), from, values.size_bytes());
        break;
      case wire::NpyType::kFloat32:
        return LoadElements(DataType::kFloat32, from, values);
      case wire::NpyType::kFloat16:
        return LoadElements(DataType::kFloat16, from, values);
      default:
        return LoadElements(DataType::kBFloat16, from, values);
    }
  }

 private:
  const NpyFile& file_;
  int64_t width_;
};

// A uniform sample of rows with values that are not finite.
class OddRows {
 public:
  OddRows(int64_t most, uint64_t seed) : most_(most), random_(seed) {}

  void Add(int64_t token) {
    ++seen_;
    if (static_cast<int64_t>(drawn_.size()) < most_) {
      drawn_.push_back(token);
      return;
    }
    const uint64_t place = random_() % static_cast<uint64_t>(seen_);
    if (place < drawn_.size()) drawn_[place] = token;
  }

  const std::vector<int64_t>& drawn() const { return drawn_; }

 private:
  const int64_t most_;
  std::mt19937_64 random_;
  int64_t seen_ = 0;
  std::vector<int64_t> drawn_;
};

// Reads the whole file in blocks, and releases the memory of each.
void CountNotFinite(const NpyFile& file, double allowed, VerifyFigures& figures, OddRows& odd) {
  const NpyRows rows(file);
  const int64_t tokens = file.shape()[0];
  const int64_t row_bytes = rows.width() * wire::NpyItemBytes(file.type());
  std::vector<double> row(static_cast<size_t>(rows.width()));
  for (int64_t token = 0; token < tokens; ++token) {
    rows.Read(token, 0, row);
    const auto count = std::ranges::count_if(
        row, [&](double value) { return !std::isfinite(value) && value != allowed; });
    if (count > 0) {
      if (figures.not_finite == 0) figures.first_not_finite_token = token;
      figures.not_finite += count;
      odd.Add(token);
    }
    constexpr int64_t kBlockBytes = 8 << 20;
    if ((token + 1) * row_bytes / kBlockBytes != token * row_bytes / kBlockBytes) {
      file.Release(std::max<int64_t>(0, token * row_bytes - kBlockBytes), token * row_bytes);
    }
  }
}

void Merge(const RowDeviation& row, VerifyFigures& whole) {
  whole.max_error = std::max(whole.max_error, row.max_error);
  if (row.worst.token < 0) return;
  if (whole.worst.token < 0 || row.worst.excess > whole.worst.excess) whole.worst = row.worst;
}

struct CheckedRow {
  RowDeviation out, lse;
  bool judged = false;
};

CheckedRow CheckRow(const VerifyInputs& inputs, const Permutation& order, int64_t token) {
  const JobSpec& spec = inputs.spec;
  std::optional<NpyRows> coordinates;
  if (inputs.bias_coordinates != nullptr) coordinates.emplace(*inputs.bias_coordinates);
  const ExpectedRow expected = ExpectRow(spec, order, token, NpyRows(inputs.q), NpyRows(inputs.k),
                                         NpyRows(inputs.v), coordinates ? &*coordinates : nullptr);
  std::vector<double> actual(static_cast<size_t>(spec.heads * spec.value_dim));
  NpyRows(inputs.out).Read(token, 0, actual);
  CheckedRow row{.out = OutDeviation(spec, token, expected, actual),
                 .judged = expected.tolerance.AllJudged()};
  if (inputs.lse == nullptr) return row;
  actual.resize(static_cast<size_t>(spec.heads));
  NpyRows(*inputs.lse).Read(token, 0, actual);
  row.lse = LseDeviation(token, expected, actual);
  return row;
}

}  // namespace

absl::StatusOr<VerifyResult> Verify(const VerifyInputs& inputs, const VerifyOptions& options) {
  std::vector<int64_t> coords;
  if (inputs.coordinates != nullptr) coords = inputs.coordinates->All();
  ASSIGN_OR_RETURN(const std::shared_ptr<const Permutation> order,
                   Permutation::Make(inputs.spec, coords));

  VerifyResult result;
  if (inputs.lse != nullptr) result.lse.emplace();
  OddRows odd(options.rows, options.seed);
  CountNotFinite(inputs.out, 0, result.out, odd);  // 0 is finite: every other value counts
  if (inputs.lse != nullptr) CountNotFinite(*inputs.lse, -kInfinity, *result.lse, odd);

  std::vector<int64_t> sample = SampleTokens(inputs.spec.tokens, options.rows, options.seed);
  sample.insert(sample.end(), odd.drawn().begin(), odd.drawn().end());
  std::ranges::sort(sample);
  sample.erase(std::unique(sample.begin(), sample.end()), sample.end());
  std::vector<CheckedRow> rows(sample.size());
  std::atomic<size_t> next = 0;
  const auto check_rows = [&] {
    for (size_t i = next++; i < sample.size(); i = next++) {
      rows[i] = CheckRow(inputs, *order, sample[i]);
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(std::max(options.threads, 1)));
    for (int i = 1; i < options.threads; ++i) threads.emplace_back(check_rows);
    check_rows();
  }

  for (const CheckedRow& row : rows) {
    row.judged ? ++result.rows : ++result.not_judged;
    Merge(row.out, result.out);
    if (result.lse) Merge(row.lse, *result.lse);
  }
  return result;
}

}  // namespace hilbert_ring::client

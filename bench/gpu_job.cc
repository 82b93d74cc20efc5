#include "bench/gpu_job.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>

#include "bench/or_fail.h"
#include "engine/order/permutation.h"
#include "engine/reference/attention_reference.h"
#include "engine/spec/numbers.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring::bench {
namespace {

constexpr int64_t kValues = 262'139;
constexpr int64_t kRepeats = 32;       // copies of the numbers on the device
constexpr int64_t kCheckedTokens = 4;  // compared with float64

std::vector<float> JobNumbers() {
  std::mt19937_64 random(3);
  std::vector<float> numbers = testing::RandomValues(kValues, random);
  for (float& number : numbers) {
    const uint16_t stored = FloatToBFloat16(number);
    number = static_cast<float>(LoadElement(DataType::kBFloat16, &stored, 0));
  }
  return numbers;
}

class Numbers : public RowSource {
 public:
  Numbers(const std::vector<float>& numbers, int64_t row_elements)
      : numbers_(numbers), row_elements_(row_elements) {}

  void Read(int64_t token, int64_t first, std::span<double> values) const override {
    const int64_t at = token * row_elements_ + first;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = numbers_[(at + static_cast<int64_t>(i)) % kValues];
    }
  }

 private:
  const std::vector<float>& numbers_;
  const int64_t row_elements_;
};

}  // namespace

Job::Job(Device& device, const JobSpec& spec)
    : device_(device),
      plan_(OrFail(MakePlan(spec, 1))),
      numbers_(JobNumbers()),
      store_(OrFail(ShardStore::Make(device, plan_, 0))) {
  std::vector<uint16_t> piece(kValues * kRepeats);
  for (size_t i = 0; i < piece.size(); ++i) piece[i] = FloatToBFloat16(numbers_[i % kValues]);
  const auto piece_bytes = static_cast<int64_t>(piece.size() * sizeof(uint16_t));
  for (const TensorKind kind : {TensorKind::kQ, TensorKind::kK, TensorKind::kV}) {
    const int64_t bytes = store_->rows(kind) * RowBytes(plan_.spec, kind);
    for (int64_t at = 0; at < bytes; at += piece_bytes) {
      OrFail(device.CopyIn(store_->Row(kind, 0) + at, piece.data(),
                           std::min(piece_bytes, bytes - at)));
    }
  }
}

Figures Job::Run() { return OrFail(Execute(plan_, 0, *store_, device_, nullptr, 1, {})); }

int64_t Job::key_bytes() const {
  int64_t bytes = 0;
  for (const TensorKind kind : {TensorKind::kK, TensorKind::kV}) {
    bytes += store_->rows(kind) * RowBytes(plan_.spec, kind);
  }
  return bytes;
}

double Job::Error() const {
  const JobSpec& spec = plan_.spec;
  const auto order = OrFail(Permutation::Make(spec, {}));
  const int64_t width = spec.heads * spec.value_dim;
  const Numbers queries(numbers_, spec.heads * spec.head_dim);
  const Numbers keys(numbers_, spec.kv_heads * spec.head_dim);
  const Numbers values(numbers_, spec.kv_heads * spec.value_dim);
  double wrong = 0, right = 0;
  for (int64_t n = 0; n < kCheckedTokens; ++n) {
    // Includes rows that a dilation of 4 does not select.
    const int64_t token =
        std::min(spec.tokens - 1, (2 * n + 1) * spec.tokens / (2 * kCheckedTokens) + n);
    const ReferenceRow expected = ReferenceAttentionRow(spec, *order, token, queries, keys, values);
    std::vector<std::byte> found(RowBytes(spec, TensorKind::kOut));
    OrFail(store_->Read(TensorKind::kOut, token, 1, found.data()));
    for (int64_t i = 0; i < width; ++i) {
      const double error = LoadElement(spec.dtype, found.data(), i) - expected.out[i];
      wrong += error * error;
      right += expected.out[i] * expected.out[i];
    }
  }
  return std::sqrt(wrong / right);
}

}  // namespace hilbert_ring::bench

#include "bench/gpu_layer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <random>

#include "bench/measure.h"
#include "bench/or_fail.h"
#include "engine/spec/numbers.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring::bench {
namespace {

constexpr int64_t kValues = 262'139;
constexpr int64_t kFirstOf = 7919;   // first number of a tensor, times its index
constexpr int64_t kRepeats = 32;     // copies of the numbers on the device
constexpr int64_t kCheckedRows = 4;  // compared with float64

std::vector<float> LayerValues() {
  std::mt19937_64 random(1);
  return testing::RandomValues(kValues, random);
}

std::vector<std::byte> Repeated(DataType dtype, const std::vector<float>& values, int64_t first) {
  const int64_t count = kValues * kRepeats;
  std::vector<std::byte> stored(count * ElementBytes(dtype));
  for (int64_t i = 0; i < count; ++i) {
    StoreElement(dtype, stored.data(), i, values[(first + i) % kValues]);
  }
  return stored;
}

struct Piece {
  const std::vector<float>& numbers;
  int64_t at;

  float operator[](int64_t x) const {
    const int64_t i = at + x;
    return numbers[i < kValues ? i : i - kValues];
  }
};

}  // namespace

Timed Measure(const Timing& timing, const std::function<void()>& work) {
  const Timed first{.first = SecondsOf(work)};
  double warm = first.first;
  for (int round = 1; round < timing.warm_rounds || warm < timing.warm_seconds; ++round) {
    warm += SecondsOf(work);
  }
  std::vector<double> seconds(timing.rounds);
  for (double& round : seconds) round = SecondsOf(work);
  std::nth_element(seconds.begin(), seconds.begin() + timing.rounds / 2, seconds.end());
  return {.first = first.first, .median = seconds[timing.rounds / 2]};
}

bool WriteLayerValues(const std::string& path) {
  const std::vector<float> values = LayerValues();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  return static_cast<bool>(file.flush());
}

double MostError(DataType dtype) {
  return dtype == DataType::kFloat32 ? 1e-5 : dtype == DataType::kBFloat16 ? 1e-2 : 1.25e-3;
}

int64_t Pattern::Begin(int64_t row) const { return row <= left ? 0 : row - left; }

int64_t Pattern::End(int64_t row, int64_t rows) const {
  return mask == Mask::kDiagonal ? row + 1 : rows;
}

Layer::Layer(Device& device, DataType dtype, int64_t rows, int64_t dim, const Pattern& pattern)
    : device_(device), dtype_(dtype), rows_(rows), dim_(dim), pattern_(pattern) {
  const int64_t elements = rows * pattern.dilation * kLayerHeads * dim;
  const int64_t element = ElementBytes(dtype);
  const std::vector<float> values = LayerValues();
  for (int t = 0; t < 4; ++t) {
    buffers_[t] = OrFail(device.Allocate(elements * element));
    if (t == 3) break;
    const std::vector<std::byte> piece = Repeated(dtype, values, kFirstOf * t);
    const auto bytes = static_cast<int64_t>(piece.size());
    for (int64_t at = 0; at < elements * element; at += bytes) {
      OrFail(device.CopyIn(buffers_[t]->data() + at, piece.data(),
                           std::min(bytes, elements * element - at)));
    }
  }
  numbers_ = values;
  for (float& number : numbers_) {
    std::byte stored[sizeof(float)];
    StoreElement(dtype, stored, 0, number);
    number = static_cast<float>(LoadElement(dtype, stored, 0));
  }
  lse_ = OrFail(device.Allocate(rows * pattern.dilation * kLayerHeads * 4));
  const int64_t row_stride = pattern.dilation * kLayerHeads * dim;
  for (int64_t head = 0; head < kLayerHeads; ++head) {
    AttentionTask task;
    const auto data = [&](int t) { return buffers_[t]->data() + head * dim * element; };
    task.dtype = task.out_dtype = dtype;
    task.query_rows = task.key_rows = rows;
    task.head_dim = task.value_dim = dim;
    task.q = {data(0), 0, row_stride, dim};
    task.k = {data(1), 0, row_stride, dim};
    task.v = {data(2), 0, row_stride, dim};
    task.out = {data(3), 0, row_stride, dim};
    task.lse = {reinterpret_cast<float*>(lse_->data()) + head, 0, pattern.dilation * kLayerHeads,
                1};
    task.scale = Scale();
    task.mask = pattern.mask;
    task.left = pattern.left;
    tasks_.push_back(task);
  }
}

double Layer::Rate(const Timing& timing) {
  double scores = 0;
  for (int64_t row = 0; row < rows_; ++row) {
    scores += static_cast<double>(pattern_.End(row, rows_) - pattern_.Begin(row));
  }
  const double seconds =
      Measure(timing, [&] { OrFail(device_.Attend(tasks_, {}).status()); }).median;
  return 4e-12 * static_cast<double>(dim_ * kLayerHeads) * scores / seconds;
}

double Layer::Error() {
  const int64_t stride = pattern_.dilation * kLayerHeads * dim_;
  const float scale = Scale();
  double wrong = 0, right = 0;
  for (int64_t n = 0; n < kCheckedRows; ++n) {
    const int64_t row = (2 * n + 1) * rows_ / (2 * kCheckedRows);
    const int64_t head = (2 * n + 1) % kLayerHeads;
    const auto piece = [&](int t, int64_t of) {
      return Piece{numbers_, (of * stride + head * dim_ + kFirstOf * t) % kValues};
    };
    std::vector<std::byte> found(dim_ * ElementBytes(dtype_));
    OrFail(device_.CopyOut(
        found.data(), buffers_[3]->data() + (row * stride + head * dim_) * ElementBytes(dtype_),
        static_cast<int64_t>(found.size())));
    const int64_t begin = pattern_.Begin(row), keys = pattern_.End(row, rows_) - begin;
    std::vector<double> scores(keys), expected(dim_);
    double most = -INFINITY, sum = 0;
    const Piece query = piece(0, row);
    for (int64_t j = 0; j < keys; ++j) {
      const Piece key = piece(1, begin + j);
      for (int64_t x = 0; x < dim_; ++x) scores[j] += double{query[x]} * key[x];
      scores[j] *= scale;
      most = std::max(most, scores[j]);
    }
    for (int64_t j = 0; j < keys; ++j) {
      const double weight = std::exp(scores[j] - most);
      sum += weight;
      const Piece value = piece(2, begin + j);
      for (int64_t x = 0; x < dim_; ++x) expected[x] += weight * value[x];
    }
    for (int64_t x = 0; x < dim_; ++x) {
      const double error = LoadElement(dtype_, found.data(), x) - expected[x] / sum;
      wrong += error * error;
      right += expected[x] / sum * expected[x] / sum;
    }
  }
  return std::sqrt(wrong / right);
}

float Layer::Scale() const { return 1.0f / std::sqrt(static_cast<float>(dim_)); }

}  // namespace hilbert_ring::bench

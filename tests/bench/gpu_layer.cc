#include "tests/bench/gpu_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "engine/spec/numbers.h"
#include "tests/bench/measure.h"
#include "tests/bench/or_fail.h"
#include "tests/random/random_spec.h"

namespace hilbert_ring::bench {
namespace {

constexpr int64_t kCheckedRows = 4;  // against float64

std::vector<float> LayerValues() {
  std::mt19937_64 random(1);
  return testing::RandomValues(262'139, random);
}

std::vector<std::byte> Stored(DataType dtype, const std::vector<float>& values) {
  std::vector<std::byte> stored(values.size() * ElementBytes(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement(dtype, stored.data(), static_cast<int64_t>(i), values[i]);
  }
  return stored;
}

// Fills `to` with `values` over and over, from byte `first` of them on.
void Repeat(const std::vector<std::byte>& values, size_t first, std::vector<std::byte>& to) {
  for (size_t at = 0; at < to.size();) {
    const size_t bytes = std::min(values.size() - first, to.size() - at);
    std::memcpy(to.data() + at, values.data() + first, bytes);
    at += bytes;
    first = 0;
  }
}

}  // namespace

bool WriteLayerValues(const std::string& path) {
  const std::vector<float> values = LayerValues();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  return static_cast<bool>(file.flush());
}

Layer::Layer(Device& device, DataType dtype, int64_t rows, int64_t dim, const Pattern& pattern)
    : device_(device), dtype_(dtype), rows_(rows), dim_(dim), pattern_(pattern) {
  const int64_t elements = rows * pattern.dilation * kLayerHeads * dim;
  const int64_t element = ElementBytes(dtype);
  const std::vector<std::byte> values = Stored(dtype, LayerValues());
  for (int t = 0; t < 4; ++t) {
    buffers_[t] = OrFail(device.Allocate(elements * element));
    if (t == 3) break;
    numbers_[t].resize(elements * element);
    Repeat(values, 7919 * t * element, numbers_[t]);
    OrFail(device.CopyIn(buffers_[t]->data(), numbers_[t].data(), elements * element));
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
    tasks_.push_back(task);
  }
}

double Layer::Measure(int rounds) {
  const double rows = static_cast<double>(rows_);
  const double scores = pattern_.mask == Mask::kDiagonal ? rows * (rows + 1) / 2 : rows * rows;
  double best = 0;
  for (int round = 0; round <= rounds; ++round) {
    const double seconds = SecondsOf([&] { OrFail(device_.Attend(tasks_, {}).status()); });
    if (round > 0) {
      best = std::max(best, 4e-12 * static_cast<double>(dim_ * kLayerHeads) * scores / seconds);
    }
  }
  return best;
}

double Layer::Error() {
  const int64_t stride = pattern_.dilation * kLayerHeads * dim_;
  const int64_t element = ElementBytes(dtype_);
  const float scale = Scale();
  double wrong = 0, right = 0;
  for (int64_t n = 0; n < kCheckedRows; ++n) {
    const int64_t row = (2 * n + 1) * rows_ / (2 * kCheckedRows);
    std::vector<std::byte> found(dim_ * element);
    OrFail(device_.CopyOut(found.data(), buffers_[3]->data() + row * stride * element,
                           dim_ * element));
    const int64_t keys = pattern_.mask == Mask::kDiagonal ? row + 1 : rows_;
    std::vector<double> scores(keys), expected(dim_);
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      for (int64_t x = 0; x < dim_; ++x) {
        scores[j] += double{LoadElement(dtype_, numbers_[0].data(), row * stride + x)} *
                     LoadElement(dtype_, numbers_[1].data(), j * stride + x);
      }
      scores[j] *= scale;
      most = std::max(most, scores[j]);
    }
    for (int64_t j = 0; j < keys; ++j) {
      const double weight = std::exp(scores[j] - most);
      sum += weight;
      for (int64_t x = 0; x < dim_; ++x) {
        expected[x] += weight * LoadElement(dtype_, numbers_[2].data(), j * stride + x);
      }
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

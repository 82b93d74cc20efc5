// One layer of attention on a device, for gpu_bench: its data, its speed and its error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"

namespace hilbert_ring::bench {

inline constexpr int64_t kLayerHeads = 8;

struct Pattern {
  const char* name;
  int64_t dilation;
  Mask mask;
};

// Writes the numbers that layers are made of to a file, as little-endian float32: element i of
// tensor t (0 Q, 1 K, 2 V) of a layer is number (i + 7919 * t) % their count, rounded to the type.
bool WriteLayerValues(const std::string& path);

// Q, K, V, out [rows * dilation, kLayerHeads, dim] and lse. What fails throws (or_fail.h).
class Layer {
 public:
  Layer(Device& device, DataType dtype, int64_t rows, int64_t dim, const Pattern& pattern);

  // TFLOP/s of the best of `rounds` after one to warm up. Scores above the diagonal do not count.
  double Measure(int rounds);

  // Root mean square error of a few rows of the first head, over that of float64's values.
  double Error();

 private:
  float Scale() const;

  Device& device_;
  const DataType dtype_;
  const int64_t rows_, dim_;
  const Pattern pattern_;
  std::unique_ptr<Buffer> buffers_[4];
  std::unique_ptr<Buffer> lse_;
  std::vector<std::byte> numbers_[3];
  std::vector<AttentionTask> tasks_;
};

}  // namespace hilbert_ring::bench

// gpu_bench's layer of attention on one device: data, speed and error.
#pragma once

#include <cstdint>
#include <functional>
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
  int64_t left = kUnbounded;  // AttentionTask::left

  // The first key that a row sees, and the key after its last, of `rows`.
  int64_t Begin(int64_t row) const;
  int64_t End(int64_t row, int64_t rows) const;
};

// Work is repeated for warm_seconds and warm_rounds or more, then `rounds` times: the median
// counts.
struct Timing {
  double warm_seconds = 0.2;
  int warm_rounds = 1;
  int rounds = 9;
};

// Seconds of the first warm-up round, and the median of the rounds after the warm-up.
struct Timed {
  double first = 0;
  double median = 0;
};
Timed Measure(const Timing& timing, const std::function<void()>& work);

// Writes the numbers of layers as little-endian float32. Element i of tensor t (0 Q, 1 K, 2 V) is
// number (i + 7919 * t) % their count, rounded to the type.
bool WriteLayerValues(const std::string& path);

// The greatest Layer::Error of a correct result: four times that of emulated kernels.
double MostError(DataType dtype);

// Q, K, V, out [rows * dilation, kLayerHeads, dim] and lse. Failures throw (or_fail.h).
class Layer {
 public:
  Layer(Device& device, DataType dtype, int64_t rows, int64_t dim, const Pattern& pattern);

  double Rate(const Timing& timing);  // TFLOP/s, without hidden scores

  // Root mean square error of a few rows of several heads, relative to float64's values.
  double Error();

 private:
  float Scale() const;

  Device& device_;
  const DataType dtype_;
  const int64_t rows_, dim_;
  const Pattern pattern_;
  std::unique_ptr<Buffer> buffers_[4];
  std::unique_ptr<Buffer> lse_;
  std::vector<float> numbers_;  // rounded to the type
  std::vector<AttentionTask> tasks_;
};

}  // namespace hilbert_ring::bench

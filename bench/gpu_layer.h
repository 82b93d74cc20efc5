// One layer of attention on a device, for gpu_bench: its data, its speed and its error.
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
};

// How long work is measured: it is done over and over until `warm_seconds` have gone by,
// `warm_rounds` times at least, then `rounds` times, of which the median counts.
struct Timing {
  double warm_seconds = 0.2;
  int warm_rounds = 1;
  int rounds = 9;
};

// Seconds of the first round and the median of those after the warm-up.
struct Timed {
  double first = 0;
  double median = 0;
};
Timed Measure(const Timing& timing, const std::function<void()>& work);

// Writes the numbers that layers are made of to a file, as little-endian float32: element i of
// tensor t (0 Q, 1 K, 2 V) of a layer is number (i + 7919 * t) % their count, rounded to the type.
bool WriteLayerValues(const std::string& path);

// The greatest Layer::Error of a right result: four times what emulated kernels have.
double MostError(DataType dtype);

// Q, K, V, out [rows * dilation, kLayerHeads, dim] and lse. What fails throws (or_fail.h).
class Layer {
 public:
  Layer(Device& device, DataType dtype, int64_t rows, int64_t dim, const Pattern& pattern);

  // TFLOP/s. Scores above the diagonal do not count.
  double Rate(const Timing& timing);

  // Root mean square error of a few rows of several heads, over that of float64's values.
  double Error();

 private:
  float Scale() const;

  Device& device_;
  const DataType dtype_;
  const int64_t rows_, dim_;
  const Pattern pattern_;
  std::unique_ptr<Buffer> buffers_[4];
  std::unique_ptr<Buffer> lse_;
  std::vector<float> numbers_;  // as the type holds them
  std::vector<AttentionTask> tasks_;
};

}  // namespace hilbert_ring::bench

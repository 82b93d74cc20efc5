// How far computed rows are from their reference, and how far they may be.
#pragma once

#include <cstdint>
#include <span>

#include "engine/reference/attention_reference.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

// One number, and how far it is off.
struct Deviation {
  int64_t token = -1;
  int64_t head = 0;
  int64_t dim = 0;  // of OUT
  double actual = 0;
  double expected = 0;
  double error = 0;
  double tolerance = 0;
  double excess = 0;  // error / tolerance; above 1: off
};

struct RowDeviation {
  double max_error = 0;
  Deviation worst;  // by excess
};

// actual [heads, value_dim] and [heads]. NaN is off without bound, equal infinities are not off.
RowDeviation OutDeviation(const JobSpec& spec, int64_t token, const ReferenceRow& expected,
                          std::span<const double> actual);
RowDeviation LseDeviation(int64_t token, const ReferenceRow& expected,
                          std::span<const double> actual);

// What an output may be off by. The maxima are those of its row.
//   float32:  1e-5 |out| + max(2e-6, 2^-22 max|score| max|v|)
//   bfloat16: 2^-7 |out| + 2^-9 max|v|
//   float16:  2^-10 |out| + 2^-12 max|v|
double OutTolerance(DataType dtype, double out, double max_abs_score, double max_abs_value);
// 1e-5 (1 + |lse|), for any dtype.
double LseTolerance(double lse);

}  // namespace hilbert_ring

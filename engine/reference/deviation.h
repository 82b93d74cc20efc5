// How far computed rows are from their reference, against how far they may be.
#pragma once

#include <cstdint>
#include <span>

#include "engine/reference/attention_reference.h"
#include "engine/reference/row_tolerance.h"
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
  Deviation worst;  // by excess; its token is -1 where nothing was judged
};

// What a row should be, and how far off it may be.
struct ExpectedRow {
  ReferenceRow row;
  RowTolerance tolerance;
};
ExpectedRow ExpectRow(const JobSpec& spec, const Permutation& order, int64_t token,
                      const RowSource& q, const RowSource& k, const RowSource& v);

// actual [heads, value_dim] and [heads]; heads that are not judged are left out. NaN for a number
// is off without bound; NaN for NaN and equal infinities are not off.
RowDeviation OutDeviation(const JobSpec& spec, int64_t token, const ExpectedRow& expected,
                          std::span<const double> actual);
RowDeviation LseDeviation(int64_t token, const ExpectedRow& expected,
                          std::span<const double> actual);

}  // namespace hilbert_ring

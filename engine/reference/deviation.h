// The deviation of computed rows from their reference, and its tolerance.
#pragma once

#include <cstdint>
#include <span>

#include "engine/reference/attention_reference.h"
#include "engine/reference/row_tolerance.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring {

struct Deviation {
  int64_t token = -1;
  int64_t head = 0;
  int64_t dim = 0;  // in OUT
  double actual = 0;
  double expected = 0;
  double error = 0;
  double tolerance = 0;
  double excess = 0;  // error / tolerance; above 1: a failure
};

struct RowDeviation {
  double max_error = 0;
  Deviation worst;  // by excess; its token is -1 if no number was judged
};

struct ExpectedRow {
  ReferenceRow row;
  RowTolerance tolerance;
};
ExpectedRow ExpectRow(const JobSpec& spec, const Permutation& order, int64_t token,
                      const RowSource& q, const RowSource& k, const RowSource& v,
                      const RowSource* coordinates = nullptr);

// actual: [heads, value_dim] and [heads]. Skips heads that are not judged. An unexpected NaN has
// infinite error; an expected NaN or infinity has error 0.
RowDeviation OutDeviation(const JobSpec& spec, int64_t token, const ExpectedRow& expected,
                          std::span<const double> actual);
RowDeviation LseDeviation(int64_t token, const ExpectedRow& expected,
                          std::span<const double> actual);

}  // namespace hilbert_ring

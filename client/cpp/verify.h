// Checks an output against the definition: a sample of its rows is computed again in float64, and
// as many of the rows that hold numbers that are not finite, which their inputs must explain.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "client/cpp/coordinate_input.h"
#include "client/cpp/npy.h"
#include "engine/reference/deviation.h"
#include "engine/spec/job_spec.h"

namespace hilbert_ring::client {

struct VerifyInputs {
  const JobSpec& spec;
  const CoordinateInput* coordinates = nullptr;  // where the ordering has them
  const NpyFile& q;                              // as OpenTensor opens them
  const NpyFile& k;
  const NpyFile& v;
  const NpyFile& out;
  const NpyFile* lse = nullptr;  // null: not checked
};

struct VerifyOptions {
  int64_t rows = 64;  // to compute again; all when there are fewer
  uint64_t seed = 0;  // of the sample
  int threads = 1;
};

struct VerifyFigures {
  double max_error = 0;
  Deviation worst;  // by excess
  // In the whole file, not in the sample: NaN, and infinities but for an LSE of -inf.
  int64_t not_finite = 0;
  int64_t first_not_finite_token = -1;
  bool ok() const { return worst.excess <= 1; }
};

struct VerifyResult {
  int64_t rows = 0;        // computed again and judged
  int64_t not_judged = 0;  // computed again, but some head sees what is not finite
  VerifyFigures out;
  std::optional<VerifyFigures> lse;
  bool ok() const { return out.ok() && (!lse || lse->ok()); }
};

// Errors of Permutation::Make. A deviation is no error but a result that is not ok().
absl::StatusOr<VerifyResult> Verify(const VerifyInputs& inputs, const VerifyOptions& options);

}  // namespace hilbert_ring::client

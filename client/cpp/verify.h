// Checks an output against the definition. A sample of its rows is computed again in float64, and
// as many of its rows with values that are not finite. The inputs must explain these values.
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
  const CoordinateInput* coordinates = nullptr;  // if the ordering needs them
  const NpyFile* bias_coordinates = nullptr;     // if biases measure them
  const NpyFile& q;                              // from OpenTensor
  const NpyFile& k;
  const NpyFile& v;
  const NpyFile& out;
  const NpyFile* lse = nullptr;  // null: not checked
};

struct VerifyOptions {
  int64_t rows = 64;  // number to compute again; at most all
  uint64_t seed = 0;
  int threads = 1;
};

struct VerifyFigures {
  double max_error = 0;
  Deviation worst;  // by excess
  // Count in the whole file: NaN, and infinities except -inf in LSE.
  int64_t not_finite = 0;
  int64_t first_not_finite_token = -1;
  bool ok() const { return worst.excess <= 1; }
};

struct VerifyResult {
  int64_t rows = 0;        // computed again and judged
  int64_t not_judged = 0;  // computed again, but a head sees a value that is not finite
  VerifyFigures out;
  std::optional<VerifyFigures> lse;
  bool ok() const { return out.ok() && (!lse || lse->ok()); }
};

// Errors of Permutation::Make. A deviation is a result that is not ok(), not an error.
absl::StatusOr<VerifyResult> Verify(const VerifyInputs& inputs, const VerifyOptions& options);

}  // namespace hilbert_ring::client
